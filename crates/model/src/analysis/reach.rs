//! The reach of values over steps: which steps of the request's sequence a step of a value depends on.
//!
//! Windows (`Conv`, pools), padding, slices and whatever does nothing along steps give a value whose step `t` depends on
//! the steps `stride * t + low` to `stride * t + high` alone. Where these are all there, the value's step is final,
//! however the sequence goes on.

use std::collections::HashMap;

use rten_onnx::onnx::AttributeProto;

use crate::analysis::operators::sequence_op::has_batch;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Scope, Source};
use crate::data::axes::Axes;
use crate::data::dim::{Dim, steps};
use crate::data::symbol::Symbol;

/// The part of a sequence that a step of a value depends on, in steps of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The number of steps from a step of the value to the next; at least 1.
    pub(crate) stride: i64,
    /// At most 0.
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// What the steps of a value depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependence {
    /// Not on the sequence.
    Nothing,
    /// On some steps of an axis of the request.
    Steps(Symbol, Reach),
    /// On the states of a recurrent operator as well.
    State,
    /// On more than can be said.
    Unknown,
}

impl Reach {
    const STEP: Self = Self { stride: 1, low: 0, high: 0 };

    /// That of windows over a value of this reach: window `t` spans the value's steps `by * t + first` to `by * t + last`.
    fn of_windows(self, by: i64, first: i64, last: i64) -> Option<Self> {
        let low = self.stride.checked_mul(first)?.checked_add(self.low)?;
        let high = self.stride.checked_mul(last)?.checked_add(self.high)?;
        // A step of the value itself must be there, too.
        Some(Self { stride: self.stride.checked_mul(by)?, low: low.min(0), high })
    }

    /// That of a step of both of two values of one stride.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high), ..self }
    }

    /// Whether every step that a value of `count` steps has is final once `length` steps have come.
    fn is_final(self, count: i64, length: i64) -> bool {
        count == 0 || self.stride * (count - 1) + self.high < length
    }

    /// The steps that come and go before the pattern of counts repeats.
    fn span(self) -> i64 {
        4 * (self.stride + self.high.abs() - self.low)
    }
}

/// The most steps for which counts are looked through.
const SPAN_MAX: i64 = 1 << 14;

/// The length of an axis that counts windows over `base`, directly or not, where that has `length` steps.
pub(crate) fn count(axes: &Axes, symbol: Symbol, base: Symbol, length: usize) -> Option<usize> {
    let symbol = axes.find(symbol);
    if symbol == axes.find(base) {
        return Some(length);
    }
    let (of, windows) = axes.windows_of(symbol)?;
    if of == symbol {
        return None;
    }
    let inner = count(axes, of, base, length)?;
    Some(if inner == 0 { 0 } else { windows.count_whole(inner).unwrap_or(0) })
}

/// A value over `symbol` with its reach, which covers also the steps that the value waits for longer than it must. None
/// if it has steps that are not final.
pub(crate) fn settled(axes: &Axes, symbol: Symbol, base: Symbol, reach: Reach) -> Option<Reach> {
    let span = reach.span();
    if span > SPAN_MAX {
        return None;
    }
    let mut high = reach.high;
    for length in 1..=span {
        let count = count(axes, symbol, base, length as usize)? as i64;
        if !reach.is_final(count, length) {
            return None;
        }
        // The next step comes with a later one of the sequence's.
        high = high.max(length - reach.stride * count);
    }
    Some(Reach { high: high.max(reach.high), ..reach })
}

/// The dependence of every operator's output.
pub(crate) fn dependences(analysis: &Analysis) -> HashMap<Source, Dependence> {
    let mut known = HashMap::new();
    for (index, op) in analysis.ops.iter().enumerate() {
        for port in 0..op.outputs.len() {
            let of_op = match op.scope {
                Scope::Row => of_rows(analysis, op, &known),
                Scope::Sequence | Scope::Request => of_tensors(analysis, op, port, &known),
            };
            known.insert(Source::Op(index, port), of_op);
        }
    }
    known
}

/// The dependence of a value.
pub(crate) fn dependence(
    analysis: &Analysis,
    source: Source,
    known: &HashMap<Source, Dependence>,
) -> Dependence {
    match source {
        Source::Input(index) => match steps(&analysis.inputs[index].dims)[..] {
            [] => Dependence::Nothing,
            [symbol] => Dependence::Steps(analysis.axes.find(symbol), Reach::STEP),
            _ => Dependence::Unknown,
        },
        Source::Recurrent(..) => Dependence::State,
        Source::Op(..) => known.get(&source).copied().unwrap_or(Dependence::Unknown),
        Source::Length(_) => Dependence::Unknown,
    }
}

fn joined(a: Dependence, b: Dependence) -> Dependence {
    use Dependence::{Nothing, State, Steps, Unknown};
    match (a, b) {
        (Nothing, other) | (other, Nothing) => other,
        (Unknown, _) | (_, Unknown) => Unknown,
        (State, _) | (_, State) => State,
        (Steps(base, a), Steps(other, b)) if base == other && a.stride == b.stride => {
            Steps(base, a.and(b))
        }
        (Steps(..), Steps(..)) => Unknown,
    }
}

