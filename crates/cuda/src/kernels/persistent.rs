//! Recurrent cells whose weights stay on the chip: `kernels/persistent.cuh`. A kernel is compiled for one cell size and one mapping.

use std::fmt::Write as _;

use batchmaker_graph::{RecurrentKind, RnnActivation};
use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Operand};
use super::weights::Storage;
use crate::mapping::{CostModel, Limits, Mapping, Problem};

/// The value of [`PersistentArguments::failed`] once a block has waited in vain for others at a barrier.
pub const STUCK: u32 = 2;

/// Elements whose weights are on their way from shared memory at a time.
const UNDER_WAY: usize = 2;

/// The argument of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PersistentArguments {
    /// The rows, at the first step.
    pub batch: Batch,
    /// h before a step, in the slots.
    pub h: Operand,
    /// The cell state before a step, in the slots, of an LSTM.
    pub c: Operand,
    /// h after a step, in the slots.
    pub next_h: Operand,
    /// The cell state after a step, in the slots.
    pub next_c: Operand,
    /// The address of the sums of products of x, `[steps, rows, hidden_size, gates]`.
    pub projected: u64,
    /// The address of [`PackedLaunch::r`](super::recurrent::PackedLaunch::r).
    pub r: u64,
    /// That of the second launch, of a GRU whose reset gate comes before the product; else 0.
    pub r_of_state: u64,
    /// The address of [`PackedLaunch::b`](super::recurrent::PackedLaunch::b).
    pub b: u64,
    /// The address of the weights of peepholes, or 0.
    pub peepholes: u64,
    /// The address of what blocks of the same GRU leave to one another, [`PersistentKernel::between_bytes`]; else 0.
    pub between: u64,
    /// The address of the sums of products of x of its second launch, `[steps, rows, hidden_size]`; else 0.
    pub projected_of_state: u64,
    /// The address of a word that counts blocks that come to a barrier, of all launches; it wraps around.
    pub arrived: u64,
    /// The address of a word that becomes [`STUCK`] if a block has waited for too long.
    pub failed: u64,
    /// The count when the launch begins.
    pub arrived_before: u32,
    /// The most polls of a block at a barrier, after which it gives up.
    pub tries_max: u32,
    /// Input ports of a row, which precede its sinks.
    pub inputs: u32,
    /// The number of steps.
    pub steps: i32,
}

/// A kernel: a cell, its size and a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentKernel {
    cell: PersistentCell,
    storage: Storage,
    hidden: usize,
    mapping: Mapping,
    /// The elements of a lane whose weights are in shared memory; in bfloat16 the fragments along the elements of a warp.
    in_shared: usize,
}

/// The cells that have such kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PersistentCell {
    Lstm,
    GruResetAfter,
    GruResetBefore,
    /// With one barrier a step.
    GruResetBeforeOnce,
    RnnTanh,
    RnnRelu,
}

impl PersistentKernel {
    /// The kernel of a cell of f32; none for LSTMs of bytes.
    pub fn new(kind: &RecurrentKind, hidden: usize, mapping: Mapping) -> Option<Self> {
        Self::stored(kind, Storage::F32, hidden, mapping)
    }

    /// The kernel of a cell whose weights are stored in f32 or bfloat16; none for LSTMs of bytes. In bfloat16, the groups of the mapping are warps, which
    /// divide the elements of h.
    pub fn stored(
        kind: &RecurrentKind,
        storage: Storage,
        hidden: usize,
        mapping: Mapping,
    ) -> Option<Self> {
        let cell = match kind {
            RecurrentKind::Lstm { bytes: None, .. } => PersistentCell::Lstm,
            RecurrentKind::Lstm { bytes: Some(_), .. } => return None,
            RecurrentKind::Gru { linear_before_reset: true } => PersistentCell::GruResetAfter,
            RecurrentKind::Gru { linear_before_reset: false } => PersistentCell::GruResetBefore,
            RecurrentKind::Rnn { activation: RnnActivation::Tanh } => PersistentCell::RnnTanh,
            RecurrentKind::Rnn { activation: RnnActivation::Relu } => PersistentCell::RnnRelu,
        };
        Some(Self { cell, storage, hidden, mapping, in_shared: 0 })
    }

