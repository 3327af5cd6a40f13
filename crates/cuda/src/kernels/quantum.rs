//! Recurrent cells whose weights stay on the chip while the batch changes: `kernels/quantum.cuh`. A launch runs task after task of a roster.

use std::fmt::Write as _;

use batchmaker_graph::RecurrentKind;
use bytemuck::{Pod, Zeroable};

use super::batch::{Lookup, Operand};
use super::persistent::{PersistentArguments, PersistentKernel};
use super::weights::Storage;
use crate::mapping::{CostModel, Limits};

/// Registers for x and for the task, beside those of a launch for one task.
const MORE_REGISTERS: usize = 24;

/// What [`QuantumArguments::next`] becomes if blocks have waited in vain for one another.
pub const IS_STUCK: u64 = u64::MAX;

/// The words of 32 bits of [`QuantumArguments::words`].
pub const WORDS: usize = 6;

/// The most bytes of a copy whose source is brought to the GPU ahead of its task.
pub const BROUGHT_BYTES: usize = 4096;

/// A task, in memory of the host.
///
/// The host writes `number` last, with a release.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Task {
    /// The address of the [copies](struct@super::rows::Copy) that change the roster, before the steps.
    pub copies: u64,
    /// How many of them are from memory of the host, or of zeros: these come first.
    pub from_host: u32,
    /// How many of them are within the GPU: they may read what the others have brought.
    pub within: u32,
    /// The rows of the roster.
    pub count: i32,
    /// The time of the first step.
    pub time: u32,
    /// The number of steps. 0: the launch ends.
    pub steps: i32,
    /// Always 0.
    pub padding: u32,
    /// The number of the task, 1 at least; numbers are consecutive.
    pub number: u64,
}

/// The argument of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QuantumArguments {
    /// The argument of a launch for one task; the count and the time of the batch, the sums of products of x, and the steps are not used.
    pub of: PersistentArguments,
    /// x, `[input]`.
    pub x: Operand,
    /// The embedding of x; its word of failures is not used.
    pub lookup: Lookup,
    /// The address of [`PackedLaunch::w`](super::recurrent::PackedLaunch::w).
    pub w: u64,
    /// That of the second launch, of a GRU whose reset gate comes before the product; else 0.
    pub w_of_state: u64,
    /// The address of [`PackedLaunch::b`](super::recurrent::PackedLaunch::b) of the same launch; else 0.
    pub b_of_state: u64,
    /// The address of [`Task`]s in memory of the host. Task n is in place n modulo `ring_tasks`.
    pub ring: u64,
    /// The address of [`WORDS`] words, zeros when the launch begins. [`PersistentArguments::arrived`] is the address of the first.
    pub words: u64,
    /// The address of those of the launch after this one. This one clears them; if it is stuck, it sets the second, so that the other runs no task.
    pub next_words: u64,
    /// The address of two [`Task`]s in memory of the GPU.
    pub brought: u64,
    /// The address of `[2, brought_max]` [copies](struct@super::rows::Copy) there.
    pub brought_copies: u64,
    /// The address of `[2, brought_max, BROUGHT_BYTES]` bytes there.
    pub brought_bytes: u64,
    /// The address of four [`Task`]s in memory of the GPU, which were zeros once.
    pub announced: u64,
    /// The address of a number in memory of the host: that of the last task that is done.
    pub done: u64,
    /// The address of a [`Status`](super::rows::Status) for each place of the ring, in memory of the host.
    pub statuses: u64,
    /// The address of two words: 1 where an even task, or an odd one, has looked up an id that its table does not have.
    pub failed: u64,
    /// [`FinishArguments::end_count`](super::rows::FinishArguments::end_count): no task changes it.
    pub end_count: u64,
    /// The address of a number in memory of the host: once a launch ends, that of the first task that it leaves; [`IS_STUCK`] if blocks have waited in
    /// vain for one another.
    pub next: u64,
    /// 0, or of a launch that runs what the launch before has left: the number of the last task, which has no steps. It may be one that is yet to come.
    pub until: u64,
    /// The first task. Of a launch that runs what the launch before has left, only its number is used: the launch begins with a later task where the one
    /// before has left a later one.
    pub first: Task,
    /// The places of the ring.
    pub ring_tasks: u32,
    /// The most looks for a task after the first one, which the host has brought before. Then the launch ends.
    pub looks_max: u32,
    /// The most steps of all tasks of a launch. A first task that has more runs alone.
    pub steps_max: i32,
    /// The most copies of a task that are brought to the GPU ahead of it.
    pub brought_max: u32,
    /// Elements of x.
    pub input: i32,
    /// Always 0.
    pub padding: u32,
}

