//! One face for all kernels, so that a property of all of them is one test.

use std::ops::Range;
use std::ptr;

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::random::{Random, bits};
use crate::packing::target::Target;
use crate::{
    ArgMax, ArgMaxRow, LinearRow, PackedLinear, PackedTreeInner, PackedTreeLeaf, ProjectionRow,
    Recurrence, StepRow, TreeChild, TreeInnerRow, TreeLeafRow, XPart,
};

/// The arrays of one row, every one an allocation of its exact size, so that Miri sees an access
/// beyond it.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) inputs: Vec<Box<[f32]>>,
    /// NaN where nothing has been written. An empty one that need not be given is not.
    pub(super) outputs: Vec<Box<[f32]>>,
}

impl Memory {
    pub(super) fn row(&mut self) -> Row {
        Row {
            inputs: self.inputs.iter().map(|input| input.as_ptr()).collect(),
            outputs: self.outputs.iter_mut().map(|output| or_null(output)).collect(),
        }
    }

    pub(super) fn output_bits(&self) -> Vec<Vec<u32>> {
        self.outputs.iter().map(|output| bits(output)).collect()
    }
}

fn or_null(output: &mut [f32]) -> *mut f32 {
    if output.is_empty() { ptr::null_mut() } else { output.as_mut_ptr() }
}

/// The addresses of the arrays of one row.
pub(super) struct Row {
    pub(super) inputs: Vec<*const f32>,
    pub(super) outputs: Vec<*mut f32>,
}

// SAFETY: addresses, as the kernels' own rows, to be used under the contract of `Kernel::run`.
unsafe impl Sync for Row {}

/// A packed kernel.
pub(super) trait Kernel: Sync {
    /// A row's arrays with random inputs and states.
    fn memory(&self, random: &mut Random) -> Memory;

    fn phases(&self) -> usize {
        1
    }

    fn panels(&self, phase: usize) -> usize;

    /// Whether a panel of a phase writes this element of this output.
    fn writes(&self, phase: usize, panel: usize, output: usize, element: usize) -> bool;

    /// Runs the given panels of a phase.
    ///
    /// # Safety
    /// Rows have arrays of the lengths that [`Self::memory`] gives, which are alive. The elements that the panels
    /// write are accessed by nobody else until this returns, and nobody writes what the rows read. All panels of
    /// the phases before have run.
    unsafe fn run(&self, phase: usize, rows: &[Row], panels: Range<usize>);
}

/// Runs all panels and rows at once.
pub(super) fn run_whole(kernel: &dyn Kernel, memories: &mut [Memory]) {
    let rows: Vec<Row> = memories.iter_mut().map(Memory::row).collect();
    for phase in 0..kernel.phases() {
        // SAFETY: each row has memory of its own, of the kernel's sizes.
        unsafe { kernel.run(phase, &rows, 0..kernel.panels(phase)) };
    }
}

/// Runs rows in any order, panels and rows in pieces.
pub(super) fn run_in_pieces(kernel: &dyn Kernel, memories: &mut [Memory], random: &mut Random) {
    let mut rows: Vec<Row> = memories.iter_mut().map(Memory::row).collect();
    random.shuffle(&mut rows);
    for phase in 0..kernel.phases() {
        for panels in random.pieces(kernel.panels(phase)) {
            for part in random.pieces(rows.len()) {
                // SAFETY: each row has memory of its own, of the kernel's sizes; the phases come one after the
                // other.
                unsafe { kernel.run(phase, &rows[part], panels.clone()) };
            }
        }
    }
}

/// The weights of a kernel, before they are packed for a vector unit.
#[derive(Debug, Clone)]
pub(super) enum Layer {
    /// A step whose x is given.
    Step(Cell),
    /// A step whose x is projected: any numbers.
    ProjectedStep(Cell),
    Projection(Cell),
    Leaf(Leaf),
    Inner(Inner),
    Linear(Linear),
    /// Its output is the bits of an [`ArgMax`].
    ArgMax(Linear),
}

impl Layer {
    /// One of each, and of each kind of cell.
    pub(super) fn random_all(random: &mut Random, input_size: usize, units: usize) -> Vec<Self> {
        let mut all = Vec::new();
        for kind in Kind::ALL {
            let cell = Cell::random(random, kind, input_size, units);
            let step = Self::Step(cell.clone());
            all.extend([step, Self::ProjectedStep(cell.clone()), Self::Projection(cell)]);
        }
        let linear = Linear::random(random, input_size, units);
        all.extend([
            Self::Leaf(Leaf::random(random, input_size, units)),
            Self::Inner(Inner::random(random, units)),
            Self::Linear(linear.clone()),
            Self::ArgMax(linear),
        ]);
        all
    }

