//! Operators on scalars: tensors of one number, or of one number for each row or sequence of the batch.

use batchmaker_kernels::{Binary, Unary};
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::attention::floats;

/// Operators on scalars, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scalars {
    pub(super) steps: Vec<ScalarStep>,
    /// The results that others read.
    pub(super) results: Vec<ScalarResult>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScalarStep {
    pub(super) operator: ScalarOperator,
    pub(super) operands: Vec<ScalarOperand>,
}

/// An operator on scalars. Each but the last two has one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScalarOperator {
    /// The operand in another shape (`Reshape`, `Squeeze`, `Unsqueeze`, `Identity`).
    Same,
    Unary(Unary),
    /// `Clip`, `Relu`.
    Clip {
        low: f32,
        high: f32,
    },
    Binary(Binary),
    /// The third operand if the first two are equal, the fourth if not (`Where` of `Equal`).
    WhereEqual,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScalarOperand {
    Constant(f32),
    /// A tensor that the section reads, by its position.
    Read(usize),
    /// The result of an earlier step.
    Step(usize),
}

/// The result of a step, as a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScalarResult {
    pub(super) step: usize,
    pub(super) shape: ScalarShape,
}

/// The shape of a scalar: `rank` axes of one element. The axis of the batch has one for each row or sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScalarShape {
    pub(super) rank: usize,
    pub(super) batch_axis: Option<usize>,
}

impl Scalars {
    /// The tensors of [`Self::results`].
    pub(super) fn run(&self, reads: &[&Value]) -> Result<Vec<Value>, ExecutorError> {
        let reads = reads.iter().map(|read| Ok(floats(read)?.to_contiguous()));
        let reads = reads.collect::<Result<Vec<_>, ExecutorError>>()?;
        let reads: Vec<&[f32]> = reads.iter().map(|read| read.data()).collect();
        let rows = reads.iter().map(|read| read.len()).find(|&len| len != 1).unwrap_or(1);
        if reads.iter().any(|read| ![1, rows].contains(&read.len())) {
            return Err(fails(&"other numbers of rows"));
        }
        let rows_of = |result: &ScalarResult| result.shape.batch_axis.map_or(1, |_| rows);
        let mut results: Vec<Vec<f32>> =
            self.results.iter().map(|result| Vec::with_capacity(rows_of(result))).collect();
        let mut of_row = Vec::with_capacity(self.steps.len());
        for row in 0..rows {
            of_row.clear();
            for step in &self.steps {
                of_row.push(step.run(&reads, row, &of_row).ok_or_else(|| fails(&"no operand"))?);
            }
            for (result, numbers) in self.results.iter().zip(&mut results) {
                if row < rows_of(result) {
                    numbers.push(of_row[result.step]);
                }
            }
        }
        let tensors = self.results.iter().zip(results).map(|(result, numbers)| {
            let mut shape = vec![1; result.shape.rank];
            if let Some(axis) = result.shape.batch_axis {
                shape[axis] = rows;
            }
            Value::from_shape(&shape, numbers).map_err(|error| fails(&error))
        });
        tensors.collect()
    }
}

impl ScalarStep {
    /// The result for one row; none if an operand is not there.
    fn run(&self, reads: &[&[f32]], row: usize, before: &[f32]) -> Option<f32> {
        let operand = |at: usize| match *self.operands.get(at)? {
            ScalarOperand::Constant(number) => Some(number),
            ScalarOperand::Step(step) => before.get(step).copied(),
            ScalarOperand::Read(read) => match **reads.get(read)? {
                [number] => Some(number),
                ref numbers => numbers.get(row).copied(),
            },
        };
        let x = operand(0)?;
        Some(match self.operator {
            ScalarOperator::Same => x,
            ScalarOperator::Unary(unary) => unary.of(x),
            ScalarOperator::Clip { low, high } => {
                // NaN stays.
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            }
            ScalarOperator::Binary(binary) => binary.of(x, operand(1)?),
            ScalarOperator::WhereEqual if x == operand(1)? => operand(2)?,
            ScalarOperator::WhereEqual => operand(3)?,
        })
    }
}

fn fails(reason: &dyn std::fmt::Display) -> ExecutorError {
    ExecutorError::Run(format!("operators on scalars: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(operator: ScalarOperator, operands: &[ScalarOperand]) -> ScalarStep {
        ScalarStep { operator, operands: operands.to_vec() }
    }

    fn run(scalars: &Scalars, reads: &[Value]) -> Vec<(Vec<usize>, Vec<f32>)> {
        let reads: Vec<&Value> = reads.iter().collect();
        let of = |value: Value| {
            let tensor = floats(&value).unwrap();
            (tensor.shape().to_vec(), tensor.to_vec())
        };
        scalars.run(&reads).unwrap().into_iter().map(of).collect()
    }

    #[test]
    fn results_of_each_row_have_the_axis_of_the_batch() {
        use ScalarOperand::{Constant, Read, Step};
        let scalars = Scalars {
            steps: vec![
                step(ScalarOperator::Binary(Binary::Subtract), &[Read(0), Read(1)]),
                step(ScalarOperator::Binary(Binary::Multiply), &[Read(1), Constant(3.0)]),
                step(ScalarOperator::WhereEqual, &[Step(0), Constant(0.0), Constant(7.0), Step(0)]),
            ],
            results: vec![
                ScalarResult { step: 2, shape: ScalarShape { rank: 3, batch_axis: Some(1) } },
                ScalarResult { step: 1, shape: ScalarShape { rank: 0, batch_axis: None } },
            ],
        };
        let one = Value::from_shape(&[1], vec![2.0_f32]).unwrap();
        let rows =
            |numbers: &[f32]| Value::from_shape(&[numbers.len(), 1], numbers.to_vec()).unwrap();
        for count in 1..4 {
            let x = &[2.0, 5.0, f32::NAN][..count];
            let results = run(&scalars, &[rows(x), one.clone()]);
            assert_eq!(results[0].0, [1, count, 1]);
            assert_eq!(results[0].1[..count.min(2)], [7.0, 3.0][..count.min(2)]);
            assert!(results[0].1.get(2).is_none_or(|x| x.is_nan()));
            assert_eq!(results[1], (vec![], vec![6.0]));
        }
        let (two, three) = (rows(&[1.0, 2.0]), rows(&[1.0, 2.0, 3.0]));
        assert!(scalars.run(&[&two, &three]).is_err());
        assert!(scalars.run(&[&two]).is_err());
    }

    #[test]
    fn numbers_are_clipped_and_nan_stays() {
        let of = |operator: ScalarOperator, x: f32| -> f32 {
            let steps = vec![step(operator, &[ScalarOperand::Read(0)])];
            let shape = ScalarShape { rank: 0, batch_axis: None };
            let results = vec![ScalarResult { step: 0, shape }];
            let x = Value::from_shape(&[], vec![x]).unwrap();
            run(&Scalars { steps, results }, &[x])[0].1[0]
        };
        let clip = ScalarOperator::Clip { low: -1.0, high: 2.0 };
        assert_eq!([-3.0, 1.5, 9.0].map(|x| of(clip, x)), [-1.0, 1.5, 2.0]);
        assert!(of(clip, f32::NAN).is_nan());
        assert_eq!(of(ScalarOperator::Same, 3.5), 3.5);
        assert_eq!(of(ScalarOperator::Unary(Unary::Negative), 3.5), -3.5);
    }
}
