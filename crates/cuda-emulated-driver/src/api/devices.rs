//! The driver itself, devices, contexts and errors.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use super::{give, status};
use crate::control::{Settings, settings};
use crate::driver::{current, current_device, driver, initialise, set_current};
use crate::occupancy;
use crate::status::Status;

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> i32 {
    status(initialise)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { version.write(13_000) };
    Status::Success as i32
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(count, || Ok(driver()?.devices as c_int)) }
}

/// A device is named by its index.
fn device(index: c_int) -> Result<usize, Status> {
    let devices = driver()?.devices;
    usize::try_from(index).ok().filter(|&of| of < devices).ok_or(Status::InvalidDevice)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(to: *mut c_int, index: c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(to, || Ok(device(index)? as c_int)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, len: c_int, index: c_int) -> i32 {
    status(|| {
        let name = format!("emulated GPU {}", device(index)?);
        let len = name.len().min((len.max(1) - 1) as usize);
        // SAFETY: the caller's promise.
        unsafe {
            ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), len);
            to.add(len).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(to: *mut [u8; 16], index: c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(to, || Ok([device(index)? as u8; 16])) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, index: c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(bytes, || Ok(device(index).and(driver())?.memory_bytes)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, index: c_int) -> i32 {
    status(|| {
        device(index)?;
        let Settings { multiprocessors, architecture, .. } = *settings();
        // By their numbers in `CUdevice_attribute`.
        let value = match attribute {
            1 => 1024,                          // threads of a block
            8 => occupancy::BLOCK_SHARED_BYTES, // shared memory of a block
            10 => 32,                           // threads of a warp
            12 | 82 => occupancy::REGISTERS,    // registers of a block, of a multiprocessor
            16 => multiprocessors,
            19 | 31 | 41 | 95 => 1, // mapped host memory, concurrent kernels, unified addresses, cooperative launches
            39 => occupancy::THREADS,
            75 => architecture / 10,
            76 => architecture % 10,
            81 => occupancy::SHARED_BYTES,
            97 => occupancy::BLOCK_SHARED_BYTES_MAX,
            106 => occupancy::BLOCKS,
            115 => 1, // memory pools
            _ => return Err(Status::InvalidValue),
        };
        // SAFETY: the caller's promise.
        unsafe { to.write(value as c_int) };
        Ok(())
    })
}

/// A context is that of a device: its address is the device's index and 1, in pages.
fn context(device: usize) -> *mut c_void {
    ptr::without_provenance_mut((device + 1) << 12)
}

/// The device of a context.
pub(super) fn device_of(context: *mut c_void) -> Result<usize, Status> {
    let device = (context.addr() >> 12).checked_sub(1);
    let devices = driver()?.devices;
    device.filter(|&device| device < devices).ok_or(Status::InvalidContext)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut *mut c_void, index: c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(to, || Ok(context(device(index)?))) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(index: c_int) -> i32 {
    status(|| device(index).map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(to: *mut *mut c_void) -> i32 {
    status(|| {
        driver()?;
        // SAFETY: the caller's promise.
        unsafe { to.write(current_device().map_or(ptr::null_mut(), context)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(of: *mut c_void) -> i32 {
    status(|| {
        let device = if of.is_null() { None } else { Some(device_of(of)?) };
        set_current(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetFlags(_flags: c_uint) -> i32 {
    status(|| current().map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        least.write(0);
        greatest.write(-5);
    }
    Status::Success as i32
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> i32 {
    status(|| {
        let (driver, device) = current()?;
        driver.wait_for_device(device)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(number: i32, to: *mut *const c_char) -> i32 {
    let name = Status::name(number);
    // SAFETY: the caller's promise.
    unsafe {
        to.write(name.unwrap_or(c"an error that the emulated driver does not know").as_ptr())
    };
    name.map_or(Status::InvalidValue, |_| Status::Success) as i32
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(number: i32, to: *mut *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cuGetErrorName(number, to) }
}

/// NVRTC asks for tables of functions that are not documented, and does without.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(to: *mut *const c_void, _id: *const c_void) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { to.write(ptr::null()) };
    Status::NotFound as i32
}
