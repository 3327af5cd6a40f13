//! A tensor between sections, in one of two layouts.

use std::ops::Range;

use batchmaker_kernels::transpose;
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::attention::floats;
use crate::sections::buffers::Buffers;
use crate::sections::parts::{MOVED_PART_ELEMENTS, even_parts, split};
use crate::threads::ExecutorThreads;

/// A tensor of floats of rank 3 or 4 whose channels, axis 1, come last in memory: `[images, ...pixels, channels]`.
#[derive(Clone)]
pub(super) struct ChannelsLast {
    /// The shape in the file: `[images, channels, ...pixels]`.
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<f32>,
}

/// A tensor between sections.
pub(super) enum SectionTensor {
    /// A tensor in the layout of the file, of any type.
    ChannelsFirst(Value),
    ChannelsLast(ChannelsLast),
}

impl SectionTensor {
    pub(super) fn channels_first(&self) -> Result<&Value, ExecutorError> {
        match self {
            Self::ChannelsFirst(value) => Ok(value),
            Self::ChannelsLast(_) => Err(wrong_layout()),
        }
    }

    pub(super) fn channels_last(&self) -> Result<&ChannelsLast, ExecutorError> {
        match self {
            Self::ChannelsLast(tensor) => Ok(tensor),
            Self::ChannelsFirst(_) => Err(wrong_layout()),
        }
    }

    pub(super) fn into_channels_first(self) -> Result<Value, ExecutorError> {
        match self {
            Self::ChannelsFirst(value) => Ok(value),
            Self::ChannelsLast(_) => Err(wrong_layout()),
        }
    }
}

