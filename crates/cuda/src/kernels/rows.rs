//! Copies of rows, the end of a step, and the signal that work is done: `kernels/rows.cu`. Addresses are those of the GPU.

use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Operand};

/// The kernel that makes [copies](struct@Copy), with a block for each.
pub const COPY_ROWS: &str = "copy_rows";

/// The kernel that copies an operand, with a block for each row.
pub const COPY_OPERAND: &str = "copy_operand";

/// The kernel that ends a step, with a block for each row.
pub const FINISH_STEP: &str = "finish_step";

/// The kernel that tells the host that work is done, of one thread.
pub const SIGNAL: &str = "signal_host";

/// Threads of a block of the kernels that copy.
pub const BLOCK: [u32; 3] = [128, 1, 1];

/// A copy of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Copy {
    /// The address of the target.
    pub to: u64,
    /// The address of the source; 0 for zeros.
    pub from: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// The argument of [`COPY_ROWS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CopyArguments {
    /// The address of the [copies](struct@Copy).
    pub copies: u64,
}

/// The argument of [`COPY_OPERAND`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CopyOperandArguments {
    /// The rows.
    pub batch: Batch,
    /// The source.
    pub from: Operand,
    /// The target.
    pub to: Operand,
    /// Bytes of a row.
    pub bytes: u32,
    /// 1 if the target's rows are zeros where nobody wants what is computed: of padding, and after the end of a sequence.
    pub clears_idle: u32,
}

/// A chain that reached its end of sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct End {
    /// The index and the generation of its request.
    pub request: [u32; 2],
    /// The run of its request.
    pub run: u32,
    /// The nodes that it ran.
    pub nodes: u32,
}

/// The argument of [`FINISH_STEP`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct FinishArguments {
    /// The rows.
    pub batch: Batch,
    /// The address of an [`Operand`] for each output.
    pub outputs: u64,
    /// [`Batch::ended`], which the kernel writes.
    pub ended: u64,
    /// The address of a ring of [`End`]s.
    pub ends: u64,
    /// The address of a word: the number of all ends so far.
    pub end_count: u64,
    /// The places of the ring.
    pub ends_max: u32,
    /// Input ports of a row, which precede its sinks.
    pub inputs: u32,
}

/// What the host reads of a task that is over.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Status {
    /// 1 if an id was looked up that its table does not have, [`STUCK`](super::persistent::STUCK) if blocks have waited in vain for one another.
    pub failed: u32,
    /// The number of all ends so far.
    pub end_count: u32,
}

/// The argument of [`SIGNAL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SignalArguments {
    /// The address of the number of the work that is done, of 64 bits.
    pub counter: u64,
    /// The address of this work's [`Status`].
    pub status: u64,
    /// The address of the word that lookups set, which becomes 0.
    pub failed: u64,
    /// [`FinishArguments::end_count`].
    pub end_count: u64,
    /// The number of this work.
    pub number: u64,
}
