//! The programs of the suite: ONNX files whose results are known in closed form.

use batchmaker_graph::{ElementType, Program};

use crate::conformance::onnx::{Port, constant, file, node, with_attribute};
use crate::reference::Row;

/// The number of elements of a row of floats of the suite's programs.
pub(super) const WIDTH: usize = 6;

/// A program of the suite. A device without an executor of ONNX files may run these by
/// [`SuiteProgram::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteProgram {
    /// `out0 = 2 in0 + in1`, rows of floats.
    Affine,
    /// `out0 = in0 + in1`, rows of one I64.
    Add,
    /// `out0 = in0 < in1`: rows of one I32, then of one Bool.
    Less,
    /// Over the steps of sequences of rows of floats: `out0` has the sum of all rows up to each,
    /// `out1` that of all.
    Sums,
}

impl SuiteProgram {
    /// All programs.
    pub const ALL: [Self; 4] = [Self::Affine, Self::Add, Self::Less, Self::Sums];

    /// The suite's program that has these bytes.
    pub fn of(program: &Program) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.program().bytes == program.bytes)
    }

    /// The ONNX file.
    pub fn program(self) -> Program {
        let floats = || Port(ElementType::F32, &[None, Some(WIDTH as u64)]);
        let (i32s, i64s) = (|| Port(ElementType::I32, &[None]), || Port(ElementType::I64, &[None]));
        let bytes = match self {
            Self::Affine => {
                let two = constant("two", ElementType::F32, &[], &2.0_f32.to_le_bytes());
                let nodes = vec![
                    node("Mul", &["in0", "two"], &["twice"]),
                    node("Add", &["twice", "in1"], &["out0"]),
                ];
                file(&[floats(), floats()], &[floats()], vec![two], nodes)
            }
            Self::Add => {
                let nodes = vec![node("Add", &["in0", "in1"], &["out0"])];
                file(&[i64s(), i64s()], &[i64s()], Vec::new(), nodes)
            }
            Self::Less => {
                let nodes = vec![node("Less", &["in0", "in1"], &["out0"])];
                let bools = Port(ElementType::Bool, &[None]);
                file(&[i32s(), i32s()], &[bools], Vec::new(), nodes)
            }
            Self::Sums => {
                let sequences = || Port(ElementType::F32, &[None, None, Some(WIDTH as u64)]);
                let one = 1_i64.to_le_bytes();
                let constants = vec![
                    constant("axis", ElementType::I64, &[], &one),
                    constant("axes", ElementType::I64, &[1], &one),
                ];
                let total = node("ReduceSum", &["in0", "axes"], &["out1"]);
                let nodes = vec![
                    node("CumSum", &["in0", "axis"], &["out0"]),
                    with_attribute(total, "keepdims", 0),
                ];
                file(&[sequences()], &[sequences(), floats()], constants, nodes)
            }
        };
        let summary = format!("{self:?} of the conformance suite");
        Program { bytes: bytes.into(), summary, has_products: false }
    }

    /// The outputs of one row, or of one sequence.
    ///
    /// # Panics
    /// If the inputs are not of the program's types.
    pub fn run(self, inputs: &[Row]) -> Vec<Row> {
        match self {
            Self::Affine => {
                let pairs = inputs[0].floats().iter().zip(inputs[1].floats());
                vec![Row::Float(pairs.map(|(a, b)| 2.0 * a + b).collect())]
            }
            Self::Add => {
                let pairs = inputs[0].ints().iter().zip(inputs[1].ints());
                vec![Row::Int(pairs.map(|(a, b)| a + b).collect())]
            }
            Self::Less => {
                let pairs = inputs[0].ints().iter().zip(inputs[1].ints());
                vec![Row::Int(pairs.map(|(a, b)| (a < b).into()).collect())]
            }
            Self::Sums => {
                let mut sum = vec![0.0; WIDTH];
                let mut sums = Vec::new();
                for row in inputs[0].floats().chunks(WIDTH) {
                    sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                    sums.extend(&sum);
                }
                vec![Row::Float(sums), Row::Float(sum)]
            }
        }
    }
}

/// Runs the suite's programs, for [`crate::reference::outputs`].
///
/// # Errors
/// If the program is not one of the suite.
pub fn run_program(program: &Program, inputs: &[Row]) -> Result<Vec<Row>, String> {
    let known = SuiteProgram::of(program).ok_or("a program that the suite does not know")?;
    Ok(known.run(inputs))
}
