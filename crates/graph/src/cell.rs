//! Cells and their identity.

use std::fmt;
use std::sync::Arc;

use crate::{ElementType, Precision};

/// One row of a cell's input, state or output: a batch of `n` is `[n, ...shape]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowSpec {
    /// The element type.
    pub element: ElementType,
    /// The axes within a row; empty for one element a row.
    pub shape: Vec<usize>,
}

impl RowSpec {
    /// A row of `shape`.
    pub fn new(element: ElementType, shape: impl Into<Vec<usize>>) -> Self {
        Self { element: element.stored(), shape: shape.into() }
    }

    /// The one form of a row of so many elements that stands between cells: flat; a single integer
    /// has no axis.
    pub fn flat(element: ElementType, elements: usize) -> Self {
        match (element.stored(), elements) {
            (ElementType::F32, _) | (_, 2..) => Self::new(element, [elements]),
            _ => Self::new(element, []),
        }
    }

    /// The number of elements in a row; the greatest number where there are more.
    pub fn elements(&self) -> usize {
        self.shape.iter().copied().fold(1, usize::saturating_mul)
    }

    /// The number of bytes of a row; none if it is too large for this machine, or of byte strings.
    pub fn bytes(&self) -> Option<usize> {
        let elements = self.shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis))?;
        match self.element {
            ElementType::Bytes => None,
            element => elements.checked_mul(element.bytes()),
        }
    }
}

/// A cell: a function of rows with its weights inside (section 3.1 of the
/// BatchMaker paper). No row of its batch depends on another.
///
/// A body in operations has the input ports, then the states for inputs.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The computation of a row.
    pub body: CellBody,
    /// The precision of the weights that it multiplies with.
    pub precision: Precision,
    /// The input ports.
    pub inputs: Vec<RowSpec>,
    /// The states that a chain carries from step to step; empty for a row-wise cell.
    pub states: Vec<RowSpec>,
    /// The output ports. A cell with states has an output of each state's new
    /// value, in the order of the states.
    pub outputs: Vec<RowSpec>,
}

/// The computation of a cell.
#[derive(Clone, Debug)]
pub enum CellBody {
    /// A step of a recurrent operator, run by a fused kernel.
    Recurrent(RecurrentCell),
    /// A cell of a binary TreeLSTM, run by a fused kernel.
    Tree(TreeCell),
    /// Anything else: an opaque serialised program.
    Program(Program),
    /// Programs and steps of recurrent operators, one after the other.
    Composite(CompositeCell),
    /// A program that takes all steps of a sequence at once.
    Sequence(SequenceCell),
}

impl CellBody {
    /// Whether a general executor runs a part of it.
    pub fn has_program(&self) -> bool {
        match self {
            Self::Recurrent(_) | Self::Tree(_) => false,
            Self::Program(_) | Self::Composite(_) | Self::Sequence(_) => true,
        }
    }
}

/// A program over whole sequences: a convolution over time, a pooling, an attention over steps. A node
/// is one sequence; a port that takes steps has a span of rows ([`crate::Rows::span`]), as many as the
/// request brings.
#[derive(Clone, Debug)]
pub struct SequenceCell {
    /// Its inputs and outputs are `[sequences, steps, ...row]`, each with the axes that its port has.
    pub program: Program,
    /// The axes of each input port.
    pub inputs: Vec<PortAxes>,
    /// The axes of each output port.
    pub outputs: Vec<PortAxes>,
}

/// The axes of a port of a [`SequenceCell`] beside those of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAxes {
    /// Sequences do not depend on each other, and run together where their shapes are equal.
    pub batch: bool,
    /// All steps.
    pub steps: bool,
}

/// Programs and recurrent operators of one step, one after the other. What stands between operations
/// are *registers*, a row of each for each row of the batch.
#[derive(Clone, Debug)]
pub struct CompositeCell {
    /// A row of each register. The first hold the cell's inputs, then its states.
    pub registers: Vec<RowSpec>,
    /// In the order in which they run.
    pub operations: Vec<Operation>,
    /// The register of each output port.
    pub outputs: Vec<usize>,
}

