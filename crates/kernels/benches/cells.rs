//! Every kernel in one thread, beside the machine's limits in the same run.
//!
//! `cargo bench -p batchmaker-kernels` measures all, `-- lstm` what has that in its name. An item
//! is a floating-point operation of the products, so the column of items is FLOP/s, to compare with
//! `limits/multiply_adds`; bytes are the weights that are read, to compare with `limits/read`.
//! Input sizes equal hidden sizes.

use batchmaker_kernels::{
    ArgMax, ArgMaxRow, GruParameters, Isa, LinearParameters, LinearRow, LstmParameters, PackedGru,
    PackedLinear, PackedLstm, PackedRnn, PackedTreeInner, PackedTreeLeaf, ProjectionRow,
    Recurrence, Reset, RnnActivation, RnnParameters, StepRow, TreeChild, TreeInnerParameters,
    TreeInnerRow, TreeLeafParameters, TreeLeafRow, XPart, copy_embeddings, peaks,
};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

fn main() {
    divan::main();
}

const HIDDEN: [usize; 4] = [64, 256, 512, 1024];
const BATCH: [usize; 4] = [1, 4, 16, 64];

/// `(hidden, batch)`
fn sizes() -> impl Iterator<Item = (usize, usize)> {
    HIDDEN.into_iter().flat_map(|hidden| BATCH.into_iter().map(move |batch| (hidden, batch)))
}

