//! The rows of a batch, and where their data lies: `kernels/batch.cuh`. Addresses are those of the GPU.

use bytemuck::{Pod, Zeroable};

/// A row of a batch: a chain that takes a step, or a node of a row-wise run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Row {
    /// The output of one integer that ends the chain, if there is a `stop_output`.
    pub stop: i64,
    /// The index and the generation of its request.
    pub request: [u32; 2],
    /// The run of its request.
    pub run: u32,
    /// The slot of its states.
    pub slot: u32,
    /// The time of its node 0; times wrap around.
    pub first: u32,
    /// The states before the step at time t lie in half (t + half) mod 2 of the slot.
    pub half: u32,
    /// Its nodes: later steps are padding.
    pub length: u32,
    /// The first of its ports: inputs, then sinks.
    pub ports: u32,
    /// The number of its sinks.
    pub sinks: u32,
    /// The output that may end it, or [`NO_OUTPUT`].
    pub stop_output: u32,
}

impl Row {
    /// Whether an output may end its chain.
    pub fn may_end(&self) -> bool {
        self.stop_output != NO_OUTPUT
    }
}

/// No output ends a row's chain.
pub const NO_OUTPUT: u32 = u32::MAX;

/// Rows of a value of a request, one for each node.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Port {
    /// The row of node 0; row 0 of the value, if there is a list.
    pub base: u64,
    /// The rows of nodes, integers of 32 bits; 0 for none.
    pub list: u64,
    /// Bytes from a node's row to the next one's.
    pub stride: i64,
    /// Bytes of a row.
    pub bytes: u32,
    /// Of a sink: twice the output, plus one if only the last node writes.
    pub sink: u32,
}

/// Where an operand of a kernel has its rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Operand {
    base: u64,
    place: u32,
    stride: u32,
}

impl Operand {
    /// Rows of zeros, or rows that nobody wants.
    pub const NOWHERE: Self = Self { base: 0, place: 0, stride: 0 };

    /// Rows one after the other, `stride` bytes each.
    pub fn dense(base: u64, stride: usize) -> Self {
        Self { base, place: 1, stride: stride as u32 }
    }

    /// The states before the step, in slots whose halves have `half_bytes` bytes; `base` is that of the state in half 0 of slot 0.
    pub fn state(base: u64, half_bytes: usize) -> Self {
        Self { base, place: 2, stride: half_bytes as u32 }
    }

    /// The states after the step, likewise.
    pub fn next_state(base: u64, half_bytes: usize) -> Self {
        Self { base, place: 3, stride: half_bytes as u32 }
    }

    /// An input port.
    pub fn port(number: usize) -> Self {
        Self { base: 0, place: 4, stride: number as u32 }
    }
}

/// What of a batch changes from task to task of a roster, in the GPU's memory: launches of a graph have the same arguments each time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Now {
    /// The number of rows.
    pub count: i32,
    /// The time of the first step.
    pub time: u32,
}

/// A batch, as a kernel is given it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Batch {
    /// The address of its [`Row`]s.
    pub rows: u64,
    /// The address of the [`Port`]s that rows number.
    pub ports: u64,
    /// The address of a word for each slot, which is 1 once its chain has reached its end of sequence; 0 for none.
    pub ended: u64,
    /// The address of a [`Now`], or 0.
    pub now: u64,
    /// The number of rows; where there is a `now`, the most that there may be.
    pub count: i32,
    /// The time of the step, which rises by one with each; where there is a `now`, the steps of the task before this one.
    pub time: u32,
}

/// An embedding: rows of a table that an operand names by ids of 64 bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Lookup {
    /// The address of the table, `[rows, width]`; 0 where the operand is what is wanted itself.
    pub table: u64,
    /// The address of a word that becomes 1 where an id is not one of the table.
    pub failed: u64,
    /// The rows of the table.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
}

impl Lookup {
    /// No table.
    pub const NONE: Self = Self { table: 0, failed: 0, rows: 0, width: 0 };
}
