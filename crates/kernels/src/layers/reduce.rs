//! Sums, means, and the greatest and least elements along an axis.
//!
//! **Order.** Of 16 or more elements that lie side by side, each goes to the next of 16 parts, which are joined in pairs, 8 apart, then
//! 4, 2 and 1. The greatest and the least of finite numbers have 32 parts; [`extremes`]
//! has them for rows of any length, so that its zeros may have another sign. Other sums are in the order of the axis. So bits are the same on
//! every instruction set.

use crate::error::KernelError;
use crate::layers::operators::{greatest, least};
use crate::layers::sum_parts::PARTS;
use crate::packing::checks::check_len;
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Parts of which the greatest or the least element is found: several vectors, none of which waits for another.
const PARTS_OF_EXTREMES: usize = 2 * PARTS;

/// The number that elements along an axis are reduced to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum (ReduceSum); 0 of none.
    Sum,
    /// Their mean (ReduceMean); NaN of none.
    Mean,
    /// The greatest (ReduceMax), negative infinity of none; NaN if one is.
    Greatest,
    /// The least (ReduceMin), infinity of none; NaN if one is.
    Least,
}

/// Reduces x `[outer, length, inner]` to y `[outer, inner]`.
///
/// # Errors
/// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; [`KernelError::Length`] where a tensor has another length.
pub fn reduce(
    isa: Isa,
    reduction: Reduction,
    [outer, length, inner]: [usize; 3],
    x: &[f32],
    y: &mut [f32],
) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    check_len("y", y, outer * inner)?;
    check_len("x", x, outer * length * inner)?;
    unit.vectorize(Reduce { reduction, length, inner, x, y });
    Ok(())
}

/// The least and the greatest of each row of x `[rows, length]`, in one pass: y `[rows, 2]`. NaN if an element is; infinity and negative
/// infinity of no elements.
///
/// # Errors
/// As those of [`reduce`].
pub fn extremes(
    isa: Isa,
    [rows, length]: [usize; 2],
    x: &[f32],
    y: &mut [f32],
) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    check_len("y", y, 2 * rows)?;
    check_len("x", x, rows * length)?;
    unit.vectorize(Extremes { length, x, y });
    Ok(())
}

struct Extremes<'a> {
    length: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl SimdOp for Extremes<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { length, x, y } = self;
        for (number, y) in y.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *y = extremes_of_row(simd, &x[number * length..][..length]);
        }
    }
}

struct Reduce<'a> {
    reduction: Reduction,
    length: usize,
    inner: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl SimdOp for Reduce<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.reduction {
            Reduction::Sum | Reduction::Mean => self.by(
                0.0,
                add,
                #[inline(always)]
                |row| of_row(row, 0.0, add),
            ),
            Reduction::Greatest => self.by(
                f32::NEG_INFINITY,
                greatest,
                #[inline(always)]
                |row| extremes_of_row(simd, row)[1],
            ),
            Reduction::Least => self.by(
                f32::INFINITY,
                least,
                #[inline(always)]
                |row| extremes_of_row(simd, row)[0],
            ),
        }
    }
}

impl Reduce<'_> {
    /// Joins elements; those of a row of [`PARTS`] or more by `of_row`.
    #[inline(always)]
    fn by(self, start: f32, join: impl Fn(f32, f32) -> f32 + Copy, of_row: impl Fn(&[f32]) -> f32) {
        let Self { reduction, length, inner, x, y } = self;
        if inner == 1 && length < PARTS {
            match length {
                2 => of_short_rows::<2>(x, y, start, join),
                3 => of_short_rows::<3>(x, y, start, join),
                4 => of_short_rows::<4>(x, y, start, join),
                _ => {
                    for (number, y) in y.iter_mut().enumerate() {
                        let row = x[number * length..][..length].iter();
                        *y = row.fold(start, |joined, x| join(joined, *x));
                    }
                }
            }
        } else if inner == 1 {
            for (number, y) in y.iter_mut().enumerate() {
                *y = of_row(&x[number * length..][..length]);
            }
        } else {
            for (number, y) in y.chunks_exact_mut(inner.max(1)).enumerate() {
                y.fill(start);
                let of_outer = &x[number * length * inner..][..length * inner];
                for row in of_outer.chunks_exact(inner) {
                    y.iter_mut().zip(row).for_each(|(y, x)| *y = join(*y, *x));
                }
            }
        }
        if reduction == Reduction::Mean {
            let count = length as f32;
            y.iter_mut().for_each(|y| *y /= count);
        }
    }
}