fn of_rows(analysis: &Analysis, op: &RowOp, known: &HashMap<Source, Dependence>) -> Dependence {
    let of = |operand: &Operand| match operand {
        Operand::Rows { source, at: None, .. } | Operand::Tensor { source, at: None, .. } => {
            dependence(analysis, *source, known)
        }
        // A step that is read by its number.
        Operand::Rows { .. } | Operand::Tensor { .. } => Dependence::State,
        Operand::Length(_) => Dependence::Unknown,
        Operand::Lengths(ints) => match ints.iter().all(|int| int.as_number().is_some()) {
            true => Dependence::Nothing,
            false => Dependence::Unknown,
        },
        Operand::Constant(_) | Operand::Absent => Dependence::Nothing,
    };
    op.operands.iter().map(of).fold(Dependence::Nothing, joined)
}

fn of_tensors(
    analysis: &Analysis,
    op: &RowOp,
    port: usize,
    known: &HashMap<Source, Dependence>,
) -> Dependence {
    let Some(out) = op.tensor_dims.get(port) else { return Dependence::Unknown };
    let mut all = Dependence::Nothing;
    for (index, operand) in op.operands.iter().enumerate() {
        let (source, dims) = match operand {
            Operand::Tensor { source, at: None, dims } => (*source, dims),
            Operand::Constant(_) | Operand::Absent | Operand::Lengths(_) => continue,
            Operand::Tensor { .. } | Operand::Rows { .. } | Operand::Length(_) => {
                return Dependence::Unknown;
            }
        };
        let own = match dependence(analysis, source, known) {
            Dependence::Nothing => Dependence::Nothing,
            Dependence::Steps(base, reach) => {
                let windows = windows_along(op, index, dims, out);
                let reach = windows.and_then(|(by, first, last)| reach.of_windows(by, first, last));
                reach.map_or(Dependence::Unknown, |reach| Dependence::Steps(base, reach))
            }
            Dependence::State | Dependence::Unknown => Dependence::Unknown,
        };
        all = joined(all, own);
    }
    let Dependence::Steps(base, reach) = all else { return all };
    let &[symbol] = &steps(out)[..] else { return Dependence::Unknown };
    // A part that is cut off later, or never, may not be final yet.
    match settled(&analysis.axes, symbol, base, reach) {
        Some(settled) => Dependence::Steps(base, settled),
        None => all,
    }
}

fn numbers(operand: Option<&Operand>) -> Option<Vec<i64>> {
    match operand? {
        Operand::Constant(literal) => literal.as_numbers(),
        Operand::Lengths(of) => of.iter().map(|int| int.as_number()).collect(),
        _ => None,
    }
}