    /// For messages: what it is, without the weights.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Step(cell) => {
                format!("{:?} [{}, {}]", cell.kind, cell.input_size, cell.hidden_size)
            }
            Self::ProjectedStep(cell) => {
                format!("projected {:?} [{}, {}]", cell.kind, cell.input_size, cell.hidden_size)
            }
            Self::Projection(cell) => {
                format!("projection {:?} [{}, {}]", cell.kind, cell.input_size, cell.hidden_size)
            }
            Self::Leaf(leaf) => format!("leaf [{}, {}]", leaf.input_size, leaf.hidden_size),
            Self::Inner(inner) => format!("inner [{}]", inner.hidden_size),
            Self::Linear(linear) => {
                format!("linear [{}, {}]", linear.input_size, linear.output_size)
            }
            Self::ArgMax(linear) => {
                format!("argmax [{}, {}]", linear.input_size, linear.output_size)
            }
        }
    }

    pub(super) fn pack(&self, target: impl Into<Target>) -> Box<dyn Kernel> {
        let target = target.into();
        let lanes = target.lanes();
        let step = |cell: &Cell, x| Step { cell: cell.pack(target), kind: cell.kind, lanes, x };
        match self {
            Self::Step(cell) => Box::new(step(cell, XPart::Given)),
            Self::ProjectedStep(cell) => Box::new(step(cell, XPart::Projected)),
            Self::Projection(cell) => Box::new(Projection { cell: cell.pack(target) }),
            Self::Leaf(leaf) => Box::new(PackedLeaf {
                leaf: leaf.pack(target),
                input_size: leaf.input_size,
                hidden_size: leaf.hidden_size,
                lanes,
            }),
            Self::Inner(inner) => Box::new(PackedInner {
                inner: inner.pack(target),
                hidden_size: inner.hidden_size,
                lanes,
            }),
            Self::Linear(linear) => Box::new(Multiply { linear: linear.pack(target), lanes }),
            Self::ArgMax(linear) => Box::new(FindMax { linear: linear.pack(target) }),
        }
    }
}

/// `panel` of `size` units each.
fn units(panel: usize, size: usize) -> Range<usize> {
    panel * size..(panel + 1) * size
}

fn unwritten(len: usize) -> Box<[f32]> {
    vec![f32::NAN; len].into()
}

/// Inputs `x`, `h_in`; outputs `h_out`, `c`, `y`, the last of which may be empty.
struct Step {
    cell: Box<dyn Recurrence>,
    kind: Kind,
    lanes: usize,
    x: XPart,
}

/// The places of the outputs of a step among its outputs.
pub(super) const STEP_C: usize = 1;
pub(super) const STEP_Y: usize = 2;

impl Kernel for Step {
    fn memory(&self, random: &mut Random) -> Memory {
        let hidden_size = self.cell.hidden_size();
        let x_len = match self.x {
            XPart::Given => self.cell.input_size(),
            XPart::Projected => self.cell.projected_len(),
        };
        let inputs = vec![random.vec(x_len, 2.0).into(), random.vec(hidden_size, 1.0).into()];
        let c = match self.kind.has_c() {
            true => random.vec(self.cell.c_len(), 2.0).into(),
            false => unwritten(self.cell.c_len()),
        };
        Memory { inputs, outputs: vec![unwritten(hidden_size), c, unwritten(hidden_size)] }
    }

    fn phases(&self) -> usize {
        self.cell.phases()
    }

    fn panels(&self, phase: usize) -> usize {
        self.cell.panels(phase)
    }

    fn writes(&self, phase: usize, panel: usize, output: usize, element: usize) -> bool {
        let units = units(panel, self.kind.groups(phase) * self.lanes);
        match (self.kind, phase, output == STEP_C) {
            // The first phase leaves z and r h, the second reads them.
            (Kind::GruResetBefore, 0, true) => units.contains(&(element % self.cell.hidden_size())),
            (Kind::GruResetBefore, 0, false) | (Kind::GruResetBefore, _, true) => false,
            _ => units.contains(&element),
        }
    }

    unsafe fn run(&self, phase: usize, rows: &[Row], panels: Range<usize>) {
        let row = |row: &Row| StepRow {
            x: row.inputs[0],
            x_part: self.x,
            h_in: row.inputs[1],
            h_out: row.outputs[0],
            c: row.outputs[STEP_C],
            y: row.outputs[STEP_Y],
        };
        let rows: Vec<StepRow> = rows.iter().map(row).collect();
        // SAFETY: the caller vouches for the rows' arrays and for the order of phases.
        unsafe { self.cell.step(phase, &rows, panels) }
    }
}

/// Input `x`, output `projected`.
struct Projection {
    cell: Box<dyn Recurrence>,
}

impl Kernel for Projection {
    fn memory(&self, random: &mut Random) -> Memory {
        Memory {
            inputs: vec![random.vec(self.cell.input_size(), 2.0).into()],
            outputs: vec![unwritten(self.cell.projected_len())],
        }
    }

    fn panels(&self, _: usize) -> usize {
        self.cell.projection_panels()
    }

    fn writes(&self, _: usize, panel: usize, _: usize, element: usize) -> bool {
        // All panels of a cell have the same number of vectors.
        units(panel, self.cell.projected_len() / self.cell.projection_panels()).contains(&element)
    }

    unsafe fn run(&self, _: usize, rows: &[Row], panels: Range<usize>) {
        let row = |row: &Row| ProjectionRow { x: row.inputs[0], projected: row.outputs[0] };
        let rows: Vec<ProjectionRow> = rows.iter().map(row).collect();
        // SAFETY: the caller vouches for the rows' arrays and for the order of phases.
        unsafe { self.cell.project(&rows, panels) }
    }
}