#[inline(always)]
fn of_short_rows<const LENGTH: usize>(
    x: &[f32],
    y: &mut [f32],
    start: f32,
    join: impl Fn(f32, f32) -> f32,
) {
    let (rows, _) = x.as_chunks::<LENGTH>();
    for (y, row) in y.iter_mut().zip(rows) {
        *y = start;
        for x in row {
            *y = join(*y, *x);
        }
    }
}

#[inline(always)]
fn add(a: f32, b: f32) -> f32 {
    a + b
}

#[inline(always)]
fn of_row(row: &[f32], start: f32, join: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let mut parts = [start; PARTS];
    let (lines, rest) = row.as_chunks::<PARTS>();
    for line in lines {
        for part in 0..PARTS {
            parts[part] = join(parts[part], line[part]);
        }
    }
    joined(parts, rest, join)
}

/// The least and the greatest of a row.
#[inline(always)]
fn extremes_of_row<S: Simd>(simd: S, row: &[f32]) -> [f32; 2] {
    let vectors = const { PARTS_OF_EXTREMES / S::LANES };
    let (lines, rest) = row.as_chunks::<PARTS_OF_EXTREMES>();
    // Of each part, its extremes, and a zero that is NaN once an element is NaN or infinite.
    let mut lowest = [simd.splat(f32::INFINITY); PARTS_OF_EXTREMES];
    let mut highest = [simd.splat(f32::NEG_INFINITY); PARTS_OF_EXTREMES];
    let mut zeros = [simd.splat(0.0); PARTS_OF_EXTREMES];
    for line in lines {
        for vector in 0..vectors {
            // SAFETY: a line has `vectors` vectors.
            let x = unsafe { simd.load(line.as_ptr().add(vector * S::LANES)) };
            lowest[vector] = simd.min(lowest[vector], x);
            highest[vector] = simd.max(highest[vector], x);
            zeros[vector] = simd.add(zeros[vector], simd.mul(x, simd.splat(0.0)));
        }
    }
    let [lowest, highest, zeros] = [lowest, highest, zeros].map(
        #[inline(always)]
        |all| {
            let mut parts = [0.0; PARTS_OF_EXTREMES];
            for (vector, x) in all[..vectors].iter().enumerate() {
                // SAFETY: the parts have `vectors` vectors.
                unsafe { simd.store(parts.as_mut_ptr().add(vector * S::LANES), *x) };
            }
            parts
        },
    );
    if zeros.iter().any(|zero| zero.is_nan()) {
        return [of_row(row, f32::INFINITY, least), of_row(row, f32::NEG_INFINITY, greatest)];
    }
    [joined(lowest, rest, least), joined(highest, rest, greatest)]
}

