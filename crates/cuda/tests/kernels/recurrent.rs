//! Steps of recurrent cells.

use batchmaker_cuda::kernels::batch::{Batch, Lookup, Operand, Port, Row};
use batchmaker_cuda::kernels::recurrent::{PackedLaunch, PackedRecurrent, StepArguments};
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_device::reference;
use batchmaker_graph::{Precision, RecurrentCell, RecurrentKind, RnnActivation};
use bytemuck::Zeroable;

use crate::harness::{
    Embedding, Found, Gpu, SEEDS, TOLERANCE, Value, bits, bugs, difference, half_of, input_node,
    is_padding, known_id, library, numbers, rows, slots, weights, wide,
};

const FILE: &str = "recurrent_step.cu";

/// A cell of a kind.
fn cell(kind: RecurrentKind, input_size: usize, hidden_size: usize) -> RecurrentCell {
    let gates = kind.gates();
    RecurrentCell {
        kind,
        input_size,
        hidden_size,
        w: weights(gates * hidden_size * input_size, 1, input_size),
        r: weights(gates * hidden_size * hidden_size, 2, hidden_size),
        b: Some(weights(2 * gates * hidden_size, 3, 1)),
        lookup: None,
    }
}

fn kinds(hidden_size: usize) -> Vec<RecurrentKind> {
    let peepholes = Some(numbers(3 * hidden_size, 4).into());
    vec![
        RecurrentKind::Lstm { p: None, bytes: None },
        RecurrentKind::Lstm { p: peepholes, bytes: None },
        RecurrentKind::Gru { linear_before_reset: true },
        RecurrentKind::Gru { linear_before_reset: false },
        RecurrentKind::Rnn { activation: RnnActivation::Tanh },
        RecurrentKind::Rnn { activation: RnnActivation::Relu },
    ]
}

/// Where the operands of a step lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    /// x in ports, states in slots.
    Slots,
    /// All dense.
    Dense,
    /// x in ports; no states before the step, and dense ones after it.
    NoStates,
    /// Ids of an embedding in ports, states in slots.
    Ids,
}

const PLACES: [Places; 4] = [Places::Slots, Places::Dense, Places::NoStates, Places::Ids];

/// The id of a row and a node.
type IdOf<'a> = &'a dyn Fn(usize, usize) -> i64;

/// A batch of chains.
struct Chains<'a> {
    cell: &'a RecurrentCell,
    packed: PackedRecurrent,
    places: Places,
    gpu: Gpu,
    rows: Vec<Row>,
    ports: Vec<Port>,
    /// x of each row.
    x: Vec<Vec<f32>>,
    embedding: Embedding,
    /// The states in slots before the step: `[slots, 2, states, hidden]`.
    states: Vec<f32>,
    states_at: u64,
    /// Dense states after the step: `[rows, states, hidden]`.
    after_at: u64,
    /// The words of slots whose chain has ended; 0 for none.
    ended: u64,
    /// The weights of each launch: w, r, b.
    weights: Vec<[u64; 3]>,
    /// The argument, but for its batch and the weights.
    arguments: StepArguments,
}

impl<'a> Chains<'a> {
    fn new(cell: &'a RecurrentCell, places: Places, count: usize) -> Self {
        Self::with_ids(cell, places, count, &known_id)
    }