    /// Of a GRU whose reset gate comes before the product, the kernel that has one barrier a step, not two. It adds sums of all blocks, so that it pays
    /// where there are few. None of another cell, nor in bfloat16.
    pub fn with_one_barrier(self) -> Option<Self> {
        let is_of_it = self.cell == PersistentCell::GruResetBefore && self.storage == Storage::F32;
        is_of_it.then_some(Self { cell: PersistentCell::GruResetBeforeOnce, in_shared: 0, ..self })
    }

    /// The mapping.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// The kernel of the same cell in another mapping, with all weights in registers.
    pub fn with_mapping(self, mapping: Mapping) -> Self {
        Self { mapping, in_shared: 0, ..self }
    }

    /// The elements of a lane whose weights are in shared memory; in bfloat16 the fragments along the elements of a warp. The others are in registers.
    pub fn in_shared(&self) -> usize {
        self.in_shared
    }

    /// The same kernel, with the same bits, where the weights of the last `in_shared` [elements](Self::in_shared) of a lane are in shared memory.
    ///
    /// # Panics
    /// If no element is left for the registers, or the kernel has [one barrier](Self::with_one_barrier): that one has all weights in registers.
    pub fn with_in_shared(self, in_shared: usize) -> Self {
        let is_possible = self.cell != PersistentCell::GruResetBeforeOnce;
        assert!(in_shared == 0 || (is_possible && in_shared < self.elements()));
        Self { in_shared, ..self }
    }

    /// The same kernel with as few weights in shared memory as the limits allow, where a thread needs `others` registers for something else.
    pub fn within(self, limits: Limits, others: usize) -> Self {
        let room = limits.registers_of_thread(self.mapping.threads()).saturating_sub(others);
        let enough = |of: &Self| of.registers() <= room;
        let all = (0..self.elements()).map(|in_shared| Self { in_shared, ..self });
        match self.cell {
            PersistentCell::GruResetBeforeOnce => self,
            _ => all.clone().find(enough).unwrap_or(self),
        }
    }

    /// Elements of h of a lane; in bfloat16 the fragments along the elements of a warp.
    pub fn elements(&self) -> usize {
        match self.storage {
            Storage::F32 => self.hidden.div_ceil(self.mapping.lanes.max(1)),
            Storage::Bf16 => {
                self.problems(0).map(|of| self.mapping.fragments(of)[1]).max().unwrap_or(0)
            }
        }
    }

    /// Words of a thread for the weights of one of its elements.
    fn words_of_element(&self) -> usize {
        let words = |of: Problem| match self.storage {
            Storage::F32 => self.mapping.part(of.gates),
            Storage::Bf16 => 4 * self.mapping.fragments(of)[0],
        };
        self.problems(0).map(words).sum()
    }

    /// Elements of h.
    pub fn hidden_size(&self) -> usize {
        self.hidden
    }

    /// Whether rows have a cell state beside h.
    pub fn has_cell_state(&self) -> bool {
        self.cell == PersistentCell::Lstm
    }

    /// The gates of each [`PackedLaunch`](super::recurrent::PackedLaunch) of the cell: of its weights, and of its sums of products of x; 0 where there is
    /// no second launch.
    pub fn packed_gates(&self) -> [usize; 2] {
        match self.cell {
            PersistentCell::Lstm => [4, 0],
            PersistentCell::GruResetAfter => [3, 0],
            PersistentCell::GruResetBefore | PersistentCell::GruResetBeforeOnce => [2, 1],
            PersistentCell::RnnTanh | PersistentCell::RnnRelu => [1, 0],
        }
    }

    /// The type of numbers in which the weights are stored.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// The parts of a sum in a mapping, which give its order: the lanes of a work group, or, in bfloat16, the warps.
    pub fn parts_of_sum(&self, of: Mapping) -> usize {
        match self.storage {
            Storage::F32 => of.lanes,
            Storage::Bf16 => of.groups,
        }
    }