/// Numbers in `-1..1`, the same each time.
fn numbers(len: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Weights of a layer with a number of inputs.
fn weights(len: usize, inputs: usize) -> Vec<f32> {
    let scale = 1.0 / (inputs as f32).sqrt();
    numbers(len).into_iter().map(|weight| weight * scale).collect()
}

#[divan::bench_group]
mod limits {
    use super::{Bencher, BytesCount, Isa, ItemsCount, numbers, peaks};

    /// Multiply-adds in registers.
    #[divan::bench]
    fn multiply_adds(bencher: Bencher<'_, '_>) {
        const TURNS: usize = 10_000;
        let operations = peaks::multiply_adds(Isa::best(), TURNS).expect("the best is there");
        bencher
            .counter(ItemsCount::new(operations))
            .bench(|| peaks::multiply_adds(Isa::best(), TURNS));
    }

    /// A sweep over a number of KiB.
    #[divan::bench(args = [16, 256, 8 << 10, 128 << 10])]
    fn read(bencher: Bencher<'_, '_>, kib: usize) {
        let memory = numbers(kib << 8);
        bencher
            .counter(BytesCount::of_slice(&memory))
            .bench(|| peaks::read_sweep(Isa::best(), &memory));
    }
}

/// A batch of a recurrent cell.
struct Batch {
    cell: Box<dyn Recurrence>,
    rows: [Vec<StepRow>; 2],
    to_project: Vec<ProjectionRow>,
    _memory: Vec<Vec<f32>>,
}

impl Batch {
    fn new(cell: Box<dyn Recurrence>, batch: usize) -> Self {
        let (hidden, input) = (cell.hidden_size(), cell.input_size());
        let lens = [input, hidden, hidden, cell.c_len(), cell.projected_len()];
        let mut memory: Vec<Vec<f32>> =
            lens.iter().map(|len| numbers(batch * len.max(&1))).collect();
        let [x, h_in, h_out, c, projected] = [0, 1, 2, 3, 4].map(|part| memory[part].as_mut_ptr());
        let row = |row: usize, x: *const f32, x_len: usize, x_part: XPart| StepRow {
            x: x.wrapping_add(row * x_len),
            x_part,
            h_in: h_in.wrapping_add(row * hidden),
            h_out: h_out.wrapping_add(row * hidden),
            c: c.wrapping_add(row * cell.c_len()),
            y: std::ptr::null_mut(),
        };
        let rows = [
            (0..batch).map(|at| row(at, x, input, XPart::Given)).collect(),
            (0..batch)
                .map(|at| row(at, projected, cell.projected_len(), XPart::Projected))
                .collect(),
        ];
        let to_project = (0..batch).map(|row| ProjectionRow {
            x: x.wrapping_add(row * input),
            projected: projected.wrapping_add(row * cell.projected_len()),
        });
        let to_project = to_project.collect();
        Self { rows, to_project, cell, _memory: memory }
    }

    fn step(&self, x: XPart) {
        let rows = &self.rows[usize::from(x == XPart::Projected)];
        for phase in 0..self.cell.phases() {
            // SAFETY: the rows lie in the batch's own memory, of the cell's lengths; there is one
            // thread.
            unsafe { self.cell.step(phase, rows, 0..self.cell.panels(phase)) };
        }
    }

    fn project(&self) {
        // SAFETY: as in `step`.
        unsafe { self.cell.project(&self.to_project, 0..self.cell.projection_panels()) };
    }

    /// Steps with inputs given, with inputs projected, or projections alone.
    fn bench(self, bencher: Bencher<'_, '_>, part: Part) {
        let (step, projection) = (self.cell.step_macs(), self.cell.projection_macs());
        let macs = match part {
            Part::Given => step + projection,
            Part::Projected => step,
            Part::Projection => projection,
        };
        let operations = 2 * macs * self.to_project.len();
        bencher
            .counter(ItemsCount::new(operations))
            .counter(BytesCount::new(macs * size_of::<f32>()))
            .bench_local(|| match part {
                Part::Given => self.step(XPart::Given),
                Part::Projected => self.step(XPart::Projected),
                Part::Projection => self.project(),
            });
    }
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Given,
    Projected,
    Projection,
}

fn lstm(hidden: usize) -> Box<dyn Recurrence> {
    let w = weights(4 * hidden * hidden, hidden);
    let b = numbers(8 * hidden);
    let parameters = LstmParameters {
        input_size: hidden,
        hidden_size: hidden,
        w: &w,
        r: &w,
        b: Some(&b),
        p: None,
        bytes: None,
    };
    Box::new(PackedLstm::new(Isa::best(), parameters).expect("consistent sizes"))
}

fn gru(hidden: usize, reset: Reset) -> Box<dyn Recurrence> {
    let w = weights(3 * hidden * hidden, hidden);
    let b = numbers(6 * hidden);
    let parameters =
        GruParameters { input_size: hidden, hidden_size: hidden, w: &w, r: &w, b: Some(&b), reset };
    Box::new(PackedGru::new(Isa::best(), parameters).expect("consistent sizes"))
}

#[divan::bench(args = sizes())]
fn lstm_step(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    Batch::new(lstm(hidden), batch).bench(bencher, Part::Given);
}

#[divan::bench(args = sizes())]
fn lstm_step_projected(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    Batch::new(lstm(hidden), batch).bench(bencher, Part::Projected);
}

#[divan::bench(args = sizes())]
fn lstm_projection(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    Batch::new(lstm(hidden), batch).bench(bencher, Part::Projection);
}

#[divan::bench(args = sizes())]
fn gru_step_reset_after(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    Batch::new(gru(hidden, Reset::AfterProduct), batch).bench(bencher, Part::Given);
}

#[divan::bench(args = sizes())]
fn gru_step_reset_before(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    Batch::new(gru(hidden, Reset::BeforeProduct), batch).bench(bencher, Part::Given);
}

#[divan::bench(args = sizes())]
fn rnn_step(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    let w = weights(hidden * hidden, hidden);
    let parameters = RnnParameters {
        input_size: hidden,
        hidden_size: hidden,
        w: &w,
        r: &w,
        b: None,
        activation: RnnActivation::Tanh,
    };
    let rnn = PackedRnn::new(Isa::best(), parameters).expect("consistent sizes");
    Batch::new(Box::new(rnn), batch).bench(bencher, Part::Given);
}

#[divan::bench(args = sizes())]
fn tree_lstm_leaf(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    let w = weights(3 * hidden * hidden, hidden);
    let parameters = TreeLeafParameters { input_size: hidden, hidden_size: hidden, w: &w, b: None };
    let leaf = PackedTreeLeaf::new(Isa::best(), parameters).expect("consistent sizes");
    let mut memory = [(); 3].map(|()| numbers(batch * hidden));
    let [x, h, c] = memory.each_mut().map(|part| part.as_mut_ptr());
    let rows: Vec<_> = (0..batch)
        .map(|row| row * hidden)
        .map(|at| TreeLeafRow {
            x: x.wrapping_add(at),
            h: h.wrapping_add(at),
            c: c.wrapping_add(at),
        })
        .collect();
    bencher
        .counter(ItemsCount::new(2 * 3 * hidden * hidden * batch))
        .counter(BytesCount::of_slice(&w))
        // SAFETY: the rows lie in `memory`, of the cell's lengths; there is one thread.
        .bench_local(|| unsafe { leaf.step(&rows, 0..leaf.panels()) });
}

#[divan::bench(args = sizes())]
fn tree_lstm_inner(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    let w = weights(5 * hidden * hidden, hidden);
    let parameters = TreeInnerParameters { hidden_size: hidden, l: &w, r: &w, b: None };
    let inner = PackedTreeInner::new(Isa::best(), parameters).expect("consistent sizes");
    let mut memory = [(); 6].map(|()| numbers(batch * hidden));
    let [h_l, c_l, h_r, c_r, h, c] = memory.each_mut().map(|part| part.as_mut_ptr());
    let rows: Vec<_> = (0..batch)
        .map(|row| row * hidden)
        .map(|at| {
            let child = |h: *mut f32, c: *mut f32| TreeChild {
                h: h.wrapping_add(at),
                h_part: XPart::Given,
                c: c.wrapping_add(at),
            };
            let (l, r) = (child(h_l, c_l), child(h_r, c_r));
            TreeInnerRow { l, r, h: h.wrapping_add(at), c: c.wrapping_add(at) }
        })
        .collect();
    bencher
        .counter(ItemsCount::new(2 * 5 * hidden * 2 * hidden * batch))
        .counter(BytesCount::new(2 * size_of_val(&w[..])))
        // SAFETY: the rows lie in `memory`, of the cell's lengths; there is one thread.
        .bench_local(|| unsafe { inner.step(&rows, 0..inner.panels()) });
}

/// A projection to a vocabulary of 10,000, and the same with arg-max.
const VOCABULARY: usize = 10_000;

fn linear(hidden: usize) -> PackedLinear {
    let w = weights(VOCABULARY * hidden, hidden);
    let parameters =
        LinearParameters { input_size: hidden, output_size: VOCABULARY, w: &w, b: None };
    PackedLinear::new(Isa::best(), parameters).expect("consistent sizes")
}

#[divan::bench(args = sizes())]
fn output_projection(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    let linear = linear(hidden);
    let (x, mut y) = (numbers(batch * hidden), numbers(batch * VOCABULARY));
    let (from, to) = (x.as_ptr(), y.as_mut_ptr());
    let rows: Vec<_> = (0..batch)
        .map(|row| LinearRow {
            x: from.wrapping_add(row * hidden),
            y: to.wrapping_add(row * VOCABULARY),
        })
        .collect();
    bencher
        .counter(ItemsCount::new(2 * VOCABULARY * hidden * batch))
        .counter(BytesCount::new(VOCABULARY * hidden * size_of::<f32>()))
        // SAFETY: the rows lie in `x` and `y`, of the layer's lengths; there is one thread.
        .bench_local(|| unsafe { linear.multiply(&rows, 0..linear.panels()) });
}

#[divan::bench(args = sizes())]
fn output_projection_argmax(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    let linear = linear(hidden);
    let (x, mut best) = (numbers(batch * hidden), vec![ArgMax::NONE; batch]);
    let (from, to) = (x.as_ptr(), best.as_mut_ptr());
    let rows: Vec<_> = (0..batch)
        .map(|row| ArgMaxRow { x: from.wrapping_add(row * hidden), best: to.wrapping_add(row) })
        .collect();
    bencher
        .counter(ItemsCount::new(2 * VOCABULARY * hidden * batch))
        .counter(BytesCount::new(VOCABULARY * hidden * size_of::<f32>()))
        // SAFETY: the rows lie in `x` and `best`; there is one thread.
        .bench_local(|| unsafe { linear.argmax(&rows, 0..linear.panels()) });
}

#[divan::bench(args = sizes())]
fn embedding_rows(bencher: Bencher<'_, '_>, (hidden, batch): (usize, usize)) {
    let table = numbers(1000 * hidden);
    let ids: Vec<i64> = (0..batch as i64).map(|row| row * 37 % 1000).collect();
    let mut out = vec![0.0; batch * hidden];
    bencher
        .counter(BytesCount::of_slice(&out))
        .bench_local(|| copy_embeddings(&table, hidden, &ids, &mut out));
}
