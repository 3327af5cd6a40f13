//! Inputs projected before the steps that need them: blocks of rows of one cell type and worker, within a
//! memory bound.

use std::ops::Range;

use super::raw_lines::{LINE, RawLines};

/// The most steps of a chain that are projected together.
const BLOCK_STEPS: u32 = 32;

/// The most bytes of projected rows of one cell type and worker.
const BYTES_MAX: usize = 32 << 20;

/// The blocks of one roster.
pub(crate) struct ProjectedBlocks {
    /// Floats from one projected row to the next.
    stride: usize,
    /// The number of blocks within the bound.
    blocks_max: usize,
    /// The number of blocks that may still be allocated.
    unallocated: usize,
    free: Vec<RawLines>,
}

/// Some steps of one chain. Those that had to be projected have a row in the block.
pub(crate) struct ProjectedSteps {
    /// None where no step had to be projected.
    block: Option<RawLines>,
    stride: usize,
    steps: Range<u32>,
}

impl ProjectedBlocks {
    /// Blocks for projected rows of `row_len` floats.
    pub(crate) fn new(row_len: usize) -> Self {
        let stride = row_len.next_multiple_of(LINE);
        let block_bytes = BLOCK_STEPS as usize * stride * size_of::<f32>();
        let blocks_max = BYTES_MAX / block_bytes.max(1);
        Self { stride, blocks_max, unallocated: blocks_max, free: Vec::new() }
    }

    /// Takes the first of `steps`, with a block if any of them `is_wanted`; none if the bound is reached.
    /// Steps that take several blocks are divided evenly: a product of a few rows costs little less than
    /// one of many.
    pub(crate) fn take(
        &mut self,
        steps: Range<u32>,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<ProjectedSteps> {
        let blocks = steps.len().div_ceil(BLOCK_STEPS as usize).max(1);
        let count = steps.len().div_ceil(blocks) as u32;
        let steps = steps.start..steps.start + count;
        let stride = self.stride;
        let block = match steps.clone().any(is_wanted) {
            false => None,
            true => Some(self.free.pop().or_else(|| {
                self.unallocated = self.unallocated.checked_sub(1)?;
                Some(RawLines::zeros(BLOCK_STEPS as usize * stride))
            })?),
        };
        Some(ProjectedSteps { block, stride, steps })
    }

    /// Whether `chains` chains can have a block at a time.
    pub(crate) fn fit(&self, chains: usize) -> bool {
        chains <= self.blocks_max
    }

    /// Gives the block of some steps back.
    pub(crate) fn give_back(&mut self, steps: ProjectedSteps) {
        self.free.extend(steps.block);
    }
}

impl ProjectedSteps {
    /// The range of steps.
    pub(crate) fn steps(&self) -> Range<u32> {
        self.steps.clone()
    }

    /// Returns the address of a step's projection, `[projected_len]`, if there is space for it. The address is valid
    /// until the block is given back and taken again, or dropped.
    pub(crate) fn row(&self, step: u32) -> Option<*mut f32> {
        let block = self.block.as_ref()?;
        Some(block.first().wrapping_add(self.place(step)))
    }

    fn place(&self, step: u32) -> usize {
        assert!(self.steps.contains(&step), "step {step} of {:?}", self.steps);
        (step - self.steps.start) as usize * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_bounded_and_come_back() {
        let row_len = BYTES_MAX / 4 / BLOCK_STEPS as usize / 2;
        let mut projections = ProjectedBlocks::new(row_len);
        let first = projections.take(3..70, |_| true).expect("two blocks fit");
        assert_eq!(first.steps(), 3..3 + 23, "67 steps in three blocks");
        assert!(projections.fit(2) && !projections.fit(3));
        let second = projections.take(0..5, |step| step == 4).expect("two blocks fit");
        assert_eq!(second.steps(), 0..5);
        assert!(projections.take(0..1, |_| true).is_none());
        let unwanted = projections.take(0..1, |_| false).expect("no block is needed");
        assert_eq!(unwanted.row(0), None);
        projections.give_back(unwanted);
        assert!(projections.take(0..1, |_| true).is_none());
        let place = first.row(3);
        projections.give_back(first);
        assert_eq!(projections.take(7..9, |_| true).expect("one came back").row(7), place);
        assert!(projections.take(0..1, |_| true).is_none());
    }
}