/// An operation of a [`CompositeCell`].
#[derive(Clone, Debug)]
pub struct Operation {
    /// The computation of a row.
    pub body: OperationBody,
    /// The registers that it reads: of a program, one for each input; of a step, x, then each
    /// state, which is zero where there is none.
    pub reads: Vec<Option<usize>>,
    /// The registers that it writes: of a program, one for each output; of a step, each state.
    pub writes: Vec<usize>,
}

/// The computation of an [`Operation`].
#[derive(Clone, Debug)]
pub enum OperationBody {
    /// See [`Program`].
    Program(Program),
    /// A step of a recurrent operator, run by a fused kernel.
    Step(RecurrentCell),
    /// See [`LinearArgMax`].
    LinearArgMax(LinearArgMax),
}

/// The first index of the greatest of the sums `W x + b`, which are never written down (the ONNX
/// operators `MatMul` or `Gemm`, then `ArgMax` over them): what a greedy decoder says. Reads x,
/// `[input_size]`; writes one INT64.
#[derive(Clone)]
pub struct LinearArgMax {
    /// Elements of x.
    pub input_size: usize,
    /// Sums.
    pub output_size: usize,
    /// `[output_size, input_size]`.
    pub w: Arc<[f32]>,
    /// `[output_size]`; none is zero.
    pub b: Option<Arc<[f32]>>,
}

impl LinearArgMax {
    /// Bytes of weights, as they came.
    pub fn weight_bytes(&self) -> usize {
        4 * (self.w.len() + self.b.as_ref().map_or(0, |b| b.len()))
    }
}

impl fmt::Debug for LinearArgMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input_size, output_size, .. } = self;
        write!(f, "LinearArgMax({input_size} to {output_size})")
    }
}

/// One step of the ONNX operators `LSTM`, `GRU` and `RNN` (opset 7 and later), forward, with their
/// default activations but for [`RecurrentKind::Rnn`], without clip. Input port: x. States and
/// outputs: h, of an LSTM also c, each `[hidden_size]`.
#[derive(Clone)]
pub struct RecurrentCell {
    /// Which operator.
    pub kind: RecurrentKind,
    /// Elements of x.
    pub input_size: usize,
    /// Elements of each state.
    pub hidden_size: usize,
    /// `[gates * hidden_size, input_size]`, gates in the operator's order.
    pub w: Arc<[f32]>,
    /// `[gates * hidden_size, hidden_size]`.
    pub r: Arc<[f32]>,
    /// `[2 * gates * hidden_size]`: of W, then of R; none is zero.
    pub b: Option<Arc<[f32]>>,
    /// A table that turns the input port into one id, if x is an embedding.
    pub lookup: Option<Lookup>,
}

/// The recurrent operator that a cell is a step of, with the attributes that change its equations.
#[derive(Clone, Debug)]
pub enum RecurrentKind {
    /// Gates i, o, f, c.
    Lstm {
        /// Peepholes of i, o, f, `[3 * hidden_size]`; none is zero.
        p: Option<Arc<[f32]>>,
        /// Given if the weights are bytes; the step is that of ONNX Runtime's `DynamicQuantizeLSTM`.
        bytes: Option<LstmBytes>,
    },
    /// Gates z, r, h.
    Gru {
        /// Whether the reset gate acts on the product of h with its weights, not on h itself.
        linear_before_reset: bool,
    },
    /// One gate.
    Rnn {
        /// The function that is applied to its sum.
        activation: RnnActivation,
    },
}

/// The scales of an LSTM whose weights are bytes: row i of a matrix is whole numbers from -255 to 255, at most 255 apart, times
/// element i of its scales. Such matrices are not rounded, whichever [precision](crate::Precision) the cell has.
#[derive(Clone, Debug)]
pub struct LstmBytes {
    /// Scales of R, `[4 * hidden_size]`. h is rounded, row by row, as `DynamicQuantizeLinear` rounds a tensor, before it is
    /// multiplied with R.
    pub r_scale: Arc<[f32]>,
    /// Scales of W, `[4 * hidden_size]`, if W is bytes too, all but its last column, which counts as 0. The last element of x is
    /// then what 1 stands for in the others; these are rounded to whole numbers from -255 to 255 that are at most 255 apart.
    pub w_scale: Option<Arc<[f32]>>,
}

impl LstmBytes {
    /// The scales of R, and those of W if it has them.
    pub fn scales(&self) -> impl Iterator<Item = &[f32]> {
        std::iter::once(&*self.r_scale).chain(self.w_scale.as_deref())
    }
}

