//! Streams and events.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use super::status;
use crate::driver::{Event, current, driver};
use crate::order::Preceding;
use crate::status::Status;

/// The number of a stream: its address in pages. The default stream has the number of its device.
pub(super) fn stream(handle: *mut c_void) -> Result<u32, Status> {
    let (_, device) = current()?;
    // 1 and 2 are the default stream's other names.
    match handle.addr() {
        0..=2 => Ok(device as u32),
        address => u32::try_from(address >> 12).map_err(|_| Status::InvalidHandle),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(to: *mut *mut c_void, _flags: c_uint) -> i32 {
    status(|| {
        let (driver, device) = current()?;
        let number = driver.add_stream(device);
        // SAFETY: the caller's promise.
        unsafe { to.write(ptr::without_provenance_mut((number as usize) << 12)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    to: *mut *mut c_void,
    flags: c_uint,
    _priority: c_int,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { cuStreamCreate(to, flags) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(handle: *mut c_void) -> i32 {
    status(|| current()?.0.remove_stream(stream(handle)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(handle: *mut c_void) -> i32 {
    status(|| current()?.0.wait_for(stream(handle)?, true))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(handle: *mut c_void) -> i32 {
    status(|| current()?.0.is_over(stream(handle)?)?.then_some(()).ok_or(Status::NotReady))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(handle: *mut c_void, event: *mut c_void, _flags: c_uint) -> i32 {
    status(|| {
        let driver = current()?.0;
        let record = driver.events.get(event.addr())?.record();
        driver.submit(stream(handle)?, "a wait for an event", record, Box::new(|_, _| Ok(())))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    handle: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> i32 {
    struct Argument(*mut c_void);
    // SAFETY: the caller knows that the function runs on another thread.
    unsafe impl Send for Argument {}
    status(|| {
        let argument = Argument(argument);
        let driver = current()?.0;
        let work = move |_: u32, preceding: &Preceding| {
            let Argument(argument) = { argument };
            driver.host_has_seen(&preceding.known);
            // SAFETY: the caller's promise.
            unsafe { function(argument) };
            Ok(())
        };
        driver.submit(stream(handle)?, "a function of the host", None, Box::new(work))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(to: *mut *mut c_void, _flags: c_uint) -> i32 {
    status(|| {
        let handle = current()?.0.events.add(Event::default());
        // SAFETY: the caller's promise.
        unsafe { to.write(ptr::without_provenance_mut(handle)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> i32 {
    status(|| current()?.0.events.remove(event.addr()).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: *mut c_void, handle: *mut c_void) -> i32 {
    status(|| {
        let driver = current()?.0;
        driver.record(&*driver.events.get(event.addr())?, stream(handle)?)
    })
}

/// Whether what an event recorded is over; waits for it first, if `waits`.
fn is_over(event: *mut c_void, waits: bool) -> Result<bool, Status> {
    let driver = driver()?;
    driver.event_is_over(&*driver.events.get(event.addr())?, waits)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: *mut c_void) -> i32 {
    status(|| is_over(event, true).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: *mut c_void) -> i32 {
    status(|| is_over(event, false)?.then_some(()).ok_or(Status::NotReady))
}