/// A kernel that runs task after task: a cell, its size and a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantumKernel(PersistentKernel);

impl QuantumKernel {
    /// The kernel that runs tasks as `kernel` does; none for a [GRU with one barrier](PersistentKernel::with_one_barrier) a step.
    pub fn new(kernel: PersistentKernel) -> Option<Self> {
        kernel.steps().is_some().then_some(Self(kernel))
    }

    /// The same on a GPU of these limits: more of its weights may be in shared memory, for it takes more registers.
    pub fn within(kernel: PersistentKernel, limits: Limits) -> Option<Self> {
        Self::new(kernel.within(limits, MORE_REGISTERS))
    }

    /// Kernels of the cells that [`PersistentKernel::of_table_1`] has, in the cheapest mappings that leave enough registers.
    pub fn of_table_1() -> Vec<Self> {
        let first = |(rows, limits, all): (usize, Limits, Vec<PersistentKernel>)| {
            let mut kernels = all.into_iter().filter_map(|of| Self::within(of, limits));
            kernels.find(|of| of.fits(rows, limits))
        };
        PersistentKernel::ranked_for_table_1().filter_map(first).collect()
    }

    /// Registers that a thread takes at least, about.
    pub fn registers(&self) -> usize {
        self.0.registers() + MORE_REGISTERS
    }

    /// Whether a GPU of these limits runs it for `rows` rows with one tile a block.
    pub fn fits(&self, rows: usize, limits: Limits) -> bool {
        let threads = self.0.block()[0] as usize;
        // The courier has one for itself.
        let others = Limits { multiprocessors: limits.multiprocessors.saturating_sub(1), ..limits };
        self.0.fits(rows, others)
            && self.registers() <= limits.registers_of_thread(threads)
            && self.shared_bytes() <= limits.shared
    }

    /// The cheapest kernel for rows of a cell that [leaves enough registers](Self::fits), of those that a model ranks.
    pub fn cheapest(
        kind: &RecurrentKind,
        storage: Storage,
        (hidden, rows): (usize, usize),
        limits: Limits,
        model: &CostModel,
    ) -> Option<Self> {
        let ranked = PersistentKernel::ranked_as(kind, storage, (hidden, rows), limits, model);
        let mut kernels = ranked.into_iter().filter_map(|of| Self::within(of, limits));
        kernels.find(|of| of.fits(rows, limits))
    }

    /// Blocks for rows, of which at most `resident` run at a time: those of [`PersistentKernel::grid`], and the courier.
    pub fn grid(&self, rows: usize, resident: usize) -> [u32; 3] {
        let [columns, tiles, _] = self.0.grid(rows, resident.saturating_sub(1));
        [columns * tiles + 1, 1, 1]
    }

    /// The shape of blocks, and the bits, are those of this kernel.
    pub fn persistent(&self) -> &PersistentKernel {
        &self.0
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        // The sums of products of x beside those of h; the courier's task and flags.
        self.0.shared_bytes() + 4 * self.0.sums_of_tile() + size_of::<Task>() + 4 * 16
    }

    /// The kernel's name.
    pub fn name(&self) -> String {
        self.0.name().replacen("persistent", "quantum", 1)
    }

    /// The source of some kernels.
    pub fn source(kernels: &[Self]) -> String {
        let mut source = "#include \"quantum.cuh\"\n".to_owned();
        for kernel in kernels {
            let steps = kernel.0.steps().expect("a kernel was made for it");
            let (name, threads) = (kernel.name(), kernel.0.block()[0]);
            writeln!(source, "QUANTUM({name}, {threads}, run_tasks<{steps}>)")
                .expect("memory takes text");
        }
        source
    }
}
