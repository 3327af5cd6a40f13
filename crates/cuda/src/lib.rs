//! Kernels for NVIDIA GPUs, and what their launchers and their tests must agree on: the layout of weights and states, the shapes of
//! launches.
//!
//! The kernels are the `.cu` files of `kernels/`. They are written for two compilers: NVRTC, for GPUs, and g++, for the emulator, in which
//! `cargo xtask emulate` runs each of them (`tests/kernels`). No GPU has run them yet, and nothing in BatchMaker launches them.

#![forbid(unsafe_code)]

pub mod linear;
pub mod recurrent;
pub mod tiles;