/// The activation of a simple recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnnActivation {
    /// The hyperbolic tangent.
    Tanh,
    /// The positive part.
    Relu,
}

impl RecurrentCell {
    fn weight_bytes(&self) -> usize {
        let table = self.lookup.as_ref().map_or(0, |lookup| lookup.table.len());
        let bias = self.b.as_ref().map_or(0, |b| b.len());
        let peepholes = match &self.kind {
            RecurrentKind::Lstm { p, bytes } => {
                let scales = bytes.iter().flat_map(LstmBytes::scales);
                p.as_deref().into_iter().chain(scales).map(<[f32]>::len).sum()
            }
            RecurrentKind::Gru { .. } | RecurrentKind::Rnn { .. } => 0,
        };
        4 * (self.w.len() + self.r.len() + bias + peepholes + table)
    }
}

impl RecurrentKind {
    /// Gates of a unit.
    pub fn gates(&self) -> usize {
        match self {
            Self::Lstm { .. } => 4,
            Self::Gru { .. } => 3,
            Self::Rnn { .. } => 1,
        }
    }

    /// States that a step passes on to the next.
    pub fn states(&self) -> usize {
        match self {
            Self::Lstm { .. } => 2,
            Self::Gru { .. } | Self::Rnn { .. } => 1,
        }
    }
}

/// A cell of a binary TreeLSTM (Tai, Socher and Manning, 2015, the N-ary form with N = 2; a leaf has
/// no children and no forget gates). Outputs: h and c, each `[hidden_size]`.
///
/// ```text
/// leaf:    i = sigmoid(W_i x + b_i)    o likewise    u = tanh(W_u x + b_u)    c = i u
/// inner:   i = sigmoid(L_i h_l + R_i h_r + b_i)      o, f_l, f_r likewise
///          u = tanh(L_u h_l + R_u h_r + b_u)
///          c = i u + f_l c_l + f_r c_r
/// both:    h = o tanh(c)
/// ```
#[derive(Clone)]
pub enum TreeCell {
    /// A leaf, which has an input. Input port: x.
    Leaf {
        /// Elements of x.
        input_size: usize,
        /// Elements of h and c.
        hidden_size: usize,
        /// `[3 * hidden_size, input_size]`, gates i, o, u.
        w: Arc<[f32]>,
        /// `[3 * hidden_size]`; none is zero.
        b: Option<Arc<[f32]>>,
        /// A table that turns the input port into one id, if x is an embedding.
        lookup: Option<Lookup>,
    },
    /// An inner node, which has two children. Input ports: h and c of the left one, h and c of the right one.
    Inner {
        /// Elements of h and c.
        hidden_size: usize,
        /// Weights of the left child's h, `[5 * hidden_size, hidden_size]`, gates i, o, f_l, f_r, u.
        l: Arc<[f32]>,
        /// Weights of the right child's h, likewise.
        r: Arc<[f32]>,
        /// `[5 * hidden_size]`; none is zero.
        b: Option<Arc<[f32]>>,
    },
}

/// An embedding has no row of this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("id {id} looks up a table of {rows} rows")]
pub struct UnknownId {
    /// The id.
    pub id: i64,
    /// The number of rows of the table.
    pub rows: usize,
}

/// An embedding table fused into its consumer: the consumer's input port is one I64
/// id, and row `id` of the table is what it computes on.
#[derive(Clone)]
pub struct Lookup {
    /// `[rows, width]`.
    pub table: Arc<[f32]>,
    /// Elements of a row.
    pub width: usize,
}

impl Lookup {
    /// The number of ids, which run from 0.
    pub fn rows(&self) -> usize {
        self.table.len() / self.width.max(1)
    }

    /// The row of `id`, `[width]`.
    ///
    /// # Errors
    /// If the table has no such row. The ids that a request brings are checked when it is admitted; those that
    /// cells compute are known only when they are looked up.
    pub fn row(&self, id: i64) -> Result<&[f32], UnknownId> {
        let rows = self.rows();
        match usize::try_from(id) {
            Ok(row) if row < rows => Ok(&self.table[row * self.width..][..self.width]),
            _ => Err(UnknownId { id, rows }),
        }
    }
}

