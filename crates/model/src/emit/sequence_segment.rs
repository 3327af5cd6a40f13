//! Compiles a segment of sequence-level operators to a program: see [`SequenceCell`].
//!
//! Between segments a tensor stands in its *plain* form: `[batch, steps, row]`, as far as it has these
//! axes. Inside, operators want it under dimensions of their own; what lies between is reshaping and
//! transposing.

use batchmaker_graph::{Cell, CellBody, PortAxes, Precision, RowSpec, SequenceCell};
use rten_onnx::onnx::{Dimension, ValueInfoProto};

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Scope, Source, ValueRef};
use crate::data::dim::{Dim, Factor};
use crate::data::symbol::{BATCH, Windows};
use crate::emit::builder::Builder;
use crate::emit::writer::Writer;
use crate::emit::writer::value_info;
use crate::error::Diagnostic;
use crate::partition::segment::{Cut, Segment};

/// The plain form of a value.
fn plain(analysis: &Analysis, reference: ValueRef) -> (Domain, RowSpec, Vec<Dim>) {
    let mut domain = analysis.domain(reference.source);
    domain.time = domain.time.filter(|_| reference.at.is_none());
    let row = row_of(analysis, reference.source);
    let mut dims = Vec::new();
    dims.extend(domain.batch.then(|| Dim::symbol(BATCH)));
    let factors = domain.time.map(|time| analysis.axes.factors(time));
    dims.extend(factors.map(|factors| Dim(factors.into_iter().map(Factor::Symbol).collect())));
    dims.extend(row.shape.iter().map(|&n| Dim::fixed(n)));
    (domain, row, dims)
}

/// Compiles a segment to a cell.
///
/// # Errors
/// A tensor that varies along several axes of steps and is read outside, or a length that no tensor has.
pub(crate) fn compile(analysis: &Analysis, segment: &Segment) -> Result<Cell, String> {
    let mut builder = Builder::new(analysis);
    let mut cell = Cell {
        precision: Precision::F32,
        body: CellBody::Program(Writer::default().finish(String::new())),
        inputs: Vec::new(),
        states: Vec::new(),
        outputs: Vec::new(),
    };
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for &reference in &segment.inputs {
        let (domain, row, dims) = plain(analysis, reference);
        let axes = PortAxes { batch: domain.batch, steps: domain.time.is_some() };
        let along = factors(analysis, &dims, segment);
        let name = builder.writer.input_as(|name| info(name, axes, &row, along));
        if let Source::Length(symbol) = reference.source {
            let one = builder.constant(vec![1]);
            let vector = builder.op("Reshape", &[&name, &one], vec![]);
            builder.vectors.insert(symbol, vector);
        }
        builder.learn_lengths(&name, &dims);
        builder.tensors.insert(reference, (name, dims));
        inputs.push(axes);
        cell.inputs.push(row);
    }
    let mut summary: Vec<&str> = Vec::new();
    for instance in &segment.instances {
        let op = &analysis.ops[instance.op];
        summary.push(&op.operator);
        builder.sequence_level_op(instance.op, op)?;
    }
    for (port, &reference) in segment.outputs.iter().enumerate() {
        let (domain, row, dims) = plain(analysis, reference);
        let axes = PortAxes { batch: domain.batch, steps: domain.time.is_some() };
        let name = builder.tensor(reference, &dims)?;
        let out = format!("out{port}");
        // Not renamed: others may read it.
        builder.writer.node("Identity", vec![name], vec![out.clone()], Vec::new());
        builder.writer.output_as(info(&out, axes, &row, None));
        outputs.push(axes);
        cell.outputs.push(row);
    }
    let program = builder.writer.finish(summary.join(", "));
    cell.body = CellBody::Sequence(SequenceCell { program, inputs, outputs });
    Ok(cell)
}

/// The name of an axis of steps that is several axes at once: the input ports that hold their lengths, `in0*in1`. An
/// axis of windows is the port of the axis that they lie on, with their geometry: `in0:multiple:extra:stride`.
fn factors(analysis: &Analysis, dims: &[Dim], segment: &Segment) -> Option<String> {
    let joint = dims.iter().find(|dim| dim.0.len() > 1 && !dim.in_row())?;
    let port = |symbol| {
        let base = analysis.axes.base(symbol);
        let length = ValueRef { source: Source::Length(base), at: None };
        let port = segment.inputs.iter().position(|&input| input == length)?;
        Some(match analysis.axes.windows_of(symbol) {
            Some((_, Windows { multiple, extra, stride, .. })) => {
                format!("in{port}:{multiple}:{extra}:{stride}")
            }
            None => format!("in{port}"),
        })
    };
    let ports: Option<Vec<String>> = joint.symbols().map(port).collect();
    Some(ports?.join("*"))
}

/// An input or output, whose axis of steps is called `along` if that is given.
fn info(name: &str, axes: PortAxes, row: &RowSpec, along: Option<String>) -> ValueInfoProto {
    let mut info = value_info(name, row);
    let shape = info.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut());
    if let Some(shape) = shape.and_then(|tensor| tensor.shape.as_mut()) {
        let axis = |name: &str| Dimension { dim_param: Some(name.to_owned()), dim_value: None };
        // Axes of equal names would have to be of equal lengths.
        let along = along.unwrap_or_else(|| format!("steps of {name}"));
        let leading = [(axes.batch, "batch".to_owned()), (axes.steps, along)];
        let leading = leading.iter().filter(|(has, _)| *has).map(|(_, name)| axis(name));
        shape.dim.splice(0..1, leading.collect::<Vec<_>>());
    }
    info
}

/// The diagnostics of sequence-level segments that do not compile.
pub(crate) fn unbuilt(cut: &Cut, analysis: &Analysis) -> Vec<Diagnostic> {
    let of = |segment: &Segment| {
        let reason = compile(analysis, segment).err()?;
        let op = &analysis.ops[segment.instances.last()?.op];
        let (operator, node) = (op.operator.clone(), op.label.clone());
        Some(Diagnostic { operator, node, reason })
    };
    let segments = cut.segments.iter().filter(|segment| segment.scope != Scope::Row);
    segments.filter_map(of).collect()
}
