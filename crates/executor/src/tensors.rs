//! Converts tensors of a batch to rten's and back. rten has f32 and i32: I64 and BOOL pass as i32.

use batchmaker_graph::{ElementType, TensorData};
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;

/// `data` as a tensor of `shape`.
///
/// # Errors
/// [`ExecutorError::Integer`]; [`ExecutorError::Run`] if there are other elements than `shape` has.
pub(crate) fn to_value(shape: &[usize], data: TensorData) -> Result<Value, ExecutorError> {
    let run_error = |error: &dyn std::fmt::Display| ExecutorError::Run(error.to_string());
    let narrow = |n: i64| i32::try_from(n).map_err(|_| ExecutorError::Integer(n));
    let ints = match data {
        TensorData::F32(data) => {
            return Value::from_shape(shape, data).map_err(|error| run_error(&error));
        }
        TensorData::I32(data) => data,
        TensorData::I64(data) => data.into_iter().map(narrow).collect::<Result<_, _>>()?,
        TensorData::Bool(data) => data.into_iter().map(i32::from).collect(),
        TensorData::Bytes(_) => return Err(ExecutorError::Run("text inside a cell".to_owned())),
    };
    Value::from_shape(shape, ints).map_err(|error| run_error(&error))
}

/// A shape and its elements.
pub(crate) type Shaped = (Vec<usize>, TensorData);

/// The elements of a tensor, the output of `port`, which must be an `element` tensor of shape `expected`.
///
/// # Errors
/// [`ExecutorError::Output`]
pub(crate) fn checked(
    port: usize,
    (shape, data): Shaped,
    element: ElementType,
    expected: &[usize],
) -> Result<TensorData, ExecutorError> {
    match shape == expected && data.element() == element {
        true => Ok(data),
        false => Err(ExecutorError::Output {
            port,
            got: format!("{} {shape:?}", data.element()),
            expected: format!("{element} {expected:?}"),
        }),
    }
}

/// The elements of `value`, the output of `port`, which must be an `element` tensor of shape `expected`.
///
/// # Errors
/// [`ExecutorError::Output`]
pub(crate) fn from_value(
    port: usize,
    value: Value,
    element: ElementType,
    expected: &[usize],
) -> Result<TensorData, ExecutorError> {
    let shape = value.shape().to_vec();
    let other = |got: &str| ExecutorError::Output {
        port,
        got: format!("{got} {shape:?}"),
        expected: format!("{element} {expected:?}"),
    };
    if shape != *expected {
        return Err(other(&value.dtype().to_string()));
    }
    Ok(match (value, element) {
        (Value::FloatTensor(tensor), ElementType::F32) => TensorData::F32(tensor.into_data()),
        (Value::Int32Tensor(tensor), ElementType::I32) => TensorData::I32(tensor.into_data()),
        (Value::Int32Tensor(tensor), ElementType::I64) => {
            TensorData::I64(tensor.into_data().into_iter().map(i64::from).collect())
        }
        (Value::Int32Tensor(tensor), ElementType::Bool) => {
            TensorData::Bool(tensor.into_data().into_iter().map(|n| n != 0).collect())
        }
        (value, _) => return Err(other(&value.dtype().to_string())),
    })
}

/// Appends the elements of `more`, which are of the same type.
pub(crate) fn append(data: &mut TensorData, more: TensorData) {
    match (data, more) {
        (TensorData::F32(data), TensorData::F32(more)) => data.extend(more),
        (TensorData::I32(data), TensorData::I32(more)) => data.extend(more),
        (TensorData::I64(data), TensorData::I64(more)) => data.extend(more),
        (TensorData::Bool(data), TensorData::Bool(more)) => data.extend(more),
        (data, more) => unreachable!("{} after {}", more.element(), data.element()),
    }
}