impl fmt::Debug for RecurrentCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecurrentCell")
            .field("kind", &self.kind)
            .field("input_size", &self.input_size)
            .field("hidden_size", &self.hidden_size)
            .field("lookup", &self.lookup)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TreeCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf { input_size, hidden_size, lookup, .. } => f
                .debug_struct("TreeLeaf")
                .field("input_size", input_size)
                .field("hidden_size", hidden_size)
                .field("lookup", lookup)
                .finish_non_exhaustive(),
            Self::Inner { hidden_size, .. } => f
                .debug_struct("TreeInner")
                .field("hidden_size", hidden_size)
                .finish_non_exhaustive(),
        }
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lookup[{}, {}]", self.rows(), self.width)
    }
}

/// A cell as an opaque program. Who serialised it and who parses it agree on
/// its format; nobody between them looks inside. Equal programs are equal bytes.
#[derive(Clone)]
pub struct Program {
    /// The program.
    pub bytes: Arc<[u8]>,
    /// A line for people: its operators.
    pub summary: String,
    /// Whether it multiplies with constant matrices, which may be kept in another precision.
    pub has_products: bool,
}

/// The key under which the metadata of a program's ONNX file names the outputs, with spaces between them, of products whose
/// factors are bytes: `MatMul` and `Conv` of FLOAT that hold whole numbers from -255 to 255; those of each sum are at most 255
/// apart, and from 0. The second factor is constant.
pub const BYTE_PRODUCTS: &str = "byte_products";

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({})", self.summary)
    }
}

/// The identity of a cell: cells of one identity are one type. A hash of body, attributes, weights, shapes, types and precision
/// (section 4.2 of the BatchMaker paper). Names play no part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CellIdentity([u8; 32]);

impl fmt::Display for CellIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CellIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CellIdentity({self})")
    }
}

impl Cell {
    /// A step of a recurrent operator with its ports.
    pub fn recurrent(cell: RecurrentCell) -> Self {
        let x = match &cell.lookup {
            Some(_) => RowSpec::new(ElementType::I64, []),
            None => RowSpec::new(ElementType::F32, [cell.input_size]),
        };
        let states = vec![RowSpec::new(ElementType::F32, [cell.hidden_size]); cell.kind.states()];
        let body = CellBody::Recurrent(cell);
        let precision = Precision::F32;
        Self { body, precision, inputs: vec![x], outputs: states.clone(), states }
    }

    /// A cell of a binary TreeLSTM with its ports.
    pub fn tree(cell: TreeCell) -> Self {
        let row = |size: usize| RowSpec::new(ElementType::F32, [size]);
        let (inputs, hidden_size) = match &cell {
            TreeCell::Leaf { hidden_size, lookup: Some(_), .. } => {
                (vec![RowSpec::new(ElementType::I64, [])], *hidden_size)
            }
            TreeCell::Leaf { input_size, hidden_size, .. } => {
                (vec![row(*input_size)], *hidden_size)
            }
            TreeCell::Inner { hidden_size, .. } => (vec![row(*hidden_size); 4], *hidden_size),
        };
        let outputs = vec![row(hidden_size); 2];
        let (body, precision) = (CellBody::Tree(cell), Precision::F32);
        Self { body, precision, inputs, states: Vec::new(), outputs }
    }

    /// Whether a fused kernel computes it, or a part of it.
    pub fn is_fused(&self) -> bool {
        let is_fused = |operation: &Operation| !matches!(operation.body, OperationBody::Program(_));
        match &self.body {
            CellBody::Recurrent(_) | CellBody::Tree(_) => true,
            CellBody::Composite(cell) => cell.operations.iter().any(is_fused),
            CellBody::Program(_) | CellBody::Sequence(_) => false,
        }
    }

    /// Whether it multiplies with weights: others have no precision to choose.
    pub fn has_precisions(&self) -> bool {
        let has_products = |operation: &Operation| matches!(&operation.body, OperationBody::Program(program) if program.has_products);
        let in_program = match &self.body {
            CellBody::Recurrent(_) | CellBody::Tree(_) => false,
            CellBody::Composite(cell) => cell.operations.iter().any(has_products),
            CellBody::Program(program) => program.has_products,
            CellBody::Sequence(sequence) => sequence.program.has_products,
        };
        in_program || self.is_fused()
    }

