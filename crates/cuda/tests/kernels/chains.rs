//! A batch of chains that take a step of a recurrent cell.

use std::sync::Arc;

use batchmaker_cuda::kernels::batch::{Batch, Lookup, Operand, Port, Row};
use batchmaker_cuda::kernels::projection::{Projection, ProjectionArguments};
use batchmaker_cuda::kernels::recurrent::{PackedLaunch, PackedRecurrent, StepArguments};
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_device::reference;
use batchmaker_graph::{Precision, RecurrentCell, RecurrentKind};
use bytemuck::Zeroable;

use crate::harness::{
    Embedding, Found, Gpu, PRECISIONS, SEEDS, TOLERANCE, Value, bits, difference, half_of,
    input_node, known_id, node_of, numbers, rows, slots, storage, weights, wide,
};

/// The tolerance of a GRU in bfloat16 whose reset gate comes before the product: the equations round r h to another number than the kernel
/// where it is within an error of f32 from the middle of two.
const TOLERANCE_OF_RESET_BEFORE: f64 = 3e-3;

/// Rows, elements of x, units.
pub(crate) const SHAPES: [[usize; 3]; 2] = [[5, 3, 6], [19, 70, 40]];

/// A cell of a kind.
pub(crate) fn cell(kind: RecurrentKind, input_size: usize, hidden_size: usize) -> RecurrentCell {
    let rows = kind.gates() * hidden_size;
    let [w_scale, r_scale] = match &kind {
        RecurrentKind::Lstm { bytes: Some(of), .. } => {
            [of.w_scale.clone(), Some(of.r_scale.clone())]
        }
        _ => [None, None],
    };
    let matrix = |seed: usize, inputs: usize, scale: Option<Arc<[f32]>>| {
        let w = weights(rows * inputs, seed, inputs);
        scale.map_or_else(|| w.clone(), |scale| of_bytes(&w, inputs, &scale))
    };
    RecurrentCell {
        input_size,
        hidden_size,
        w: matrix(1, input_size, w_scale),
        r: matrix(2, hidden_size, r_scale),
        b: Some(weights(2 * rows, 3, 1)),
        kind,
        lookup: None,
    }
}

/// A matrix with rows of this length that are bytes times the scales.
fn of_bytes(matrix: &[f32], len: usize, scales: &[f32]) -> Arc<[f32]> {
    let byte = |value: f32, scale: f32| (value / scale).round().clamp(-128.0, 127.0);
    let rows = matrix.chunks(len).zip(scales);
    rows.flat_map(|(row, &scale)| row.iter().map(move |&w| byte(w, scale) * scale)).collect()
}

/// x of some rows: numbers; of a cell whose W is bytes multiples of a half, some beyond the range, and last in each row what 1 stands for.
fn x_of(cell: &RecurrentCell, count: usize, seed: usize) -> Vec<f32> {
    let width = cell.input_size;
    let mut x = numbers(count * width, seed);
    if matches!(&cell.kind, RecurrentKind::Lstm { bytes: Some(of), .. } if of.w_scale.is_some()) {
        for (at, x) in x.iter_mut().enumerate() {
            *x = if (at + 1) % width == 0 { *x / 255.0 } else { (*x * 600.0).round() / 2.0 };
        }
    }
    x
}

/// x of a node, of that of all nodes.
fn x_at(x: &[f32], width: usize, node: usize) -> &[f32] {
    &x[node * width..][..width]
}

/// A cell of each kind, in each precision.
pub(crate) fn cells(
    kinds: Vec<RecurrentKind>,
    [input, hidden]: [usize; 2],
) -> Vec<(RecurrentCell, Precision)> {
    let cells = kinds.into_iter().map(|kind| cell(kind, input, hidden));
    cells.flat_map(|cell| PRECISIONS.map(|precision| (cell.clone(), precision))).collect()
}

/// Where the operands of a step lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// x in ports, states in slots.
    Slots,
    /// All dense.
    Dense,
    /// x in ports; no states before the step, and dense ones after it.
    NoStates,
    /// Ids of an embedding in ports, states in slots.
    Ids,
}

