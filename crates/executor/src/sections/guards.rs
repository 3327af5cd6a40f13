//! Operators that rten computes for one row otherwise than for several (`row_count.rs`), run so that this makes no difference.

use rten::{Value, ValueOrView};
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::row_count::is_by_vectors;
use crate::sections::fallback::Fallback;
use crate::threads::ExecutorThreads;

/// A `MatMul` or a `Div` with a computed operand.
pub(super) struct Guard {
    pub(super) operator: Guarded,
    /// The operator in rten.
    pub(super) fallback: Box<Fallback>,
}

/// The operator of a [`Guard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    /// `MatMul`. The shape of its second operand if that is a constant.
    Product { b: Option<Vec<usize>> },
    /// `Div` by the last of its computed operands.
    Quotient,
}

impl Guard {
    /// Computes the operator of its computed operands.
    pub(super) fn run(
        &self,
        operands: &[&Value],
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let fails = || ExecutorError::Run("an operator lacks operands".to_owned());
        let plain = || {
            let views = operands.iter().map(|value| ValueOrView::View(value.as_view()));
            self.fallback.run(views.collect(), threads)?.pop().ok_or_else(fails)
        };
        match (&self.operator, operands) {
            // By its reciprocal, in rten.
            (Guarded::Quotient, [Value::FloatTensor(a), Value::FloatTensor(b)]) if b.len() == 1 => {
                let divisor = b.iter().next().copied().unwrap_or(1.0);
                let quotients = a.to_contiguous().data().iter().map(|a| a / divisor).collect();
                let missing = b.ndim().saturating_sub(a.ndim());
                value(&[&vec![1; missing], a.shape()].concat(), quotients)
            }
            (Guarded::Product { b: constant }, [Value::FloatTensor(a), ..]) => {
                let b = match (constant, operands.get(1)) {
                    (Some(shape), _) => shape.clone(),
                    (None, Some(b)) => b.shape().to_vec(),
                    (None, None) => return Err(fails()),
                };
                if !is_by_vectors([a.shape(), &b]) || a.is_empty() {
                    return plain();
                }
                let mut views = operands.iter().map(|value| ValueOrView::View(value.as_view()));
                let doubled = ValueOrView::Value(with_rows_twice(a)?);
                views.next();
                let inputs = std::iter::once(doubled).chain(views).collect();
                let product = self.fallback.run(inputs, threads)?.pop().ok_or_else(fails)?;
                first_of_two(product, a.ndim() == 1, b.len() == 1)
            }
            _ => plain(),
        }
    }
}

/// Matrices of one row, with that row a second time.
fn with_rows_twice(a: &rten_tensor::Tensor<f32>) -> Result<Value, ExecutorError> {
    let mut shape = a.shape().to_vec();
    let k = shape.last().copied().unwrap_or(1);
    match shape.len() {
        1 => shape.insert(0, 2),
        rank => shape[rank - 2] = 2,
    }
    let a = a.to_contiguous();
    let rows = a.data().chunks_exact(k.max(1)).flat_map(|row| [row, row]);
    value(&shape, rows.flatten().copied().collect())
}

/// The first of two rows of each matrix. `is_vector`: without the axis of rows; `lacks_columns`: rows are the last axis.
fn first_of_two(
    product: Value,
    is_vector: bool,
    lacks_columns: bool,
) -> Result<Value, ExecutorError> {
    let Value::FloatTensor(product) = product else {
        return Err(ExecutorError::Run("a product of another type".to_owned()));
    };
    let mut shape = product.shape().to_vec();
    let axis = shape.len().saturating_sub(if lacks_columns { 1 } else { 2 });
    let columns: usize = shape[axis + 1..].iter().product();
    let product = product.to_contiguous();
    let pairs = product.data().chunks_exact((2 * columns).max(1));
    let rows = pairs.flat_map(|pair| &pair[..columns]).copied().collect();
    match is_vector {
        true => _ = shape.remove(axis),
        false => shape[axis] = 1,
    }
    value(&shape, rows)
}

fn value(shape: &[usize], data: Vec<f32>) -> Result<Value, ExecutorError> {
    Value::from_shape(shape, data).map_err(|error| ExecutorError::Run(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(value: &Value) -> (Vec<usize>, Vec<f32>) {
        let Value::FloatTensor(tensor) = value else { panic!("it is of FLOAT") };
        (tensor.shape().to_vec(), tensor.iter().copied().collect())
    }

    #[test]
    fn rows_are_doubled_and_taken_back() {
        let a = value(&[2, 1, 3], (0..6).map(|n| n as f32).collect()).unwrap();
        let Value::FloatTensor(a) = &a else { unreachable!("it is of FLOAT") };
        let (shape, doubled) = floats(&with_rows_twice(a).unwrap());
        assert_eq!(shape, [2, 2, 3]);
        assert_eq!(doubled, [0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.]);
        let product = || value(&[2, 2, 2], (0..8).map(|n| n as f32).collect()).unwrap();
        let first = first_of_two(product(), false, false).unwrap();
        assert_eq!(floats(&first), (vec![2, 1, 2], vec![0., 1., 4., 5.]));
        let of_vector = value(&[2, 3], (0..6).map(|n| n as f32).collect()).unwrap();
        let first = first_of_two(of_vector, true, false).unwrap();
        assert_eq!(floats(&first), (vec![3], vec![0., 1., 2.]));
        let by_vector = value(&[4, 2], (0..8).map(|n| n as f32).collect()).unwrap();
        let first = first_of_two(by_vector, false, true).unwrap();
        assert_eq!(floats(&first), (vec![4, 1], vec![0., 2., 4., 6.]));
    }
}
