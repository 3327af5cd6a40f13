//! Elementwise operators, one after the other, on a block of elements that stays in the cache.
//!
//! Each operator is computed by itself and rounded, as if it had a pass of its own. Sums, differences, products and quotients with one
//! operand for all elements of a block, and Clip, are computed one after the other while some vectors of elements are in registers: to
//! quantise is a run of six of them.

use crate::error::KernelError;
use crate::layers::activation::{Activation, Finish};
use crate::layers::operators::{Binary, Unary};
use crate::packing::checks::check_len;
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Elements of a block: 4 KiB.
const BLOCK: usize = 1024;

/// Vectors of elements in registers: with the operand, fewer than the 16 of AVX2.
const HELD: usize = 8;

/// Lanes of the widest vectors, of AVX-512.
const LANES_MAX: usize = 16;

/// An operator on an element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ElementStep<'a> {
    /// The activation of the element.
    Activation(Activation),
    /// The operator of the element.
    Unary(Unary),
    /// The result of the element and its operand.
    Binary(Binary, Operand<'a>),
}

/// The operands of elements: those of a block one after the other, the block again as often as it is repeated, then the next one; from the
/// first on again after the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operand<'a> {
    /// All blocks; at least one.
    pub data: &'a [f32],
    /// Operands of a block; at least one.
    pub block: usize,
    /// How often a block is repeated; at least once.
    pub repeat: usize,
}

/// Applies steps to the elements of `y`, of which the first is number `first` of its tensor.
///
/// # Errors
/// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; [`KernelError::Length`] where a step has no operand.
pub fn elementwise(
    isa: Isa,
    steps: &[ElementStep<'_>],
    first: usize,
    y: &mut [f32],
) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    for step in steps {
        if let ElementStep::Binary(_, Operand { data, block, repeat }) = step {
            let is_there =
                *repeat > 0 && !data.is_empty() && data.len().is_multiple_of((*block).max(1));
            check_len("operands", data, data.len() + usize::from(!is_there || *block == 0))?;
        }
    }
    unit.vectorize(Elementwise { steps, first, y });
    Ok(())
}

struct Elementwise<'a> {
    steps: &'a [ElementStep<'a>],
    first: usize,
    y: &'a mut [f32],
}

impl SimdOp for Elementwise<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { steps, mut first, y: mut left } = self;
        // Blocks end where operands change, if that lets steps be computed in registers.
        let is_run = |pair: &[ElementStep<'_>]| pair.iter().all(ElementStep::may_be_uniform);
        let repeats = steps.iter().filter_map(ElementStep::repeat);
        let repeats = repeats.filter(|&repeat| repeat >= HELD * S::LANES);
        let same = repeats.min().filter(|_| steps.windows(2).any(is_run)).unwrap_or(BLOCK);
        let len = same.div_ceil(same.div_ceil(BLOCK));
        while !left.is_empty() {
            let (block, others) = left.split_at_mut(left.len().min(len).min(same - first % same));
            left = others;
            let mut rest = steps;
            while let [step, others @ ..] = rest {
                let is_uniform = |step: &&ElementStep<'_>| step.is_uniform(first, block.len());
                let uniform = rest.iter().take_while(is_uniform).count();
                if uniform > 1 {
                    apply_uniform(simd, &rest[..uniform], first, block);
                    rest = &rest[uniform..];
                    continue;
                }
                match *step {
                    ElementStep::Activation(activation) => {
                        Finish { y: &mut *block, residual: None, activation }.run(simd);
                    }
                    ElementStep::Unary(unary) => apply_unary(unary, block),
                    ElementStep::Binary(binary, operand) => {
                        apply_runs(binary, operand, first, block);
                    }
                }
                rest = others;
            }
            first += block.len();
        }
    }
}

