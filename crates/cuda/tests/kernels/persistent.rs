//! Recurrent cells whose weights stay on the chip, for some steps.

use batchmaker_cuda::kernels::batch::{Port, Row};
use batchmaker_cuda::kernels::persistent::{PersistentArguments, PersistentKernel, STUCK};
use batchmaker_cuda::mapping::{Limits, Mapping, Problem};
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_device::reference;
use batchmaker_graph::{Precision, RecurrentCell};

use crate::chains::{Chains, Places, cell};
use crate::harness::{
    Found, TOLERANCE, Value, bits, bugs, difference, library, library_of, node_of,
    rows as all_rows, storage, wide,
};
use crate::recurrent::kinds;

const FILE: &str = "persistent.cu";

/// What numbers that no kernel has written are.
const UNWRITTEN: f32 = 12345.0;

/// A cell, a mapping of it, and a batch.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) cell: RecurrentCell,
    pub(crate) precision: Precision,
    pub(crate) mapping: Mapping,
    pub(crate) rows: usize,
    pub(crate) steps: usize,
    /// The most blocks that run at a time: there are as many.
    pub(crate) blocks: usize,
    /// Whether a GRU has one barrier a step where it could have two.
    pub(crate) is_once: bool,
    /// The thirds of the weights that are in shared memory, where it is not so.
    pub(crate) thirds_in_shared: usize,
    /// The ids that x is, by rows and nodes; none: x is numbers.
    pub(crate) ids: Option<fn(usize, usize) -> i64>,
}

impl Case {
    pub(crate) fn kernel(&self) -> PersistentKernel {
        let kernel = self.kernel_of(self.mapping);
        let once = kernel.with_one_barrier().filter(|_| self.is_once);
        once.unwrap_or_else(|| kernel.with_in_shared(kernel.elements() * self.thirds_in_shared / 3))
    }

    fn kernel_of(&self, mapping: Mapping) -> PersistentKernel {
        let (kind, hidden) = (&self.cell.kind, self.cell.hidden_size);
        PersistentKernel::stored(kind, storage(self.precision), hidden, mapping).unwrap()
    }

    /// Cases of all kinds of cells, whose sizes and mappings follow from a seed: units 32 to 128, rows 1 to 8, in bfloat16 1 to 20, blocks 2 to 8, steps 1 to 5.
    pub(crate) fn draw(precision: Precision, seed: usize) -> Self {
        let below =
            |of: usize, salt: usize| (seed * 7919 + salt * 104_729 + seed * seed * 31) % 1009 % of;
        // Sizes that no number of lanes divides, too.
        let hidden = 32 + [0, 1, 16, 31, 50, 96][below(6, 1)];
        let is_f32 = precision == Precision::F32;
        let (rows, blocks) = (1 + below(if is_f32 { 8 } else { 20 }, 2), 2 + below(7, 3));
        let kinds = kinds(hidden);
        let cell = cell(kinds[seed % kinds.len()].clone(), 5, hidden);
        let is_once = seed / kinds.len() % 2 == 1;
        let (mapping, steps) = (Mapping::default(), 1 + below(5, 5));
        let (thirds_in_shared, ids) = (below(3, 6), None);
        let case =
            Self { cell, precision, mapping, rows, steps, blocks, is_once, thirds_in_shared, ids };
        // The emulator has 4,096 threads at a time.
        let limits = Limits { threads: (4096 / blocks).min(1024), ..Limits::of(blocks) };
        let problem = Problem { hidden, gates: case.kernel_of(mapping).gates()[0], rows };
        let any = Limits { multiprocessors: 1 << 20, ..limits };
        let (mut mappings, rows_max) = match is_f32 {
            true => (Mapping::all(problem, any), rows),
            false => (Mapping::all_of_fragments(problem, any), rows.next_multiple_of(8)),
        };
        // A block may have several tiles of rows.
        let fits = |of: &Mapping| case.kernel_of(*of).fits(of.tile_height, limits);
        mappings.retain(|of| of.tile_height <= rows_max && fits(of));
        // Most with several blocks along the units.
        let widest = mappings.iter().map(|of| of.tiles(problem)[0]).max().unwrap();
        mappings.retain(|of| 2 * of.tiles(problem)[0] > widest);
        Self { mapping: mappings[below(mappings.len(), 4)], ..case }
    }

