//! Turns segments, steps and bodies of loops into cells.

pub(crate) mod bodies;
pub(crate) mod builder;
pub(crate) mod cell;
mod clipped_windows;
pub(crate) mod loop_body;
mod quantising;
pub(crate) mod recognise;
pub(crate) mod recurrent;
pub(crate) mod registration;
pub(crate) mod row_segment;
pub(crate) mod sequence_segment;
pub(crate) mod states;
pub(crate) mod step_program;
pub(crate) mod writer;