/// The window of an operand's steps that a step of the output depends on: `(by, first, last)` as in
/// [`Reach::of_windows`]; none if that is not so, or is not known.
fn windows_along(op: &RowOp, index: usize, dims: &[Dim], out: &[Dim]) -> Option<(i64, i64, i64)> {
    const SAME: (i64, i64, i64) = (1, 0, 0);
    let position = |dims: &[Dim]| {
        let mut of_steps = (0..dims.len()).filter(|&axis| !steps(&dims[axis..=axis]).is_empty());
        let axis = of_steps.next()?;
        (of_steps.next().is_none() && dims[axis].as_symbol().is_some()).then_some(axis)
    };
    let (axis, after) = (position(dims)?, position(out)?);
    // From the end, as broadcasting aligns axes.
    let stays = dims.len() - axis == out.len() - after;
    let of_axes = |axes: &[i64]| {
        let rank = dims.len() as i64;
        axes.iter().all(|&other| (if other < 0 { other + rank } else { other }) != axis as i64)
    };
    match op.operator.as_str() {
        "Conv" | "MaxPool" | "AveragePool" => {
            let spatial = axis.checked_sub(2)?;
            let of = |name: &str, default: i64| {
                op.ints(name).map_or(Some(default), |of| of.get(spatial).copied())
            };
            let (by, dilation, before) = (of("strides", 1)?, of("dilations", 1)?, of("pads", 0)?);
            let last = dilation.checked_mul(of("kernel_shape", 1)? - 1)? - before;
            (index == 0 && stays && op.int("ceil_mode").unwrap_or(0) == 0)
                .then_some((by, -before, last))
        }
        "Pad" => {
            let pads = numbers(op.operands.get(1))?;
            let named = |a: &&AttributeProto| a.name.as_deref() == Some("mode");
            let mode = op.attributes.iter().find(named).and_then(|a| a.s.as_deref());
            let (before, behind) = (*pads.get(axis)?, *pads.get(dims.len() + axis)?);
            let is_constant = mode.is_none_or(|mode| mode == "constant");
            (index == 0 && (is_constant || (before, behind) == (0, 0)))
                .then_some((1, -before, -before))
        }
        "Slice" if index == 0 => {
            let axes = match op.operands.get(3) {
                Some(axes) => numbers(Some(axes))?,
                None => (0..dims.len() as i64).collect(),
            };
            let Some(at) = axes.iter().position(|&of| !of_axes(&[of])) else { return Some(SAME) };
            let start = *numbers(op.operands.get(1))?.get(at)?;
            let by = match op.operands.get(4) {
                Some(by @ (Operand::Constant(_) | Operand::Lengths(_))) => {
                    *numbers(Some(by))?.get(at)?
                }
                _ => 1,
            };
            (start >= 0 && by >= 1).then_some((by, start, start))
        }
        "Concat" => {
            let along = op.int("axis")?;
            if of_axes(&[along]) {
                return Some(SAME);
            }
            // What stands before it along steps moves it.
            let mut before = 0;
            for operand in &op.operands[..index] {
                before += match operand {
                    Operand::Tensor { dims, .. } if steps(dims).is_empty() => {
                        dims.get(axis)?.fixed_part() as i64
                    }
                    Operand::Constant(literal) => *literal.shape().get(axis)? as i64,
                    _ => return None,
                };
            }
            let others = op.operands.iter().enumerate().filter(|(other, _)| *other != index);
            let has_steps = |operand: &Operand| match operand {
                Operand::Tensor { dims, .. } => !steps(dims).is_empty(),
                _ => false,
            };
            (!others.into_iter().any(|(_, operand)| has_steps(operand)))
                .then_some((1, -before, -before))
        }
        "Transpose" => Some(SAME),
        "Reshape" => {
            let before =
                |dims: &[Dim]| dims.iter().map(Dim::fixed_part).fold(1, usize::saturating_mul);
            let same_batch = has_batch(&dims[..axis]) == has_batch(&out[..after]);
            (index == 0 && same_batch && before(&dims[..axis]) == before(&out[..after]))
                .then_some(SAME)
        }
        // A single row on the left is multiplied in another order.
        "MatMul" if index == 1 => {
            let rows = match op.operands.first()? {
                Operand::Constant(literal) => *literal.shape().iter().rev().nth(1)?,
                _ => return None,
            };
            (axis + 1 == dims.len() && stays && rows > 1).then_some(SAME)
        }
        // Division by one number is a multiplication.
        "Div" if index == 1 && dims.iter().all(|dim| dim.fixed_part() == 1) => None,
        "Softmax" | "LogSoftmax" | "LayerNormalization" => {
            let along = op.int("axis").unwrap_or(-1);
            let first = if along < 0 { along + dims.len() as i64 } else { along };
            let alone = op.operator != "LayerNormalization" || first > axis as i64;
            (index == 0 && of_axes(&[along]) && alone).then_some(SAME)
        }
        "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceL2" | "ReduceSumSquare" => {
            (index == 0 && of_axes(&numbers(op.operands.get(1))?)).then_some(SAME)
        }
        "Identity" | "Cast" => Some(SAME),
        _ if is_elementwise(op) && stays => Some(SAME),
        _ => None,
    }
}

fn is_elementwise(op: &RowOp) -> bool {
    crate::analysis::table::OPERATORS
        .find(&op.operator)
        .is_some_and(|operator| operator.elementwise.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::symbol::{BATCH, Windows};

    fn axes() -> (Axes, Symbol) {
        let mut axes = Axes::new(None);
        let time = axes.add("time", None);
        (axes, time)
    }

    #[test]
    fn windows_of_windows_reach_back_over_both() {
        // Kernel 5, stride 3; then kernel 3, stride 2, one step of padding.
        let first = Reach::STEP.of_windows(3, 0, 4).unwrap();
        assert_eq!(first, Reach { stride: 3, low: 0, high: 4 });
        let second = first.of_windows(2, -1, 1).unwrap();
        assert_eq!(second, Reach { stride: 6, low: -3, high: 7 });
    }

    #[test]
    fn a_causal_window_is_final_at_once_and_a_centred_one_is_not() {
        let (axes, time) = axes();
        let causal = Reach::STEP.of_windows(1, -2, 0).unwrap();
        assert_eq!(settled(&axes, time, time, causal), Some(causal));
        let centred = Reach::STEP.of_windows(1, -1, 1).unwrap();
        assert_eq!(settled(&axes, time, time, centred), None);
    }

    #[test]
    fn what_is_cut_off_the_end_makes_a_window_wait() {
        // Kernel 3 without padding, and two steps less.
        let (mut axes, time) = axes();
        let windows = axes.windows(time, Windows::new(-5, 1));
        let reach = Reach::STEP.of_windows(1, 0, 2).unwrap();
        assert_eq!(settled(&axes, windows, time, reach), Some(Reach { high: 4, ..reach }));
        assert_eq!(count(&axes, windows, time, 4), Some(0));
        assert_eq!(count(&axes, windows, time, 5), Some(1));
        assert_eq!(count(&axes, BATCH, time, 5), None);
    }
}