    fn with_ids(cell: &'a RecurrentCell, places: Places, count: usize, id_of: IdOf<'_>) -> Self {
        let (gpu, packed) = (Gpu::new(), PackedRecurrent::new(cell).unwrap());
        let (input, hidden, kept) = (cell.input_size, cell.hidden_size, cell.kind.states());
        let rows = rows(count, 1);
        let embedding = Embedding::upload(&gpu, input);
        let (mut x, mut ports) = (Vec::new(), Vec::new());
        for (number, row) in rows.iter().enumerate() {
            let (node, length) = (input_node(row), row.length as usize);
            let value = if places == Places::Ids {
                let ids: Vec<i64> = (0..length).map(|node| id_of(number, node)).collect();
                x.push(embedding.row(ids[node]));
                Value::upload(&gpu, number, length, &ids)
            } else {
                let values = numbers(length * input, 20 + number);
                x.push(values[node * input..][..input].to_vec());
                Value::upload(&gpu, number, length, &values)
            };
            ports.push(value.port(&gpu, 0));
        }
        let states = numbers(slots(count) * 2 * kept * hidden, 5);
        let states_at = gpu.upload(&states, "states");
        let row_bytes = 4 * kept * hidden;
        let after_at = gpu.room(count * row_bytes, "states after the step");
        // h and c of a slot, or of a row, lie side by side.
        let state = |at: u64, number: usize| at + (4 * number * hidden) as u64;
        let of_states = |of: fn(u64, usize) -> Operand, at: u64| {
            [0, 1].map(|number| match number < kept {
                true => of(state(at, number), row_bytes),
                false => Operand::NOWHERE,
            })
        };
        let (before, after) = match places {
            Places::Slots | Places::Ids => {
                (of_states(Operand::state, states_at), of_states(Operand::next_state, states_at))
            }
            Places::Dense => {
                let of_row = |row| &states[half_of(row, false) * kept * hidden..][..kept * hidden];
                let before: Vec<f32> = rows.iter().flat_map(|row| of_row(row).to_vec()).collect();
                let before_at = gpu.upload(&before, "states before the step");
                (of_states(Operand::dense, before_at), of_states(Operand::dense, after_at))
            }
            Places::NoStates => ([Operand::NOWHERE; 2], of_states(Operand::dense, after_at)),
        };
        let dense_x = || Operand::dense(gpu.upload(&x.concat(), "x"), 4 * input);
        let gates_at = gpu.room(packed.gate_bytes() * count, "gates");
        let upload = |data: &[f32], name| gpu.upload(data, name);
        let of_launch =
            |of: &PackedLaunch| [upload(&of.w, "w"), upload(&of.r, "r"), upload(&of.b, "b")];
        let weights = packed.launches.iter().map(of_launch).collect();
        let arguments = StepArguments {
            batch: Batch::zeroed(),
            x: if places == Places::Dense { dense_x() } else { Operand::port(0) },
            h: before[0],
            c: before[1],
            next_h: after[0],
            next_c: after[1],
            gates: Operand::dense(gates_at, packed.gate_bytes()),
            lookup: if places == Places::Ids { embedding.argument() } else { Lookup::NONE },
            w: 0,
            r: 0,
            b: 0,
            peepholes: packed.peepholes.as_deref().map_or(0, |p| upload(p, "peepholes")),
            input: input as i32,
            hidden: hidden as i32,
        };
        let ended = 0;
        Self {
            cell,
            packed,
            places,
            gpu,
            rows,
            ports,
            x,
            embedding,
            states,
            states_at,
            after_at,
            ended,
            weights,
            arguments,
        }
    }

    /// Runs a step of all rows.
    fn run(&self, library: &KernelLibrary, seed: u64) -> Vec<Report> {
        self.run_some(library, &self.rows, seed)
    }

    /// Runs a step of some rows, whose operands are not dense, as one batch.
    fn run_some(&self, library: &KernelLibrary, rows: &[Row], seed: u64) -> Vec<Report> {
        let batch = self.gpu.batch(rows, &self.ports, self.ended);
        let mut reports = Vec::new();
        for (of, &[w, r, b]) in self.packed.launches.iter().zip(&self.weights) {
            let arguments = StepArguments { batch, w, r, b, ..self.arguments };
            let grid = self.packed.grid(rows.len());
            let kernel = (library, of.kernel);
            reports.extend(self.gpu.launch_tiles(kernel, grid, &arguments, seed));
        }
        reports
    }

    /// Whether states are not right.
    fn is_wrong(&self) -> bool {
        self.error() > TOLERANCE
    }

    /// Elements of the states of a row.
    fn row_len(&self) -> usize {
        self.cell.kind.states() * self.cell.hidden_size
    }

    fn is_in_slots(&self) -> bool {
        matches!(self.places, Places::Slots | Places::Ids)
    }

    /// The states of a row before its step.
    fn before(&self, row: usize) -> Vec<f32> {
        let first = half_of(&self.rows[row], false) * self.row_len();
        match self.places {
            Places::NoStates => vec![0.0; self.row_len()],
            _ => self.states[first..][..self.row_len()].to_vec(),
        }
    }

    /// The states of a row after its step: h, then c.
    fn after(&self, row: usize) -> Vec<Vec<f32>> {
        let (at, number) = match self.is_in_slots() {
            true => (self.states_at, half_of(&self.rows[row], true)),
            false => (self.after_at, row),
        };
        let states = self.gpu.read(at + (4 * number * self.row_len()) as u64, self.row_len());
        states.chunks(self.cell.hidden_size).map(<[f32]>::to_vec).collect()
    }

    /// The largest difference of the rows' states from the equations; infinite if a state that is not theirs has changed.
    fn error(&self) -> f64 {
        let mut right = self.states.clone();
        let mut most = 0.0f64;
        for (number, row) in self.rows.iter().enumerate() {
            let before = self.before(number);
            let before: Vec<_> = before.chunks(self.cell.hidden_size).map(wide).collect();
            let next = reference::step(Precision::F32, self.cell, &wide(&self.x[number]), &before);
            let after = self.after(number);
            most = most.max(difference(&after, &next));
            if self.is_in_slots() {
                let first = half_of(row, true) * self.row_len();
                right[first..][..self.row_len()].copy_from_slice(&after.concat());
            }
        }
        let is_kept = self.gpu.read::<f32>(self.states_at, right.len()) == right;
        if is_kept { most } else { f64::INFINITY }
    }
}

