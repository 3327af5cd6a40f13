//! The cells of the suite.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellBody, CompositeCell, ElementType, LinearArgMax, Lookup, LstmBytes, Operation,
    OperationBody, PortAxes, Precision, RecurrentCell, RecurrentKind, RnnActivation, RowSpec,
    SequenceCell, TreeCell,
};

use crate::conformance::numbers::Numbers;
use crate::conformance::programs::{SuiteProgram, WIDTH};

/// The number of ids of an embedding.
pub(super) const IDS: u32 = 11;

/// The numbers of elements of an input and of a state: not whole vectors, and too few for two threads.
const SMALL: (usize, usize) = (5, 19);

/// The same with work for several threads, and more units than two vectors hold.
const WIDE: (usize, usize) = (33, 70);

/// A cell whose nodes form chains.
#[derive(Clone, Copy)]
pub(super) struct ChainCell {
    pub(super) name: &'static str,
    make: fn() -> Cell,
    pub(super) has_programs: bool,
}

impl ChainCell {
    pub(super) fn cell(&self) -> Cell {
        (self.make)()
    }

    /// Each recurrent operator and form of it, alone in its cell.
    pub(super) fn recurrent() -> Vec<Self> {
        fn lstm() -> RecurrentKind {
            RecurrentKind::Lstm { p: None, bytes: None }
        }
        fn peephole_lstm() -> RecurrentKind {
            let (_, hidden) = SMALL;
            RecurrentKind::Lstm { p: Some(Numbers::new(5).weights(3 * hidden, 0.5)), bytes: None }
        }
        fn gru(linear_before_reset: bool) -> RecurrentKind {
            RecurrentKind::Gru { linear_before_reset }
        }
        fn rnn(activation: RnnActivation) -> RecurrentKind {
            RecurrentKind::Rnn { activation }
        }
        vec![
            of("lstm", || Cell::recurrent(recurrent(lstm(), SMALL))),
            of("lstm with peepholes", || Cell::recurrent(recurrent(peephole_lstm(), SMALL))),
            of("lstm without biases", || {
                Cell::recurrent(RecurrentCell { b: None, ..recurrent(lstm(), SMALL) })
            }),
            of("lstm over an embedding", || Cell::recurrent(embedded(recurrent(lstm(), SMALL)))),
            of("lstm, wide", || Cell::recurrent(recurrent(lstm(), WIDE))),
            of("gru, reset before", || Cell::recurrent(recurrent(gru(false), SMALL))),
            of("gru, reset before, wide", || Cell::recurrent(recurrent(gru(false), WIDE))),
            of("gru, reset after", || Cell::recurrent(recurrent(gru(true), SMALL))),
            of("gru, reset after, over an embedding", || {
                Cell::recurrent(embedded(recurrent(gru(true), WIDE)))
            }),
            of("rnn, tanh", || Cell::recurrent(recurrent(rnn(RnnActivation::Tanh), SMALL))),
            of("rnn, relu", || Cell::recurrent(recurrent(rnn(RnnActivation::Relu), SMALL))),
        ]
    }

    /// LSTMs whose R, or R and W, are bytes.
    pub(super) fn of_bytes() -> Vec<Self> {
        /// A matrix with rows of this length that are bytes times the scales.
        fn rounded(matrix: &[f32], len: usize, scales: &[f32]) -> Arc<[f32]> {
            let byte = |value: f32, scale: f32| (value / scale).round().clamp(-128.0, 127.0);
            let rows = matrix.chunks(len).zip(scales);
            rows.flat_map(|(row, &scale)| row.iter().map(move |&w| byte(w, scale) * scale))
                .collect()
        }
        fn lstm(sizes: (usize, usize), has_w: bool) -> Cell {
            let plain = recurrent(RecurrentKind::Lstm { p: None, bytes: None }, sizes);
            let scale = |row: usize| 0.002 + 0.0001 * (row % 7) as f32;
            let scales: Arc<[f32]> = (0..4 * sizes.1).map(scale).collect();
            let r = rounded(&plain.r, sizes.1, &scales);
            let w = if has_w { rounded(&plain.w, sizes.0, &scales) } else { plain.w };
            let bytes = LstmBytes { w_scale: has_w.then(|| scales.clone()), r_scale: scales };
            let kind = RecurrentKind::Lstm { p: None, bytes: Some(bytes) };
            Cell::recurrent(RecurrentCell { kind, w, r, ..plain })
        }
        vec![
            of("lstm of bytes", || lstm(SMALL, false)),
            of("lstm of bytes, wide", || lstm(WIDE, false)),
            of("lstm of bytes, W too", || lstm(SMALL, true)),
            of("lstm of bytes, W too, wide", || lstm(WIDE, true)),
        ]
    }