    /// The largest difference from the equations after some steps. In bfloat16 a number within an error of f32 from the middle of two may be rounded
    /// otherwise, and be multiplied in later steps; a GRU whose reset gate comes before the product rounds r h in each step.
    fn tolerance(&self) -> f64 {
        let multiplies = self.steps > 1 || self.kernel().gates().len() > 1;
        if self.precision == Precision::Bf16 && multiplies { 3e-3 } else { TOLERANCE }
    }
}

/// A batch for a persistent kernel, with sinks.
pub(crate) struct Batch<'a> {
    pub(crate) chains: Chains<'a>,
    /// Its rows, whose ports are an input, a sink of h and, of an LSTM, one of c after the last node.
    pub(crate) rows: Vec<Row>,
    pub(crate) ports: Vec<Port>,
    pub(crate) sinks: Vec<[Value; 2]>,
    pub(crate) arrived: u64,
    pub(crate) failed: u64,
    pub(crate) between: u64,
    /// Blocks that never come to the barrier.
    missing: u32,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        let Case { cell, rows: count, .. } = case;
        let count = *count;
        let of = (cell, case.precision);
        let chains = match case.ids {
            None => Chains::new(of, Places::Slots, count),
            Some(id_of) => Chains::with_ids(of, Places::Ids, count, &id_of),
        };
        let (gpu, hidden) = (&chains.gpu, cell.hidden_size);
        let (mut rows, mut ports, mut sinks) = (Vec::new(), Vec::new(), Vec::new());
        for (number, row) in all_rows(count, 1).iter().enumerate() {
            let length = row.length as usize;
            let of_h = Value::upload(gpu, number, length, &vec![UNWRITTEN; length * hidden]);
            let of_c = Value::upload(gpu, number, 1, &vec![UNWRITTEN; hidden]);
            let kept = cell.kind.states() as u32;
            rows.push(Row { ports: ports.len() as u32, sinks: kept, ..*row });
            // The output 0 after every node, and the output 1 after the last one.
            ports.extend([chains.ports[number], of_h.port(gpu, 0), of_c.port(gpu, 3)]);
            sinks.push([of_h, of_c]);
        }
        let (arrived, failed) = (gpu.upload(&[7u32], "arrived"), gpu.upload(&[0u32], "failed"));
        let between = gpu.room(case.kernel().between_bytes(count), "between the barriers");
        Self { rows, ports, sinks, arrived, failed, between, missing: 0, chains }
    }

    /// Runs steps of some rows from some time on. Returns reports.
    fn run(
        &self,
        [project, library]: [&KernelLibrary; 2],
        case: &Case,
        (rows, steps, after): (&[Row], usize, usize),
        seed: u64,
    ) -> Vec<Report> {
        let Chains { gpu, weights, arguments: of, .. } = &self.chains;
        // A batch has one time: rows that begin earlier are as far as they are after some steps.
        let at = |row: &Row| Row {
            first: row.first.wrapping_sub(after as u32),
            half: row.half + after as u32,
            ..*row
        };
        let own: Vec<Row> = rows.iter().map(at).collect();
        let inputs: Vec<Row> = own.iter().map(|row| Row { ports: row.ports / 3, ..*row }).collect();
        let (projected, mut reports) = self.chains.project(project, &inputs, steps, seed);
        let kernel = case.kernel();
        let batch = gpu.batch(&own, &self.ports, 0);
        let second = |of: &[u64]| of.get(1).copied().unwrap_or(0);
        let second_r = weights.get(1).map_or(0, |&[_, r, _]| r);
        let arguments = PersistentArguments {
            batch,
            h: of.h,
            c: of.c,
            next_h: of.next_h,
            next_c: of.next_c,
            projected: projected[0],
            r: weights[0][1],
            r_of_state: second_r,
            b: weights[0][2],
            peepholes: of.peepholes,
            between: self.between,
            projected_of_state: second(&projected),
            arrived: self.arrived,
            failed: self.failed,
            arrived_before: gpu.read::<u32>(self.arrived, 1)[0].wrapping_add(self.missing),
            tries_max: if self.missing == 0 { 1 << 20 } else { 9 },
            inputs: 1,
            steps: steps as i32,
        };
        let grid = kernel.grid(own.len(), case.blocks);
        let before = arguments.arrived_before;
        let name = kernel.name();
        let shape = [grid, kernel.block()];
        let of_gpu = (case.blocks, kernel.shared_bytes_of_weights());
        reports.extend(gpu.launch_some((library, &name), shape, of_gpu, &arguments, seed));
        if reports.is_empty() && self.missing == 0 {
            let blocks = grid[0] * grid[1];
            let arrivals = gpu.read::<u32>(self.arrived, 1)[0] - before;
            assert_eq!(arrivals, blocks * kernel.barriers(steps as u32), "{name}");
        }
        reports
    }

    /// The states of a row after some steps: h, then c.
    pub(crate) fn states(&self, row: usize, steps: usize) -> Vec<Vec<f32>> {
        let of = &self.rows[row];
        let half = (crate::harness::TIME as usize + of.half as usize + steps) % 2;
        let number = of.slot as usize * 2 + half;
        let len = self.chains.row_len();
        let states = self.chains.gpu.read(self.chains.states_at + (4 * number * len) as u64, len);
        states.chunks(self.chains.cell.hidden_size).map(<[f32]>::to_vec).collect()
    }

    /// The largest difference of states and sinks from the equations after some steps; infinite where a sink's row is another's.
    fn error(&self, steps: usize) -> f64 {
        let (cell, gpu) = (self.chains.cell, &self.chains.gpu);
        let hidden = cell.hidden_size;
        let mut most = 0.0f64;
        for (number, row) in self.rows.iter().enumerate() {
            let before = self.chains.before(number);
            let mut states: Vec<_> = before.chunks(hidden).map(wide).collect();
            let mut of_h = vec![vec![f64::from(UNWRITTEN); hidden]; row.length as usize];
            let mut of_c = vec![f64::from(UNWRITTEN); hidden];
            for step in 0..steps {
                let x = wide(self.chains.x(number, step));
                states = reference::step(self.chains.precision, cell, &x, &states);
                let node = node_of(row) + step;
                if let Some(of_node) = of_h.get_mut(node) {
                    of_node.clone_from(&states[0]);
                }
                if node + 1 == row.length as usize && states.len() > 1 {
                    of_c.clone_from(&states[1]);
                }
            }
            let found = self.states(number, steps);
            most = most.max(difference(&found, &states));
            let [h, c] = self.sinks[number].each_ref().map(|sink| sink.read::<f32>(gpu));
            let h: Vec<_> = h.chunks(hidden).map(<[f32]>::to_vec).collect();
            most = most.max(difference(&h, &of_h)).max(difference(&[c], &[of_c]));
        }
        most
    }
}