impl ChannelsLast {
    pub(super) fn of(
        value: &Value,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<Self, ExecutorError> {
        let Value::FloatTensor(tensor) = value else {
            return Err(ExecutorError::Run(format!("a convolution of {}", value.dtype())));
        };
        let shape = tensor.shape().to_vec();
        let view = tensor.to_contiguous();
        let data = view.data();
        let [images, channels, pixels] = Self::sizes(&shape);
        let mut to = buffers.take(data.len());
        swap(data, images, [channels, pixels], &mut to, threads)?;
        Ok(Self { data: to, shape })
    }

    pub(super) fn to_channels_first(
        &self,
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let [images, channels, pixels] = Self::sizes(&self.shape);
        let mut data = vec![0.0; self.data.len()];
        swap(&self.data, images, [pixels, channels], &mut data, threads)?;
        let value = Value::from_shape(&self.shape, data);
        value.map_err(|error| ExecutorError::Run(error.to_string()))
    }

    /// The shape in memory: `[images, ...pixels, channels]`.
    pub(super) fn laid_out(&self) -> Vec<usize> {
        laid_out(&self.shape)
    }

    /// The elements in their order: `[images, ...pixels, channels]`.
    pub(super) fn into_value(self) -> Result<Value, ExecutorError> {
        let value = Value::from_shape(&laid_out(&self.shape), self.data);
        value.map_err(|error| ExecutorError::Run(error.to_string()))
    }

    /// All pixels, `[images * pixels, channels]`.
    pub(super) fn into_rows(self) -> Result<Value, ExecutorError> {
        let [images, channels, pixels] = Self::sizes(&self.shape);
        let value = Value::from_shape(&[images * pixels, channels], self.data);
        value.map_err(|error| ExecutorError::Run(error.to_string()))
    }

    /// A tensor of this shape, from its pixels as [`Self::into_rows`] gives them.
    pub(super) fn of_rows(value: Value, shape: Vec<usize>) -> Result<Self, ExecutorError> {
        match value {
            Value::FloatTensor(tensor) if tensor.len() == shape.iter().product::<usize>() => {
                Ok(Self { shape, data: tensor.into_data() })
            }
            value => Err(ExecutorError::Run(format!("{} for {shape:?}", value.dtype()))),
        }
    }

    /// Tensors one behind the other along their channels.
    pub(super) fn concatenated(
        parts: &[&Self],
        buffers: &mut Buffers,
    ) -> Result<Self, ExecutorError> {
        let mut shape = parts.first().ok_or_else(wrong_layout)?.shape.clone();
        let is_like = |part: &&Self| part.shape[0] == shape[0] && part.shape[2..] == shape[2..];
        if !parts.iter().all(is_like) {
            return Err(ExecutorError::Run(format!("{shape:?} beside other shapes")));
        }
        shape[1] = parts.iter().map(|part| part.shape[1]).sum();
        let mut data = buffers.take(shape.iter().product());
        let mut skip = 0;
        for part in parts {
            let channels = part.shape[1];
            let pixels = data.chunks_exact_mut(shape[1].max(1));
            for (to, from) in pixels.zip(part.data.chunks_exact(channels.max(1))) {
                to[skip..][..channels].copy_from_slice(from);
            }
            skip += channels;
        }
        Ok(Self { shape, data })
    }

    /// Images, channels and pixels of a shape.
    pub(super) fn sizes(shape: &[usize]) -> [usize; 3] {
        let of = |at: usize| shape.get(at).copied().unwrap_or(1);
        [of(0), of(1), shape.iter().skip(2).product()]
    }
}

/// The shape in memory of a tensor whose channels come last, of this shape in the file.
pub(super) fn laid_out(shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape[1..].rotate_left(1);
    shape
}

/// A tensor of one pixel, `[images, channels, 1, ...]`, or of fewer axes than `rank`, as it broadcasts with tensors of `rank` axes whose
/// channels come last.
pub(super) fn one_pixel(value: &Value, rank: usize) -> Result<Value, ExecutorError> {
    let tensor = floats(value)?;
    let mut order: Vec<usize> = (0..tensor.ndim()).collect();
    if order.len() == rank {
        order[1..].rotate_left(1);
    }
    let turned = tensor.permuted(&order[..]);
    let value = Value::from_shape(turned.shape(), turned.to_vec());
    value.map_err(|error| ExecutorError::Run(error.to_string()))
}

pub(super) fn wrong_layout() -> ExecutorError {
    ExecutorError::Run("a section reads a tensor that is not there in its layout".to_owned())
}

/// Writes matrices `[height, width]` with their axes swapped.
fn swap(
    x: &[f32],
    matrices: usize,
    [height, width]: [usize; 2],
    y: &mut [f32],
    threads: &ExecutorThreads,
) -> Result<(), ExecutorError> {
    let lines = matrices * width;
    let worth = (y.len() / MOVED_PART_ELEMENTS).clamp(1, lines.max(1));
    let run = |(lines, y)| swap_lines(x, [height, width], lines, y);
    threads.share(worth, |count| split(y, even_parts(lines, count), height), run)
}

/// Writes the columns of matrices `[height, width]`, one matrix after the other, from number `lines.start` on.
fn swap_lines(
    x: &[f32],
    [height, width]: [usize; 2],
    lines: Range<usize>,
    mut y: &mut [f32],
) -> Result<(), ExecutorError> {
    let mut next = lines.start;
    while next < lines.end {
        let (matrix, first) = (next / width, next % width);
        let columns = first..width.min(first + lines.end - next);
        let (own, rest) = y.split_at_mut(columns.len() * height);
        next += columns.len();
        transpose(&x[matrix * height * width..][..height * width], [height, width], columns, own)
            .map_err(|error| ExecutorError::Run(error.to_string()))?;
        y = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_several_images_make_the_whole() {
        let (matrices, [height, width]) = (3, [5, 7]);
        let x: Vec<f32> = (0..matrices * height * width).map(|at| at as f32).collect();
        let column = |line: usize| {
            let (matrix, column) = (line / width, line % width);
            (0..height).map(move |row| ((matrix * height + row) * width + column) as f32)
        };
        let wanted: Vec<f32> = (0..matrices * width).flat_map(column).collect();
        for count in 1..=8 {
            let mut y = vec![-1.0; x.len()];
            for (lines, y) in split(&mut y, even_parts(matrices * width, count), height) {
                swap_lines(&x, [height, width], lines, y).unwrap();
            }
            assert_eq!(y, wanted, "{count} parts");
        }
    }
}
