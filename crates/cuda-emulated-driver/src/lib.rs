//! A library that stands for NVIDIA's driver, and runs kernels in the emulator.
//!
//! A program that loads it before it looks for `libcuda.so` has GPUs: it allocates their memory, copies, launches kernels on streams, orders
//! these by events, and gets the errors that a GPU gives. Each device works through its streams on a thread of its own, in an order drawn
//! from a seed, with pauses drawn from it too: a host that reads what is not complete reads what is not there.
//!
//! What a module's image is (PTX or cubin) decides which kernels it has; their code is that of the libraries of kernels that
//! [`emulated_cuda_configure`](control::emulated_cuda_configure) names. What the emulator finds in a launch, and what no stream or event
//! orders, is reported, and the operation fails as a kernel does that accesses memory which is not there.
//!
//! Kernels of all devices run one at a time. What it cannot show: speed, and a kernel's accesses of another device's memory, which it lets pass.
#![cfg(all(target_arch = "x86_64", unix))]

mod api;
pub mod control;
mod driver;
mod image;
mod occupancy;
mod order;
mod queues;
mod status;
