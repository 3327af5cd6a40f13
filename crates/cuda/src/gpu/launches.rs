//! Launches of kernels one after the other, which a stream takes one by one, or together as a graph.

use bytemuck::{Pod, bytes_of};
use cudarc::driver::sys;

use super::device::Gpu;

/// Launches that follow one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Launches {
    of: Vec<Launch>,
    /// The arguments, one after the other.
    arguments: Vec<u8>,
}

/// A launch of a kernel, which has one argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Launch {
    pub(super) kernel: sys::CUfunction,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// The offset of its argument among the arguments of all.
    argument: usize,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Launches {}

impl Launches {
    /// Adds a launch of a kernel on a grid of blocks of threads.
    ///
    /// # Panics
    /// If the GPU has no kernel of this name.
    pub(crate) fn push<A: Pod>(
        &mut self,
        gpu: &Gpu,
        kernel: &str,
        [grid, block]: [[u32; 3]; 2],
        argument: &A,
    ) {
        // Arguments of kernels have words of 64 bits.
        self.arguments.resize(self.arguments.len().next_multiple_of(8), 0);
        let kernel = gpu.kernel(kernel);
        self.of.push(Launch { kernel, grid, block, argument: self.arguments.len() });
        self.arguments.extend_from_slice(bytes_of(argument));
    }

    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// The launches with their arguments.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Launch, &[u8])> {
        self.of.iter().map(|launch| (launch, &self.arguments[launch.argument..]))
    }

    /// Forgets the launches, and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.of.clear();
        self.arguments.clear();
    }
}