/// The libraries of the products of x, and of the kernels of cases.
pub(crate) fn libraries(
    name: &str,
    cases: &[Case],
    replaced: Option<[&str; 2]>,
) -> [KernelLibrary; 2] {
    let mut kernels: Vec<_> = cases.iter().map(Case::kernel).collect();
    let mut names = std::collections::BTreeSet::new();
    kernels.retain(|kernel| names.insert(kernel.name()));
    let source = PersistentKernel::source(&kernels);
    let project = library(&format!("for-{name}"), "project_inputs.cu", None);
    [project, library_of(name, FILE, Some(&source), replaced)]
}

/// Cases of all kinds: in f32, and in bfloat16, which the emulator takes longer for.
const CASES: usize = 36;
const CASES_OF_BF16: usize = 24;

/// Checks steps of the cases of some seeds.
fn check(precision: Precision, seeds: std::ops::Range<usize>) {
    let cases: Vec<_> = seeds.map(|seed| Case::draw(precision, seed)).collect();
    let [project, library] = libraries(&format!("right-{precision}"), &cases, None);
    for (seed, case) in (0..).zip(&cases) {
        let batch = Batch::new(case);
        let of = format!("{}, {} rows, {} steps", case.kernel().name(), case.rows, case.steps);
        let reports = batch.run([&project, &library], case, (&batch.rows, case.steps, 0), seed);
        assert!(reports.is_empty(), "{of}: {}", reports[0]);
        let error = batch.error(case.steps);
        assert!(error <= case.tolerance(), "{of}: {error}");
        assert_eq!(batch.chains.gpu.read::<u32>(batch.failed, 1), [0], "{of}");
    }
}