/// Rows, elements of x, units.
const SHAPES: [[usize; 3]; 2] = [[5, 3, 6], [19, 50, 40]];

#[test]
fn recurrent_steps_are_right() {
    let library = library("right", FILE, None);
    for [rows, input, hidden] in SHAPES {
        for kind in kinds(hidden) {
            let cell = cell(kind, input, hidden);
            for (seed, places) in (0..SEEDS).zip(PLACES.into_iter().cycle()) {
                let chains = Chains::new(&cell, places, rows);
                let kernel = chains.packed.launches[0].kernel;
                let of = format!("{kernel}, {places:?}, {rows} rows, seed {seed}");
                let reports = chains.run(&library, seed);
                assert!(reports.is_empty(), "{of}: {}", reports[0]);
                let error = chains.error();
                assert!(error <= TOLERANCE, "{of}: {error}");
                assert!(!chains.embedding.has_failed(&chains.gpu), "{of}");
            }
        }
    }
}

#[test]
fn a_row_alone_has_the_bits_of_a_row_in_a_batch() {
    let library = library("alone", FILE, None);
    let [rows, input, hidden] = SHAPES[1];
    for kind in kinds(hidden) {
        let cell = cell(kind, input, hidden);
        let chains = || Chains::new(&cell, Places::Slots, rows);
        let (together, alone) = (chains(), chains());
        assert!(together.run(&library, 0).is_empty());
        for row in [0, 1, rows - 1] {
            let reports = alone.run_some(&library, &[alone.rows[row]], 0);
            assert!(reports.is_empty(), "{}", reports[0]);
            assert_eq!(bits(&alone.after(row)), bits(&together.after(row)), "row {row}");
        }
    }
}

/// A step in which the id of one row is one that its embedding lacks.
#[derive(Clone, Copy, Debug)]
struct Unknown {
    row: usize,
    id: i64,
    /// Whether the row's chain has ended.
    has_ended: bool,
}

impl Unknown {
    /// Rows, elements of x, units: those of two blocks.
    const SHAPE: [usize; 3] = [5, 3, 40];

    fn all() -> impl Iterator<Item = Self> {
        let rows = 0..Self::SHAPE[0];
        rows.flat_map(|row| {
            [-1, Embedding::ROWS as i64, 1 << 32, i64::MIN]
                .into_iter()
                .flat_map(move |id| [false, true].map(|has_ended| Self { row, id, has_ended }))
        })
    }

    /// Whether somebody wants what the row computes.
    fn is_wanted(self) -> bool {
        let is_padding = is_padding(&rows(Self::SHAPE[0], 1)[self.row]);
        !self.has_ended && !is_padding
    }

    /// Runs the step. Returns reports, and whether x is other than zeros, or the step fails where it should not, or the other way round.
    fn run(self, library: &KernelLibrary) -> (Vec<Report>, bool) {
        let [rows, input, hidden] = Self::SHAPE;
        let cell = cell(RecurrentKind::Rnn { activation: RnnActivation::Tanh }, input, hidden);
        let id_of = |row, node| if row == self.row { self.id } else { known_id(row, node) };
        let mut chains = Chains::with_ids(&cell, Places::Ids, rows, &id_of);
        let mut ended = vec![0; slots(rows)];
        ended[chains.rows[self.row].slot as usize] = u32::from(self.has_ended);
        chains.ended = chains.gpu.upload(&ended, "ended");
        let reports = chains.run(library, 0);
        let has_failed = chains.embedding.has_failed(&chains.gpu);
        (reports, chains.is_wrong() || has_failed != self.is_wanted())
    }
}

#[test]
fn an_unknown_id_fails_unless_nobody_wants_the_row() {
    let library = library("unknown", FILE, None);
    for unknown in Unknown::all() {
        let (reports, is_wrong) = unknown.run(&library);
        assert!(reports.is_empty(), "{unknown:?}: {}", reports[0]);
        assert!(!is_wrong, "{unknown:?}");
    }
    let wanted = Unknown::all().filter(|of| of.is_wanted()).count();
    assert_eq!((wanted, Unknown::all().count()), (16, 40), "one of five rows is padding");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for unknown in Unknown::all() {
        let (reports, is_wrong) = unknown.run(&library);
        if found.is_by(&reports, || is_wrong) {
            return;
        }
    }
    for ([rows, input, hidden], seed) in
        SHAPES.into_iter().flat_map(|of| (0..5).map(move |seed| (of, seed)))
    {
        for kind in kinds(hidden) {
            let cell = cell(kind, input, hidden);
            for places in PLACES {
                let chains = Chains::new(&cell, places, rows);
                let reports = chains.run(&library, seed);
                if found.is_by(&reports, || chains.is_wrong()) {
                    return;
                }
            }
        }
    }
    panic!("{name} is not found");
}

