//! The device of GPUs on an emulated driver. Takes g++.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod conformance;
mod emulated;
mod engine;
mod errors;
mod host_work;
#[path = "../../../engine/tests/asynchronous/models.rs"]
mod models;
#[path = "../../../engine/tests/asynchronous/playing.rs"]
mod playing;
mod tuning;

/// That of the binary, so that the host's work is measured as it is there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
