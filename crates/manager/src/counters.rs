//! Counters of the batches of one cell type.

/// The batches of a cell type since the start. Each step of a roster is a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchCounters {
    /// The number of batches of each size in rows, padding included.
    pub(crate) by_size: Vec<u64>,
    pub(crate) batches: u64,
    pub(crate) nodes: u64,
    /// Rows of batches that are no nodes.
    pub(crate) padding: u64,
    /// Steps submitted of chains past their end of sequence.
    pub(crate) past_end_of_sequence: u64,
}

impl BatchCounters {
    /// Counts `batches` of `size` rows each; `padding` of all these rows are no nodes.
    pub(crate) fn count(&mut self, batches: u64, size: usize, padding: u64) {
        if self.by_size.len() <= size {
            self.by_size.resize(size + 1, 0);
        }
        self.by_size[size] += batches;
        self.batches += batches;
        self.nodes += batches * size as u64 - padding;
        self.padding += padding;
    }

    /// Adds what another policy counted of the same cell type.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.by_size.len() < other.by_size.len() {
            self.by_size.resize(other.by_size.len(), 0);
        }
        self.by_size.iter_mut().zip(&other.by_size).for_each(|(sum, of_other)| *sum += of_other);
        self.batches += other.batches;
        self.nodes += other.nodes;
        self.padding += other.padding;
        self.past_end_of_sequence += other.past_end_of_sequence;
    }
}
