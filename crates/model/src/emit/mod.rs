//! Turns segments, steps and bodies of loops into cells.

pub(crate) mod loop_body;
pub(crate) mod recognise;
pub(crate) mod row_program;
pub(crate) mod sequence_program;
