//! Counts of the batches of one cell type.

/// See the module's first paragraph. Each step of a roster is a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// By size, padding included: how many batches of that many rows.
    pub(crate) by_size: Vec<u64>,
    pub(crate) batches: u64,
    pub(crate) nodes: u64,
    pub(crate) padding: u64,
    /// Steps submitted of chains that had said stop.
    pub(crate) wasted: u64,
}

impl Tally {
    /// Counts `batches` of `size` rows each, `padding` of all these rows being no nodes.
    pub(crate) fn count(&mut self, batches: u64, size: usize, padding: u64) {
        if self.by_size.len() <= size {
            self.by_size.resize(size + 1, 0);
        }
        self.by_size[size] += batches;
        self.batches += batches;
        self.nodes += batches * size as u64 - padding;
        self.padding += padding;
    }
}
