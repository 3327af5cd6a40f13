//! The equations of every cell that has a fused kernel, in plain f64, independent of how a device
//! computes them. They are slow. The conformance suite compares devices with it, and a device
//! without kernels may compute with it.
//!
//! General programs have no equations here: the caller that evaluates cells with programs brings a
//! function that runs them.
//!
//! | file | idea |
//! |---|---|
//! | `row.rs` | a row of a value, wide enough for any element type |
//! | `common.rs` | the lookup of an id, and the logistic function |
//! | `products.rs` | products of a matrix and a vector, in each precision |
//! | `recurrent.rs` | a step of `LSTM`, `GRU` and `RNN` |
//! | `tree.rs` | the leaf and the inner node of a binary TreeLSTM |

mod common;
mod products;
mod recurrent;
mod row;
mod tree;

use batchmaker_graph::{
    Cell, CellBody, CompositeCell, LinearArgMax, Operation, OperationBody, Precision, Program,
    UnknownId,
};

pub use common::input;
pub use recurrent::step;
pub use row::Row;
pub use tree::{tree_inner, tree_leaf};

use products::Operand;

/// Runs a program on its inputs: a row for each port, or all rows of a port's span, one after the
/// other. Returns the rows of its outputs, or why it fails.
pub type RunProgram<'a> = &'a dyn Fn(&Program, &[Row]) -> Result<Vec<Row>, String>;

/// The output rows of one node of `cell`, from a row for each input port and each state. The new values
/// of states come first.
///
/// # Errors
/// If one of the cell's programs fails, or an embedding lacks an id.
///
/// # Panics
/// If rows are not of the ports' types and sizes.
pub fn outputs(
    cell: &Cell,
    inputs: &[Row],
    states: &[Row],
    run_program: RunProgram<'_>,
) -> Result<Vec<Row>, String> {
    match &cell.body {
        CellBody::Recurrent(recurrent) => {
            let x = input(recurrent.lookup.as_ref(), &inputs[0]).map_err(reason)?;
            let states: Vec<Vec<f64>> = states.iter().map(|row| row.floats().to_vec()).collect();
            Ok(floats(step(cell.precision, recurrent, &x, &states)))
        }
        CellBody::Tree(tree) => {
            let states = tree::node(cell.precision, tree, inputs).map_err(reason)?;
            Ok(floats(states.into()))
        }
        CellBody::Program(program) => run_program(program, inputs),
        CellBody::Sequence(whole) => run_program(&whole.program, inputs),
        CellBody::Composite(operations) => {
            composite(cell.precision, operations, [inputs, states].concat(), run_program)
        }
    }
}

/// The first index of the greatest of the sums `W x + b` (the ONNX operators `Gemm`, then `ArgMax`
/// with `select_last_index = 0`).
pub fn arg_max(precision: Precision, linear: &LinearArgMax, x: &[f64]) -> i64 {
    let x = Operand::new(precision, x);
    let sum = |row: usize| x.dot(&linear.w, row) + products::bias(linear.b.as_deref(), row);
    let first = (0_usize, f64::NEG_INFINITY);
    let greatest = (0..linear.output_size)
        .map(|row| (row, sum(row)))
        .fold(first, |best, next| if next.1 > best.1 { next } else { best });
    greatest.0 as i64
}

/// The output registers of a composite cell, whose first registers are `registers`.
fn composite(
    precision: Precision,
    cell: &CompositeCell,
    registers: Vec<Row>,
    run_program: RunProgram<'_>,
) -> Result<Vec<Row>, String> {
    let mut registers: Vec<Option<Row>> = registers.into_iter().map(Some).collect();
    registers.resize(cell.registers.len(), None);
    for Operation { body, reads, writes } in &cell.operations {
        let read = |register: &usize| registers[*register].clone().expect("written before");
        let written = match body {
            OperationBody::Program(program) => {
                let inputs: Vec<Row> = reads.iter().flatten().map(read).collect();
                run_program(program, &inputs)?
            }
            OperationBody::Step(recurrent) => {
                let x = read(&reads[0].expect("x"));
                let x = input(recurrent.lookup.as_ref(), &x).map_err(reason)?;
                let state = |port: usize| match reads.get(1 + port).copied().flatten() {
                    Some(register) => read(&register).floats().to_vec(),
                    None => vec![0.0; recurrent.hidden_size],
                };
                let states: Vec<Vec<f64>> = (0..recurrent.kind.states()).map(state).collect();
                floats(step(precision, recurrent, &x, &states))
            }
            OperationBody::LinearArgMax(linear) => {
                let x = read(&reads[0].expect("x"));
                vec![Row::Int(vec![arg_max(precision, linear, x.floats())])]
            }
        };
        for (&register, row) in writes.iter().zip(written) {
            registers[register] = Some(row);
        }
    }
    Ok(cell.outputs.iter().map(|&at| registers[at].clone().expect("it is written")).collect())
}

fn reason(unknown: UnknownId) -> String {
    unknown.to_string()
}

fn floats(rows: Vec<Vec<f64>>) -> Vec<Row> {
    rows.into_iter().map(Row::Float).collect()
}
