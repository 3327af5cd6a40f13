//! Nodes of trees.

use batchmaker_cuda::kernels::batch::{Batch, Lookup, Operand, Port, Row};
use batchmaker_cuda::kernels::tree::{PackedTree, TreeArguments};
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_device::reference;
use batchmaker_graph::{Precision, TreeCell};
use bytemuck::Zeroable;

use crate::harness::{
    Embedding, Found, Gpu, PRECISIONS, SEEDS, TOLERANCE, Value, bits, bugs, difference, input_node,
    known_id, library, numbers, rows, storage, weights, wide,
};

const FILE: &str = "tree_node.cu";

/// The kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Leaf,
    /// A leaf whose input is an id of an embedding.
    Word,
    Inner,
}

/// Where inputs lie: what a node computes is dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    Ports,
    Dense,
}

/// A kind of nodes, and where their inputs lie.
const CASES: [(Kind, Places); 6] = [
    (Kind::Leaf, Places::Ports),
    (Kind::Leaf, Places::Dense),
    (Kind::Word, Places::Ports),
    (Kind::Word, Places::Dense),
    (Kind::Inner, Places::Ports),
    (Kind::Inner, Places::Dense),
];

/// A cell; the test has the table of one whose input is a word.
fn cell(kind: Kind, input_size: usize, hidden_size: usize) -> TreeCell {
    let of_hidden = |seed| weights(5 * hidden_size * hidden_size, seed, hidden_size);
    match kind {
        Kind::Leaf | Kind::Word => TreeCell::Leaf {
            input_size,
            hidden_size,
            w: weights(3 * hidden_size * input_size, 1, input_size),
            b: Some(weights(3 * hidden_size, 2, 1)),
            lookup: None,
        },
        Kind::Inner => {
            let b = Some(weights(5 * hidden_size, 2, 1));
            TreeCell::Inner { hidden_size, l: of_hidden(3), r: of_hidden(4), b }
        }
    }
}

/// A batch of nodes.
struct Nodes {
    cell: TreeCell,
    precision: Precision,
    packed: PackedTree,
    gpu: Gpu,
    rows: Vec<Row>,
    ports: Vec<Port>,
    /// The inputs of each row: x, or h and c of the left child, then of the right one.
    inputs: Vec<Vec<Vec<f32>>>,
    embedding: Embedding,
    /// h and c, dense.
    outputs: [u64; 2],
    /// The argument, but for its batch.
    arguments: TreeArguments,
}

impl Nodes {
    fn new(
        (kind, places): (Kind, Places),
        precision: Precision,
        [count, input, hidden]: [usize; 3],
    ) -> Self {
        let cell = cell(kind, input, hidden);
        let (gpu, packed) = (Gpu::new(), PackedTree::new(&cell, storage(precision)));
        let (inputs_of_row, width) = if kind == Kind::Inner { (4, hidden) } else { (1, input) };
        let embedding = Embedding::upload(&gpu, width);
        let rows = rows(count, inputs_of_row);
        let (mut inputs, mut ports, mut ids_of_rows) = (Vec::new(), Vec::new(), Vec::new());
        for (number, row) in rows.iter().enumerate() {
            let (node, length) = (input_node(row), row.length as usize);
            let mut of_row = Vec::new();
            for port in 0..inputs_of_row {
                let values = numbers(length * width, 20 + number * 4 + port);
                let ids: Vec<i64> = (0..length).map(|node| known_id(number, node)).collect();
                let (x, value) = match kind {
                    Kind::Word => {
                        let value = Value::upload(&gpu, number, length, &ids);
                        (embedding.row(ids[node]), value)
                    }
                    Kind::Leaf | Kind::Inner => {
                        let value = Value::upload(&gpu, number + port, length, &values);
                        (values[node * width..][..width].to_vec(), value)
                    }
                };
                of_row.push(x);
                ports.push(value.port(&gpu, 0));
                ids_of_rows.push(ids[node]);
            }
            inputs.push(of_row);
        }
        let operand = |port: usize| match places {
            _ if port >= inputs_of_row => Operand::NOWHERE,
            Places::Ports => Operand::port(port),
            Places::Dense if kind == Kind::Word => {
                Operand::dense(gpu.upload(&ids_of_rows, "ids"), 8)
            }
            Places::Dense => {
                let rows: Vec<f32> = inputs.iter().flat_map(|of| of[port].clone()).collect();
                Operand::dense(gpu.upload(&rows, "inputs"), 4 * width)
            }
        };
        let outputs = ["h", "c"].map(|name| gpu.room(4 * hidden * count, name));
        let arguments = TreeArguments {
            batch: Batch::zeroed(),
            first: operand(0),
            c_left: operand(1),
            right: operand(2),
            c_right: operand(3),
            h: Operand::dense(outputs[0], 4 * hidden),
            c: Operand::dense(outputs[1], 4 * hidden),
            lookup: if kind == Kind::Word { embedding.argument() } else { Lookup::NONE },
            w: gpu.upload(&packed.w, "w"),
            // A leaf has none.
            r: gpu.upload(&packed.r, "r"),
            b: gpu.upload(&packed.b, "b"),
            input: input as i32,
            hidden: hidden as i32,
        };
        Self { cell, precision, packed, gpu, rows, ports, inputs, embedding, outputs, arguments }
    }

    /// Runs all rows.
    fn run(&self, library: &KernelLibrary, seed: u64) -> Vec<Report> {
        self.run_some(library, &self.rows, seed)
    }

    /// Runs some rows, whose inputs are not dense, as one batch.
    fn run_some(&self, library: &KernelLibrary, rows: &[Row], seed: u64) -> Vec<Report> {
        let batch = self.gpu.batch(rows, &self.ports, 0);
        let arguments = TreeArguments { batch, ..self.arguments };
        let grid = self.packed.grid(rows.len());
        self.gpu.launch_tiles((library, self.packed.kernel), grid, &arguments, seed)
    }