impl ElementStep<'_> {
    /// How many elements one after the other have the same operand, if not all elements have it.
    fn repeat(&self) -> Option<usize> {
        match self {
            Self::Binary(_, Operand { data, block: 1, repeat }) if data.len() > 1 => Some(*repeat),
            _ => None,
        }
    }

    /// Whether [`apply_uniform`] takes the step for some elements: Clip, or arithmetic with one operand for several of them.
    fn may_be_uniform(&self) -> bool {
        match self {
            Self::Activation(activation) => matches!(activation, Activation::Clip { .. }),
            Self::Unary(_) | Self::Binary(Binary::Greatest | Binary::Least, _) => false,
            Self::Binary(_, operand) => operand.data.len() == 1 || operand.block == 1,
        }
    }

    /// Whether [`apply_uniform`] takes the step for `count` elements from number `first` on.
    fn is_uniform(&self, first: usize, count: usize) -> bool {
        let meets_one = match self {
            Self::Binary(_, operand) => operand.is_uniform(first, count),
            Self::Activation(_) | Self::Unary(_) => true,
        };
        self.may_be_uniform() && meets_one
    }
}

impl Operand<'_> {
    /// Whether all of `count` elements from number `first` on have the same operand.
    fn is_uniform(&self, first: usize, count: usize) -> bool {
        let is_repeated = || self.block == 1 && first % self.repeat + count <= self.repeat;
        self.data.len() == 1 || is_repeated()
    }

    /// The position of the operand of element number `at`.
    #[inline(always)]
    fn place(&self, at: usize) -> usize {
        at / (self.block * self.repeat) * self.block % self.data.len() + at % self.block
    }
}