    /// The gates whose weights its threads hold; a mapping divides those of each product equally.
    pub fn gates(&self) -> &'static [usize] {
        match self.cell {
            PersistentCell::Lstm => &[4],
            PersistentCell::GruResetAfter => &[3],
            // z and r, then the state.
            PersistentCell::GruResetBefore => &[2, 1],
            PersistentCell::GruResetBeforeOnce
            | PersistentCell::RnnTanh
            | PersistentCell::RnnRelu => &[1],
        }
    }

    /// The products with h that a step consists of, for `rows` rows each.
    fn problems(&self, rows: usize) -> impl Iterator<Item = Problem> {
        let hidden = self.hidden;
        self.gates().iter().map(move |&gates| Problem { hidden, gates, rows })
    }

    /// Registers that a thread takes at least, about.
    pub fn registers(&self) -> usize {
        let Self { mapping, hidden, in_shared, .. } = *self;
        let problems = || self.problems(mapping.tile_height);
        let words = self.words_of_element();
        let of_registers = words * self.elements().saturating_sub(in_shared);
        let (weights, sums): (usize, Option<usize>) = match self.storage {
            Storage::F32 => (of_registers, problems().map(|of| mapping.sums(of.gates)).max()),
            // While weights are loaded, a thread has about as many loads under way.
            Storage::Bf16 => {
                (2 * of_registers, problems().map(|of| mapping.fragment_sums(of)).max())
            }
        };
        // Those of some elements are on their way from shared memory.
        let under_way = if in_shared > 0 { UNDER_WAY * words } else { 0 };
        let weights = weights + under_way;
        let more = match self.cell {
            // The state's weights, and those of r for some units.
            PersistentCell::GruResetBeforeOnce => {
                weights + hidden.div_ceil(mapping.threads()) * mapping.tile_width
            }
            _ => 0,
        };
        weights + more + sums.unwrap_or(0) + Limits::OTHER_REGISTERS
    }

    /// Bytes of shared memory of a block for weights, which launches ask for: they are not among [`shared_bytes`](Self::shared_bytes).
    pub fn shared_bytes_of_weights(&self) -> usize {
        4 * self.words_of_element() * self.in_shared * self.mapping.threads()
    }

    /// Bytes of shared memory of a block: tiles of h, sums, and a pointer for each row.
    pub fn shared_bytes(&self) -> usize {
        let Mapping { tile_width, tile_height, .. } = self.mapping;
        let gate_rows = self.gates().iter().sum::<usize>() * tile_width;
        let of_tile = match (self.cell, self.storage) {
            // h and r h, the block's own units, z and the state.
            (PersistentCell::GruResetBeforeOnce, _) => {
                4 * tile_height * (2 * self.hidden + 3 * tile_width)
            }
            (_, Storage::F32) => 4 * tile_height * (self.hidden + gate_rows),
            (_, Storage::Bf16) => {
                self.problems(0).map(|of| self.mapping.fragment_shared_bytes(of)).sum()
            }
        };
        // Each array may begin at a multiple of 16 bytes.
        of_tile + 8 * tile_height + 8 * 16
    }

    /// Whether a GPU of these limits runs it for `rows` rows with one tile a block.
    pub fn fits(&self, rows: usize, limits: Limits) -> bool {
        let threads = self.mapping.threads();
        let has_registers = self.registers() <= limits.registers_of_thread(threads)
            && self.shared_bytes_of_weights() <= limits.shared_for_weights;
        let fits = |of: Problem| match self.storage {
            Storage::F32 => self.mapping.fits(of, limits),
            Storage::Bf16 => {
                let blocks = self.mapping.tiles(of).iter().product::<usize>();
                self.mapping.is_of_fragments()
                    && blocks <= limits.multiprocessors
                    && threads <= limits.threads
            }
        };
        has_registers && self.shared_bytes() <= limits.shared && self.problems(rows).all(fits)
    }

    /// Bytes of [`PersistentArguments::between`].
    pub fn between_bytes(&self, rows: usize) -> usize {
        match self.cell {
            PersistentCell::GruResetBefore => 4 * rows * 2 * self.hidden,
            PersistentCell::GruResetBeforeOnce => {
                4 * 2 * rows * self.hidden.div_ceil(self.mapping.tile_width) * self.hidden
            }
            _ => 0,
        }
    }

    /// The barriers of a launch of `steps` steps. Every block comes to each of them once.
    pub fn barriers(&self, steps: u32) -> u32 {
        match self.cell {
            PersistentCell::GruResetBefore => (2 * steps).saturating_sub(1),
            PersistentCell::GruResetBeforeOnce => steps,
            _ => steps.saturating_sub(1),
        }
    }

    /// Blocks along units and rows, of which at most `resident` run at a time: along rows a block may have several tiles.
    pub fn grid(&self, rows: usize, resident: usize) -> [u32; 3] {
        let columns = self.hidden.div_ceil(self.mapping.tile_width);
        let tiles = rows.div_ceil(self.mapping.tile_height);
        [columns as u32, tiles.min((resident / columns).max(1)) as u32, 1]
    }

    /// Threads of a block.
    pub fn block(&self) -> [u32; 3] {
        [self.mapping.threads() as u32, 1, 1]
    }

    /// The kernels of a cell of f32 with `hidden` units for `rows` rows that fit a GPU of these limits, in the order of their costs, the least first.
    pub fn ranked(
        kind: &RecurrentKind,
        size: (usize, usize),
        limits: Limits,
        model: &CostModel,
    ) -> Vec<Self> {
        Self::ranked_as(kind, Storage::F32, size, limits, model)
    }

    /// The same of a cell whose weights are stored in f32 or bfloat16.
    pub fn ranked_as(
        kind: &RecurrentKind,
        storage: Storage,
        (hidden, rows): (usize, usize),
        limits: Limits,
        model: &CostModel,
    ) -> Vec<Self> {
        let new = |mapping| Self::stored(kind, storage, hidden, mapping);
        let Some(gates) = new(Mapping::default()).map(|of| of.gates()[0]) else {
            return Vec::new();
        };
        let of = Problem { hidden, gates, rows };
        let all = match storage {
            Storage::F32 => Mapping::all(of, limits),
            Storage::Bf16 => Mapping::all_of_fragments(of, limits),
        };
        let cost = |kernel: &Self| {
            let cost = match storage {
                Storage::F32 => model.cost(of, kernel.mapping).total(),
                Storage::Bf16 => model.cost_of_fragments(of, kernel.mapping),
            };
            cost + model.loads_of_weights(kernel.shared_bytes_of_weights())
        };
        let kernels = all.into_iter().filter_map(new).map(|of| of.within(limits, 0));
        let kernels = kernels.filter(|of| of.fits(rows, limits));
        let mut ranked: Vec<_> = kernels.map(|of| (cost(&of), of)).collect();
        ranked.sort_by(|(a, of_a), (b, of_b)| a.total_cmp(b).then(of_a.mapping.cmp(&of_b.mapping)));
        ranked.into_iter().map(|(_, kernel)| kernel).collect()
    }

    /// Kernels of all cells of the sizes of GRNN's Table 1, in the mappings that its cost model ranks first on a GPU of 132 multiprocessors: those whose
    /// registers are kept in a table. An LSTM and a GRU for all batches, others for one; in bfloat16 the largest size. Then LSTMs that are so large that an
    /// H100 has a part of their weights in shared memory.
    pub fn of_table_1() -> Vec<Self> {
        let mut kernels = Vec::new();
        for (rows, limits, all) in Self::ranked_for_table_1() {
            let once = all.iter().filter_map(|of| of.with_one_barrier());
            kernels.extend(once.into_iter().find(|of| of.fits(rows, limits)));
            kernels.extend(all.first());
        }
        kernels
    }

    /// For each of these cells, sizes and batches: the rows, the limits, and the kernels that fit, the cheapest first.
    pub(super) fn ranked_for_table_1() -> impl Iterator<Item = (usize, Limits, Vec<Self>)> {
        let multiprocessors = 132;
        let model = CostModel { multiprocessors: multiprocessors as f64, ..CostModel::TITAN_V };
        let limits = Limits::of(multiprocessors);
        let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
        let rnn = RecurrentKind::Rnn { activation: RnnActivation::Tanh };
        let kinds: [(_, &[usize]); 4] = [
            (RecurrentKind::Lstm { p: None, bytes: None }, &[1, 10, 20]),
            (gru(true), &[1, 10, 20]),
            (gru(false), &[10]),
            (rnn, &[10]),
        ];
        let all: [usize; 3] = [64, 256, 1024];
        let in_f32 =
            kinds.clone().map(|(kind, batches)| (kind, Storage::F32, batches, all.to_vec()));
        let in_bf16 = kinds.map(|(kind, _)| (kind, Storage::Bf16, &[8][..], vec![1024]));
        let of_table = in_f32.into_iter().chain(in_bf16);
        let of_table = of_table.flat_map(move |(kind, storage, batches, sizes)| {
            let sizes = sizes.into_iter();
            let sizes = sizes.flat_map(move |of| batches.iter().map(move |&rows| (of, rows)));
            sizes.map(move |size| (kind.clone(), storage, size, limits))
        });
        let with_shared = Limits { shared_for_weights: (227 << 10) - Limits::SHARED, ..limits };
        let large = [(Storage::F32, (1536, 1)), (Storage::Bf16, (1536, 8))];
        let large = large.map(|(storage, size)| {
            (RecurrentKind::Lstm { p: None, bytes: None }, storage, size, with_shared)
        });
        of_table.chain(large).map(move |(kind, storage, size, limits)| {
            (size.1, limits, Self::ranked_as(&kind, storage, size, limits, &model))
        })
    }

    /// The kernel's name.
    pub fn name(&self) -> String {
        let cell = match self.cell {
            PersistentCell::Lstm => "lstm",
            PersistentCell::GruResetAfter => "gru_reset_after",
            PersistentCell::GruResetBefore => "gru_reset_before",
            PersistentCell::GruResetBeforeOnce => "gru_reset_before_once",
            PersistentCell::RnnTanh => "rnn_tanh",
            PersistentCell::RnnRelu => "rnn_relu",
        };
        let (hidden, storage) = (self.hidden, self.storage.choose(["", "_bf16"]));
        let in_shared = match self.in_shared {
            0 => String::new(),
            elements => format!("_shared{elements}"),
        };
        format!("persistent_{cell}{storage}_{hidden}_{}{in_shared}", self.mapping)
    }

    /// The source of some kernels.
    pub fn source(kernels: &[Self]) -> String {
        let mut source = "#include \"persistent.cuh\"\n".to_owned();
        for kernel in kernels {
            let run = match kernel.cell {
                PersistentCell::GruResetBefore => "run_gru_reset_before<".to_owned(),
                PersistentCell::GruResetBeforeOnce => "run_gru_reset_before_once<".to_owned(),
                _ => format!("run_steps<{}, ", kernel.cell_with_one_barrier().unwrap_or_default()),
            };
            let (name, threads, shape) = (kernel.name(), kernel.mapping.threads(), kernel.shape());
            writeln!(source, "PERSISTENT({name}, {threads}, {run}{shape}>)")
                .expect("memory takes text");
        }
        source
    }

    /// The cell, as kernels name it, if a step has one barrier and no sums of r.
    fn cell_with_one_barrier(&self) -> Option<&'static str> {
        match self.cell {
            PersistentCell::Lstm => Some("Lstm"),
            PersistentCell::GruResetAfter => Some("GruResetAfter"),
            PersistentCell::RnnTanh => Some("RnnTanh"),
            PersistentCell::RnnRelu => Some("RnnRelu"),
            PersistentCell::GruResetBefore | PersistentCell::GruResetBeforeOnce => None,
        }
    }

    /// Its steps, as kernels that run task after task name them; none for a GRU whose blocks add sums of r.
    pub(super) fn steps(&self) -> Option<String> {
        let shape = self.shape();
        match (self.cell, self.cell_with_one_barrier()) {
            (PersistentCell::GruResetBefore, _) => Some(format!("TwoBarriers<{shape}>")),
            (_, cell) => cell.map(|cell| format!("OneBarrier<{cell}, {shape}>")),
        }
    }

    /// Its mapping, as kernels name it.
    fn shape(&self) -> String {
        let Mapping { tile_width, tile_height, groups, lanes } = self.mapping;
        let hidden = self.hidden;
        let in_shared = match self.in_shared {
            0 => String::new(),
            elements => format!(", {elements}"),
        };
        match self.storage {
            Storage::F32 => format!(
                "InF32<{hidden}, {tile_width}, {tile_height}, {groups}, {lanes}{in_shared}>"
            ),
            Storage::Bf16 => {
                format!("InBf16<{hidden}, {tile_width}, {tile_height}, {groups}{in_shared}>")
            }
        }
    }

    /// Sums of a tile of rows and units.
    pub(super) fn sums_of_tile(&self) -> usize {
        let Mapping { tile_width, tile_height, .. } = self.mapping;
        self.gates().iter().sum::<usize>() * tile_width * tile_height
    }
}

