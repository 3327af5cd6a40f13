//! Tensors one behind the other along any axis, in the layout of the file (the ONNX operator `Concat`).

use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::attention::floats;

/// The concatenation of tensors of floats along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) axis: usize,
}

impl Join {
    pub(super) fn run(self, parts: &[&Value]) -> Result<Value, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a concatenation: {reason}"));
        let parts = parts.iter().map(|part| floats(part)).collect::<Result<Vec<_>, _>>()?;
        let axis = self.axis;
        let mut shape = parts.first().map(|part| part.shape().to_vec()).unwrap_or_default();
        let others = |shape: &[usize]| -> Option<[Vec<usize>; 2]> {
            Some([shape.get(..axis)?.to_vec(), shape.get(axis + 1..)?.to_vec()])
        };
        let around = others(&shape);
        if around.is_none() || parts.iter().any(|part| others(part.shape()) != around) {
            return Err(fails(format!("{shape:?} beside other shapes")));
        }
        shape[axis] = parts.iter().map(|part| part.shape()[axis]).sum();
        let outer: usize = shape[..axis].iter().product();
        let inner: usize = shape[axis + 1..].iter().product();
        let parts: Vec<_> = parts.iter().map(|part| part.to_contiguous()).collect();
        let parts = parts.iter().map(|part| (part.shape()[axis] * inner, part.data()));
        let parts: Vec<(usize, &[f32])> = parts.filter(|(of_row, _)| *of_row > 0).collect();
        let data = match parts.iter().all(|(of_row, _)| *of_row == 1) {
            true => interleaved(&parts, outer),
            false => {
                let mut data = Vec::with_capacity(shape.iter().product());
                for row in 0..outer {
                    for (of_row, part) in &parts {
                        data.extend_from_slice(&part[row * of_row..][..*of_row]);
                    }
                }
                data
            }
        };
        Value::from_shape(&shape, data).map_err(|error| fails(error.to_string()))
    }
}

/// `rows` rows of one element of each part: a call to copy each would take longer than the copy.
fn interleaved(parts: &[(usize, &[f32])], rows: usize) -> Vec<f32> {
    let mut data = vec![0.0; rows * parts.len()];
    for (at, (_, part)) in parts.iter().enumerate() {
        let places = data.iter_mut().skip(at).step_by(parts.len());
        places.zip(*part).for_each(|(to, &from)| *to = from);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_behind_each_other() {
        let value = |shape: &[usize], first: f32| {
            let count = shape.iter().product::<usize>();
            Value::from_shape(shape, (0..count).map(|n| first + n as f32).collect()).unwrap()
        };
        let joined = |axis, parts: &[&Value]| -> (Vec<usize>, Vec<f32>) {
            let Value::FloatTensor(y) = Join { axis }.run(parts).unwrap() else { panic!() };
            (y.shape().to_vec(), y.data().unwrap().to_vec())
        };
        let (a, b) = (value(&[2, 2], 0.0), value(&[2, 1], 10.0));
        assert_eq!(joined(1, &[&a, &b]), (vec![2, 3], vec![0.0, 1.0, 10.0, 2.0, 3.0, 11.0]));
        let c = value(&[1, 2], 20.0);
        assert_eq!(joined(0, &[&c, &a]), (vec![3, 2], vec![20.0, 21.0, 0.0, 1.0, 2.0, 3.0]));
        assert_eq!(joined(1, &[&b, &b]), (vec![2, 2], vec![10.0, 10.0, 11.0, 11.0]));
        let empty = value(&[2, 0], 0.0);
        assert_eq!(joined(1, &[&empty, &b]), (vec![2, 1], vec![10.0, 11.0]));
        assert!(Join { axis: 1 }.run(&[&a, &c]).is_err());
        assert!(Join { axis: 2 }.run(&[&a, &a]).is_err());
    }
}
