//! How many blocks of a kernel a multiprocessor holds (CUDA C++ Programming Guide, "Compute Capabilities", for 9.0).

/// Registers, bytes of shared memory, threads and blocks of a multiprocessor.
pub(crate) const REGISTERS: u32 = 65_536;
pub(crate) const SHARED_BYTES: u32 = 228 << 10;
pub(crate) const THREADS: u32 = 2_048;
pub(crate) const BLOCKS: u32 = 32;

/// The most bytes of shared memory of a block, unless it asks for more, and if it does.
pub(crate) const BLOCK_SHARED_BYTES: u32 = 48 << 10;
pub(crate) const BLOCK_SHARED_BYTES_MAX: u32 = 227 << 10;

/// Shared memory that the system takes for each block.
const RESERVED_BYTES: u32 = 1 << 10;

/// The blocks of `threads` threads, with `registers` registers each and `shared` bytes of shared memory a block, that fit a
/// multiprocessor.
pub(crate) fn blocks(threads: u32, registers: u32, shared: u32) -> u32 {
    let warps = threads.div_ceil(32).max(1);
    // A warp's registers are given out 256 at a time.
    let of_warp = (registers.max(1) * 32).next_multiple_of(256);
    let by_registers = REGISTERS / of_warp / warps;
    let by_shared = SHARED_BYTES / (shared + RESERVED_BYTES);
    let by_threads = THREADS / 32 / warps;
    by_registers.min(by_shared).min(by_threads).min(BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_bounds_the_blocks() {
        assert_eq!(blocks(32, 16, 0), 32, "blocks");
        assert_eq!(blocks(1024, 32, 0), 2, "threads");
        assert_eq!(blocks(256, 255, 0), 1, "registers");
        assert_eq!(blocks(64, 16, 100 << 10), 2, "shared memory");
        assert_eq!(blocks(1024, 255, 0), 0, "too many registers");
    }
}