#[cfg(test)]
mod tests {
    use super::super::quantum::QuantumKernel;
    use super::*;

    #[test]
    fn the_kernels_of_table_1_are_those_of_the_file() {
        let persistent = PersistentKernel::source(&PersistentKernel::of_table_1());
        let quantum = QuantumKernel::source(&QuantumKernel::of_table_1());
        assert_eq!(
            include_str!("../../table_1.cu"),
            persistent + &quantum,
            "`cargo run -p batchmaker-cuda --example table_1` prints it"
        );
    }

    #[test]
    fn registers_are_as_many_as_expected() {
        let (table, limits) = (include_str!("../../registers.md"), Limits::of(1));
        for kernel in PersistentKernel::of_table_1() {
            let name = format!("`{}`", kernel.name());
            let row = table.lines().find(|line| line.contains(&name)).expect("the table has it");
            let there_are = limits.registers / kernel.mapping.threads();
            let expected = (kernel.registers() + Limits::MORE_REGISTERS).min(there_are);
            // `| kernel | registers; shared memory | ...`
            let cells = row.split('|').skip(2).filter_map(|cell| cell.trim().split_once("; "));
            for (registers, shared) in cells {
                let [registers, shared] =
                    [registers, shared].map(|of| of.parse::<usize>().unwrap());
                assert!(registers <= expected, "{name}: {registers} registers, not {expected}");
                assert!(shared <= kernel.shared_bytes(), "{name}: {shared} bytes");
            }
        }
    }

