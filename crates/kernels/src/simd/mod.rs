//! Instruction sets: their names, the vector operations that kernels are written in, and the proofs
//! that this machine has them.
//!
//! | file | idea |
//! |---|---|
//! | `isa.rs` | the names of the instruction sets |
//! | `operations.rs` | the vector operations, as traits |
//! | `scalar.rs`, `avx2.rs`, `avx512.rs` | the operations by each instruction set |
//! | `side_by_side.rs` | the operations on several vectors at once |
//! | `tokens.rs` | the proofs that this machine multiplies bfloat16 and bytes |
//! | `vector_unit.rs` | the instruction set that this machine runs a kernel with |

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod isa;
pub(crate) mod operations;
pub(crate) mod scalar;
pub(crate) mod side_by_side;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tokens;
pub(crate) mod vector_unit;
