//! Products with a matrix of which only the greatest sum's index is wanted: see [`LinearArgMax`].

use batchmaker_graph::{ElementType, LinearArgMax};

use crate::analysis::references::{row_of, uses};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Source};

/// A `MatMul` (or `Gemm`, which is one here), the addition of its bias if it has one, and the
/// `ArgMax` that alone reads the sums.
#[derive(Clone, Debug)]
pub(crate) struct ArgMax {
    /// The row ops that it is made of.
    pub(crate) ops: Vec<usize>,
    pub(crate) fused: LinearArgMax,
}

/// Finds all of them in an analysed cell.
pub(crate) fn find(analysis: &Analysis) -> Vec<ArgMax> {
    (0..analysis.ops.len()).filter_map(|op| read(analysis, op)).collect()
}

fn read(analysis: &Analysis, arg_max: usize) -> Option<ArgMax> {
    let ("ArgMax", [sums]) = parts(&analysis.ops[arg_max]) else { return None };
    if analysis.ops[arg_max].outputs[0].elements() != 1 {
        return None;
    }
    let (mut op, mut ops, mut bias) = (only_read_by(analysis, sums)?, vec![arg_max], None);
    if let ("Add", [a, b]) = parts(&analysis.ops[op]) {
        let (rows, constant) = match (a, b) {
            (rows @ Operand::Rows { .. }, Operand::Constant(constant))
            | (Operand::Constant(constant), rows @ Operand::Rows { .. }) => (rows, constant),
            _ => return None,
        };
        bias = Some(&constant.as_f32()?.data);
        ops.push(op);
        op = only_read_by(analysis, rows)?;
    }
    let ("MatMul", [x, Operand::Constant(weights)]) = parts(&analysis.ops[op]) else {
        return None;
    };
    ops.push(op);
    let weights = weights.as_f32()?;
    let (&[input_size, output_size], &Operand::Rows { source, .. }) = (&weights.shape[..], x)
    else {
        return None;
    };
    let row = row_of(analysis, source);
    if row.element != ElementType::F32 || row.elements() != input_size {
        return None;
    }
    let b = match bias {
        Some(bias) if bias.len() == output_size => Some(bias[..].into()),
        Some(_) => return None,
        None => None,
    };
    let column = |output: usize| weights.data.iter().skip(output).step_by(output_size).copied();
    let w = (0..output_size).flat_map(column).collect();
    let fused = LinearArgMax { input_size, output_size, w, b };
    Some(ArgMax { ops, fused })
}

fn parts(op: &RowOp) -> (&str, &[Operand]) {
    (&op.operator, &op.operands)
}

/// The op whose output has no other reader.
fn only_read_by(analysis: &Analysis, operand: &Operand) -> Option<usize> {
    let Operand::Rows { source, at: None, .. } = operand else { return None };
    let Source::Op(op, 0) = *source else { return None };
    (uses(analysis, *source) == 1).then_some(op)
}
