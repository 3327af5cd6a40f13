//! Pools.

use std::ops::Range;

use batchmaker_kernels::{Images, Isa, Pooling, Window, pool};
use rten_onnx::onnx::NodeProto;

use crate::error::ExecutorError;
use crate::operator::operator;
use crate::sections::buffers::Buffers;
use crate::sections::constants::{int, ints};
use crate::sections::parts::{even_parts, split};
use crate::sections::tensor::ChannelsLast;
use crate::sections::windows::{resized, size, windows};
use crate::threads::ExecutorThreads;

/// Elements of x for each part of a pool that is worth another thread which waits for it: some microseconds.
const PART_ELEMENTS: usize = 1 << 15;

/// The rounding of the division that counts windows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Down,
    /// `ceil_mode`.
    Up,
    /// As an integer division: the only window of a short axis may pass its end.
    ToZero,
}

/// A `MaxPool` or `AveragePool`.
pub(super) struct Pool {
    pooling: Pooling,
    /// The number of axes that it is over, 1 or 2.
    axes: usize,
    /// The windows along height and width; along one axis, it is the width.
    windows: [Window; 2],
    rounding: Rounding,
}

impl Pool {
    /// The pool that a node is; none if it is over more than two axes, or has windows of another kind.
    pub(super) fn of(node: &NodeProto) -> Option<Self> {
        let is_padded = int(node, "count_include_pad", 0) != 0;
        let pooling = match (operator(node), is_padded) {
            ("MaxPool", _) => Pooling::Max,
            ("AveragePool", false) => Pooling::Mean,
            ("AveragePool", true) => Pooling::MeanOfPadded,
            _ => return None,
        };
        let axes = (1..=2).find(|&axes| ints(node, "kernel_shape", 1, axes).is_some())?;
        let kernel = ints(node, "kernel_shape", 1, axes)?;
        let rounding = match int(node, "ceil_mode", 0) {
            0 => Rounding::Down,
            _ => Rounding::Up,
        };
        let is_odd = is_padded && rounding == Rounding::Up;
        let windows = windows(node, &kernel).filter(|_| !is_odd)?;
        let is_plain = windows.iter().all(|window| window.dilation == 1);
        is_plain.then_some(Self { pooling, axes, windows, rounding })
    }

    /// Has the division that counts windows rounded to zero, where `(length + extra) / stride + 1` counts them along `axes` of
    /// a tensor, given its strides and extras along these. Returns false if that is not the number of its windows.
    pub(super) fn round_to_zero(&mut self, axes: &[i64], strides: &[i64], extras: &[i64]) -> bool {
        let windows = &self.windows[2 - self.axes..];
        let counts = axes.iter().zip(strides).zip(extras).all(|((&axis, &stride), &extra)| {
            let window = usize::try_from(axis - 2).ok().and_then(|at| windows.get(at));
            window.is_some_and(|&Window { kernel, stride: own, before, after, .. }| {
                stride == own as i64 && extra == (before + after) as i64 - kernel as i64
            })
        });
        let is_counted = counts
            && self.rounding == Rounding::Up
            && [strides.len(), extras.len()] == [axes.len(); 2];
        if is_counted {
            self.rounding = Rounding::ToZero;
        }
        is_counted
    }

    /// Pools `x`.
    pub(super) fn run(
        &self,
        x: &ChannelsLast,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<ChannelsLast, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a pool: {reason}"));
        let size = size(&x.shape).ok_or_else(|| fails(format!("of {:?}", x.shape)))?;
        let count = |axis: usize| self.count(self.windows[axis], size[axis]);
        let out = count(0).zip(count(1)).map(|(height, width)| [height, width]);
        let out = out.ok_or_else(|| fails("windows wider than x".to_owned()))?;
        let (count, channels) = (x.shape[0], x.shape[1]);
        let shape = resized(&x.shape, channels, out);
        let mut data = buffers.take(shape.iter().product());
        let images = Images { count, size, x: &x.data };
        let (rows, row_len) = (count * out[0], out[1] * channels);
        let run = |(rows, y): (Range<usize>, &mut [f32])| {
            let out = (channels, out);
            pool(Isa::best(), self.pooling, self.windows, images, out, rows, y)
                .map_err(|error| fails(error.to_string()))
        };
        let worth = (x.data.len() / PART_ELEMENTS).clamp(1, rows.max(1));
        threads.share(worth, |count| split(&mut data, even_parts(rows, count), row_len), run)?;
        Ok(ChannelsLast { shape, data })
    }

    /// The number of windows over `length` elements.
    fn count(&self, window: Window, length: usize) -> Option<usize> {
        let padded = (length + window.before + window.after) as i64;
        let (room, stride) = (padded - window.kernel as i64, window.stride as i64);
        let count = match self.rounding {
            Rounding::Down if room < 0 => 0,
            Rounding::ToZero if room <= -stride => 0,
            Rounding::Down | Rounding::ToZero => room / stride + 1,
            Rounding::Up => {
                let count = room.div_euclid(stride) + i64::from(room.rem_euclid(stride) > 0) + 1;
                // A window that begins behind the end is left out.
                count - i64::from((count - 1) * stride >= (length + window.before) as i64)
            }
        };
        usize::try_from(count).ok().filter(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use rten_onnx::onnx::{AttributeProto, AttributeType};

    use super::*;

    fn pool(attributes: &[(&str, &[i64])]) -> Pool {
        let attribute = |&(name, ints): &(&str, &[i64])| AttributeProto {
            name: Some(name.to_owned()),
            ints: ints.to_vec(),
            i: Some(ints[0]),
            r#type: Some(AttributeType::INTS),
            ..AttributeProto::default()
        };
        let op_type = Some("MaxPool".to_owned());
        let attribute = attributes.iter().map(attribute).collect();
        Pool::of(&NodeProto { op_type, attribute, ..NodeProto::default() }).unwrap()
    }

    #[test]
    fn windows_are_counted_as_rounded() {
        let line = [("kernel_shape", &[3][..]), ("strides", &[2]), ("pads", &[1, 0])];
        let counts = |pool: &Pool| [1, 2, 3, 4, 5].map(|n| pool.count(pool.windows[1], n));
        assert_eq!(counts(&pool(&line)), [None, Some(1), Some(1), Some(2), Some(2)]);
        let mut up = pool(&[&line[..], &[("ceil_mode", &[1])]].concat());
        assert_eq!(counts(&up), [Some(1), Some(1), Some(2), Some(2), Some(3)]);
        assert!(!up.round_to_zero(&[2], &[3], &[-2]), "another stride");
        assert!(!up.round_to_zero(&[2], &[2], &[-1]), "other pads");
        assert!(!up.round_to_zero(&[3], &[2], &[-2]), "an axis that it has not");
        assert!(up.round_to_zero(&[2], &[2], &[-2]));
        assert_eq!(counts(&up), [Some(1), Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn axes_of_images_are_told_apart() {
        let image = [("kernel_shape", &[1, 4][..]), ("strides", &[1, 4]), ("ceil_mode", &[1])];
        assert!(!pool(&image).round_to_zero(&[2], &[4], &[-4]));
        assert!(pool(&image).round_to_zero(&[3], &[4], &[-4]));
        assert!(pool(&image).round_to_zero(&[2, 3], &[1, 4], &[-1, -4]));
    }
}