    /// h and c of a row of the last batch.
    fn after(&self, row: usize) -> Vec<Vec<f32>> {
        let hidden = self.packed.hidden_size();
        let of_row = |at: u64| self.gpu.read(at + (4 * row * hidden) as u64, hidden);
        self.outputs.map(of_row).into()
    }

    /// The largest difference of the states of all rows from the equations.
    fn error(&self) -> f64 {
        let of_row = |(row, inputs): (usize, &Vec<Vec<f32>>)| {
            let inputs: Vec<_> = inputs.iter().map(|x| wide(x)).collect();
            let right = match &self.cell {
                TreeCell::Leaf { hidden_size, w, b, .. } => {
                    let b = b.as_deref();
                    reference::tree_leaf(self.precision, *hidden_size, w, b, &inputs[0])
                }
                TreeCell::Inner { l, r, b, .. } => {
                    let children = [0, 1, 2, 3].map(|port| inputs[port].as_slice());
                    reference::tree_inner(self.precision, [l, r], b.as_deref(), children)
                }
            };
            difference(&self.after(row), &right)
        };
        self.inputs.iter().enumerate().map(of_row).fold(0.0, f64::max)
    }
}

/// All cases in all precisions.
fn cases() -> impl Iterator<Item = ((Kind, Places), Precision)> {
    CASES.into_iter().flat_map(|case| PRECISIONS.map(|precision| (case, precision)))
}

/// Rows, elements of x, units.
const SHAPES: [[usize; 3]; 2] = [[5, 3, 6], [19, 70, 40]];

#[test]
fn nodes_of_trees_are_right() {
    let library = library("right", FILE, None);
    for shape in SHAPES {
        for (case, precision) in cases() {
            let nodes = Nodes::new(case, precision, shape);
            for seed in 0..SEEDS {
                let of = format!("{case:?}, {precision}, {shape:?}, seed {seed}");
                let reports = nodes.run(&library, seed);
                assert!(reports.is_empty(), "{of}: {}", reports[0]);
                let error = nodes.error();
                assert!(error <= TOLERANCE, "{of}: {error}");
                assert!(!nodes.embedding.has_failed(&nodes.gpu), "{of}");
            }
        }
    }
}

#[test]
fn a_row_alone_has_the_bits_of_a_row_in_a_batch() {
    let library = library("alone", FILE, None);
    for (case, precision) in cases().filter(|((_, places), _)| *places == Places::Ports) {
        let [together, alone] = [0; 2].map(|_| Nodes::new(case, precision, SHAPES[1]));
        assert!(together.run(&library, 0).is_empty());
        for row in [0, 1, together.rows.len() - 1] {
            let reports = alone.run_some(&library, &[alone.rows[row]], 0);
            assert!(reports.is_empty(), "{}", reports[0]);
            assert_eq!(bits(&alone.after(0)), bits(&together.after(row)), "{case:?}, row {row}");
        }
    }
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for (shape, seed) in SHAPES.into_iter().flat_map(|of| (0..5).map(move |seed| (of, seed))) {
        for (case, precision) in cases() {
            let nodes = Nodes::new(case, precision, shape);
            let reports = nodes.run(&library, seed);
            if found.is_by(&reports, || nodes.error() > TOLERANCE) {
                return;
            }
        }
    }
    panic!("{name} is not found");
}

bugs! {
    super::is_found;
    no_barrier_after_sources: "start += Product::CHUNK) {\n    __syncthreads();" => "start += Product::CHUNK) {", Found::By(Fault::DataRace);
    sources_of_some_rows: "  if (part.thread < ROWS) {\n" => "  if (part.thread < part.rows) {\n", Found::By(Fault::UninitialisedRead);
    words_of_rows_beyond: "part.thread < part.rows ? look_up(of.batch, of.first, of.lookup, part.first + part.thread) : nullptr" => "look_up(of.batch, of.first, of.lookup, part.first + part.thread)", Found::By(Fault::OutOfBounds);
    children_of_rows_beyond: "part.thread < part.rows ? (const float*)locate(batch, of, part.first + part.thread) : nullptr" => "(const float*)locate(batch, of, part.first + part.thread)", Found::By(Fault::OutOfBounds);
    leaves_beyond: "    if (row < 0) return;\n    write_node" => "    write_node", Found::By(Fault::OutOfBounds);
    nodes_beyond: "    if (row < 0) return;\n    const float c_left" => "    const float c_left", Found::By(Fault::OutOfBounds);
    units_of_leaves_beyond: "of.input, part, of.hidden);\n  if (part.unit >= of.hidden) return;\n" => "of.input, part, of.hidden);\n", Found::ByAnything;
    all_rows_write_the_first: "locate(of.batch, of.h, row))[unit]" => "locate(of.batch, of.h, 0))[unit]", Found::By(Fault::DataRace);
    a_child_twice: "of_right[part.thread] = source(of.batch, of.right, part);" => "of_right[part.thread] = source(of.batch, of.first, part);", Found::ByValues;
    cell_states_exchanged: "locate(of.batch, of.c_left, row)" => "locate(of.batch, of.c_right, row)", Found::ByValues;
    gates_exchanged: "fmaf(sigmoid(sums[at][2]), c_left, " => "fmaf(sigmoid(sums[at][3]), c_left, ", Found::ByValues;
    no_table: "if (!lookup.table) return" => "return", Found::ByAnything;
    width_of_another_table: "id * lookup.width" => "id * (lookup.width + 1)", Found::ByAnything;
}
