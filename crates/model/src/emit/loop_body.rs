//! The body of a loop that the executor runs: a graph inside a program.
//!
//! Tensors from around the loop go by the names `…outer0`, `…outer1`, …, until the program around it is
//! written ([`bind`]).

use rten_onnx::onnx::{GraphProto, ValueInfoProto};

use crate::analysis::loop_body::{BodyEdges, BodyInput, COUNTER};
use crate::analysis::references::needed;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, RowOp, Source, ValueRef, View};
use crate::data::dim::Dim;
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::emit::builder::Builder;

/// Writes a body, which was analysed without an axis of batch; all its names begin with `prefix`.
///
/// # Errors
/// See [`crate::emit::sequence_segment::compile`].
pub(crate) fn graph(
    nested: &Analysis,
    edges: &BodyEdges,
    prefix: &str,
) -> Result<GraphProto, String> {
    if let Some(recurrent) = nested.recurrents.first() {
        return Err(format!("its body holds the recurrent operator `{}`", recurrent.label));
    }
    let mut builder = Builder::new(nested);
    builder.writer.prefix = prefix.to_owned();
    let info = |name: &str| ValueInfoProto { name: Some(name.to_owned()), r#type: None };
    let number = builder.writer.input_as(info);
    let condition = builder.writer.input_as(info);
    add_inputs(&mut builder, nested, &number, prefix)?;
    let views = edges.going.iter().chain(&edges.next).chain(&edges.every);
    let needed = needed(nested, views.map(|view| view.source));
    for (index, op) in nested.ops.iter().enumerate().filter(|(index, _)| needed[*index]) {
        match op.tensor_dims.is_empty() {
            true => add_row_op(&mut builder, index, op)?,
            false => builder.sequence_level_op(index, op)?,
        }
    }
    let mut outputs = Vec::new();
    outputs.push(match &edges.going {
        None => condition,
        Some(view) => builder.tensor(reference(nested, view), &[])?,
    });
    for view in edges.next.iter().chain(&edges.every) {
        outputs.push(builder.tensor(reference(nested, view), &view.dims)?);
    }
    for (port, name) in outputs.into_iter().enumerate() {
        // Not renamed: others may read it.
        let out = format!("{prefix}out{port}");
        builder.writer.node("Identity", vec![name], vec![out.clone()], Vec::new());
        builder.writer.output_as(info(&out));
    }
    Ok(builder.writer.into_graph())
}

fn reference(nested: &Analysis, view: &View) -> ValueRef {
    nested.resolve(view.source, view.at)
}

fn add_inputs(
    builder: &mut Builder<'_>,
    nested: &Analysis,
    number: &str,
    prefix: &str,
) -> Result<(), String> {
    let edges = nested.body.as_ref().map_or(&[][..], |body| &body.edges);
    let mut outer = 0;
    for (index, edge) in edges.iter().enumerate() {
        let input = &nested.inputs[index];
        let mut dims = input.dims.clone();
        let name = match edge {
            BodyInput::State if input.name == COUNTER => number.to_owned(),
            BodyInput::State => builder
                .writer
                .input_as(|name| ValueInfoProto { name: Some(name.to_owned()), r#type: None }),
            BodyInput::Captured(_) => {
                outer += 1;
                format!("{prefix}outer{}", outer - 1)
            }
            BodyInput::Step { of, axis, direction } => {
                outer += 1;
                let all = format!("{prefix}outer{}", outer - 1);
                let at = match direction {
                    Direction::Forward => number.to_owned(),
                    Direction::Reverse => {
                        let last = builder.scalar(-1);
                        builder.op("Sub", &[&last, number], vec![])
                    }
                };
                dims.clone_from(&of.dims);
                dims.remove(*axis);
                builder.op("Gather", &[&all, &at], vec![("axis", vec![*axis as i64])])
            }
        };
        builder.learn_lengths(&name, &dims);
        let source = Source::Input(index);
        builder.tensors.insert(ValueRef { source, at: None }, (name, dims));
    }
    Ok(())
}

/// An operator on rows, which are the steps of a tensor or one.
fn add_row_op(builder: &mut Builder<'_>, index: usize, op: &RowOp) -> Result<(), String> {
    let mut names = Vec::new();
    for operand in &op.operands {
        names.push(match operand {
            Operand::Rows { source, at, shape } => {
                let reference = builder.analysis.resolve(*source, *at);
                rows(builder, reference, shape, op.domain)?
            }
            Operand::Constant(literal) => builder.writer.constant(literal),
            Operand::Absent => String::new(),
            Operand::Tensor { .. } | Operand::Lengths(_) | Operand::Length(_) => {
                unreachable!("an operator on rows reads rows")
            }
        });
    }
    let mut produced = Vec::new();
    for (port, spec) in op.outputs.iter().enumerate() {
        let name = builder.writer.fresh();
        let mut dims = vec![op.domain.time.map_or(Dim::fixed(1), Dim::symbol)];
        dims.extend(spec.shape.iter().map(|&n| Dim::fixed(n)));
        let reference = ValueRef { source: Source::Op(index, port), at: None };
        builder.tensors.insert(reference, (name.clone(), dims));
        produced.push(name);
    }
    builder.writer.op(&op.operator, names, produced, op.attributes.clone());
    Ok(())
}

/// A value as `[rows, ...shape]`, with as many rows as the domain has.
fn rows(
    builder: &mut Builder<'_>,
    reference: ValueRef,
    shape: &[usize],
    domain: Domain,
) -> Result<String, String> {
    let own = builder.analysis.domain(reference.source).time.filter(|_| reference.at.is_none());
    let mut dims = vec![own.map_or(Dim::fixed(1), Dim::symbol)];
    dims.extend(shape.iter().map(|&n| Dim::fixed(n)));
    let name = builder.tensor(reference, &dims)?;
    let Some(time) = domain.time.filter(|_| own.is_none()) else { return Ok(name) };
    dims[0] = Dim::symbol(time);
    let ints: Vec<Int> = dims.iter().map(|dim| builder.analysis.axes.open_int(dim)).collect();
    let shape = builder.lengths(&ints)?;
    Ok(builder.op("Expand", &[&name, &shape], vec![]))
}