/// Applies steps with the same operands for all elements, of which the first is number `first` of its tensor.
#[inline(always)]
fn apply_uniform<S: Simd>(simd: S, steps: &[ElementStep<'_>], first: usize, elements: &mut [f32]) {
    let held = HELD * S::LANES;
    let mut groups = elements.chunks_exact_mut(held);
    for group in &mut groups {
        apply_in_registers(simd, steps, first, group);
    }
    let rest = groups.into_remainder();
    if !rest.is_empty() {
        // Every element is computed by itself: what stands behind them changes nothing.
        let mut group = [1.0; HELD * LANES_MAX];
        group[..rest.len()].copy_from_slice(rest);
        apply_in_registers(simd, steps, first, &mut group[..held]);
        rest.copy_from_slice(&group[..rest.len()]);
    }
}

/// Applies steps to [`HELD`] vectors. In each step, all their elements have the operand of element number `first`.
#[inline(always)]
fn apply_in_registers<S: Simd>(
    simd: S,
    steps: &[ElementStep<'_>],
    first: usize,
    elements: &mut [f32],
) {
    assert_eq!(elements.len(), HELD * S::LANES, "vectors that are held");
    let from = elements.as_mut_ptr();
    let mut x = [simd.splat(0.0); HELD];
    for (at, x) in x.iter_mut().enumerate() {
        // SAFETY: the elements are `HELD` vectors.
        *x = unsafe { simd.load(from.add(at * S::LANES)) };
    }
    for step in steps {
        match *step {
            ElementStep::Activation(Activation::Clip { low, high }) => {
                let (low, high) = (simd.splat(low), simd.splat(high));
                for x in &mut x {
                    *x = simd.min(high, simd.max(low, *x));
                }
            }
            ElementStep::Binary(binary, operand) => {
                let b = simd.splat(operand.data[operand.place(first)]);
                for x in &mut x {
                    *x = match binary {
                        Binary::Add => simd.add(*x, b),
                        Binary::Subtract => simd.sub(*x, b),
                        Binary::SubtractFrom => simd.sub(b, *x),
                        Binary::Multiply => simd.mul(*x, b),
                        Binary::Divide => simd.div(*x, b),
                        Binary::DivideInto => simd.div(b, *x),
                        Binary::Greatest | Binary::Least => unreachable!("no uniform step"),
                    };
                }
            }
            ElementStep::Activation(_) | ElementStep::Unary(_) => unreachable!("no uniform step"),
        }
    }
    for (at, x) in x.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { simd.store(from.add(at * S::LANES), x) };
    }
}

/// Applies an operator to some elements, one run of operands after the other that lie side by side or are the same.
#[inline(always)]
fn apply_runs(binary: Binary, operand: Operand<'_>, first: usize, elements: &mut [f32]) {
    let Operand { data, block, repeat } = operand;
    let (mut at, mut left) = (first, elements);
    while !left.is_empty() {
        let place = operand.place(at);
        let is_one = data.len() == 1;
        let is_same = is_one || (block == 1 && repeat > 1);
        let run = match (is_one, block, repeat) {
            (true, ..) => left.len(),
            (false, 1, 1) => (data.len() - place).min(left.len()),
            (false, 1, _) => (repeat - at % repeat).min(left.len()),
            (false, ..) => (block - at % block).min(left.len()),
        };
        let (run, rest) = left.split_at_mut(run);
        at += run.len();
        if is_same {
            let operand = data[place];
            apply(binary, run.iter_mut().map(|x| (x, operand)));
        } else {
            let operands = data[place..][..run.len()].iter();
            apply(binary, run.iter_mut().zip(operands.copied()));
        }
        left = rest;
    }
}

/// Applies an operator, which is matched once and not for each element.
#[inline(always)]
fn apply_unary(unary: Unary, elements: &mut [f32]) {
    use Unary::{Ceiling, Floor, Magnitude, Nearest, Negative, Root};
    let elements = elements.iter_mut();
    match unary {
        Root => elements.for_each(|x| *x = Root.of(*x)),
        Negative => elements.for_each(|x| *x = Negative.of(*x)),
        Magnitude => elements.for_each(|x| *x = Magnitude.of(*x)),
        Floor => elements.for_each(|x| *x = Floor.of(*x)),
        Ceiling => elements.for_each(|x| *x = Ceiling.of(*x)),
        Nearest => elements.for_each(|x| *x = Nearest.of(*x)),
    }
}

/// As [`apply_unary`], to elements with their operands.
#[inline(always)]
fn apply<'a>(binary: Binary, pairs: impl Iterator<Item = (&'a mut f32, f32)>) {
    use Binary::{Add, Divide, DivideInto, Greatest, Least, Multiply, Subtract, SubtractFrom};
    match binary {
        Add => pairs.for_each(|(x, b)| *x = Add.of(*x, b)),
        Subtract => pairs.for_each(|(x, b)| *x = Subtract.of(*x, b)),
        SubtractFrom => pairs.for_each(|(x, b)| *x = SubtractFrom.of(*x, b)),
        Multiply => pairs.for_each(|(x, b)| *x = Multiply.of(*x, b)),
        Divide => pairs.for_each(|(x, b)| *x = Divide.of(*x, b)),
        DivideInto => pairs.for_each(|(x, b)| *x = DivideInto.of(*x, b)),
        Greatest => pairs.for_each(|(x, b)| *x = Greatest.of(*x, b)),
        Least => pairs.for_each(|(x, b)| *x = Least.of(*x, b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Binary; 8] = [
        Binary::Add,
        Binary::Subtract,
        Binary::SubtractFrom,
        Binary::Multiply,
        Binary::Divide,
        Binary::DivideInto,
        Binary::Greatest,
        Binary::Least,
    ];

    fn by_definition(binary: Binary, x: f32, b: f32) -> f32 {
        match binary {
            Binary::Add => x + b,
            Binary::Subtract => x - b,
            Binary::SubtractFrom => b - x,
            Binary::Multiply => x * b,
            Binary::Divide => x / b,
            Binary::DivideInto => b / x,
            Binary::Greatest | Binary::Least if x.is_nan() || b.is_nan() => f32::NAN,
            Binary::Greatest => x.max(b),
            Binary::Least => x.min(b),
        }
    }

    #[test]
    fn steps_are_those_of_their_definition_on_every_instruction_set() {
        let x: Vec<f32> = (0..2500).map(|n| ((n * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let operands: Vec<f32> = (0..2500).map(|n| ((n * 53 % 89) as f32 - 44.5) / 5.0).collect();
        let of_one = [(1, 1), (2500, 1), (25, 1), (25, 100), (5, 7), (3, 2500)];
        let of_one = of_one.map(|(count, repeat)| (count, 1, repeat));
        for (count, block, repeat) in
            of_one.into_iter().chain([(90, 30, 7), (1200, 300, 4), (6, 2, 3), (50, 50, 9)])
        {
            let operand = Operand { data: &operands[..count], block, repeat };
            let steps: Vec<ElementStep<'_>> =
                ALL.into_iter().map(|binary| ElementStep::Binary(binary, operand)).collect();
            let wanted: Vec<u32> = (0..x.len())
                .map(|at| {
                    let b = operands[at / (block * repeat) % (count / block) * block + at % block];
                    ALL.into_iter().fold(x[at], |x, binary| by_definition(binary, x, b)).to_bits()
                })
                .collect();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let mut y = x.clone();
                // In two parts, as two threads would.
                let (one, two) = y.split_at_mut(1111);
                elementwise(isa, &steps, 0, one).unwrap();
                elementwise(isa, &steps, 1111, two).unwrap();
                let found: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
                assert!(found == wanted, "{isa:?} {count} {block} {repeat}");
            }
        }
    }

    #[test]
    fn uniform_steps_have_the_bits_of_one_step_after_the_other() {
        let x: Vec<f32> = (0..2500).map(|n| ((n * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let data = [0.37, 12_582_912.0, 12_582_912.0, 131.0, 131.0, 0.37, 3.0];
        let each: Vec<[f32; 8]> =
            data.map(|number| [1, 2, 3, 4, 5, 6, 7, 8].map(|n| number * n as f32)).into();
        for (operands, repeat) in [(1, 1), (8, 7), (8, 200), (2, 1400)] {
            let of = |at: usize| Operand { data: &each[at][..operands], block: 1, repeat };
            let steps = [
                ElementStep::Binary(Binary::Divide, of(0)),
                ElementStep::Binary(Binary::Add, of(1)),
                ElementStep::Binary(Binary::Subtract, of(2)),
                ElementStep::Binary(Binary::Add, of(3)),
                ElementStep::Activation(Activation::Clip { low: 0.0, high: 255.0 }),
                ElementStep::Binary(Binary::SubtractFrom, of(4)),
                ElementStep::Binary(Binary::Multiply, of(5)),
                ElementStep::Binary(Binary::DivideInto, of(6)),
            ];
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                for (first, count) in [(0, 0), (0, 1), (3, 63), (0, 64), (190, 65), (77, 2400)] {
                    let (mut together, mut apart) = (x[..count].to_vec(), x[..count].to_vec());
                    for y in [&mut together, &mut apart] {
                        y.iter_mut().take(1).for_each(|y| *y = f32::NAN);
                    }
                    elementwise(isa, &steps, first, &mut together).unwrap();
                    for step in steps {
                        elementwise(isa, &[step], first, &mut apart).unwrap();
                    }
                    let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<u32>>();
                    let at = format!("{isa:?} {operands} {repeat} {first} {count}");
                    assert_eq!(bits(&together), bits(&apart), "{at}");
                    assert!(count == 0 || together[0].is_nan(), "{at}");
                }
            }
        }
    }

    #[test]
    fn nan_stays_and_activations_are_steps() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let mut y = [f32::NAN, 4.0, 9.0];
            let one = Operand { data: &[1.0], block: 1, repeat: 1 };
            let steps = [
                ElementStep::Unary(Unary::Root),
                ElementStep::Binary(Binary::Greatest, one),
                ElementStep::Binary(Binary::Least, Operand { data: &[2.5], block: 1, repeat: 1 }),
                ElementStep::Activation(Activation::Clip { low: 0.0, high: 2.25 }),
            ];
            elementwise(isa, &steps, 0, &mut y).unwrap();
            assert!(y[0].is_nan() && y[1..] == [2.0, 2.25], "{isa:?} {y:?}");
        }
    }

    #[test]
    fn steps_without_operands_are_errors() {
        let of = |data, block, repeat| Operand { data, block, repeat };
        for operand in [of(&[], 1, 1), of(&[1.0], 1, 0), of(&[1.0], 0, 1), of(&[1.0; 3], 2, 1)] {
            let steps = [ElementStep::Binary(Binary::Add, operand)];
            assert!(elementwise(Isa::Scalar, &steps, 0, &mut [0.0]).is_err());
        }
    }
}
