//! `batchmaker inspect`: how a model is cut into cells.

use std::fmt::Write as _;

use batchmaker::{
    CellExecutor, CellType, Executor, Gpus, Loaded, Model, ModelCell, Policy, Precision, Profiles,
    StageStarts, StagingOptions, TensorInfo,
};
use batchmaker_device::{Device, Materialized, Runner};
use batchmaker_profile::{ModelStages, Piece, preferred_size};
use batchmaker_server::log;
use serde_json::{Value, json};

use crate::args::{InspectArgs, MachineArgs};
use crate::executor::executor;
use crate::start::prepare_plainly;

/// Prints what there is to know of the models.
pub(crate) fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    let paths = std::slice::from_ref(&args.model);
    let machine_args = MachineArgs { device: args.device.clone(), ..MachineArgs::default() };
    let prepared = prepare_plainly(paths, &machine_args, &args.cells, StageStarts::default())?;
    let executor = prepared.machine.executor(executor(&args.executor)?);
    let files = prepared.loaded.profile_files.iter().flatten().map(|file| file.path.as_path());
    let device = prepared.machine.device()?;
    let profiles = Profiles::read(None, files, &*device)?;
    let gpus = prepared.machine.gpus.map(|gpus| (gpus, device));
    profiles.notes().iter().for_each(|note| log(&format!("note: {note}")));
    let loaded = prepared.loaded;
    for (model, file) in loaded.models.iter().zip(&loaded.profile_files) {
        let executors = match &gpus {
            None => executors(model, &loaded, &executor)?,
            Some((gpus, device)) => on_gpus(model, &loaded, *gpus, &**device),
        };
        let stages = stages(profiles.stages_of(&model.name, file.as_ref()));
        let options = profiles.staging_options(StagingOptions::default(), model, file.as_ref());
        let policy = options.map(|options| Policy::Staged(options).to_string());
        if args.json {
            let mut described = as_json(model, &loaded, &executors);
            described["stages"] = stages.iter().map(Stage::as_json).collect();
            described["staged_policy"] = policy.into();
            println!("{described}");
        } else {
            print!("{}", as_text(model, &loaded, &executors));
            stages.iter().for_each(|stage| println!("{}", stage.as_text()));
            if let Some(policy) = policy {
                println!("  policy staged, as the profile settles it: {policy}");
            }
        }
    }
    Ok(())
}

/// A stage that the profile beside a model cuts it into.
struct Stage {
    number: usize,
    piece: Piece,
}

/// The stages of a model; none where it is not cut.
fn stages(known: Option<&ModelStages>) -> Vec<Stage> {
    let pieces = known.map(ModelStages::pieces).filter(|pieces| pieces.len() > 1);
    let numbered = (0..).zip(pieces.unwrap_or_default());
    numbered.map(|(number, piece)| Stage { number, piece }).collect()
}

impl Stage {
    fn as_text(&self) -> String {
        let Self { number, piece: Piece { start, times, .. } } = self;
        let begins = match number {
            0 => "from the beginning".to_owned(),
            _ => format!("from {start}"),
        };
        let one = times.first().map_or(f64::NAN, |time| time.1 as f64 / 1e3);
        let size = preferred_size(times).unwrap_or(1);
        format!(
            "  stage  {number}: {begins}, {one:.1} us for one request, prefers batches of {size}"
        )
    }

    fn as_json(&self) -> Value {
        let Self { piece: Piece { start, times, .. }, .. } = self;
        let time = |&(batch, ns): &(u32, u64)| json!({ "batch": batch, "us": ns as f64 / 1e3 });
        json!({
            "start": (!start.is_empty()).then_some(start),
            "preferred_batch_size": preferred_size(times),
            "times": times.iter().map(time).collect::<Vec<_>>(),
        })
    }
}

/// A model's cells with their types.
fn cells<'a>(
    model: &'a Model,
    loaded: &'a Loaded,
) -> impl Iterator<Item = (&'a ModelCell, &'a CellType)> {
    model.cells.iter().map(|cell| (cell, loaded.registry.get(cell.cell_type)))
}

/// What runs a cell, where there is a choice.
enum RunBy {
    Executor(CellExecutor),
    /// On GPUs: in words.
    Gpus(String),
}

