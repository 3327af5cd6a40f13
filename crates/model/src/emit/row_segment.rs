//! Compiles a segment of row ops to a program: a small ONNX file over `[rows, ...]`, in a form that depends
//! on its computation alone, not on names.
//!
//! Inputs are `in0`, `in1`, …, outputs `out0`, `out1`, …: `[rows, elements]`, or `[rows]`
//! for one integer a row. Everything between is renumbered.

use batchmaker_graph::{Cell, CellBody, Precision, RowSpec};

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source, ValueRef};
use crate::emit::writer::Writer;
use crate::partition::segment::Segment;

/// Compiles a segment to a cell.
pub(crate) fn compile(analysis: &Analysis, segment: &Segment) -> Cell {
    let mut writer = Writer::default();
    let rows = |references: &[ValueRef]| -> Vec<RowSpec> {
        references.iter().map(|reference| row_of(analysis, reference.source)).collect()
    };
    let (inputs, outputs) = (rows(&segment.inputs), rows(&segment.outputs));
    for (reference, row) in segment.inputs.iter().zip(&inputs) {
        let name = writer.input(row);
        writer.names.insert((*reference, row.shape.clone()), name.clone());
        writer.natural.insert(*reference, (name, row.shape.clone()));
    }
    let mut summary: Vec<&str> = Vec::new();
    for instance in &segment.instances {
        let op = &analysis.ops[instance.op];
        summary.push(&op.operator);
        let inputs: Vec<String> = op
            .operands
            .iter()
            .map(|operand| match operand {
                Operand::Rows { shape, .. } => match analysis.reads(operand, instance.at) {
                    Some(reference) => writer.rows(reference, shape),
                    None => String::new(),
                },
                Operand::Constant(literal) => writer.constant(literal),
                Operand::Absent => String::new(),
                Operand::Tensor { .. } | Operand::Lengths(_) | Operand::Length(_) => {
                    unreachable!("an operator on whole tensors in a segment of rows")
                }
            })
            .collect();
        let mut outputs = Vec::new();
        for (port, spec) in op.outputs.iter().enumerate() {
            let reference = ValueRef { source: Source::Op(instance.op, port), at: instance.at };
            let name = writer.fresh();
            writer.natural.insert(reference, (name.clone(), spec.shape.clone()));
            writer.names.insert((reference, spec.shape.clone()), name.clone());
            outputs.push(name);
        }
        writer.op(&op.operator, inputs, outputs, op.attributes.clone());
    }
    for (port, (reference, row)) in segment.outputs.iter().zip(&outputs).enumerate() {
        let name = format!("out{port}");
        let (produced, shape) = writer.natural[reference].clone();
        if shape == row.shape {
            writer.rename(&produced, &name);
        } else {
            writer.reshape(produced, &row.shape, name.clone());
        }
        writer.output(&name, row);
    }
    let program = writer.finish(summary.join(", "));
    Cell {
        body: CellBody::Program(program),
        precision: Precision::F32,
        inputs,
        states: Vec::new(),
        outputs,
    }
}
