//! Attention without all of its scores at once; softmax.

use std::ops::Range;

use batchmaker_kernels::{Attention, AttentionSizes, Head, Isa, Matrix, softmax};
use rten::Value;
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::buffers::Buffers;
use crate::sections::parts::{even_parts, split};
use crate::sections::strided_view::{StridedView, Viewed};
use crate::threads::ExecutorThreads;

/// Multiplications of attention, and elements of a softmax, that are worth another thread which waits for them: some microseconds.
const PART_MULTIPLICATIONS: usize = 1 << 18;

pub(super) const PART_ELEMENTS: usize = 1 << 13;

/// The softmax takes as long for one score as this number of multiplications.
const OF_SCORE: usize = 64;

/// Packing takes as long for one element of a key or of a value as this number of multiplications.
const OF_ELEMENT: usize = 8;

/// The softmax of scaled and masked scores, times values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AttentionOf {
    pub(super) scale: f32,
    /// The names of the tensors that queries, keys and values are read from, and of the mask, if there is one.
    pub(super) reads: Vec<String>,
    /// What is read of the tensors with the queries, the keys and the values.
    pub(super) views: [StridedView; 3],
    /// The operators of these views.
    pub(super) operators: Vec<String>,
    /// The names of the keys and the values, which are packed.
    pub(super) packed: [String; 2],
    /// The mask, if it is constant.
    pub(super) constant_mask: Option<Tensor<f32>>,
}

/// A tensor of floats.
pub(super) fn floats(value: &Value) -> Result<&rten_tensor::Tensor<f32>, ExecutorError> {
    match value {
        Value::FloatTensor(tensor) => Ok(tensor),
        value => {
            Err(ExecutorError::Run(format!("a tensor of {} where floats are read", value.dtype())))
        }
    }
}

impl AttentionOf {
    /// Computes attention of queries, keys, values and perhaps a mask.
    pub(super) fn run(
        &self,
        reads: &[&Value],
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let misfit = || ExecutorError::Run("attention of shapes that do not fit".to_owned());
        let tensors = reads.iter().map(|value| floats(value)).collect::<Result<Vec<_>, _>>()?;
        let [q, k, v, ..] = tensors[..] else { return Err(misfit()) };
        let [of_queries, of_keys, of_values] = &self.views;
        let q = of_queries.viewed(q, false)?;
        let (k, v) = (of_keys.viewed(k, true)?, of_values.viewed(v, false)?);
        let [of_q, of_k, of_v] = [&q, &k, &v].map(Viewed::shape);
        let (heads, &[queries, of_key]) = of_q.split_last_chunk::<2>().ok_or_else(misfit)?;
        let (heads_of_k, &[depth, keys]) = of_k.split_last_chunk::<2>().ok_or_else(misfit)?;
        let (heads_of_v, &[rows, of_value]) = of_v.split_last_chunk::<2>().ok_or_else(misfit)?;
        let sizes = AttentionSizes { queries, keys, of_key, of_value };
        let mask = tensors.get(3).copied().or(self.constant_mask.as_ref());
        let mask = mask.map(|mask| Mask::of(mask, heads, [queries, keys]));
        let mask = mask.map(|mask| mask.ok_or_else(misfit)).transpose()?;
        if heads_of_k != heads || heads_of_v != heads || depth != of_key || rows != keys {
            return Err(misfit());
        }
        let count: usize = heads.iter().product();
        let shape = [heads, &[queries, of_value]].concat();
        let mut y = buffers.take(shape.iter().product());
        let run = |(of, y): (Range<usize>, &mut [f32])| {
            let fails =
                |error: &dyn std::fmt::Display| ExecutorError::Run(format!("attention: {error}"));
            let attention = Attention::new(Isa::best(), sizes, self.scale);
            let mut attention = attention.map_err(|error| fails(&error))?;
            for (at, y) in of.zip(y.chunks_exact_mut((queries * of_value).max(1))) {
                let head = Head {
                    q: matrix(&q, at),
                    k: matrix(&k, at),
                    v: matrix(&v, at),
                    mask: mask.as_ref().map(|mask| mask.of_head(at)),
                };
                attention.run(head, y).map_err(|error| fails(&error))?;
            }
            Ok(())
        };
        let of_head =
            keys * (queries * (of_key + of_value + OF_SCORE) + OF_ELEMENT * (of_key + of_value));
        let worth = (count * of_head / PART_MULTIPLICATIONS).clamp(1, count.max(1));
        threads.share(
            worth,
            |parts| split(&mut y, even_parts(count, parts), queries * of_value),
            run,
        )?;
        Value::from_shape(&shape, y).map_err(|error| ExecutorError::Run(error.to_string()))
    }
}

