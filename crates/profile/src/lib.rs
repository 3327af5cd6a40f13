//! Profiles: what each cell of a model costs on a device, by size of batch and precision, in the
//! fastest way that the device found; what precisions change in its replies; and what follows for
//! the limits of batches. How a device ran a cell is the device's own business: profiles keep its plans
//! as they are, and give them back to it.
//!
//! | file | idea |
//! |---|---|
//! | `machine.rs` | what a profile was made with |
//! | `file.rs` | profiles as JSON, kept with a model |
//! | `measure.rs` | the curve of a cell: time over size of batch |
//! | `error.rs` | how far replies in one precision are from those in another |
//! | `goal.rs` | from curves to batch limits, and to how much work is submitted ahead |
//! | `table.rs` | profiles for people |

#![forbid(unsafe_code)]

mod error;
mod file;
mod goal;
mod machine;
mod measure;
mod table;

pub use error::{Difference, difference};
pub use file::{CellProfile, Curve, FileError, ModelProfile, Point, Profile};
pub use goal::{Choice, Goal};
pub use machine::Machine;
pub use measure::{GoOn, MeasureError, cell_curve, in_precision, is_stepped, precisions_of};
pub use table::table;
