//! What a kernel calls: the header's functions, answered for the current thread of the launch that runs on this thread of the host.
//!
//! Nothing here may unwind: the caller is the kernel's code.

use std::ffi::{CStr, c_char, c_void};

use super::scheduler::{Execution, current, value_at};
use super::threads::Load;
use super::warp::{Instruction, Operation};
use crate::abi::{Calls, Dim3};
use crate::detector::{Effect, Order, Scope};
use crate::memory::Place;

/// The number of the operation that writes a value if it finds another one.
const COMPARE_AND_SWAP: u32 = 9;

pub(crate) static CALLS: Calls = Calls {
    access,
    volatile_access,
    read_only,
    misaligned,
    position,
    sync_threads,
    fence,
    atomic,
    warp,
    shared,
    pause,
};

/// A load or store follows.
unsafe extern "C" fn access(at: *mut u8, bytes: usize, is_write: u32, site: *const c_void) {
    // SAFETY: a kernel calls this, so a launch runs, and nobody has a reference to it.
    unsafe { Execution::access(current(), at, bytes, (is_write != 0, site)) }
}

/// A volatile load or store follows: a relaxed atomic one in the system's scope (PTX ISA, "ld", "st").
unsafe extern "C" fn volatile_access(
    at: *mut u8,
    bytes: usize,
    is_write: u32,
    site: *const c_void,
) {
    let effect = if is_write != 0 { Effect::Store } else { Effect::Load };
    let order = Order { acquires: false, releases: false };
    // SAFETY: as for `access`; the bytes were checked.
    unsafe {
        if (*current()).is_own(at) {
            return;
        }
        before_atomic(at, bytes, (effect, order, Scope::System), None, site);
        let load = Load { at, bytes, value: value_at(at, bytes) };
        (*current()).note_load(Some(load).filter(|_| effect == Effect::Load));
    }
}

unsafe extern "C" fn read_only(at: *const u8, bytes: usize, site: *const c_void) {
    // SAFETY: as for `access`.
    unsafe { (*current()).read_only(at, bytes, site) }
}

/// An access follows of a type with an alignment that the address does not have.
unsafe extern "C" fn misaligned(
    at: *const u8,
    alignment: usize,
    name: *const c_char,
    site: *const c_void,
) {
    // SAFETY: as for `access`; the name is a literal of the kernel's library.
    unsafe {
        let name = CStr::from_ptr(name).to_string_lossy();
        let what = format!("access of `{}`", name.trim_matches('\''));
        Execution::misaligned(current(), (at, alignment), &what, site);
    }
}

unsafe extern "C" fn position(of: u32) -> Dim3 {
    // SAFETY: as for `access`.
    let execution = unsafe { &*current() };
    let extents = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
    match of {
        0 => execution.threads[execution.current].position,
        1 => execution.block_index(),
        2 => extents(execution.launch.block),
        _ => extents(execution.launch.grid),
    }
}

unsafe extern "C" fn sync_threads(file: *const c_char, line: u32, site: *const c_void) {
    // SAFETY: as for `access`.
    unsafe { Execution::sync_threads(current(), (file, line), site) }
}

unsafe extern "C" fn fence(scope: u32) {
    // SAFETY: as for `access`.
    unsafe { Execution::fence(current(), scope_of(scope)) }
}

unsafe extern "C" fn atomic(
    operation: u32,
    order: u32,
    scope: u32,
    at: *mut u8,
    bytes: u32,
    value: u64,
    compared: u64,
    site: *const c_void,
) -> u64 {
    let effect = match operation {
        0 => Effect::Load,
        1 => Effect::Store,
        _ => Effect::Update,
    };
    let order = Order { acquires: order & 1 != 0, releases: order & 2 != 0 };
    let bytes = bytes as usize;
    let expected = (operation == COMPARE_AND_SWAP).then_some(compared);
    // SAFETY: as for `access`; the bytes were checked, and no other thread of the launch runs until they are written.
    unsafe {
        before_atomic(at, bytes, (effect, order, scope_of(scope)), expected, site);
        let old = value_at(at, bytes);
        let new = match effect {
            Effect::Load => old,
            Effect::Store | Effect::Update => updated(operation, old, value, compared),
        };
        if new != old {
            std::ptr::copy_nonoverlapping(new.to_ne_bytes().as_ptr(), at, bytes);
        }
        let load = Load { at, bytes, value: old };
        (*current()).note_load(Some(load).filter(|_| new == old && effect != Effect::Store));
        old
    }
}

/// Checks an atomic operation and makes the order that it makes. The operation follows. If a value is `expected`, another one is only loaded.
unsafe fn before_atomic(
    at: *mut u8,
    bytes: usize,
    (mut effect, order, scope): (Effect, Order, Scope),
    expected: Option<u64>,
    site: *const c_void,
) {
    let this = current();
    // SAFETY: as for `access`; no reference lives while another thread runs.
    unsafe {
        Execution::before_atomic(this, at, site);
        if !(at as usize).is_multiple_of(bytes) {
            let what = format!("atomic operation of {bytes} bytes");
            Execution::misaligned(this, (at, bytes), &what, site);
        }
        if effect != Effect::Store && !(*this).check(at, bytes, (false, Some(scope)), site) {
            Execution::abandon(this);
        }
        if expected.is_some_and(|expected| value_at(at, bytes) != expected) {
            effect = Effect::Load;
        }
        if effect != Effect::Load && !(*this).check(at, bytes, (true, Some(scope)), site) {
            Execution::abandon(this);
        }
        let slot = (*this).current;
        if (*this).memory.place(at) == Some(Place::Host) {
            (*this).access_host(at, (effect, order, scope), site);
        }
        (*this).detector.atomic(slot, at as usize, (effect, order, scope));
    }
}

/// The value after an atomic operation, as `emulated_atomic` of the header numbers them.
fn updated(operation: u32, old: u64, value: u64, compared: u64) -> u64 {
    match operation {
        3 => old.wrapping_add(value),
        4 => u64::from((f32::from_bits(old as u32) + f32::from_bits(value as u32)).to_bits()),
        5 => old.max(value),
        6 => old.min(value),
        7 => old | value,
        8 => old & value,
        COMPARE_AND_SWAP if old != compared => old,
        _ => value,
    }
}

unsafe extern "C" fn warp(
    operation: u32,
    mask: u32,
    value: u32,
    argument: u32,
    width: u32,
    site: *const c_void,
) -> u32 {
    let operation = Operation::of(operation);
    let instruction = Instruction { operation, mask, value, argument, width };
    // SAFETY: as for `access`.
    unsafe { Execution::warp(current(), instruction, site) }
}

unsafe extern "C" fn shared(key: *const c_void, bytes: usize, name: *const c_char) -> *mut u8 {
    // SAFETY: as for `access`; the name is a literal of the kernel's library.
    unsafe { (*current()).shared(key, bytes, &CStr::from_ptr(name).to_string_lossy()) }
}

unsafe extern "C" fn pause() {
    // SAFETY: as for `access`.
    unsafe { Execution::pause(current()) }
}

fn scope_of(number: u32) -> Scope {
    match number {
        0 => Scope::Block,
        1 => Scope::Gpu,
        _ => Scope::System,
    }
}
