//! Elements of an axis that are taken in a constant order: windows as `Gather` writes them, and reflected edges.

use std::ops::Range;

use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;

/// The elements of an axis at constant positions (the ONNX operators `Gather`, and `Pad` that reflects or repeats the edge).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Take {
    axis: usize,
    /// Elements of the axis before.
    length: usize,
    /// The axes that take its place.
    dims: Vec<usize>,
    /// The positions, those that follow each other as one range.
    runs: Vec<Range<usize>>,
}

impl Take {
    /// Takes elements of an axis of `length` elements; none if a position is outside of it.
    pub(super) fn new(
        (axis, length): (usize, usize),
        dims: Vec<usize>,
        positions: impl Iterator<Item = Option<usize>>,
    ) -> Option<Self> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for position in positions {
            let position = position.filter(|&position| position < length)?;
            match runs.last_mut().filter(|run| run.end == position) {
                Some(run) => run.end += 1,
                None => runs.push(position..position + 1),
            }
        }
        Some(Self { axis, length, dims, runs })
    }

    /// Takes the elements of `x`.
    pub(super) fn run(&self, x: &Value) -> Result<Value, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("elements of an axis: {reason}"));
        let shape = match x {
            Value::FloatTensor(x) => x.shape().to_vec(),
            Value::Int32Tensor(x) => x.shape().to_vec(),
            _ => Vec::new(),
        };
        if shape.get(self.axis) != Some(&self.length) {
            return Err(fails(format!("{shape:?} with {} on axis {}", self.length, self.axis)));
        }
        let (before, after) = (&shape[..self.axis], &shape[self.axis + 1..]);
        let sizes = [before, after].map(|dims| dims.iter().product::<usize>());
        let shape = [before, &self.dims, after].concat();
        match x {
            Value::FloatTensor(x) => Value::from_shape(&shape, self.taken(x, sizes))
                .map_err(|error| fails(error.to_string())),
            Value::Int32Tensor(x) => Value::from_shape(&shape, self.taken(x, sizes))
                .map_err(|error| fails(error.to_string())),
            x => Err(fails(x.dtype().to_string())),
        }
    }

    fn taken<T: Copy>(&self, x: &rten_tensor::Tensor<T>, [before, after]: [usize; 2]) -> Vec<T> {
        let x = x.to_contiguous();
        let x = x.data();
        let count: usize = self.runs.iter().map(ExactSizeIterator::len).sum();
        let mut taken = Vec::with_capacity(before * count * after);
        for row in 0..before {
            let row = &x[row * self.length * after..][..self.length * after];
            for run in &self.runs {
                taken.extend_from_slice(&row[run.start * after..run.end * after]);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(take: &Take, dims: &[usize]) -> (Vec<usize>, Vec<f32>) {
        let data: Vec<f32> = (0..dims.iter().product::<usize>()).map(|n| n as f32).collect();
        match take.run(&Value::from_shape(dims, data).unwrap()).unwrap() {
            Value::FloatTensor(y) => (y.shape().to_vec(), y.into_data()),
            _ => panic!("floats"),
        }
    }

    #[test]
    fn positions_that_follow_each_other_are_one_range() {
        let positions = [0, 1, 2, 1, 2, 3].map(Some);
        let windows = Take::new((1, 4), vec![2, 3], positions.into_iter()).unwrap();
        assert_eq!(windows.runs, [0..3, 1..4]);
        let (shape, y) = taken(&windows, &[2, 4]);
        assert_eq!(shape, [2, 2, 3]);
        assert_eq!(y, [0.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 5.0, 6.0, 7.0]);
        let (shape, y) = taken(&windows, &[1, 4, 2]);
        assert_eq!((&shape[..], &y[..4]), (&[1, 2, 3, 2][..], &[0.0, 1.0, 2.0, 3.0][..]));
        assert!(windows.run(&Value::from_shape(&[1, 3], vec![0.0; 3]).unwrap()).is_err());
        assert!(Take::new((1, 4), vec![1], [Some(4)].into_iter()).is_none());
    }
}
