//! Profiles of a model on a device: the time of each cell by batch size and precision, under the fastest execution plan
//! that the device found; how far each precision changes the replies; and the limits of batches that follow. Profiles
//! store a device's plans unread, and give them back to it.
//!
//! | file | idea |
//! |---|---|
//! | `machine.rs` | the machine and version that a profile was measured with |
//! | `curve.rs` | the time of a batch over its size |
//! | `file.rs` | profiles as JSON, kept with a model |
//! | `measure.rs` | the curve of a cell: time over size of batch |
//! | `error.rs` | how far replies in one precision are from those in another |
//! | `goal.rs` | from curves to batch limits and the submission window |
//! | `slicing.rs` | cuts a model into stages by the times of its pieces |
//! | `stages.rs` | the stages of a model and their times, as they are measured and kept |
//! | `table.rs` | profiles for people |
//! | `operators.rs` | the operators of a cell for people |

#![forbid(unsafe_code)]

mod curve;
mod error;
mod file;
mod goal;
mod machine;
mod measure;
mod operators;
mod slicing;
mod stages;
mod table;

pub use curve::{Curve, Point};
pub use error::{Difference, difference};
pub use file::{CellProfile, FileError, ModelProfile, Profile};
pub use goal::{Choice, Goal};
pub use machine::Machine;
pub use measure::{GoOn, MeasureError, cell_curve, in_precision, precisions_of, takes_sequences};
pub use operators::operator_table;
pub use slicing::{Piece, fast_size, preferred_size, slice, stages_of_decisions, times_of};
pub use stages::{ModelStages, PieceCells, measure_pieces};
pub use table::profile_table;
