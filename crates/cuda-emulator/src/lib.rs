//! Runs CUDA kernels on the CPU, to find what is wrong with them where there is no GPU.
//!
//! A kernel is compiled by g++ as part of a library ([`compile`]), with a header that stands for CUDA's language and with
//! `-fsanitize=thread`, so that each load and store calls the emulator first. [`run`] runs a launch of it: each CUDA thread is a fiber on
//! the calling thread, and a schedule drawn from a seed decides which one goes on at each barrier, warp instruction, atomic operation and
//! now and then at a load or store.
//!
//! What it finds, as [`Report`]s:
//! - accesses that nothing orders (`detector`): happens-before as CUDA's memory model has it, with the scopes of fences and atomic
//!   operations, whether or not the values came out right;
//! - accesses out of bounds, reads of what nobody wrote (`memory`), misaligned accesses;
//! - barriers in divergent code, masks and sources of warp instructions that do not fit, threads that wait for ever (`execution`).
//!
//! What it cannot show: speed, the meaning of PTX that is written by hand, the last bits of `expf`, and what compilers and drivers
//! do. A report is a bug by the rules; no report over many seeds is no proof.
//!
//! Only for x86-64 and Unix, as fibers switch stacks by hand. On other machines the crate is empty.
#![cfg(all(target_arch = "x86_64", unix))]

mod abi;
mod compile;
mod detector;
mod execution;
mod kernel;
mod library;
mod memory;
mod report;

pub use compile::{CompileError, compile, compile_unoptimized};
pub use detector::{History, Sequential};
pub use execution::{Launch, Observer, Outcome, Schedule, THREADS_MAX, Unobserved, run, run_among};
pub use kernel::Kernel;
pub use library::{KernelLibrary, LibraryError};
pub use memory::{DevicePointer, Memory, Place};
pub use report::{Fault, Report};