/// Input `x`; outputs `h`, `c`.
struct PackedLeaf {
    leaf: PackedTreeLeaf,
    input_size: usize,
    hidden_size: usize,
    lanes: usize,
}

impl Kernel for PackedLeaf {
    fn memory(&self, random: &mut Random) -> Memory {
        let output = || unwritten(self.hidden_size);
        Memory {
            inputs: vec![random.vec(self.input_size, 2.0).into()],
            outputs: vec![output(), output()],
        }
    }

    fn panels(&self, _: usize) -> usize {
        self.leaf.panels()
    }

    fn writes(&self, _: usize, panel: usize, _: usize, element: usize) -> bool {
        units(panel, self.lanes).contains(&element)
    }

    unsafe fn run(&self, _: usize, rows: &[Row], panels: Range<usize>) {
        let row =
            |row: &Row| TreeLeafRow { x: row.inputs[0], h: row.outputs[0], c: row.outputs[1] };
        let rows: Vec<TreeLeafRow> = rows.iter().map(row).collect();
        // SAFETY: the caller vouches for the rows' arrays and for the order of phases.
        unsafe { self.leaf.step(&rows, panels) }
    }
}

/// Inputs `h_l`, `c_l`, `h_r`, `c_r`; outputs `h`, `c`.
struct PackedInner {
    inner: PackedTreeInner,
    hidden_size: usize,
    lanes: usize,
}

impl Kernel for PackedInner {
    fn memory(&self, random: &mut Random) -> Memory {
        let output = || unwritten(self.hidden_size);
        let input = |scale| random.vec(self.hidden_size, scale).into();
        Memory { inputs: [1.0, 2.0, 1.0, 2.0].map(input).into(), outputs: vec![output(), output()] }
    }

    fn panels(&self, _: usize) -> usize {
        self.inner.panels()
    }

    fn writes(&self, _: usize, panel: usize, _: usize, element: usize) -> bool {
        units(panel, self.lanes).contains(&element)
    }

    unsafe fn run(&self, _: usize, rows: &[Row], panels: Range<usize>) {
        let child = |row: &Row, input| TreeChild {
            h: row.inputs[input],
            h_part: XPart::Given,
            c: row.inputs[input + 1],
        };
        let row = |row: &Row| TreeInnerRow {
            l: child(row, 0),
            r: child(row, 2),
            h: row.outputs[0],
            c: row.outputs[1],
        };
        let rows: Vec<TreeInnerRow> = rows.iter().map(row).collect();
        // SAFETY: the caller vouches for the rows' arrays and for the order of phases.
        unsafe { self.inner.step(&rows, panels) }
    }
}

/// Input `x`, output `y`.
struct Multiply {
    linear: PackedLinear,
    lanes: usize,
}

impl Kernel for Multiply {
    fn memory(&self, random: &mut Random) -> Memory {
        Memory {
            inputs: vec![random.vec(self.linear.input_size(), 2.0).into()],
            outputs: vec![unwritten(self.linear.output_size())],
        }
    }

    fn panels(&self, _: usize) -> usize {
        self.linear.panels()
    }

    fn writes(&self, _: usize, panel: usize, _: usize, element: usize) -> bool {
        let vectors = self.linear.output_size().div_ceil(self.lanes);
        units(panel, vectors.div_ceil(self.linear.panels()) * self.lanes).contains(&element)
    }

    unsafe fn run(&self, _: usize, rows: &[Row], panels: Range<usize>) {
        let row = |row: &Row| LinearRow { x: row.inputs[0], y: row.outputs[0] };
        let rows: Vec<LinearRow> = rows.iter().map(row).collect();
        // SAFETY: the caller vouches for the rows' arrays and for the order of phases.
        unsafe { self.linear.multiply(&rows, panels) }
    }
}

/// Input `x`; output the bits of the value and of the index.
struct FindMax {
    linear: PackedLinear,
}

impl Kernel for FindMax {
    fn memory(&self, random: &mut Random) -> Memory {
        let ArgMax { value, index } = ArgMax::NONE;
        Memory {
            inputs: vec![random.vec(self.linear.input_size(), 2.0).into()],
            outputs: vec![[value, f32::from_bits(index)].into()],
        }
    }

    fn panels(&self, _: usize) -> usize {
        self.linear.panels()
    }

    fn writes(&self, _: usize, _: usize, _: usize, _: usize) -> bool {
        true
    }

    unsafe fn run(&self, _: usize, rows: &[Row], panels: Range<usize>) {
        // An `ArgMax` is two fields of four bytes in this order (`repr(C)`).
        let row = |row: &Row| ArgMaxRow { x: row.inputs[0], best: row.outputs[0].cast() };
        let rows: Vec<ArgMaxRow> = rows.iter().map(row).collect();
        // SAFETY: the caller vouches for the rows' arrays and for the order of phases.
        unsafe { self.linear.argmax(&rows, panels) }
    }
}
