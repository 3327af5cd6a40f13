//! Memory: the rows of requests, the state slots of chains, and what is kept of projections.

pub(crate) mod projected_blocks;
pub(crate) mod projection_cache;
pub(crate) mod request_memory;
pub(crate) mod row_arena;
pub(crate) mod state_arena;
