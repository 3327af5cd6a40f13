//! Memory, and copies between the host and devices.

use std::ffi::{c_uint, c_void};
use std::ptr;

use super::devices::device_of;
use super::streams::stream;
use super::{give, status};
use crate::driver::{Driver, current};
use crate::lock::lock;
use crate::order::Preceding;
use crate::status::Status;

/// An address that another thread of the host uses.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: who uses the address vouches for it.
unsafe impl Send for Address {}

impl Address {
    /// The address of a device pointer, which is one of this process.
    fn of_device(pointer: u64) -> Self {
        Self(ptr::with_exposed_provenance_mut(pointer as usize))
    }

    fn get(self) -> *mut u8 {
        self.0
    }
}

unsafe fn allocate(to: *mut u64, bytes: usize) -> Result<(), Status> {
    let (driver, device) = current()?;
    driver.check(device)?;
    let at = driver.allocate(device, bytes)?;
    // SAFETY: the caller's promise.
    unsafe { to.write(at.expose_provenance() as u64) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { allocate(to, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocAsync(to: *mut u64, bytes: usize, _stream: *mut c_void) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { allocate(to, bytes) })
}

/// Frees memory of the current device once its operations are over.
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(pointer: u64) -> i32 {
    status(|| {
        let (driver, device) = current()?;
        let at = Address::of_device(pointer);
        driver.end_allocation(at.get())?;
        driver.wait_for_device(device)?;
        let _running = lock(&driver.running);
        driver.free(at.get())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(pointer: u64, handle: *mut c_void) -> i32 {
    status(|| {
        let driver = current()?.0;
        let at = Address::of_device(pointer);
        let bytes = driver.end_allocation(at.get())?;
        let work = move |operation: u32, preceding: &Preceding| {
            let _running = lock(&driver.running);
            // Whoever uses the memory does so before.
            driver.access((operation, preceding), (at.get(), bytes), true)?;
            driver.free(at.get())
        };
        driver.submit(stream(handle)?, "the end of an allocation", None, Box::new(work))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    status(|| {
        let (driver, device) = current()?;
        // SAFETY: the caller's promise.
        unsafe {
            total.write(driver.memory_bytes);
            free.write(driver.memory_bytes - driver.used(device));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { give(to, || Ok(current()?.0.allocate_pinned(bytes)?.cast())) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(at: *mut c_void) -> i32 {
    status(|| {
        let (driver, device) = current()?;
        driver.check(device)?;
        // Copies of any device may use it. Another one that failed uses nothing any more.
        for other in 0..driver.devices {
            driver.wait_for_device(other).ok();
        }
        driver.check(device)?;
        driver.free_pinned(at.cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    to: *mut u64,
    at: *mut c_void,
    _flags: c_uint,
) -> i32 {
    status(|| {
        if !current()?.0.is_pinned(at.cast()) {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the caller's promise.
        unsafe { to.write(at.expose_provenance() as u64) };
        Ok(())
    })
}

/// Whether bytes at an address of a device are allocated.
fn check(driver: &Driver, at: Address, bytes: usize) -> Result<(), Status> {
    driver.memory.is_allocated(at.get(), bytes).then_some(()).ok_or(Status::InvalidValue)
}

/// Copies to a device: from memory that devices access when the copy runs, from other memory of the host at once.
unsafe fn to_device(
    pointer: u64,
    from: *const c_void,
    bytes: usize,
    of: u32,
) -> Result<(), Status> {
    let driver = current()?.0;
    let (to, from) = (Address::of_device(pointer), Address(from.cast_mut().cast()));
    check(driver, to, bytes)?;
    // SAFETY: the caller's promise.
    let copied = || unsafe { std::slice::from_raw_parts(from.get(), bytes).to_vec() };
    let copied = (!driver.is_pinned(from.get())).then(copied);
    let work = move |operation: u32, preceding: &Preceding| {
        let _running = lock(&driver.running);
        driver.access((operation, preceding), (to.get(), bytes), true)?;
        if copied.is_none() {
            driver.access((operation, preceding), (from.get(), bytes), false)?;
        }
        let from = copied.as_ref().map_or(from.get().cast_const(), |of| of.as_ptr());
        // SAFETY: the target was checked; the source is a copy, or memory that the host keeps until the copy is over.
        unsafe { ptr::copy(from, to.get(), bytes) };
        Ok(())
    };
    driver.submit(of, "a copy from the host", None, Box::new(work))
}

/// Copies from a device. Unless the target is memory that devices access, this waits until the copy is over.
unsafe fn from_device(to: *mut c_void, pointer: u64, bytes: usize, of: u32) -> Result<(), Status> {
    let driver = current()?.0;
    let (to, from) = (Address(to.cast()), Address::of_device(pointer));
    check(driver, from, bytes)?;
    let is_pinned = driver.is_pinned(to.get());
    let work = move |operation: u32, preceding: &Preceding| {
        let _running = lock(&driver.running);
        driver.access((operation, preceding), (from.get(), bytes), false)?;
        if is_pinned {
            driver.access((operation, preceding), (to.get(), bytes), true)?;
        }
        // SAFETY: the source was checked; the host keeps the target until the copy is over.
        unsafe { ptr::copy(from.get(), to.get(), bytes) };
        Ok(())
    };
    driver.submit(of, "a copy to the host", None, Box::new(work))?;
    if is_pinned { Ok(()) } else { driver.wait_for(of, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    handle: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { to_device(to, from, bytes, stream(handle)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> i32 {
    status(|| {
        let default = stream(ptr::null_mut())?;
        // SAFETY: the caller's promise.
        unsafe { to_device(to, from, bytes, default)? };
        // The host may go on before the device has the bytes: it waits here, and knows nothing by that.
        current()?.0.wait_for(default, false)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    handle: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    status(|| unsafe { from_device(to, from, bytes, stream(handle)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> i32 {
    status(|| {
        let default = stream(ptr::null_mut())?;
        // SAFETY: the caller's promise.
        unsafe { from_device(to, from, bytes, default)? };
        current()?.0.wait_for(default, true)
    })
}

/// Copies from memory of devices to memory of devices. If one of `peers` does nothing any more, its error is that of this call, or, when the copy
/// runs, of the stream's device.
fn among_devices(
    what: &str,
    [to, from]: [u64; 2],
    bytes: usize,
    peers: Vec<usize>,
    of: u32,
) -> Result<(), Status> {
    let driver = current()?.0;
    let [to, from] = [to, from].map(Address::of_device);
    let check_peers = move || peers.iter().try_for_each(|&device| driver.check(device));
    check_peers()?;
    check(driver, to, bytes).and(check(driver, from, bytes))?;
    let work = move |operation: u32, preceding: &Preceding| {
        let _running = lock(&driver.running);
        check_peers()?;
        driver.access((operation, preceding), (from.get(), bytes), false)?;
        driver.access((operation, preceding), (to.get(), bytes), true)?;
        // SAFETY: both were checked.
        unsafe { ptr::copy(from.get(), to.get(), bytes) };
        Ok(())
    };
    driver.submit(of, what, None, Box::new(work))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, handle: *mut c_void) -> i32 {
    status(|| among_devices("a copy on a device", [to, from], bytes, Vec::new(), stream(handle)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: *mut c_void,
    from: u64,
    from_context: *mut c_void,
    bytes: usize,
    handle: *mut c_void,
) -> i32 {
    status(|| {
        let peers = vec![device_of(to_context)?, device_of(from_context)?];
        among_devices("a copy between devices", [to, from], bytes, peers, stream(handle)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(pointer: u64, byte: u8, bytes: usize, handle: *mut c_void) -> i32 {
    status(|| {
        let driver = current()?.0;
        let to = Address::of_device(pointer);
        check(driver, to, bytes)?;
        let work = move |operation: u32, preceding: &Preceding| {
            let _running = lock(&driver.running);
            driver.access((operation, preceding), (to.get(), bytes), true)?;
            // SAFETY: the bytes were checked.
            unsafe { to.get().write_bytes(byte, bytes) };
            Ok(())
        };
        driver.submit(stream(handle)?, "a fill", None, Box::new(work))
    })
}
