//! Steps of recurrent cells.

use batchmaker_cuda::recurrent::{BesideH, PackedLaunch, PackedRecurrent, StepRow};
use batchmaker_cuda_emulator::{DevicePointer, KernelLibrary, Memory, Place, Report};
use batchmaker_device::reference;
use batchmaker_graph::{Precision, RecurrentCell, RecurrentKind, RnnActivation};

use crate::harness::{Found, SEEDS, bugs, launch, library, number, numbers, pointer};

const FILE: &str = "recurrent_step.cu";

/// The largest difference from the equations in f64.
const TOLERANCE: f64 = 1e-5;

/// A cell of a kind, with weights that leave its gates in between.
fn cell(kind: RecurrentKind, input_size: usize, hidden_size: usize) -> RecurrentCell {
    let gates = kind.gates();
    let scaled = |count: usize, seed: usize, by: usize| {
        let scale = 1.0 / (by.max(1) as f32).sqrt();
        numbers(count, seed).iter().map(|x| scale * x).collect()
    };
    RecurrentCell {
        kind,
        input_size,
        hidden_size,
        w: scaled(gates * hidden_size * input_size, 1, input_size),
        r: scaled(gates * hidden_size * hidden_size, 2, hidden_size),
        b: Some(scaled(2 * gates * hidden_size, 3, 1)),
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

/// A batch of chains: more slots than rows, rows at different steps, every other one with an output.
struct Batch {
    packed: PackedRecurrent,
    memory: Memory,
    slots: usize,
    states: [Vec<f32>; 2],
    x: Vec<f32>,
    x_at: DevicePointer,
    y_at: DevicePointer,
    h_at: DevicePointer,
    c_at: DevicePointer,
    gates_at: DevicePointer,
    peepholes_at: DevicePointer,
    /// The weights of each launch: w, r, b.
    weights: Vec<[DevicePointer; 3]>,
}

impl Batch {
    fn new(cell: &RecurrentCell, rows: usize) -> Self {
        let packed = PackedRecurrent::new(cell).unwrap();
        let memory = Memory::new(64 << 20);
        let (slots, hidden) = (rows + 3, cell.hidden_size);
        let states = [numbers(2 * slots * hidden, 5), numbers(slots * hidden, 6)];
        let x = numbers(rows * cell.input_size, 7);
        let upload = |data: &[f32], name| memory.upload(data, name).unwrap();
        let x_at = upload(&x, "x");
        let y_at = memory.allocate(4 * rows * hidden, "y", Place::Device).unwrap();
        let (h_at, c_at) = (upload(&states[0], "h"), upload(&states[1], "c"));
        let peepholes = packed.peepholes.as_deref();
        let peepholes_at = peepholes.map_or(std::ptr::null_mut(), |p| upload(p, "peepholes"));
        let of_launch =
            |of: &PackedLaunch| [upload(&of.w, "w"), upload(&of.r, "r"), upload(&of.b, "b")];
        let weights = packed.launches.iter().map(of_launch).collect();
        let gates_at = memory.allocate(8 * rows * hidden, "gates", Place::Device).unwrap();
        Self {
            packed,
            memory,
            slots,
            states,
            x,
            x_at,
            y_at,
            h_at,
            c_at,
            gates_at,
            peepholes_at,
            weights,
        }
    }

    fn row(&self, row: usize) -> StepRow {
        let at = |of: DevicePointer, len: usize| of as u64 + (4 * row * len) as u64;
        let y = if row.is_multiple_of(2) { at(self.y_at, self.packed.hidden_size()) } else { 0 };
        // Slots in another order than rows.
        let slot = self.slots - 1 - row;
        let x = at(self.x_at, self.packed.input_size());
        StepRow { x, y, slot: slot as u32, step: (row % 5) as u32 }
    }

    /// Runs a step of some rows as one batch.
    fn run(&self, library: &KernelLibrary, rows: &[usize], seed: u64) -> Vec<Report> {
        let batch: Vec<StepRow> = rows.iter().map(|&row| self.row(row)).collect();
        let batch = self.memory.upload(&batch, "batch").unwrap();
        let beside_h = match self.packed.beside_h {
            BesideH::Nothing => std::ptr::null_mut(),
            BesideH::CellState => self.c_at,
            BesideH::Gates => self.gates_at,
        };
        let mut reports = Vec::new();
        for (of, weights) in self.packed.launches.iter().zip(&self.weights) {
            let [w, r, b] = weights.map(pointer);
            let arguments = vec![
                pointer(batch),
                number(rows.len()),
                w,
                r,
                b,
                pointer(self.peepholes_at),
                pointer(self.h_at),
                pointer(beside_h),
                number(self.slots),
                number(self.packed.input_size()),
                number(self.packed.hidden_size()),
            ];
            let kernel = library.kernel(of.kernel).unwrap();
            let grid = self.packed.grid(rows.len());
            reports.extend(launch(&self.memory, kernel, grid, arguments, seed));
        }
        reports
    }

    /// Whether there is a cell state.
    fn has_c(&self) -> bool {
        self.packed.beside_h == BesideH::CellState
    }

    /// Floats of the memory.
    fn floats(&self, at: DevicePointer, count: usize) -> Vec<f32> {
        // SAFETY: no kernel runs; any bytes are numbers.
        unsafe { self.memory.download(at, count) }
    }

    /// h and c of a row after its step, and its output, if it has one.
    fn after(&self, row: usize) -> [Vec<f32>; 3] {
        let (hidden, of_row) = (self.packed.hidden_size(), self.row(row));
        let (slot, half) = (of_row.slot as usize, (of_row.step as usize + 1) % 2);
        let element = |at: DevicePointer, first: usize| {
            self.floats(at.wrapping_add(4 * first * hidden), hidden)
        };
        let y = (of_row.y != 0).then(|| element(self.y_at, row));
        let c = self.has_c().then(|| element(self.c_at, slot));
        let h = element(self.h_at, half * self.slots + slot);
        [h, c.unwrap_or_default(), y.unwrap_or_default()]
    }

    /// The largest difference of the rows' states and outputs from the equations; infinite if a state that is not theirs has changed.
    fn error(&self, cell: &RecurrentCell, rows: usize) -> f64 {
        let hidden = cell.hidden_size;
        let wide = |of: &[f32]| of.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let mut expected = self.states.clone();
        let mut error = 0.0f64;
        let mut compare = |got: &[f32], expected: &[f64]| {
            assert_eq!(got.len(), expected.len());
            for (&got, &expected) in got.iter().zip(expected) {
                let of = (f64::from(got) - expected).abs();
                // What is no number differs.
                error = if of <= error { error } else { of };
            }
        };
        for row in 0..rows {
            let of_row = self.row(row);
            let (slot, half) = (of_row.slot as usize, of_row.step as usize % 2);
            let h = wide(&self.states[0][(half * self.slots + slot) * hidden..][..hidden]);
            let c = wide(&self.states[1][slot * hidden..][..hidden]);
            let x = wide(&self.x[row * cell.input_size..][..cell.input_size]);
            let states = if self.has_c() { vec![h, c] } else { vec![h] };
            let next = reference::step(Precision::F32, cell, &x, &states);
            let [h, c, y] = self.after(row);
            compare(&h, &next[0]);
            if self.has_c() {
                compare(&c, &next[1]);
                expected[1][slot * hidden..][..hidden].copy_from_slice(&c);
            }
            if of_row.y != 0 {
                compare(&y, &next[0]);
            }
            let to = ((1 - half) * self.slots + slot) * hidden;
            expected[0][to..][..hidden].copy_from_slice(&h);
        }
        let states = [self.h_at, self.c_at].into_iter().zip(&expected);
        let is_kept = states.into_iter().all(|(at, of)| self.floats(at, of.len()) == *of);
        if is_kept { error } else { f64::INFINITY }
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
            for seed in 0..SEEDS {
                let batch = Batch::new(&cell, rows);
                let kernel = batch.packed.launches[0].kernel;
                let of = format!("{kernel}, {rows} rows, seed {seed}");
                let reports = batch.run(&library, &(0..rows).collect::<Vec<_>>(), seed);
                assert!(reports.is_empty(), "{of}: {}", reports[0]);
                let error = batch.error(&cell, rows);
                assert!(error <= TOLERANCE, "{of}: {error}");
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
        let (together, alone) = (Batch::new(&cell, rows), Batch::new(&cell, rows));
        assert!(together.run(&library, &(0..rows).collect::<Vec<_>>(), 0).is_empty());
        for row in [0, 1, rows - 1] {
            assert!(alone.run(&library, &[row], 0).is_empty());
            let bits =
                |of: [Vec<f32>; 3]| of.map(|of| of.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
            assert_eq!(bits(alone.after(row)), bits(together.after(row)), "row {row}");
        }
    }
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for ([rows, input, hidden], seed) in
        SHAPES.into_iter().flat_map(|of| (0..5).map(move |seed| (of, seed)))
    {
        for kind in kinds(hidden) {
            let cell = cell(kind, input, hidden);
            let batch = Batch::new(&cell, rows);
            let reports = batch.run(&library, &(0..rows).collect::<Vec<_>>(), seed);
            if found.is_by(&reports, || batch.error(&cell, rows) > TOLERANCE) {
                return;
            }
        }
    }
    panic!("{name} is not found");
}

bugs! {
    super::is_found;
    no_barrier_before_filling: "start += CHUNK) {\n    __syncthreads();" => "start += CHUNK) {", Found::By(Fault::DataRace);
    no_barrier_after_filling: "    }\n    __syncthreads();\n    if (unit" => "    }\n    if (unit", Found::By(Fault::DataRace);
    barrier_of_some_units: "    if (unit >= hidden) continue;\n" => "    if (unit >= hidden) return;\n", Found::ByAnything;
    input_beyond_its_end: "row < rows && start + k < length ?" => "row < rows ?", Found::By(Fault::OutOfBounds);
    rows_beyond_the_batch: "row < rows && start + k < length ?" => "start + k < length ?", Found::By(Fault::OutOfBounds);
    units_beyond_the_cell: "    if (unit >= hidden) continue;\n" => "", Found::By(Fault::OutOfBounds);
    states_of_units_beyond: "  if (part.unit >= hidden) return;\n  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = threadIdx.y * ROWS_OF_THREAD + at;\n    if (row >= part.rows) return;\n    const StepRow own = part.batch[row];\n    float* of_c" => "  for (int at = 0; at < ROWS_OF_THREAD; at++) {\n    const int row = threadIdx.y * ROWS_OF_THREAD + at;\n    if (row >= part.rows) return;\n    const StepRow own = part.batch[row];\n    float* of_c", Found::ByAnything;
    outputs_of_rows_beyond: "    if (row >= part.rows) return;\n    const StepRow own = part.batch[row];\n    float* of_c" => "    const StepRow own = part.batch[row];\n    float* of_c", Found::By(Fault::OutOfBounds);
    one_half_of_states: "((batch[row].step + steps) & 1)" => "(batch[row].step & 1)", Found::By(Fault::DataRace);
    halves_exchanged: "((batch[row].step + steps) & 1)" => "((batch[row].step + steps + 1) & 1)", Found::ByValues;
    no_check_of_outputs: "    if (own.y) own.y[part.unit] = next;\n  }\n}\n\n#define" => "    own.y[part.unit] = next;\n  }\n}\n\n#define", Found::By(Fault::OutOfBounds);
    gates_of_another_row: "(long)(part.first + row) * 2 * hidden;" => "(long)row * 2 * hidden;", Found::ByAnything;
    gates_exchanged: "gates + ((long)(part.first + row) * 2 + 1) * hidden" => "gates + ((long)(part.first + row) * 2) * hidden", Found::ByValues;
    wrong_stride_of_states: "* slots + batch[row].slot" => "+ batch[row].slot", Found::ByAnything;
}
