//! Memory of this process that GPUs access.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{result, sys};

use super::device::Gpu;
use super::error::GpuError;

/// Memory that stays where it is and that all GPUs access, copying or from kernels.
///
/// The host and GPUs write it without a lock: whoever holds it gives out each range to one of them at a time.
pub(crate) struct Pinned {
    gpu: Arc<Gpu>,
    at: *mut u8,
    device: u64,
    bytes: usize,
}

// SAFETY: the memory belongs to this value, whose methods copy to it and from it.
unsafe impl Send for Pinned {}
// SAFETY: as above; ranges are given out to one user at a time.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Memory of zeros.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, GpuError> {
        gpu.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut device = 0;
        // SAFETY: the driver gives as many bytes as it is asked for.
        let at = unsafe {
            let at = result::malloc_host(bytes, flags)?;
            at.cast::<u8>().write_bytes(0, bytes);
            sys::cuMemHostGetDevicePointer_v2(&mut device, at, 0).result()?;
            at.cast()
        };
        Ok(Self { gpu: gpu.clone(), at, device, bytes })
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a byte for GPUs.
    pub(crate) fn device_address(&self, offset: usize) -> u64 {
        assert!(offset <= self.bytes, "within the memory");
        self.device + offset as u64
    }

    /// The address of some bytes for this process.
    pub(super) fn address(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "within the memory");
        self.at.wrapping_add(offset)
    }

    /// Writes bytes of a range that the caller was given.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.address(offset, bytes.len());
        // SAFETY: the range is within the memory; nobody else uses it, as the type says.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Writes zeros to a range that the caller was given.
    pub(crate) fn clear(&self, offset: usize, bytes: usize) {
        // SAFETY: as in `write`.
        unsafe { self.address(offset, bytes).write_bytes(0, bytes) };
    }

    /// The bytes of a range that the caller was given, and that no GPU writes any more while they are used.
    pub(crate) fn read(&self, offset: usize, bytes: usize) -> &[u8] {
        let from = self.address(offset, bytes);
        // SAFETY: as in `write`.
        unsafe { std::slice::from_raw_parts(from, bytes) }
    }

    /// The number of 64 bits at the beginning, which a GPU stores with a release: what it wrote before is there.
    pub(crate) fn load(&self) -> u64 {
        self.number(0).load(Ordering::Acquire)
    }

    /// Stores a number of 64 bits: what this process wrote before is there for a GPU that has loaded it with an acquire.
    pub(crate) fn store(&self, offset: usize, number: u64) {
        self.number(offset).store(number, Ordering::Release);
    }

    fn number(&self, offset: usize) -> &AtomicU64 {
        let at = self.address(offset, 8).cast::<u64>();
        assert!(at.is_aligned(), "numbers are aligned");
        // SAFETY: the number is aligned, and all access it atomically.
        unsafe { AtomicU64::from_ptr(at) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the memory is this value's, and the driver waits until no copy uses it.
            let _ = unsafe { result::free_host(self.at.cast()) };
        }
    }
}
