//! The device of GPUs on an emulated driver. Takes g++.
#![cfg(all(target_arch = "x86_64", unix))]

mod conformance;
mod emulated;
mod engine;
mod errors;
mod host_work;
#[path = "../../../engine/tests/asynchronous/models.rs"]
mod models;
#[path = "../../../engine/tests/asynchronous/playing.rs"]
mod playing;