    /// The cell in another precision, where it has one to choose.
    #[must_use]
    pub fn in_precision(mut self, precision: Precision) -> Self {
        if self.has_precisions() {
            self.precision = precision;
        }
        self
    }

    /// See [`CellIdentity`].
    pub fn identity(&self) -> CellIdentity {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        match &self.body {
            CellBody::Recurrent(cell) => hash_recurrent(cell, &mut part),
            CellBody::Composite(cell) => {
                part(b"staged");
                for Operation { body, reads, writes } in &cell.operations {
                    match body {
                        OperationBody::Program(program) => part(&program.bytes),
                        OperationBody::Step(step) => hash_recurrent(step, &mut part),
                        OperationBody::LinearArgMax(LinearArgMax { w, b, .. }) => {
                            part(b"linear argmax");
                            floats(&mut part, w);
                            floats(&mut part, b.as_deref().unwrap_or_default());
                        }
                    }
                    part(format!("{reads:?} {writes:?}").as_bytes());
                }
                part(format!("{:?} {:?}", cell.registers, cell.outputs).as_bytes());
            }
            CellBody::Tree(TreeCell::Leaf { w, b, lookup, .. }) => {
                part(b"tree leaf");
                floats(&mut part, w);
                floats(&mut part, b.as_deref().unwrap_or_default());
                floats(&mut part, lookup.as_ref().map_or(&[], |lookup| &lookup.table));
            }
            CellBody::Tree(TreeCell::Inner { l, r, b, .. }) => {
                part(b"tree inner");
                floats(&mut part, l);
                floats(&mut part, r);
                floats(&mut part, b.as_deref().unwrap_or_default());
            }
            CellBody::Program(program) => {
                part(b"program");
                part(&program.bytes);
            }
            CellBody::Sequence(SequenceCell { program, inputs, outputs }) => {
                part(b"whole");
                part(&program.bytes);
                part(format!("{inputs:?} {outputs:?}").as_bytes());
            }
        }
        part(format!("{:?} {:?} {:?}", self.inputs, self.states, self.outputs).as_bytes());
        if self.precision != Precision::F32 {
            part(self.precision.to_string().as_bytes());
        }
        CellIdentity(*hasher.finalize().as_bytes())
    }

    /// Bytes of the states of a chain.
    pub fn state_bytes(&self) -> usize {
        self.states.iter().map(|state| state.elements() * state.element.bytes()).sum()
    }

    /// Bytes of weights, as they came.
    pub fn weight_bytes(&self) -> usize {
        match &self.body {
            CellBody::Recurrent(cell) => cell.weight_bytes(),
            CellBody::Composite(cell) => {
                let bytes = |operation: &Operation| match &operation.body {
                    OperationBody::Program(program) => program.bytes.len(),
                    OperationBody::Step(step) => step.weight_bytes(),
                    OperationBody::LinearArgMax(linear) => linear.weight_bytes(),
                };
                cell.operations.iter().map(bytes).sum()
            }
            CellBody::Tree(TreeCell::Leaf { w, b, lookup, .. }) => {
                let table = lookup.as_ref().map_or(0, |lookup| lookup.table.len());
                4 * (w.len() + b.as_ref().map_or(0, |b| b.len()) + table)
            }
            CellBody::Tree(TreeCell::Inner { l, r, b, .. }) => {
                4 * (l.len() + r.len() + b.as_ref().map_or(0, |b| b.len()))
            }
            CellBody::Program(program) => program.bytes.len(),
            CellBody::Sequence(whole) => whole.program.bytes.len(),
        }
    }
}

fn floats(part: &mut dyn FnMut(&[u8]), values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    part(&bytes);
}

fn hash_recurrent(cell: &RecurrentCell, part: &mut dyn FnMut(&[u8])) {
    match &cell.kind {
        RecurrentKind::Lstm { p, bytes } => {
            part(b"lstm");
            floats(part, p.as_deref().unwrap_or_default());
            for scales in bytes.iter().flat_map(LstmBytes::scales) {
                floats(part, scales);
            }
        }
        kind => part(format!("{kind:?}").as_bytes()),
    }
    floats(part, &cell.w);
    floats(part, &cell.r);
    floats(part, cell.b.as_deref().unwrap_or_default());
    if let Some(lookup) = &cell.lookup {
        floats(part, &lookup.table);
    }
}