    /// Cells of several operators.
    pub(super) fn composite() -> Vec<Self> {
        let with_programs = |cell: Self| Self { has_programs: true, ..cell };
        vec![
            of("two operators", two_operators),
            of("decoder", decoder),
            with_programs(of("program and gru", program_and_gru)),
            with_programs(of("counter", counter)),
        ]
    }

    /// All these cells.
    pub(super) fn all() -> Vec<Self> {
        [Self::recurrent(), Self::composite()].concat()
    }

    /// A few cells that differ in the layout of their states.
    pub(super) fn few() -> Vec<Self> {
        let names = ["lstm", "gru, reset after", "two operators", "counter"];
        Self::all().into_iter().filter(|cell| names.contains(&cell.name)).collect()
    }
}

fn of(name: &'static str, make: fn() -> Cell) -> ChainCell {
    ChainCell { name, make, has_programs: false }
}

/// A recurrent operator. The weights are of a size at which states neither vanish nor saturate.
pub(super) fn recurrent(kind: RecurrentKind, (input, hidden): (usize, usize)) -> RecurrentCell {
    let mut numbers = Numbers::new((31 * kind.gates() + hidden) as u32);
    let gates = kind.gates();
    // ReLU has no bound: its sums must not grow from step to step.
    let r_scale = if gates == 1 { 1.5 / hidden as f32 } else { 1.3 / (hidden as f32).sqrt() };
    RecurrentCell {
        kind,
        input_size: input,
        hidden_size: hidden,
        w: numbers.weights(gates * hidden * input, 1.2 / (input as f32).sqrt()),
        r: numbers.weights(gates * hidden * hidden, r_scale),
        b: Some(numbers.weights(2 * gates * hidden, 0.5)),
        lookup: None,
    }
}

/// The same operator over an embedding.
pub(super) fn embedded(cell: RecurrentCell) -> RecurrentCell {
    let width = cell.input_size;
    let table = Numbers::new(90).weights(IDS as usize * width, 1.0);
    RecurrentCell { lookup: Some(Lookup { table, width }), ..cell }
}

fn floats(elements: usize) -> RowSpec {
    RowSpec::new(ElementType::F32, [elements])
}

pub(super) fn id() -> RowSpec {
    RowSpec::new(ElementType::I64, [])
}

fn composite(
    inputs: Vec<RowSpec>,
    states: Vec<RowSpec>,
    more_registers: Vec<RowSpec>,
    operations: Vec<Operation>,
    outputs: Vec<usize>,
) -> Cell {
    let registers = [inputs.clone(), states.clone(), more_registers].concat();
    let output_rows = outputs.iter().map(|&register| registers[register].clone()).collect();
    Cell {
        body: CellBody::Composite(CompositeCell { registers, operations, outputs }),
        precision: Precision::F32,
        inputs,
        states,
        outputs: output_rows,
    }
}

fn operation(body: OperationBody, reads: &[Option<usize>], writes: &[usize]) -> Operation {
    Operation { body, reads: reads.to_vec(), writes: writes.to_vec() }
}