#[test]
fn steps_are_right_whatever_the_mapping() {
    check(Precision::F32, 0..CASES);
}

#[test]
fn steps_in_bfloat16_are_right_whatever_the_mapping() {
    check(Precision::Bf16, 0..CASES_OF_BF16);
}

/// Runs steps in some launches, of all rows or of one.
pub(crate) fn run_parts<'a>(
    libraries: [&KernelLibrary; 2],
    case: &'a Case,
    parts: &[usize],
    alone: Option<usize>,
) -> Batch<'a> {
    let batch = Batch::new(case);
    let rows = alone.map_or(&batch.rows[..], |row| &batch.rows[row..row + 1]);
    let mut after = 0;
    for &steps in parts {
        let reports = batch.run(libraries, case, (rows, steps, after), after as u64);
        assert!(reports.is_empty(), "{}", reports[0]);
        after += steps;
    }
    batch
}

/// Checks that a row has the same bits in a batch, alone, in other parts, and in another tile whose sums are divided alike.
fn check_bits(case: &Case, tile: [usize; 2], name: &str) {
    let Mapping { groups, lanes, .. } = case.mapping;
    let [tile_width, tile_height] = tile;
    // Warps divide sums in bfloat16, lanes in f32.
    let groups = if case.precision == Precision::F32 { tile_width } else { groups };
    let other = Mapping { tile_width, tile_height, groups, lanes };
    let blocks = 2 * case.cell.hidden_size.div_ceil(tile_width);
    let thirds_in_shared = (case.thirds_in_shared + 1) % 3;
    let other = Case { mapping: other, blocks, thirds_in_shared, ..case.clone() };
    if other.mapping.threads() * other.blocks > 4096 {
        return;
    }
    let [project, library] =
        libraries(&format!("bits-{name}"), &[case.clone(), other.clone()], None);
    let libraries = [&project, &library];
    let whole = run_parts(libraries, case, &[4], None);
    let in_parts = run_parts(libraries, case, &[1, 3], None);
    let others = run_parts(libraries, &other, &[2, 2], None);
    for row in 0..case.rows {
        let right = bits(&whole.states(row, 4));
        assert_eq!(bits(&in_parts.states(row, 4)), right, "{name}, in parts");
        assert_eq!(bits(&others.states(row, 4)), right, "{name}, another tile");
        let alone = run_parts(libraries, case, &[4], Some(row));
        assert_eq!(bits(&alone.states(row, 4)), right, "{name}, alone");
    }
}

#[test]
fn bits_follow_from_the_lanes_alone() {
    for seed in [0, 2, 3, 4] {
        let case = Case { steps: 4, ..Case::draw(Precision::F32, seed) };
        check_bits(&case, [32, 1], &format!("f32-{seed}"));
    }
}

#[test]
fn bits_in_bfloat16_follow_from_the_warps_alone() {
    for seed in [0, 2, 3, 4] {
        let case = Case { steps: 4, ..Case::draw(Precision::Bf16, seed) };
        check_bits(&case, [40, 8], &format!("bf16-{seed}"));
    }
}

#[test]
fn blocks_that_wait_in_vain_give_up() {
    let draw = |seed| Case { steps: 3, ..Case::draw(Precision::F32, seed) };
    let cases: Vec<_> = (0..12).map(draw).collect();
    let [project, library] = libraries("missing", &cases, None);
    for case in &cases {
        let batch = Batch { missing: 1, ..Batch::new(case) };
        let reports = batch.run([&project, &library], case, (&batch.rows, case.steps, 0), 0);
        assert!(reports.is_empty(), "{}", reports[0]);
        let failed: Vec<u32> = batch.chains.gpu.read(batch.failed, 1);
        assert_eq!(failed, [STUCK], "{}", case.kernel().name());
    }
}

