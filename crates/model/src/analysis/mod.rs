//! Symbolic execution of a file: what every value is, in terms of rows.
//!
//! A value that depends on the request is a [`View`](value::View): the logical dimensions of an ONNX
//! tensor over a *source*, a matrix of rows where the axes of batch and time are gone and
//! what is left of a row is flat. Transposing, squeezing and reshaping around those two
//! axes change the view alone; everything else becomes a [`RowOp`](value::RowOp) (the same function of
//! every row, or an operator over whole sequences) or a [`Recurrent`](recurrence::Recurrent). An operator
//! that is neither is a [`Diagnostic`](crate::error::Diagnostic).
//!
//! Which input dimensions are batch and time is not declared in a file. Passes that look for roles
//! ([`Pass`](state::Pass)) find it: every input dimension is an unknown, and whatever reaches the first two
//! axes of a recurrent operator's X is time and batch. The final pass then knows. What varies beside the
//! batch is *steps*: time is, and so is any other input dimension that a file leaves open.
//!
//! From below: facts about values (`derivation`, `value`, `recurrence`, `loop_body`, `index_check`, `dequantised`, `rounded_to_float`,
//! `gemm_matrices`), the form of the table of operators
//! (`operator`), the state of an analysis (`state`) and what is asked of it (`facts`, `references`, `ids`,
//! `rows`, `ranges`, `checks`, `cut_casts`, `derivable`, `limits`, `wide_constants`, `capture`), how a node is treated (`walk`), the rules (`operators` with `dispatch`,
//! `recurrent`, `loops`, `branch`), the `table` of all of them, and the `driver` on top.

mod branch;
mod capture;
mod checks;
mod condition;
mod cut_casts;
pub(crate) mod dequantised;
mod derivable;
pub(crate) mod derivation;
pub(crate) mod driver;
mod facts;
mod gemm_matrices;
pub(crate) mod ids;
pub(crate) mod index_check;
mod limits;
pub(crate) mod loop_body;
mod loops;
pub(crate) mod operator;
mod operators;
mod ranges;
pub(crate) mod reach;
pub(crate) mod recurrence;
mod recurrent;
pub(crate) mod references;
mod renaming;
mod roles;
pub(crate) mod rounded_to_float;
mod rows;
pub(crate) mod state;
pub(crate) mod step_rule;
pub(crate) mod table;
pub(crate) mod value;
mod walk;
mod wide_constants;
