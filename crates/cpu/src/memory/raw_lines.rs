//! An allocation of whole cache lines that is owned through its pointer.
//!
//! A `Box` or a reference to memory promises the compiler that no other pointer accesses it. Threads write
//! parts of these allocations through pointers while the owner moves, so no reference to the whole is formed
//! between allocation and drop.

/// Floats of a cache line, the unit of alignment.
pub(crate) const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "memory, accessed through pointers")] [f32; LINE]);

/// Some cache lines of floats, zeros at first.
pub(crate) struct RawLines {
    first: *mut Line,
    lines: usize,
}

// SAFETY: the lines belong to this value alone, and any thread may drop them. It hands out their address
// only; whoever accesses memory there vouches for the access.
unsafe impl Send for RawLines {}

impl RawLines {
    /// Lines for at least `len` floats.
    pub(crate) fn zeros(len: usize) -> Self {
        let lines = len.div_ceil(LINE);
        let memory = vec![Line([0.0; LINE]); lines].into_boxed_slice();
        Self { first: Box::into_raw(memory).cast(), lines }
    }

    /// The bytes of the lines for `len` floats.
    pub(crate) fn bytes(len: usize) -> usize {
        len.div_ceil(LINE) * size_of::<Line>()
    }

    /// The address of the first float, which stays the same until the lines are dropped.
    pub(crate) fn first(&self) -> *mut f32 {
        self.first.cast()
    }

    /// The number of floats.
    pub(crate) fn len(&self) -> usize {
        self.lines * LINE
    }
}

impl Drop for RawLines {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.first, self.lines);
        // SAFETY: made from a box of that length in `zeros`, and dropped once.
        drop(unsafe { Box::from_raw(memory) });
    }
}