/// Parts of a row, joined with the elements that are left of it, then in pairs: half of them apart, then a quarter, down to 1.
#[inline(always)]
fn joined<const PARTS: usize>(
    mut parts: [f32; PARTS],
    rest: &[f32],
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    for (part, x) in parts.iter_mut().zip(rest) {
        *part = join(*part, *x);
    }
    let mut apart = PARTS / 2;
    while apart > 0 {
        for part in 0..apart {
            parts[part] = join(parts[part], parts[part + apart]);
        }
        apart /= 2;
    }
    parts[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Reduction; 4] =
        [Reduction::Sum, Reduction::Mean, Reduction::Greatest, Reduction::Least];

    #[test]
    fn reductions_are_those_of_their_definition() {
        for [outer, length, inner] in [
            [3, 40, 1],
            [2, 64, 1],
            [2, 171, 1],
            [2, 7, 1],
            [9, 3, 1],
            [1, 0, 1],
            [2, 5, 19],
            [2, 0, 3],
            [4, 1, 2],
        ] {
            let count = outer * length * inner;
            let x: Vec<f32> = (0..count).map(|n| ((n * 37 % 101) as f32 - 50.0) / 7.0).collect();
            for reduction in ALL {
                let of = |outer: usize, at: usize| {
                    (0..length).map(move |n| (outer * length + n) * inner + at)
                };
                let mut first: Option<Vec<u32>> = None;
                for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                    let mut y = vec![7.0; outer * inner];
                    reduce(isa, reduction, [outer, length, inner], &x, &mut y).unwrap();
                    for (number, &y) in y.iter().enumerate() {
                        let elements = of(number / inner, number % inner).map(|at| x[at]);
                        let sum: f64 = elements.clone().map(f64::from).sum();
                        let wanted = match reduction {
                            Reduction::Sum => sum as f32,
                            Reduction::Mean => (sum / length as f64) as f32,
                            Reduction::Greatest => elements.fold(f32::NEG_INFINITY, f32::max),
                            Reduction::Least => elements.fold(f32::INFINITY, f32::min),
                        };
                        let is_near = (y - wanted).abs() < 1e-4 || y == wanted;
                        assert!(is_near || (y.is_nan() && wanted.is_nan()), "{y} {wanted}");
                    }
                    let bits: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
                    assert_eq!(first.get_or_insert(bits.clone()), &bits, "{isa:?}");
                }
            }
        }
    }

    #[test]
    fn both_extremes_are_those_of_two_reductions() {
        for [rows, length] in [[3, 40], [2, 171], [2, 7], [1, 0], [1, 32]] {
            let mut x: Vec<f32> =
                (0..rows * length).map(|n| ((n * 37 % 101) as f32 - 50.0) / 7.0).collect();
            for nan in [None, x.len().checked_sub(3)] {
                if let Some(at) = nan {
                    x[at] = f32::NAN;
                }
                for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                    let mut both = vec![7.0; 2 * rows];
                    extremes(isa, [rows, length], &x, &mut both).unwrap();
                    for (at, reduction) in
                        [Reduction::Least, Reduction::Greatest].into_iter().enumerate()
                    {
                        let mut y = vec![7.0; rows];
                        reduce(isa, reduction, [rows, length, 1], &x, &mut y).unwrap();
                        for (row, y) in y.into_iter().enumerate() {
                            let found = both[2 * row + at];
                            assert!(
                                found == y || (found.is_nan() && y.is_nan()),
                                "{isa:?} {found} {y}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_nan_is_the_result() {
        let mut x = vec![1.0; 50];
        for place in [20, 48] {
            x.fill(f32::INFINITY);
            x[place] = f32::NAN;
            for reduction in ALL {
                for shape in [[1, 50, 1], [1, 25, 2]] {
                    let mut y = vec![0.0; shape[2]];
                    reduce(Isa::best(), reduction, shape, &x, &mut y).unwrap();
                    assert!(y[place % shape[2]].is_nan(), "{reduction:?}");
                }
            }
        }
    }

    #[test]
    fn extremes_are_infinities_and_zeros_with_their_signs() {
        let extremes = |isa, x: &[f32]| {
            [Reduction::Least, Reduction::Greatest].map(|reduction| {
                let mut y = [7.0];
                reduce(isa, reduction, [1, x.len(), 1], x, &mut y).unwrap();
                y[0].to_bits()
            })
        };
        let mut infinite = [1.0; 75];
        (infinite[3], infinite[70]) = (f32::NEG_INFINITY, f32::INFINITY);
        let mut zeros = [0.0; 75];
        zeros.iter_mut().step_by(3).for_each(|x| *x = -0.0);
        let of_zeros = extremes(Isa::Scalar, &zeros);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let wanted = [f32::NEG_INFINITY, f32::INFINITY].map(f32::to_bits);
            assert_eq!(extremes(isa, &infinite), wanted, "{isa:?}");
            assert_eq!(extremes(isa, &zeros), of_zeros, "{isa:?}");
        }
    }
}
