//! Stacks to run threads of a kernel on, and the switch between them.

use std::cell::RefCell;
use std::ptr;

/// Bytes of a stack, the page at its end included, which nobody may touch.
const STACK_BYTES: usize = 256 << 10;

const PAGE: usize = 4096;

std::arch::global_asm!(
    ".text",
    ".globl batchmaker_emulator_switch",
    ".hidden batchmaker_emulator_switch",
    ".type batchmaker_emulator_switch,@function",
    "batchmaker_emulator_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
);

unsafe extern "C" {
    /// Saves the registers that a call keeps and the stack's place to `from`, and goes on where `to` was saved.
    fn batchmaker_emulator_switch(from: *mut *mut u8, to: *mut u8);
}

/// Goes on where `to` was saved; where this call is goes to `from`.
///
/// # Safety
/// `to` is the place of a stack that a switch saved, or that [`Stack::prepare`] made, and nothing else goes on from there.
pub(super) unsafe fn switch(from: *mut *mut u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { batchmaker_emulator_switch(from, to) }
}

/// Memory for the calls of a thread.
pub(super) struct Stack(*mut u8);

thread_local! {
    /// Stacks that no launch of this thread of the host uses.
    static FREE: RefCell<Vec<Stack>> = const { RefCell::new(Vec::new()) };
}

impl Stack {
    /// A stack that is free, or a new one.
    pub(super) fn take() -> Self {
        FREE.with_borrow_mut(Vec::pop).unwrap_or_else(Self::new)
    }

    /// Gives a stack back.
    pub(super) fn give(self) {
        FREE.with_borrow_mut(|free| free.push(self));
    }

    fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the system's choice touches no memory of ours; its first page is not used.
        let first = unsafe {
            let first = libc::mmap(ptr::null_mut(), STACK_BYTES, protection, flags, -1, 0);
            assert_ne!(first, libc::MAP_FAILED, "no addresses for a stack");
            libc::mprotect(first, PAGE, libc::PROT_NONE);
            first
        };
        Self(first.cast())
    }

    /// Whether an address lies in the stack.
    pub(super) fn has(&self, at: *const u8) -> bool {
        (at as usize).wrapping_sub(self.0 as usize) < STACK_BYTES
    }

    /// The place from which a switch calls `entry`, which never returns.
    pub(super) fn prepare(&self, entry: extern "C" fn() -> !) -> *mut u8 {
        // Six registers, the address of `entry`, and a return address of zero, which leaves the stack as after a call.
        let words: [usize; 8] = [0, 0, 0, 0, 0, 0, entry as *const () as usize, 0];
        // SAFETY: the words lie within the stack, and at an address that suits them.
        unsafe {
            let place = self.0.add(STACK_BYTES - 16).sub(size_of_val(&words));
            place.cast::<[usize; 8]>().write(words);
            place
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing runs on it.
        unsafe { libc::munmap(self.0.cast(), STACK_BYTES) };
    }
}
