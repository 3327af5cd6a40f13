//! Cuts an analysed file into segments: each is to be one cell.

pub(crate) mod arg_max;
mod choices;
pub(crate) mod copies;
pub(crate) mod cut;
mod derive;
mod group;
pub(crate) mod guards;
mod heavy;
mod lookups;
mod order;
pub(crate) mod segment;
pub(crate) mod stacks;
pub(crate) mod stage_starts;
mod stages;
mod widen;
