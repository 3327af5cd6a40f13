//! Modules, their kernels, and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use batchmaker_cuda_emulator::THREADS_MAX;

use super::status;
use super::streams::stream;
use crate::control::{report, settings};
use crate::driver::current;
use crate::image;
use crate::launches::{Function, KernelLaunch, Shape};
use crate::occupancy;
use crate::order::Preceding;
use crate::status::Status;
use crate::watched::run;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(to: *mut *mut c_void, image: *const c_void) -> i32 {
    status(|| {
        let driver = current()?.0;
        // SAFETY: the caller's promise.
        let entries = unsafe { image::entries(image.cast()) }.ok_or(Status::InvalidImage)?;
        let handle = driver.modules.add(entries);
        // SAFETY: the caller's promise.
        unsafe { to.write(ptr::without_provenance_mut(handle)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: *mut c_void) -> i32 {
    status(|| {
        let (driver, device) = current()?;
        driver.wait_for_device(device)?;
        driver.modules.remove(module.addr()).map(drop)
    })
}

/// A kernel of a module: one that its image has, with the code of the last library that has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    to: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> i32 {
    status(|| {
        let driver = current()?.0;
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let module = driver.modules.get(module.addr())?;
        let entry = *module.get(&*name).ok_or(Status::NotFound)?;
        let kernel = settings().kernels.iter().rev().find_map(|of| of.kernel(&name).cloned());
        let kernel = kernel.ok_or_else(|| {
            report(format!("the image has the kernel {name}, no library of kernels does"));
            Status::NotFound
        })?;
        let dynamic_shared_max =
            AtomicU32::new(occupancy::BLOCK_SHARED_BYTES.saturating_sub(entry.shared));
        let handle = driver.functions.add(Function { kernel, entry, dynamic_shared_max });
        // SAFETY: the caller's promise.
        unsafe { to.write(ptr::without_provenance_mut(handle)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    to: *mut c_int,
    attribute: c_int,
    function: *mut c_void,
) -> i32 {
    status(|| {
        let of = current()?.0.functions.get(function.addr())?;
        // By their numbers in `CUfunction_attribute`.
        let value = match attribute {
            0 => 1024,
            1 => of.entry.shared,
            2 | 3 => 0,
            4 => of.entry.registers,
            5 | 6 => settings().architecture,
            8 => of.dynamic_shared_max.load(Ordering::Relaxed),
            _ => return Err(Status::InvalidValue),
        };
        // SAFETY: the caller's promise.
        unsafe { to.write(value as c_int) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: *mut c_void, attribute: c_int, value: c_int) -> i32 {
    status(|| {
        let of = current()?.0.functions.get(function.addr())?;
        let most = (occupancy::BLOCK_SHARED_BYTES_MAX - of.entry.shared) as c_int;
        match attribute {
            8 if (0..=most).contains(&value) => {
                of.dynamic_shared_max.store(value as u32, Ordering::Relaxed);
                Ok(())
            }
            // The share of shared memory in a cache, and clusters that are not portable.
            9 | 14 => Ok(()),
            _ => Err(Status::InvalidValue),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    to: *mut c_int,
    function: *mut c_void,
    threads: c_int,
    dynamic_shared: usize,
) -> i32 {
    status(|| {
        let of = current()?.0.functions.get(function.addr())?;
        let shared = of.entry.shared + dynamic_shared as u32;
        let blocks = occupancy::blocks(threads as u32, of.entry.registers, shared);
        // The emulator has no more threads at a time than that.
        let of_all = (THREADS_MAX as u32).checked_div(threads as u32).unwrap_or(0);
        let blocks = blocks.min(of_all / settings().multiprocessors.max(1));
        // SAFETY: the caller's promise.
        unsafe { to.write(blocks as c_int) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    to: *mut c_int,
    function: *mut c_void,
    threads: c_int,
    dynamic_shared: usize,
    _flags: c_uint,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessor(to, function, threads, dynamic_shared) }
}

unsafe fn launch(
    function: *mut c_void,
    shape: Shape,
    handle: *mut c_void,
    [arguments, extra]: [*mut *mut c_void; 2],
) -> Result<(), Status> {
    let (driver, device) = current()?;
    let function = driver.functions.get(function.addr())?;
    // SAFETY: the caller's promise.
    let launch = unsafe { KernelLaunch::new(function, shape, arguments, extra) }?;
    let what = format!("a launch of {}", launch.kernel());
    let work = move |operation: u32, preceding: &Preceding| {
        run(driver, device, &launch, (operation, preceding))
    };
    driver.submit(stream(handle)?, &what, None, Box::new(work))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    handle: *mut c_void,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> i32 {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let shape = Shape { grid, block, dynamic_shared, is_cooperative: false };
    // SAFETY: the caller's promise.
    status(|| unsafe { launch(function, shape, handle, [arguments, extra]) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    handle: *mut c_void,
    arguments: *mut *mut c_void,
) -> i32 {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let shape = Shape { grid, block, dynamic_shared, is_cooperative: true };
    // SAFETY: the caller's promise.
    status(|| unsafe { launch(function, shape, handle, [arguments, ptr::null_mut()]) })
}