    /// All blocks of a grid run at a time on an A100, an H100 and a B200, by what the table says of a kernel and by what these have (CUDA C++ programming
    /// guide, "Compute capabilities").
    #[test]
    fn grids_are_resident() {
        // The column of the table, multiprocessors, and KiB of shared memory of one.
        let gpus = [("sm_80", 108, 164), ("sm_90", 132, 228), ("sm_100", 148, 228)];
        let table = include_str!("../../registers.md");
        let cells = |line: &'static str| line.split('|').map(str::trim);
        let head = table.lines().find(|line| line.starts_with("| kernel")).expect("a head");
        let persistent = PersistentKernel::of_table_1().into_iter().map(|of| (of.name(), of));
        let quantum = QuantumKernel::of_table_1();
        let quantum = quantum.into_iter().map(|of| (of.name(), *of.persistent()));
        for (name, kernel) in persistent.chain(quantum) {
            let quoted = format!("`{name}`");
            let row = table.lines().find(|line| cells(line).any(|cell| cell == quoted));
            for (architecture, multiprocessors, shared_kib) in gpus {
                let column = cells(head).position(|cell| cell == architecture).unwrap();
                let cell = cells(row.expect("the table has it")).nth(column).unwrap();
                let (registers, shared) = cell.split_once("; ").unwrap();
                let [registers, shared] =
                    [registers, shared].map(|of| of.parse::<usize>().unwrap());
                let threads = kernel.block()[0] as usize;
                let shared = shared + kernel.shared_bytes_of_weights();
                // A warp takes registers by 256, a block 1 KiB of shared memory beside its own.
                let of_warp = (registers * 32).next_multiple_of(256);
                let blocks = (65_536 / of_warp / threads.div_ceil(32))
                    .min(shared_kib * 1024 / (shared + 1024))
                    .min(2048 / threads)
                    .min(32);
                let resident = blocks * multiprocessors;
                let [columns, rows, _] = kernel.grid(1 << 20, resident);
                let grid = (columns * rows) as usize;
                // The mappings are for the 132 multiprocessors of an H100: an A100 gets others where these have a block on more than it has.
                if blocks > 0 && columns as usize > multiprocessors && multiprocessors < 132 {
                    continue;
                }
                assert!(grid <= resident, "{name}, {architecture}: {grid} blocks, not {resident}");
            }
        }
    }

    #[test]
    fn a_kernel_is_of_its_cell_and_mapping() {
        let mapping = Mapping { tile_width: 32, tile_height: 2, groups: 16, lanes: 8 };
        let kind = RecurrentKind::Gru { linear_before_reset: false };
        let kernel = PersistentKernel::new(&kind, 80, mapping).unwrap();
        assert_eq!(kernel.name(), "persistent_gru_reset_before_80_32x2_16x8");
        assert_eq!((kernel.gates(), kernel.block()), (&[2, 1][..], [128, 1, 1]));
        assert_eq!([1, 2, 5].map(|steps| kernel.barriers(steps)), [1, 3, 9]);
        assert_eq!(
            [kernel.grid(9, 100), kernel.grid(9, 7), kernel.grid(9, 1)],
            [[3, 5, 1], [3, 2, 1], [3, 1, 1]]
        );
        let source = PersistentKernel::source(&[kernel]);
        let line = "PERSISTENT(persistent_gru_reset_before_80_32x2_16x8, 128, run_gru_reset_before<InF32<80, 32, 2, 16, 8>>)";
        assert_eq!(source.lines().nth(1), Some(line));
    }
}
