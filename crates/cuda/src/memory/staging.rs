//! Memory of the host that copies go through.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::gpu::{Gpu, GpuError, Pinned};

/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 20;

/// Ranges begin at multiples of this number of bytes.
const ALIGNMENT: usize = 64;

/// Blocks that are larger are given back when nothing uses them.
const KEPT_BYTES: usize = 16 << 20;

/// Pinned memory in blocks, each of which is used again once the results of all work that uses it were taken.
pub(crate) struct Staging {
    gpu: Arc<Gpu>,
    /// The one in use is the last.
    blocks: VecDeque<Block>,
}

struct Block {
    memory: Arc<Pinned>,
    used: usize,
    /// The number of the last work that uses it.
    until: u64,
}

/// A range of pinned memory, of whoever took it.
#[derive(Clone)]
pub(crate) struct Staged {
    pub(crate) memory: Arc<Pinned>,
    pub(crate) offset: usize,
}

impl Staged {
    /// The address of the range for GPUs.
    pub(crate) fn device_address(&self) -> u64 {
        self.memory.device_address(self.offset)
    }

    /// The range, for a copy.
    pub(crate) fn range(&self) -> (&Pinned, usize) {
        (&self.memory, self.offset)
    }
}

impl Staging {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: gpu.clone(), blocks: VecDeque::new() }
    }

    /// Takes a range for work of that number. The results of work up to number `collected` were taken.
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        number: u64,
        collected: u64,
    ) -> Result<Staged, GpuError> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let has_room = |block: &Block| block.memory.bytes() - block.used >= bytes;
        if !self.blocks.back().is_some_and(has_room) {
            self.blocks.retain(|block| {
                block.until > collected || block.memory.bytes() <= KEPT_BYTES.max(bytes)
            });
            let is_free = |block: &Block| block.until <= collected && block.memory.bytes() >= bytes;
            let free = self.blocks.iter().position(is_free);
            let block = match free.and_then(|free| self.blocks.remove(free)) {
                Some(block) => Block { used: 0, ..block },
                None => {
                    let memory = Pinned::new(&self.gpu, bytes.max(BLOCK_BYTES))?;
                    Block { memory: Arc::new(memory), used: 0, until: 0 }
                }
            };
            self.blocks.push_back(block);
        }
        let block = self.blocks.back_mut().expect("a block was found or made");
        let offset = block.used;
        block.used += bytes;
        block.until = number;
        Ok(Staged { memory: block.memory.clone(), offset })
    }
}
