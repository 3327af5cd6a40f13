//! Memory: the rows of requests, the state slots of chains, and the rows that were computed before they are
//! needed.
//!
//! | file | idea |
//! |---|---|
//! | `raw_lines.rs` | an allocation of whole cache lines that is owned through its pointer |
//! | `row_arena.rs` | rows in memory that grows and never moves |
//! | `slot_arena.rs` | the memory of slots: a row for each in use |
//! | `state_arena.rs` | the state slots of one cell type |
//! | `projected_blocks.rs` | inputs projected before the steps that need them |
//! | `token_cache.rs` | a cache of rows that depend on one token id alone |
//! | `row_pointers.rs` | where the rows of a run's port lie |
//! | `batch_tensor.rs` | the tensors of a batch, gathered and scattered |
//! | `request_memory.rs` | the values of one request |

pub(crate) mod batch_tensor;
pub(crate) mod projected_blocks;
pub(crate) mod raw_lines;
pub(crate) mod request_memory;
pub(crate) mod row_arena;
pub(crate) mod row_pointers;
pub(crate) mod slot_arena;
pub(crate) mod state_arena;
pub(crate) mod token_cache;
