//! A segment as a program: a small ONNX file over `[rows, ...]`, in a form that depends
//! on what it computes alone, not on names.
//!
//! Inputs are `in0`, `in1`, …, outputs `out0`, `out1`, …: `[rows, elements]`, or `[rows]`
//! for one integer a row. Everything between is renumbered.

use batchmaker_graph::{Cell, CellBody, Precision, Program, RowSpec};

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Reading, Source};
use crate::emit::writer::Writer;
use crate::partition::segment::Segment;

/// Makes the program cell of a segment.
pub(crate) fn build(analysis: &Analysis, segment: &Segment) -> Cell {
    let mut writer = Writer::default();
    let rows = |readings: &[Reading]| -> Vec<RowSpec> {
        readings.iter().map(|reading| row_of(analysis, reading.source)).collect()
    };
    let (inputs, outputs) = (rows(&segment.inputs), rows(&segment.outputs));
    for (reading, row) in segment.inputs.iter().zip(&inputs) {
        let name = writer.input(row);
        writer.names.insert((*reading, row.shape.clone()), name.clone());
        writer.natural.insert(*reading, (name, row.shape.clone()));
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
                    Some(reading) => writer.rows(reading, shape),
                    None => String::new(),
                },
                Operand::Constant(literal) => writer.constant(literal),
                Operand::Absent => String::new(),
                Operand::Whole { .. } | Operand::Lengths(_) | Operand::Length(_) => {
                    unreachable!("an operator on whole tensors in a segment of rows")
                }
            })
            .collect();
        let mut outputs = Vec::new();
        for (port, spec) in op.outputs.iter().enumerate() {
            let reading = Reading { source: Source::Op(instance.op, port), at: instance.at };
            let name = writer.fresh();
            writer.natural.insert(reading, (name.clone(), spec.shape.clone()));
            writer.names.insert((reading, spec.shape.clone()), name.clone());
            outputs.push(name);
        }
        writer.op(&op.operator, inputs, outputs, op.attributes.clone());
    }
    for (port, (reading, row)) in segment.outputs.iter().zip(&outputs).enumerate() {
        let name = format!("out{port}");
        let (made, shape) = writer.natural[reading].clone();
        if shape == row.shape {
            writer.rename(&made, &name);
        } else {
            writer.reshape(made, &row.shape, name.clone());
        }
        writer.output(&name, row);
    }
    let program = Program { bytes: writer.finish(), summary: summary.join(", ") };
    Cell {
        body: CellBody::Program(program),
        precision: Precision::F32,
        inputs,
        states: Vec::new(),
        outputs,
    }
}