/// Whether a case of a precision shows a bug.
fn is_found_in(precision: Precision, name: &str, replaced: [&str; 2], found: Found) {
    let draw = |seed| Case { steps: 3, ..Case::draw(precision, seed) };
    let seeds = 0..if precision == Precision::F32 { 12 } else { 8 };
    let cases: Vec<_> = seeds.map(draw).collect();
    let [project, library] = libraries(name, &cases, Some(replaced));
    let is_found = (0..).zip(&cases).any(|(seed, case)| {
        let batch = Batch::new(case);
        let reports = batch.run([&project, &library], case, (&batch.rows, case.steps, 0), seed);
        found.is_by(&reports, || batch.error(case.steps) > case.tolerance())
    });
    assert!(is_found, "{name} is not found");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    is_found_in(Precision::F32, name, replaced, found);
}

bugs! {
    super::is_found;
    release_is_relaxed: "red_release_gpu_add(of.arrived, 1u);" => "atomicAdd(of.arrived, 1u);", Found::By(Fault::DataRace);
    acquire_is_relaxed: "ld_acquire_gpu(of.arrived)" => "ld_relaxed_gpu(of.arrived)", Found::By(Fault::DataRace);
    arrival_before_the_others: "  __syncthreads();\n  if (threadIdx.x == 0) {\n    const uint32_t all" => "  if (threadIdx.x == 0) {\n    const uint32_t all", Found::By(Fault::DataRace);
    others_do_not_wait: "  }\n  __syncthreads();\n  return is_stuck[0] == 0;" => "  }\n  return is_stuck[0] == 0;", Found::ByAnything;
    one_block_too_few: "of.arrived_before + blocks * times" => "of.arrived_before + blocks * times - 1", Found::By(Fault::DataRace);
    stale_epoch: "blocks * times;" => "blocks;", Found::By(Fault::DataRace);
    counter_from_zero: "of.arrived_before + blocks" => "blocks", Found::ByAnything;
    no_barrier_after_a_step: "if (step + 1 < of.steps && !wait_for_grid(of, step + 1)) return;" => "", Found::By(Fault::DataRace);
    no_barrier_between_gates_and_state: "if (!wait_for_grid(of, 2 * step + 1)) return;" => "", Found::By(Fault::DataRace);
    one_half_of_states: "own->half + (of.place == NEXT_STATE)" => "own->half", Found::By(Fault::DataRace);
    tile_filled_too_early: "  // Who read the tile before has done so, too.\n  __syncthreads();\n" => "", Found::ByAnything;
    tile_read_too_early: "0, Weights::LENGTH);\n  __syncthreads();" => "0, Weights::LENGTH);", Found::By(Fault::DataRace);
    totals_read_too_early: "      weights.multiply(tile, totals);\n      __syncthreads();\n      const float* projected" => "      weights.multiply(tile, totals);\n      const float* projected", Found::By(Fault::DataRace);
    half_of_the_lanes: "for (int apart = LANES / 2, count" => "for (int apart = LANES / 4, count", Found::ByAnything;
    halves_exchanged: "first += is_upper ? half : 0;" => "first += is_upper ? 0 : half;", Found::ByAnything;
    units_of_another_block: "const int first_unit = blockIdx.x * WIDTH;\n  Weights weights;" => "const int first_unit = 0;\n  Weights weights;", Found::ByAnything;
    units_beyond_the_cell: "k < HIDDEN && unit < HIDDEN ? r[" => "k < HIDDEN ? r[", Found::By(Fault::OutOfBounds);
    elements_beyond_the_cell: "k < HIDDEN && unit < HIDDEN ? r[" => "unit < HIDDEN ? r[", Found::By(Fault::OutOfBounds);
    products_of_the_first_step: "of.projected + (long long)step * batch.count * HIDDEN * Cell::GATES;" => "of.projected;", Found::ByValues;
    no_barrier_before_r: "if (step + 1 < of.steps && !wait_for_grid(of, step + 2)) return;" => "", Found::By(Fault::DataRace);
    sums_of_r_in_one_place: "of.between + ((step + 1) & 1) * part" => "of.between + (step & 1) * part", Found::ByAnything;
    sums_of_r_of_the_first_block: "block < gridDim.x && row < batch.count" => "block < 1 && row < batch.count", Found::ByValues;
    own_units_read_too_early: "      if (step + 1 == of.steps) continue;\n      __syncthreads();" => "      if (step + 1 == of.steps) continue;", Found::By(Fault::DataRace);
    sinks_of_padding: "  if (!is_running(batch, row)) return;\n  for (uint32_t at = 0; at < own->sinks" => "  for (uint32_t at = 0; at < own->sinks", Found::ByAnything;
    last_row_of_every_node: "    if (is_of_last(sink) && node + 1 != own->length) continue;\n    ((float*)" => "    ((float*)", Found::ByValues;
    shared_weights_of_the_first_thread: "words + own_before * THREADS_OF_BLOCK + threadIdx.x;" => "words + own_before * THREADS_OF_BLOCK;", Found::ByAnything;
    shared_weights_of_two_products_in_one_place: "state.load(of.r_of_state, first_unit, OfGates::OWN_WORDS);" => "state.load(of.r_of_state, first_unit, 0);", Found::ByValues;
    shared_weights_of_other_elements: "= weight(IN_REGISTERS + at);" => "= weight(at);", Found::ByValues;
    shared_weights_of_one_gate_row: "return own[(part * IN_SHARED + at) * THREADS_OF_BLOCK];" => "return own[at * THREADS_OF_BLOCK];", Found::ByValues;
    rows_of_the_first_tile: "first += gridDim.y * HEIGHT) {\n      fill_tile<Weights>(tile, of_rows, batch, of.h, first);\n      weights" => "first += batch.count) {\n      fill_tile<Weights>(tile, of_rows, batch, of.h, first);\n      weights", Found::ByAnything;
}

