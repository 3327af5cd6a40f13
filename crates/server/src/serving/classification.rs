//! Outputs as classes (Triton's classification extension): instead of the numbers of an output, the greatest of them with their indices, as texts
//! `value:index`.

use std::cmp::Ordering;

use batchmaker::{ElementType, Model};
use batchmaker_wire as wire;
use wire::{RequestedOutput, Tensor, TensorData};

use crate::serving::error::ServeError;

/// The parameter of a requested output: the number of classes.
pub(crate) const CLASSIFICATION: &str = "classification";

/// The bytes of a class, as text and encoded, for each byte of its number, at most.
pub(crate) const CLASS_FACTOR: usize = 48;

/// The number of classes that a request wants of each output that it wants as such, by name.
pub(crate) fn wanted(
    outputs: &[RequestedOutput],
    model: &Model,
) -> Result<Vec<(String, usize)>, ServeError> {
    let of_output = |output: &RequestedOutput| {
        let value = output.parameters.get(CLASSIFICATION).filter(|value| !value.is_null())?;
        Some(classes(output, value, model).map(|classes| (output.name.clone(), classes)))
    };
    outputs.iter().filter_map(of_output).collect()
}

fn classes(
    output: &RequestedOutput,
    value: &wire::Parameter,
    model: &Model,
) -> Result<usize, ServeError> {
    let name = &output.name;
    let count = value.as_u64().filter(|&count| count > 0).ok_or_else(|| {
        ServeError::Invalid(format!(
            "output '{name}': parameter '{CLASSIFICATION}': expected a number of classes, got {value}"
        ))
    })?;
    let element = model.outputs.iter().find(|own| own.name == *name).map(|own| own.element);
    if matches!(element, Some(ElementType::Bytes | ElementType::Bool)) {
        return Err(ServeError::Invalid(format!(
            "output '{name}': parameter '{CLASSIFICATION}': expected an output of numbers"
        )));
    }
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// The classes of a tensor: of each row if `is_batch`, whose first axis is that of rows, `[rows, classes]`; else of the whole, `[classes]`. There are
/// `classes` of them, or as many as there are numbers.
pub(crate) fn classify(
    tensor: Tensor,
    classes: usize,
    is_batch: bool,
) -> Result<Tensor, ServeError> {
    let (name, shape) = (tensor.name.clone(), tensor.shape().to_vec());
    let rows = if is_batch { shape.first().copied().unwrap_or(1) } else { 1 };
    let of_row = tensor.data().len().checked_div(rows).unwrap_or(0);
    let classes = classes.min(of_row);
    let texts = match tensor.into_data() {
        TensorData::Fp16(values) => of_floats(&values, of_row, classes, |x| f64::from(*x)),
        TensorData::Bf16(values) => of_floats(&values, of_row, classes, |x| f64::from(*x)),
        TensorData::Fp32(values) => of_floats(&values, of_row, classes, |x| f64::from(*x)),
        TensorData::Fp64(values) => of_floats(&values, of_row, classes, |x| *x),
        TensorData::Uint8(values) => of_integers(&values, of_row, classes),
        TensorData::Uint16(values) => of_integers(&values, of_row, classes),
        TensorData::Uint32(values) => of_integers(&values, of_row, classes),
        TensorData::Uint64(values) => of_integers(&values, of_row, classes),
        TensorData::Int8(values) => of_integers(&values, of_row, classes),
        TensorData::Int16(values) => of_integers(&values, of_row, classes),
        TensorData::Int32(values) => of_integers(&values, of_row, classes),
        TensorData::Int64(values) => of_integers(&values, of_row, classes),
        TensorData::Bool(_) | TensorData::Bytes(_) => {
            return Err(ServeError::Internal(format!("output '{name}' has no numbers")));
        }
    };
    let shape = if is_batch { vec![rows, classes] } else { vec![classes] };
    Ok(Tensor::new(name, shape, texts)?)
}

/// The greatest of each row of `of_row` floats; what is no number counts as the least.
fn of_floats<T>(
    values: &[T],
    of_row: usize,
    classes: usize,
    float: impl Fn(&T) -> f64,
) -> Vec<Vec<u8>> {
    let order = |a: &T, b: &T| {
        let [a, b] = [a, b].map(&float);
        a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
    };
    greatest(values, of_row, classes, order, |value| {
        let value = float(value);
        if value.is_nan() { "nan".to_owned() } else { format!("{value:.6}") }
    })
}

fn of_integers<T: Ord + ToString>(values: &[T], of_row: usize, classes: usize) -> Vec<Vec<u8>> {
    greatest(values, of_row, classes, Ord::cmp, ToString::to_string)
}

/// The `classes` greatest of each row, the greatest first; of equal ones the first.
fn greatest<T>(
    values: &[T],
    of_row: usize,
    classes: usize,
    order: impl Fn(&T, &T) -> Ordering,
    show: impl Fn(&T) -> String,
) -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    for row in values.chunks(of_row.max(1)) {
        let precedes = |&a: &usize, &b: &usize| order(&row[b], &row[a]).then(a.cmp(&b));
        let mut indices: Vec<usize> = (0..row.len()).collect();
        if classes < indices.len() {
            indices.select_nth_unstable_by(classes, precedes);
            indices.truncate(classes);
        }
        indices.sort_unstable_by(precedes);
        let text = |index: usize| format!("{}:{index}", show(&row[index])).into_bytes();
        texts.extend(indices.into_iter().map(text));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tensor: &Tensor) -> Vec<String> {
        let TensorData::Bytes(texts) = tensor.data() else { panic!("{tensor:?}") };
        texts.iter().map(|text| String::from_utf8(text.clone()).unwrap()).collect()
    }

    #[test]
    fn the_greatest_come_first() {
        let values = vec![0.5f32, f32::NAN, 2.0, -1.0, 2.0, f32::INFINITY];
        let tensor = |shape: &[usize]| Tensor::new("y", shape.to_vec(), values.clone()).unwrap();
        let whole = classify(tensor(&[2, 3]), 3, false).unwrap();
        assert_eq!(texts(&whole), ["inf:5", "2.000000:2", "2.000000:4"]);
        assert_eq!(whole.shape(), [3]);
        let rows = classify(tensor(&[2, 3]), 2, true).unwrap();
        assert_eq!(texts(&rows), ["2.000000:2", "0.500000:0", "inf:2", "2.000000:1"]);
        assert_eq!(rows.shape(), [2, 2]);
        let all = classify(tensor(&[6]), 99, false).unwrap();
        assert_eq!(texts(&all).last().unwrap(), "nan:1");
        assert_eq!(all.shape(), [6]);
    }

    #[test]
    fn integers_are_exact_and_rows_may_be_none() {
        let values = vec![i64::MAX - 1, i64::MAX, i64::MIN];
        let tensor = Tensor::new("y", vec![3], values).unwrap();
        let expected = ["9223372036854775807:1", "9223372036854775806:0"];
        assert_eq!(texts(&classify(tensor, 2, false).unwrap()), expected);
        let none = Tensor::new("y", vec![0, 3], Vec::<f32>::new()).unwrap();
        assert_eq!(classify(none, 2, true).unwrap().shape(), [0, 0]);
    }
}