pub(crate) const PLACES: [Places; 4] =
    [Places::Slots, Places::Dense, Places::NoStates, Places::Ids];

/// The id of a row and a node.
pub(crate) type IdOf<'a> = &'a dyn Fn(usize, usize) -> i64;

/// A batch of chains.
pub(crate) struct Chains<'a> {
    pub(crate) cell: &'a RecurrentCell,
    pub(crate) precision: Precision,
    pub(crate) packed: PackedRecurrent,
    places: Places,
    pub(crate) gpu: Gpu,
    pub(crate) rows: Vec<Row>,
    pub(crate) ports: Vec<Port>,
    /// x of each row: that of all nodes.
    x: Vec<Vec<f32>>,
    pub(crate) embedding: Embedding,
    /// The states in slots before the step: `[slots, 2, states, hidden]`.
    states: Vec<f32>,
    pub(crate) states_at: u64,
    /// Dense states after the step: `[rows, states, hidden]`.
    after_at: u64,
    /// The words of slots whose chain has ended; 0 for none.
    pub(crate) ended: u64,
    /// The weights of each launch: w, r, b.
    pub(crate) weights: Vec<[u64; 3]>,
    /// The argument, but for its batch and the weights.
    pub(crate) arguments: StepArguments,
}

impl<'a> Chains<'a> {
    pub(crate) fn new(of: (&'a RecurrentCell, Precision), places: Places, count: usize) -> Self {
        Self::with_ids(of, places, count, &known_id)
    }

    pub(crate) fn with_ids(
        (cell, precision): (&'a RecurrentCell, Precision),
        places: Places,
        count: usize,
        id_of: IdOf<'_>,
    ) -> Self {
        let gpu = Gpu::new();
        let packed = PackedRecurrent::new(cell, storage(precision)).unwrap();
        let (input, hidden, kept) = (cell.input_size, cell.hidden_size, cell.kind.states());
        let rows = rows(count, 1);
        let table = x_of(cell, Embedding::ROWS, 11);
        let embedding = Embedding::of_table(&gpu, input, table);
        let (mut x, mut ports) = (Vec::new(), Vec::new());
        for (number, row) in rows.iter().enumerate() {
            let length = row.length as usize;
            let value = if places == Places::Ids {
                let ids: Vec<i64> = (0..length).map(|node| id_of(number, node)).collect();
                x.push(ids.iter().flat_map(|&id| embedding.row(id)).collect());
                Value::upload(&gpu, number, length, &ids)
            } else {
                let values = x_of(cell, length, 20 + number);
                let value = Value::upload(&gpu, number, length, &values);
                x.push(values);
                value
            };
            ports.push(value.port(&gpu, 0));
        }
        let mut states = numbers(slots(count) * 2 * kept * hidden, 5);
        // Some states have no negative number.
        for of_row in states.chunks_mut(kept * hidden).step_by(3) {
            of_row.iter_mut().for_each(|state| *state = state.abs());
        }
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
        let dense_x = || {
            let of_row = |(x, row): (&Vec<f32>, &Row)| x_at(x, input, input_node(row)).to_vec();
            let x: Vec<f32> = x.iter().zip(&rows).flat_map(of_row).collect();
            Operand::dense(gpu.upload(&x, "x"), 4 * input)
        };
        let between_bytes = packed.between_bytes();
        let between_at = gpu.room(between_bytes * count, "between the kernels");
        let numbers_at = |of: Option<&[f32]>, name| of.map_or(0, |of| gpu.upload(of, name));
        let of_launch = |of: &PackedLaunch| {
            [gpu.upload(&of.w, "w"), gpu.upload(&of.r, "r"), gpu.upload(&of.b, "b")]
        };
        let weights = packed.launches.iter().map(of_launch).collect();
        let arguments = StepArguments {
            batch: Batch::zeroed(),
            x: if places == Places::Dense { dense_x() } else { Operand::port(0) },
            h: before[0],
            c: before[1],
            next_h: after[0],
            next_c: after[1],
            between: Operand::dense(between_at, between_bytes),
            projected: Operand::NOWHERE,
            lookup: if places == Places::Ids { embedding.argument() } else { Lookup::NONE },
            w: 0,
            r: 0,
            b: 0,
            peepholes: numbers_at(packed.peepholes.as_deref(), "peepholes"),
            w_scale: numbers_at(packed.w_scale.as_deref(), "w_scale"),
            r_scale: numbers_at(packed.r_scale.as_deref(), "r_scale"),
            input: input as i32,
            hidden: hidden as i32,
        };
        let ended = 0;
        Self {
            cell,
            precision,
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
    pub(crate) fn run(&self, library: &KernelLibrary, seed: u64) -> Vec<Report> {
        self.run_some(library, &self.rows, seed)
    }

    /// Runs a step of some rows, whose operands are not dense, as one batch.
    pub(crate) fn run_some(&self, library: &KernelLibrary, rows: &[Row], seed: u64) -> Vec<Report> {
        self.run_after(library, rows, &[], seed)
    }

    /// The same for steps whose kernels begin with the sums of products of x at these addresses.
    pub(crate) fn run_after(
        &self,
        library: &KernelLibrary,
        rows: &[Row],
        sums: &[u64],
        seed: u64,
    ) -> Vec<Report> {
        let (batch, rows_max) = self.gpu.batch_of(rows, &self.ports, self.ended, seed);
        let mut reports = Vec::new();
        for (at, (of, &[w, r, b])) in self.packed.launches.iter().zip(&self.weights).enumerate() {
            let of_sums = |projection: Projection| {
                sums.get(at).map(|&at| Operand::dense(at, projection.row_bytes()))
            };
            let projected = of.projection.and_then(of_sums).unwrap_or(Operand::NOWHERE);
            let arguments = StepArguments { batch, projected, w, r, b, ..self.arguments };
            let grid = of.grid(rows_max);
            let kernel = (library, of.kernel);
            reports.extend(self.gpu.launch_tiles(kernel, grid, &arguments, seed));
        }
        reports
    }

    /// Multiplies x of some rows, whose operands are not dense, for so many steps. Returns where the sums of each kernel of a step are.
    pub(crate) fn project(
        &self,
        library: &KernelLibrary,
        rows: &[Row],
        steps: usize,
        seed: u64,
    ) -> (Vec<u64>, Vec<Report>) {
        let batch = self.gpu.batch(rows, &self.ports, self.ended);
        let (mut all, mut reports) = (Vec::new(), Vec::new());
        for (of, &[w, _, b]) in self.packed.launches.iter().zip(&self.weights) {
            let Some(projection) = of.projection else {
                all.push(0);
                continue;
            };
            let sums = self.gpu.room(steps * rows.len() * projection.row_bytes(), "sums");
            let StepArguments { x, lookup, input, .. } = self.arguments;
            let arguments = ProjectionArguments {
                batch,
                x,
                lookup,
                w,
                b,
                sums,
                input,
                columns: projection.columns as i32,
                steps: steps as i32,
                gates: projection.gates as i32,
                sums_of_unit: projection.sums_of_unit as i32,
                padding: 0,
            };
            let grid = projection.grid(rows.len(), steps);
            let kernel = (library, projection.kernel);
            reports.extend(self.gpu.launch_tiles(kernel, grid, &arguments, seed));
            all.push(sums);
        }
        (all, reports)
    }

    /// x of a row at the node that it is at so many steps later; padding has that of the last node.
    pub(crate) fn x(&self, row: usize, steps: usize) -> &[f32] {
        let last = self.rows[row].length as usize - 1;
        x_at(&self.x[row], self.cell.input_size, last.min(node_of(&self.rows[row]) + steps))
    }

    /// Whether states are not right.
    pub(crate) fn is_wrong(&self) -> bool {
        let is_reset_before =
            matches!(self.cell.kind, RecurrentKind::Gru { linear_before_reset: false });
        let tolerance = match self.precision {
            Precision::Bf16 if is_reset_before => TOLERANCE_OF_RESET_BEFORE,
            _ => TOLERANCE,
        };
        self.error() > tolerance
    }

    /// Elements of the states of a row.
    pub(crate) fn row_len(&self) -> usize {
        self.cell.kind.states() * self.cell.hidden_size
    }

    fn is_in_slots(&self) -> bool {
        matches!(self.places, Places::Slots | Places::Ids)
    }

    /// The states of a row before its step.
    pub(crate) fn before(&self, row: usize) -> Vec<f32> {
        let first = half_of(&self.rows[row], false) * self.row_len();
        match self.places {
            Places::NoStates => vec![0.0; self.row_len()],
            _ => self.states[first..][..self.row_len()].to_vec(),
        }
    }

    /// The states of a row after its step: h, then c.
    pub(crate) fn after(&self, row: usize) -> Vec<Vec<f32>> {
        let (at, number) = match self.is_in_slots() {
            true => (self.states_at, half_of(&self.rows[row], true)),
            false => (self.after_at, row),
        };
        let states = self.gpu.read(at + (4 * number * self.row_len()) as u64, self.row_len());
        states.chunks(self.cell.hidden_size).map(<[f32]>::to_vec).collect()
    }

    /// The largest difference of the rows' states from the equations; infinite if a state that is not theirs has changed.
    pub(crate) fn error(&self) -> f64 {
        let mut right = self.states.clone();
        let mut most = 0.0f64;
        for (number, row) in self.rows.iter().enumerate() {
            let before = self.before(number);
            let before: Vec<_> = before.chunks(self.cell.hidden_size).map(wide).collect();
            let next =
                reference::step(self.precision, self.cell, &wide(self.x(number, 0)), &before);
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

/// A step of each kind in each precision is right at all shapes, over seeds and places.
pub(crate) fn check_steps(library: &KernelLibrary, kinds: fn(usize) -> Vec<RecurrentKind>) {
    for [rows, input, hidden] in SHAPES {
        for (cell, precision) in cells(kinds(hidden), [input, hidden]) {
            for (seed, places) in (0..SEEDS).zip(PLACES.into_iter().cycle()) {
                let chains = Chains::new((&cell, precision), places, rows);
                let kernel = chains.packed.launches.last().unwrap().kernel;
                let of = format!("{kernel}, {places:?}, {rows} rows, seed {seed}");
                let reports = chains.run(library, seed);
                assert!(reports.is_empty(), "{of}: {}", reports[0]);
                assert!(!chains.is_wrong(), "{of}: {}", chains.error());
                assert!(!chains.embedding.has_failed(&chains.gpu), "{of}");
            }
        }
    }
}

/// A row alone has the bits of a row in a batch.
pub(crate) fn check_alone(library: &KernelLibrary, kinds: fn(usize) -> Vec<RecurrentKind>) {
    let [rows, input, hidden] = SHAPES[1];
    for (cell, precision) in cells(kinds(hidden), [input, hidden]) {
        let chains = || Chains::new((&cell, precision), Places::Slots, rows);
        let (together, alone) = (chains(), chains());
        assert!(together.run(library, 0).is_empty());
        for row in [0, 1, rows - 1] {
            let reports = alone.run_some(library, &[alone.rows[row]], 0);
            assert!(reports.is_empty(), "{}", reports[0]);
            assert_eq!(bits(&alone.after(row)), bits(&together.after(row)), "row {row}");
        }
    }
}

/// Whether a step of some kind shows a bug.
pub(crate) fn shows(
    library: &KernelLibrary,
    kinds: fn(usize) -> Vec<RecurrentKind>,
    found: Found,
) -> bool {
    let seeds = SHAPES.into_iter().flat_map(|of| (0..5).map(move |seed| (of, seed)));
    seeds.into_iter().any(|([rows, input, hidden], seed)| {
        cells(kinds(hidden), [input, hidden]).into_iter().any(|(cell, precision)| {
            PLACES.into_iter().any(|places| {
                let chains = Chains::new((&cell, precision), places, rows);
                let reports = chains.run(library, seed);
                found.is_by(&reports, || chains.is_wrong())
            })
        })
    })
}
