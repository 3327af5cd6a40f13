//! Launches of kernels as the host asks for them: what is checked, and what is copied, before one runs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use batchmaker_cuda_emulator::{Kernel, Launch, THREADS_MAX};

use crate::control::settings;
use crate::image::Entry;
use crate::occupancy;
use crate::status::Status;

/// A kernel of a module.
pub(crate) struct Function {
    pub(crate) kernel: Kernel,
    pub(crate) entry: Entry,
    /// The most bytes of dynamic shared memory that a launch may have.
    pub(crate) dynamic_shared_max: AtomicU32,
}

/// The extents of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) is_cooperative: bool,
}

/// A launch of a kernel, with copies of its arguments: it can run any number of times.
pub(crate) struct KernelLaunch {
    function: Arc<Function>,
    shape: Shape,
    /// The most blocks that run at a time.
    resident: u32,
    /// The bytes of each argument.
    arguments: Vec<Vec<u8>>,
}

impl KernelLaunch {
    /// Checks the shape of a launch, and copies the arguments. Those in `extra`, in a buffer of their own, are not supported.
    ///
    /// # Safety
    /// Unless it is null, `arguments` has a pointer to a value of each parameter. Whenever the launch runs, pointers among these values lead to memory
    /// that the kernel may access then.
    pub(crate) unsafe fn new(
        function: Arc<Function>,
        shape: Shape,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<Self, Status> {
        let resident = resident(&function, shape)?;
        let parameter_bytes = &function.kernel.parameter_bytes;
        if !extra.is_null() {
            return Err(Status::NotSupported);
        }
        if arguments.is_null() && !parameter_bytes.is_empty() {
            return Err(Status::InvalidValue);
        }
        let argument = |(at, &bytes): (usize, &usize)| {
            // SAFETY: the caller vouches for a pointer to as many bytes as the parameter has.
            unsafe { std::slice::from_raw_parts((*arguments.add(at)).cast::<u8>(), bytes).to_vec() }
        };
        let arguments = parameter_bytes.iter().enumerate().map(argument).collect();
        Ok(Self { function, shape, resident, arguments })
    }

    /// The name of the kernel.
    pub(crate) fn kernel(&self) -> &str {
        &self.function.kernel.name
    }

    /// The launch as the emulator runs it.
    pub(crate) fn launch(&self) -> Launch<'_> {
        let Shape { grid, block, dynamic_shared, .. } = self.shape;
        Launch {
            kernel: &self.function.kernel,
            grid,
            block,
            dynamic_shared: dynamic_shared as usize,
            resident_blocks_max: self.resident as usize,
            arguments: self.arguments.clone(),
        }
    }
}

/// The most blocks of a launch that run at a time. An error if its shape is not one that a GPU runs.
fn resident(of: &Function, shape: Shape) -> Result<u32, Status> {
    let Shape { grid, block, dynamic_shared, is_cooperative } = shape;
    let product = |of: [u32; 3]| of.iter().map(|&of| u64::from(of)).product::<u64>();
    let (blocks, threads) = (product(grid), product(block));
    let [_, grid_y, grid_z] = grid;
    let is_too_large = threads > 1024 || block[2] > 64 || grid_y.max(grid_z) > 65_535;
    let shared_max = of.dynamic_shared_max.load(Ordering::Relaxed);
    if blocks == 0 || threads == 0 || is_too_large || dynamic_shared > shared_max {
        return Err(Status::InvalidValue);
    }
    let threads = threads as u32;
    let shared = of.entry.shared + dynamic_shared;
    let of_one = occupancy::blocks(threads, of.entry.registers, shared);
    // The emulator has no more threads at a time than a GPU of two such multiprocessors.
    let resident_max = THREADS_MAX as u32 / threads;
    let resident = (of_one * settings().multiprocessors).min(resident_max);
    if resident == 0 {
        return Err(Status::LaunchOutOfResources);
    }
    if is_cooperative && blocks > u64::from(resident) {
        return Err(Status::CooperativeLaunchTooLarge);
    }
    Ok(resident)
}
