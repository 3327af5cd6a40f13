//! `batchmaker inspect`: how a model is cut into cells.

use std::fmt::Write as _;

use batchmaker::{CellType, Loaded, Model, ModelCell, Precision, TensorInfo};
use serde_json::{Value, json};

use crate::args::{InspectArgs, MachineArgs};
use crate::start::prepare_plainly;

/// Prints what there is to know of the models.
pub(crate) fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    let paths = std::slice::from_ref(&args.model);
    let loaded = prepare_plainly(paths, &MachineArgs::default(), &args.cells)?.loaded;
    for model in &loaded.models {
        if args.json {
            println!("{}", as_json(model, &loaded));
        } else {
            print!("{}", as_text(model, &loaded));
        }
    }
    Ok(())
}

/// A model's cells with their types.
fn cells<'a>(
    model: &'a Model,
    loaded: &'a Loaded,
) -> impl Iterator<Item = (&'a ModelCell, &'a CellType)> {
    model.cells.iter().map(|cell| (cell, loaded.registry.get(cell.cell_type)))
}

/// A model's inputs, and whether a request may leave each out.
fn inputs(model: &Model) -> impl Iterator<Item = (&TensorInfo, bool)> {
    model.inputs.iter().zip(model.layouts().into_iter().map(|layout| layout.optional))
}

fn how(cell: &ModelCell) -> &'static str {
    if cell.fused { "fused" } else { "general" }
}

fn as_text(model: &Model, loaded: &Loaded) -> String {
    let mut text = format!("{}, version {}\n", model.name, model.version);
    for (TensorInfo { name, element, shape }, optional) in inputs(model) {
        let mark = if optional { ", optional" } else { "" };
        let _ = writeln!(text, "  input  {name}: {element} {shape:?}{mark}");
    }
    for TensorInfo { name, element, shape } in &model.outputs {
        let _ = writeln!(text, "  output {name}: {element} {shape:?}");
    }
    let _ = match model.why_no_sessions() {
        Some(reason) => writeln!(text, "  sessions: no, {reason}"),
        None => writeln!(text, "  sessions: yes"),
    };
    for note in &model.notes {
        let _ = writeln!(text, "  note   {note}");
    }
    for (cell, cell_type) in cells(model, loaded) {
        let _ = writeln!(
            text,
            "  cell   {}: {}, {}batches up to {}, {} of weights, {} bytes of state a request, type {}\n         {}",
            cell.name,
            how(cell),
            match cell_type.cell.precision {
                Precision::F32 => String::new(),
                precision => format!("in {precision}, "),
            },
            cell_type.max_batch_size,
            human_bytes(cell_type.cell.weight_bytes()),
            cell_type.cell.state_bytes(),
            cell_type.identity,
            cell.description,
        );
    }
    text
}

fn human_bytes(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

fn as_json(model: &Model, loaded: &Loaded) -> Value {
    let tensor = |TensorInfo { name, element, shape }: &TensorInfo| json!({ "name": name, "datatype": element.to_string(), "shape": shape });
    let input = |(info, optional): (&TensorInfo, bool)| {
        let mut described = tensor(info);
        described["optional"] = optional.into();
        described
    };
    let cell = |(cell, cell_type): (&ModelCell, &CellType)| {
        json!({
            "name": cell.name,
            "type": cell_type.identity.to_string(),
            "how": how(cell),
            "why": cell.description,
            "priority": cell.priority,
            "precision": cell_type.cell.precision.to_string(),
            "max_batch_size": cell_type.max_batch_size,
            "weight_bytes": cell_type.cell.weight_bytes(),
            "state_bytes": cell_type.cell.state_bytes(),
        })
    };
    json!({
        "name": model.name,
        "version": model.version,
        "inputs": inputs(model).map(input).collect::<Vec<_>>(),
        "outputs": model.outputs.iter().map(tensor).collect::<Vec<_>>(),
        "sessions": model.why_no_sessions().is_none(),
        "why_no_sessions": model.why_no_sessions(),
        "notes": model.notes,
        "cells": cells(model, loaded).map(cell).collect::<Vec<_>>(),
    })
}