/// An LSTM with a GRU on top. Input: x. States: h and c of the LSTM, h of the GRU.
fn two_operators() -> Cell {
    let (input, hidden) = SMALL;
    let lstm = recurrent(RecurrentKind::Lstm { p: None, bytes: None }, SMALL);
    let gru = recurrent(RecurrentKind::Gru { linear_before_reset: false }, (hidden, hidden));
    let operations = vec![
        operation(OperationBody::Step(lstm), &[Some(0), Some(1), Some(2)], &[4, 5]),
        operation(OperationBody::Step(gru), &[Some(4), Some(3)], &[6]),
    ];
    let states = vec![floats(hidden); 3];
    composite(vec![floats(input)], states.clone(), states, operations, vec![4, 5, 6])
}

/// A greedy decoder: an LSTM over the embedding of the token before, and the token whose sum is the
/// greatest. States, and outputs: token, h, c.
pub(super) fn decoder() -> Cell {
    let (_, hidden) = SMALL;
    let lstm = embedded(recurrent(RecurrentKind::Lstm { p: None, bytes: None }, SMALL));
    let operations = vec![
        operation(OperationBody::Step(lstm), &[Some(0), Some(1), Some(2)], &[3, 4]),
        operation(OperationBody::LinearArgMax(linear(hidden, IDS as usize)), &[Some(3)], &[5]),
    ];
    let states = vec![id(), floats(hidden), floats(hidden)];
    let more = vec![floats(hidden), floats(hidden), id()];
    composite(Vec::new(), states, more, operations, vec![5, 3, 4])
}

/// Twice the input and h, which a GRU takes for its input. State: h.
fn program_and_gru() -> Cell {
    let gru = recurrent(RecurrentKind::Gru { linear_before_reset: true }, (WIDTH, WIDTH));
    let operations = vec![
        operation(
            OperationBody::Program(SuiteProgram::Affine.program()),
            &[Some(0), Some(1)],
            &[2],
        ),
        operation(OperationBody::Step(gru), &[Some(2), Some(1)], &[3]),
    ];
    let row = || vec![floats(WIDTH)];
    composite(row(), row(), [row(), row()].concat(), operations, vec![3])
}

/// Adds its input to its state, both one integer.
pub(super) fn counter() -> Cell {
    let add = OperationBody::Program(SuiteProgram::Add.program());
    let operations = vec![operation(add, &[Some(0), Some(1)], &[2])];
    composite(vec![id()], vec![id()], vec![id()], operations, vec![2])
}

/// A linear layer for an arg-max.
fn linear(input_size: usize, output_size: usize) -> LinearArgMax {
    let mut numbers = Numbers::new(40);
    LinearArgMax {
        input_size,
        output_size,
        w: numbers.weights(output_size * input_size, 1.0),
        b: Some(numbers.weights(output_size, 0.2)),
    }
}

/// A row-wise composite cell: an LSTM step from states of zeros, twice its h and x by a program, and
/// the arg-max of a linear layer over that. Outputs: the index, and c.
pub(super) fn row_wise_composite() -> Cell {
    let lstm = recurrent(RecurrentKind::Lstm { p: None, bytes: None }, (WIDTH, WIDTH));
    let operations = vec![
        operation(OperationBody::Step(lstm), &[Some(0), None, None], &[1, 2]),
        operation(
            OperationBody::Program(SuiteProgram::Affine.program()),
            &[Some(1), Some(0)],
            &[3],
        ),
        operation(OperationBody::LinearArgMax(linear(WIDTH, 30)), &[Some(3)], &[4]),
    ];
    let more = vec![floats(WIDTH), floats(WIDTH), floats(WIDTH), id()];
    composite(vec![floats(WIDTH)], Vec::new(), more, operations, vec![4, 2])
}

/// A linear layer with an arg-max alone.
pub(super) fn arg_max(linear: LinearArgMax) -> Cell {
    let inputs = vec![floats(linear.input_size)];
    let operations = vec![operation(OperationBody::LinearArgMax(linear), &[Some(0)], &[1])];
    composite(inputs, Vec::new(), vec![id()], operations, vec![1])
}

/// A linear layer of random weights.
pub(super) fn random_linear() -> LinearArgMax {
    linear(40, 700)
}