/// Matrix number `at`.
fn matrix<'a>(of: &'a Viewed<'_, f32>, at: usize) -> Matrix<'a> {
    let (data, strides) = of.matrix(at);
    Matrix { data, strides }
}

/// The numbers that are added to scores.
struct Mask<'a> {
    data: std::borrow::Cow<'a, [f32]>,
    /// Where each head's begin.
    firsts: Vec<usize>,
    /// Elements of a head's.
    len: usize,
    /// Elements from a query's to the next one's.
    step: usize,
}

impl<'a> Mask<'a> {
    /// The mask of heads with this number of queries and keys; none if its shape is another.
    fn of(
        mask: &'a rten_tensor::Tensor<f32>,
        heads: &[usize],
        [queries, keys]: [usize; 2],
    ) -> Option<Self> {
        let (lead, &[rows, columns]) = mask.shape().split_last_chunk::<2>()?;
        let missing = heads.len().checked_sub(lead.len())?;
        let mut pairs = lead.iter().zip(&heads[missing..]);
        let fits = columns == keys
            && (rows == queries || rows == 1)
            && pairs.all(|(of_mask, of_heads)| *of_mask == 1 || of_mask == of_heads);
        if !fits {
            return None;
        }
        let len = rows * columns;
        let first = |head: usize| {
            let (mut rest, mut first, mut step) = (head, 0, len);
            for axis in (0..heads.len()).rev() {
                let place = rest % heads[axis].max(1);
                rest /= heads[axis].max(1);
                if let Some(&n) = axis.checked_sub(missing).and_then(|axis| lead.get(axis)) {
                    first += if n == 1 { 0 } else { place * step };
                    step *= n;
                }
            }
            first
        };
        let firsts = (0..heads.iter().product()).map(first).collect();
        let step = if rows == 1 { 0 } else { columns };
        let data = match mask.data() {
            Some(data) => data.into(),
            None => mask.iter().copied().collect::<Vec<f32>>().into(),
        };
        Some(Self { data, firsts, len, step })
    }

    fn of_head(&self, head: usize) -> (&[f32], usize) {
        (&self.data[self.firsts[head]..][..self.len], self.step)
    }
}

/// The softmax of each row of the last axis.
pub(super) fn softmax_of_rows(
    x: &Value,
    threads: &ExecutorThreads,
) -> Result<Value, ExecutorError> {
    let tensor = floats(x)?;
    let shape = tensor.shape().to_vec();
    let length = shape.last().copied().unwrap_or(1);
    let mut y = tensor.to_contiguous().data().to_vec();
    let rows = y.len().checked_div(length).unwrap_or(0);
    let worth = (y.len() / PART_ELEMENTS).clamp(1, rows.max(1));
    let run = |(_, y): (Range<usize>, &mut [f32])| {
        let ran = softmax(Isa::best(), length, y);
        ran.map_err(|error| ExecutorError::Run(format!("a softmax: {error}")))
    };
    threads.share(worth, |count| split(&mut y, even_parts(rows, count), length), run)?;
    Value::from_shape(&shape, y).map_err(|error| ExecutorError::Run(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_found_for_each_head() {
        let mask = |shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            rten_tensor::Tensor::from_data(shape, (0..count).map(|n| n as f32).collect::<Vec<_>>())
        };
        let of_requests = mask(&[2, 1, 1, 3]);
        let found = Mask::of(&of_requests, &[2, 4], [5, 3]).unwrap();
        assert_eq!(found.of_head(3), (&[0.0, 1.0, 2.0][..], 0));
        assert_eq!(found.of_head(4), (&[3.0, 4.0, 5.0][..], 0));
        let shared = mask(&[5, 3]);
        let found = Mask::of(&shared, &[2, 4], [5, 3]).unwrap();
        assert_eq!((found.of_head(7).0.len(), found.of_head(7).1), (15, 3));
        assert_eq!(found.of_head(7).0[..2], [0.0, 1.0]);
        assert!(Mask::of(&shared, &[2, 4], [6, 3]).is_none());
        assert!(Mask::of(&of_requests, &[3, 4], [5, 3]).is_none());
    }
}
