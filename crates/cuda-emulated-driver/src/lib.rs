//! A library that stands for NVIDIA's driver, and runs kernels in the emulator.
//!
//! A program that loads it before it looks for `libcuda.so` has GPUs: it allocates their memory, copies, launches kernels on streams, orders
//! these by events, and gets the errors that a GPU gives. Each device works through its streams on a thread of its own, in an order drawn
//! from a seed, with pauses drawn from it too: a host that reads what is not complete reads what is not there.
//!
//! Any program has them that is started with `LD_PRELOAD=libemulated_cuda.so`; its environment has the settings then (`control`).
//!
//! What a module's image is (PTX or cubin) decides which kernels it has; their code is that of the libraries of kernels that the settings
//! name. What the emulator finds in a launch, and what no stream or event orders, is reported, and the operation
//! fails as a kernel does that accesses memory which is not there.
//!
//! The host's loads are not seen. A launch that publishes to memory of the host, by a release or a fence of the system's scope, counts as seen by
//! the host from then on, with all that precedes it on its stream: a host that polls what it published may submit to any stream. The price is that a
//! host which forgets to poll is found only under the seeds in which it submits before the launch has published; and a launch that publishes before
//! its own last access is not told from one that publishes at its end. Launches that publish nothing to the host give no such order.
//!
//! Graphs of kernels are made node by node; streams that are captured are not there. A launch of a graph is one operation of its stream. Its nodes run in
//! an order drawn from the seed, and what their dependencies do not order is reported.
//!
//! What the host asks for is counted for each of its threads (`calls`), with the time of its calls, in which they may wait. With the setting
//! `runs_only`, launches of other kernels do nothing: what the host does can be measured on kernels of any size.
//!
//! A device that is lost does nothing any more from then on: waits for it end, with its error, and so does the launch that it runs.
//!
//! Kernels of all devices run one at a time. What it cannot show: speed, and a kernel's accesses of another device's memory, which it lets pass.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod api;
mod calls;
mod control;
mod driver;
mod graph;
mod handles;
mod image;
mod launches;
mod lock;
mod occupancy;
mod order;
mod queues;
mod status;
mod watched;