/// A linear layer of which several sums are exactly equal: row `i` of the weights is row `i % 7`.
pub(super) fn linear_with_equal_sums() -> LinearArgMax {
    let (input_size, output_size) = (5, 90);
    let rows = Numbers::new(41).floats(7 * input_size, 1.0);
    let row = |row: usize| rows[row % 7 * input_size..][..input_size].to_vec();
    let w: Vec<f32> = (0..output_size).flat_map(row).collect();
    LinearArgMax { input_size, output_size, w: w.into(), b: None }
}

/// The number of ids that [`choice`] can compute: more than an embedding of the suite has rows.
pub(super) const CHOICES: usize = 2 * IDS as usize;

/// The index of the greatest of [`CHOICES`] elements.
pub(super) fn choice() -> Cell {
    let mut w = vec![0.0; CHOICES * CHOICES];
    w.iter_mut().step_by(CHOICES + 1).for_each(|diagonal| *diagonal = 1.0);
    arg_max(LinearArgMax { input_size: CHOICES, output_size: CHOICES, w: w.into(), b: None })
}

/// A row-wise composite cell: a step of a GRU over an embedding, from a state of zeros.
pub(super) fn step_over_embedding() -> Cell {
    let (_, hidden) = SMALL;
    let gru = embedded(recurrent(RecurrentKind::Gru { linear_before_reset: true }, SMALL));
    let operations = vec![operation(OperationBody::Step(gru), &[Some(0), None], &[1])];
    composite(vec![id()], Vec::new(), vec![floats(hidden)], operations, vec![1])
}

/// A leaf and an inner node of a TreeLSTM.
pub(super) fn tree(is_over_embedding: bool, (input, hidden): (usize, usize)) -> [Cell; 2] {
    let mut numbers = Numbers::new(60);
    let table = numbers.weights(IDS as usize * input, 1.0);
    let scale = 1.3 / (hidden as f32).sqrt();
    let leaf = TreeCell::Leaf {
        input_size: input,
        hidden_size: hidden,
        w: numbers.weights(3 * hidden * input, 0.6),
        b: Some(numbers.weights(3 * hidden, 0.5)),
        lookup: is_over_embedding.then_some(Lookup { table, width: input }),
    };
    let inner = TreeCell::Inner {
        hidden_size: hidden,
        l: numbers.weights(5 * hidden * hidden, scale),
        r: numbers.weights(5 * hidden * hidden, scale),
        b: Some(numbers.weights(5 * hidden, 0.5)),
    };
    [Cell::tree(leaf), Cell::tree(inner)]
}

/// The sizes of trees: input and hidden.
pub(super) const TREE_SIZES: [(usize, usize); 2] = [SMALL, WIDE];

/// A row-wise program.
pub(super) fn program(program: SuiteProgram) -> Cell {
    let int = |element| RowSpec::new(element, []);
    let (inputs, outputs) = match program {
        SuiteProgram::Affine => (vec![floats(WIDTH); 2], vec![floats(WIDTH)]),
        SuiteProgram::Add => (vec![id(); 2], vec![id()]),
        SuiteProgram::Less => (vec![int(ElementType::I32); 2], vec![int(ElementType::Bool)]),
        SuiteProgram::Sums => unreachable!("over sequences"),
    };
    let body = CellBody::Program(program.program());
    Cell { body, precision: Precision::F32, inputs, states: Vec::new(), outputs }
}

/// The program over whole sequences. Outputs: the sum up to each step, the sum of all.
pub(super) fn sums() -> Cell {
    let axes = |steps| PortAxes { batch: true, steps };
    let whole = SequenceCell {
        program: SuiteProgram::Sums.program(),
        inputs: vec![axes(true)],
        outputs: vec![axes(true), axes(false)],
    };
    Cell {
        body: CellBody::Sequence(whole),
        precision: Precision::F32,
        inputs: vec![floats(WIDTH)],
        states: Vec::new(),
        outputs: vec![floats(WIDTH); 2],
    }
}