/// The executor of each cell of a model, where another executor than our own is wanted and the cell is a program.
fn executors(
    model: &Model,
    loaded: &Loaded,
    executor: &Executor,
) -> anyhow::Result<Vec<Option<RunBy>>> {
    let of_cell = |(_, cell_type): (&ModelCell, &CellType)| match executor {
        Executor::Own => Ok(None),
        Executor::OnnxRuntime(_) => {
            executor.of_cell(&cell_type.cell).map(|of| of.map(RunBy::Executor))
        }
    };
    Ok(cells(model, loaded).map(of_cell).collect::<Result<_, _>>()?)
}

/// What runs each cell of a model on GPUs, or why they do not take it.
fn on_gpus(model: &Model, loaded: &Loaded, gpus: Gpus, device: &dyn Device) -> Vec<Option<RunBy>> {
    let of_cell = |(cell, cell_type): (&ModelCell, &CellType)| {
        let run_by = match device.materialize(cell.cell_type, cell_type) {
            Ok(Materialized { runner: Runner::Device, .. }) => format!("run by {gpus}"),
            Ok(Materialized { runner: Runner::Executor, .. }) => {
                "run by the host's executor".to_owned()
            }
            Ok(Materialized { runner: Runner::Both, .. }) => {
                format!("run by {gpus} and the host's executor")
            }
            Err(error) => format!("not run by {gpus} ({error})"),
        };
        Some(RunBy::Gpus(run_by))
    };
    cells(model, loaded).map(of_cell).collect()
}

/// A model's inputs, and whether a request may leave each out.
fn inputs(model: &Model) -> impl Iterator<Item = (&TensorInfo, bool)> {
    model.inputs.iter().zip(model.layouts().into_iter().map(|layout| layout.optional))
}

fn how(cell: &ModelCell) -> &'static str {
    if cell.fused { "fused" } else { "general" }
}

fn as_text(model: &Model, loaded: &Loaded, executors: &[Option<RunBy>]) -> String {
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
    for ((cell, cell_type), executor) in cells(model, loaded).zip(executors) {
        let run_by = executor.as_ref().map_or_else(String::new, run_by);
        let _ = writeln!(
            text,
            "  cell   {}: {}, {run_by}{}batches up to {}, {} of weights, {} bytes of state a request, type {}\n         {}",
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

/// Describes how a cell is run.
fn run_by(of_cell: &RunBy) -> String {
    let of_cell = match of_cell {
        RunBy::Gpus(how) => return format!("{how}, "),
        RunBy::Executor(of_cell) => of_cell,
    };
    let how = match (&of_cell.executor, &of_cell.refusal) {
        (Executor::OnnxRuntime(runtime), _) if runtime.is_alone() => {
            format!("{runtime} row by row")
        }
        (Executor::OnnxRuntime(runtime), _) => {
            format!("{runtime} (its last bits depend on the batch)")
        }
        (Executor::Own, None) => "the own executor".to_owned(),
        (Executor::Own, Some(reason)) => {
            format!("the own executor ({})", reason.lines().next().unwrap_or_default())
        }
    };
    format!("run by {how}, ")
}

fn human_bytes(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

fn as_json(model: &Model, loaded: &Loaded, executors: &[Option<RunBy>]) -> Value {
    let tensor = |TensorInfo { name, element, shape }: &TensorInfo| json!({ "name": name, "datatype": element.to_string(), "shape": shape });
    let input = |(info, optional): (&TensorInfo, bool)| {
        let mut described = tensor(info);
        described["optional"] = optional.into();
        described
    };
    let cell = |((cell, cell_type), executor): ((&ModelCell, &CellType), &Option<RunBy>)| {
        let executor = executor.as_ref().map(|of| match of {
            RunBy::Executor(of) => of.executor.to_string(),
            RunBy::Gpus(how) => how.clone(),
        });
        json!({
            "name": cell.name,
            "type": cell_type.identity.to_string(),
            "how": how(cell),
            "executor": executor,
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
        "cells": cells(model, loaded).zip(executors).map(cell).collect::<Vec<_>>(),
    })
}