bugs! {
    super::is_found;
    no_barrier_before_filling: "start += CHUNK) {\n    __syncthreads();" => "start += CHUNK) {", Found::By(Fault::DataRace);
    no_barrier_after_filling: "    }\n    __syncthreads();\n    if (part.unit" => "    }\n    if (part.unit", Found::By(Fault::DataRace);
    barrier_of_some_units: "    if (part.unit >= units) continue;\n" => "    if (part.unit >= units) return;\n", Found::ByAnything;
    input_beyond_its_end: "sources[row] && start + k < length ?" => "sources[row] ?", Found::By(Fault::OutOfBounds);
    no_check_of_sources: "sources[row] && start + k < length ?" => "start + k < length ?", Found::By(Fault::OutOfBounds);
    rows_beyond_the_batch: "is_there ? look_up(of.batch, of.x, of.lookup, row) : nullptr" => "look_up(of.batch, of.x, of.lookup, row)", Found::By(Fault::OutOfBounds);
    sources_of_rows_beyond: "if (part.thread >= ROWS) return;" => "if (part.thread >= part.rows) return;", Found::By(Fault::UninitialisedRead);
    units_beyond_the_cell: "    if (part.unit >= units) continue;\n" => "", Found::By(Fault::OutOfBounds);
    states_of_units_beyond: "  if (part.unit >= of.hidden) return;\n  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = Part::row(part, at);\n    if (row < 0) return;\n    float c" => "  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = Part::row(part, at);\n    if (row < 0) return;\n    float c", Found::ByAnything;
    states_of_rows_beyond: "    if (row < 0) return;\n    float c" => "    float c", Found::By(Fault::OutOfBounds);
    gates_of_rows_beyond: "    if (row < 0) return;\n    float* gates" => "    float* gates", Found::By(Fault::OutOfBounds);
    one_half_of_states: "own->half + (of.place == NEXT_STATE)" => "own->half", Found::By(Fault::DataRace);
    halves_exchanged: "own->half + (of.place == NEXT_STATE)" => "own->half + (of.place == STATE)", Found::ByValues;
    same_half_for_all: "batch.time + own->half + (of.place" => "batch.time + (of.place", Found::ByValues;
    no_z: "    gates[part.unit] = sigmoid(sums[at][0]);\n" => "", Found::By(Fault::UninitialisedRead);
    gates_of_the_first_row: "of.base + (long long)row * of.stride;" => "of.base;", Found::By(Fault::DataRace);
    no_reset: "  reset.base += of.hidden * sizeof(float);\n" => "", Found::ByValues;
    slots_overlap: "((long long)own->slot * 2 + half)" => "((long long)own->slot + half)", Found::ByAnything;
    no_check_of_place: "return at ? at[unit] : 0.f;" => "return at[unit];", Found::By(Fault::OutOfBounds);
    inputs_past_the_last: "node < last ? node : last" => "node", Found::By(Fault::OutOfBounds);
    no_list: "(port.list ? (long long)port.list[node] * port.bytes : (long long)node * port.stride)" => "(long long)node * port.stride", Found::ByValues;
    list_of_backwards: "(long long)node * port.stride)" => "(long long)node * port.bytes)", Found::By(Fault::OutOfBounds);
    another_id: "lookup.table + id * lookup.width" => "lookup.table + id", Found::ByValues;
    half_an_id: "id = *(const long long*)at;" => "id = *(const int*)at;", Found::ByValues;
    ids_before_the_table: "id >= 0 && id < lookup.rows" => "id < lookup.rows", Found::By(Fault::OutOfBounds);
    an_id_past_the_table: "id >= 0 && id < lookup.rows" => "id >= 0 && id <= lookup.rows", Found::By(Fault::OutOfBounds);
    failure_is_no_atomic: "atomicMax(lookup.failed, 1u)" => "*lookup.failed = 1", Found::By(Fault::DataRace);
    failure_of_padding: "node_of(batch, row) < batch.rows[row].length && " => "", Found::ByValues;
    failure_after_the_end: " && !(batch.ended && batch.ended[batch.rows[row].slot])" => "", Found::ByValues;
}