/// Bugs in weights that are fragments.
mod fragments {
    use batchmaker_graph::Precision;

    use crate::harness::{Found, bugs};

    fn is_found(name: &str, replaced: [&str; 2], found: Found) {
        super::is_found_in(Precision::Bf16, &format!("fragments-{name}"), replaced, found);
    }

    bugs! {
        super::is_found;
        h_is_not_rounded: "rounded_to_bf16(low)" => "low", Found::ByValues;
        numbers_exchanged: "two_bf16(2 * at < length ? from[2 * at] : 0.f, 2 * at + 1 < length ? from[2 * at + 1] : 0.f)" => "two_bf16(2 * at + 1 < length ? from[2 * at + 1] : 0.f, 2 * at < length ? from[2 * at] : 0.f)", Found::ByValues;
        registers_exchanged: "8 * (at & 1); }\n  DEVICE_MEMBER int element(int at)" => "8 * (at >> 1); }\n  DEVICE_MEMBER int element(int at)", Found::ByValues;
        sums_of_other_rows: "return threadIdx.x % 4 * 2 + (at & 1); }" => "return threadIdx.x % 4 * 2 + (at >> 1); }", Found::ByAnything;
        elements_beyond_the_cell: "2 * at + 1 < length ? from[2 * at + 1] : 0.f" => "from[2 * at + 1]", Found::ByAnything;
        weights_beyond_the_cell: "k < HIDDEN && gate_row" => "gate_row", Found::ByAnything;
        units_beyond_the_cell: "gate_row < GATE_ROWS && unit < HIDDEN;" => "gate_row < GATE_ROWS;", Found::ByAnything;
        elements_of_the_first_warp: "16 * (elements * WARPS + warp)" => "16 * elements", Found::ByValues;
        fragments_beyond_the_cell: "      if (fragment >= ALL_OF_ELEMENTS) return;\n" => "", Found::ByAnything;
        shared_fragments_of_the_first_thread: "fragments + own_before / 4 * THREADS_OF_BLOCK + threadIdx.x;" => "fragments + own_before / 4 * THREADS_OF_BLOCK;", Found::ByAnything;
        shared_fragments_of_other_elements: "fragment(rows, IN_REGISTERS + elements)" => "fragment(rows, elements)", Found::ByValues;
        sums_of_the_first_warp: "for (int of = 1; of < WARPS; of++) total" => "for (int of = 1; of < 1; of++) total", Found::ByValues;
        sums_read_too_early: "sums[gate_rows][rows][at];\n    __syncthreads();" => "sums[gate_rows][rows][at];", Found::By(Fault::DataRace);
        h_of_a_rounded_tile: "if constexpr (Weights::HAS_EXACT_TILE) return tile[in_tile][unit];" => "if constexpr (true) return tile[in_tile][unit / 2];", Found::ByAnything;
    }
}
