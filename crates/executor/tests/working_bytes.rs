//! The bytes that runs allocate are at most what the executor says, and at least half of that where they are many.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use batchmaker_executor::{
    BATCH_BYTES_MAX, ExecutorThreads, RowProgram, SequenceBatch, SequenceProgram,
};
use batchmaker_graph::ElementType::{Bool, F32, I64};
use batchmaker_graph::{PortAxes, RowSpec, TensorData};
use rten_onnx::onnx::{AttributeProto, AttributeType, GraphProto, ValueInfoProto};
use support::{ROWS, STEPS, Writer, bits, int, ints, node, part, values};

mod support;

/// The system's allocator, which counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes in use at their most while `run` runs, beside those in use before.
fn peak_of<T>(run: impl FnOnce() -> T) -> u64 {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let done = run();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    drop(done);
    peak as u64
}

/// From so many bytes on a bound must be at most twice what is measured.
const MANY: u64 = 4 << 20;

#[track_caller]
fn compare(name: &str, bound: u64, measured: u64) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let ratio = bound as f64 / measured as f64;
    println!("{name:56} {:10.2} MiB {:10.2} MiB {ratio:6.2}", mib(bound), mib(measured));
    assert!(bound >= measured, "{name}: {bound} bytes, measured {measured}");
    assert!(measured < MANY || bound <= 2 * measured, "{name}: {bound} bytes, measured {measured}");
}

/// A program over sequences, the spans of its ports for some lengths, and the lengths that it is run with.
struct Case {
    name: &'static str,
    writer: Writer,
    spans: fn(&[u32]) -> Vec<u32>,
    lengths: Vec<Vec<u32>>,
}

impl Case {
    fn program(&self) -> SequenceProgram {
        let (inputs, outputs) =
            (Writer::rows(&self.writer.inputs), Writer::rows(&self.writer.outputs));
        SequenceProgram::new(&self.writer.sequence_cell(), &inputs, &outputs)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn inputs(&self, spans: &[u32], count: usize) -> Vec<TensorData> {
        let ports = self.writer.inputs.iter().zip(spans).enumerate();
        let input = |(port, ((row, axes), &span)): (usize, (&(RowSpec, PortAxes), &u32))| {
            let count = if axes.batch { count } else { 1 };
            match row.element {
                I64 if !axes.batch => TensorData::I64(vec![i64::from(spans[spans.len() - 1])]),
                _ => values(row, count * span as usize, port as u32 + 7),
            }
        };
        ports.map(input).collect()
    }

    fn check(&self) {
        let program = self.program();
        for lengths in &self.lengths {
            let spans = (self.spans)(lengths);
            let bound = program.working_bytes(&spans);
            // The second run does not check the shapes again.
            for _ in 0..2 {
                let inputs = self.inputs(&spans, 1);
                let batch = SequenceBatch { spans: spans.clone(), nodes: vec![0] };
                let threads = ExecutorThreads::new();
                let measured = peak_of(|| {
                    let ran = program.run(&batch, inputs, &threads);
                    ran.unwrap_or_else(|error| panic!("{}: {error}", self.name))
                });
                compare(&format!("{} {lengths:?}", self.name), bound, measured);
            }
            self.check_batch(&program, &spans, lengths);
        }
    }

    /// Of many sequences, the largest batch that is formed.
    fn check_batch(&self, program: &SequenceProgram, spans: &[u32], lengths: &[u32]) {
        let batches = program.batches((0..50).map(|_| spans.to_vec()));
        let batch = batches.iter().max_by_key(|batch| batch.nodes.len()).unwrap();
        let inputs = self.inputs(spans, batch.nodes.len());
        let size = |data: &TensorData| (data.len() * data.element().bytes()) as u64;
        let input_bytes: u64 = inputs.iter().map(size).sum();
        let threads = ExecutorThreads::new();
        let measured = peak_of(|| program.run(batch, inputs, &threads).unwrap()) + input_bytes;
        let name = format!("{} {lengths:?}, {} together", self.name, batch.nodes.len());
        if batch.nodes.len() > 1 {
            assert!(measured <= BATCH_BYTES_MAX, "{name}: {measured}");
        }
    }
}

/// `[batch, steps, row]` with its row as `row`, by lengths that are read from the tensor `of`.
fn reshape_row(writer: &mut Writer, x: &str, of: &str, row: &[i64]) -> String {
    let shape = writer.op("Shape", &[of], vec![int("end", 2)]);
    let row = writer.ints(row);
    let shape = writer.op("Concat", &[&shape, &row], vec![int("axis", 0)]);
    writer.op("Reshape", &[x, &shape], vec![])
}

/// An attention of `heads` heads of steps of `x` to steps of `y`, both of `width` elements.
fn attend(writer: &mut Writer, x: &str, y: &str, width: usize, heads: usize) -> String {
    let size = width / heads;
    let head = |writer: &mut Writer, from: &str, perm: &[i64]| {
        let projected = writer.linear(from, width, width);
        let projected = reshape_row(writer, &projected, from, &[heads as i64, size as i64]);
        writer.op("Transpose", &[&projected], vec![ints("perm", perm)])
    };
    let q = head(writer, x, &[0, 2, 1, 3]);
    let k = head(writer, y, &[0, 2, 3, 1]);
    let v = head(writer, y, &[0, 2, 1, 3]);
    let scores = writer.op("MatMul", &[&q, &k], vec![]);
    let scale = writer.float(0.25);
    let scores = writer.op("Mul", &[&scores, &scale], vec![]);
    let weights = writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let mixed = writer.op("MatMul", &[&weights, &v], vec![]);
    let mixed = writer.op("Transpose", &[&mixed], vec![ints("perm", &[0, 2, 1, 3])]);
    let mixed = reshape_row(writer, &mixed, x, &[width as i64]);
    writer.linear(&mixed, width, width)
}

fn norm_in_parts(writer: &mut Writer, x: &str, width: usize) -> String {
    let axes = writer.ints(&[-1]);
    let mean = writer.op("ReduceMean", &[x, &axes], vec![]);
    let centred = writer.op("Sub", &[x, &mean], vec![]);
    let square = writer.op("Mul", &[&centred, &centred], vec![]);
    let mean = writer.op("ReduceMean", &[&square, &axes], vec![]);
    let epsilon = writer.float(1e-5);
    let mean = writer.op("Add", &[&mean, &epsilon], vec![]);
    let root = writer.op("Sqrt", &[&mean], vec![]);
    let unit = writer.op("Div", &[&centred, &root], vec![]);
    let scale = writer.weights(&[width]);
    writer.op("Mul", &[&unit, &scale], vec![])
}

/// Layers of a transformer.
fn transformer(layers: usize, width: usize, heads: usize) -> Writer {
    let mut writer = Writer::default();
    let mut x = writer.input(F32, STEPS, &[width]);
    for _ in 0..layers {
        let normed = norm_in_parts(&mut writer, &x, width);
        let y = attend(&mut writer, &normed, &normed, width, heads);
        x = writer.op("Add", &[&x, &y], vec![]);
        let y = norm_in_parts(&mut writer, &x, width);
        let y = writer.linear(&y, width, 4 * width);
        let y = writer.op("Gelu", &[&y], vec![]);
        let y = writer.linear(&y, 4 * width, width);
        x = writer.op("Add", &[&x, &y], vec![]);
    }
    writer.output(&x, F32, STEPS, &[width]);
    let at = writer.int(0);
    let first = writer.op("Gather", &[&x, &at], vec![int("axis", 1)]);
    let y = writer.linear(&first, width, 7);
    writer.output(&y, F32, ROWS, &[7]);
    writer
}

/// A convolution over steps, `[batch, from, steps]` to `[batch, to, windows]`.
fn convolve(
    writer: &mut Writer,
    x: &str,
    [from, to]: [usize; 2],
    kernel: usize,
    stride: i64,
) -> String {
    let w = writer.weights(&[to, from, kernel]);
    let attributes =
        vec![ints("strides", &[stride]), ints("dilations", &[1]), ints("pads", &[0, 0])];
    writer.op("Conv", &[x, &w], attributes)
}

fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        g: Some(graph),
        r#type: Some(AttributeType::GRAPH),
        ..AttributeProto::default()
    }
}

fn names(names: &[&str]) -> Vec<ValueInfoProto> {
    let info = |name: &&str| ValueInfoProto { name: Some((*name).to_owned()), r#type: None };
    names.iter().map(info).collect()
}

fn same(lengths: &[u32]) -> Vec<u32> {
    vec![lengths[0]; 2]
}

fn of_lengths(lengths: &[u32]) -> Vec<Vec<u32>> {
    lengths.iter().map(|&length| vec![length]).collect()
}

fn attention_cases(cases: &mut Vec<Case>) {
    let mut case = |name, writer, spans, lengths| cases.push(Case { name, writer, spans, lengths });
    let with_row: fn(&[u32]) -> Vec<u32> = |lengths| vec![lengths[0], lengths[0], 1];
    let lengths = of_lengths(&[1, 5, 100, 512, 1024, 2048, 4096]);
    case("transformer of one layer", transformer(1, 64, 4), with_row, lengths);
    let lengths = of_lengths(&[3, 200, 512, 1500]);
    case("transformer of four layers", transformer(4, 96, 3), with_row, lengths);

    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[32]);
    let y = writer.input(F32, STEPS, &[32]);
    let mixed = attend(&mut writer, &x, &y, 32, 4);
    writer.output(&mixed, F32, STEPS, &[32]);
    let lengths = vec![vec![10, 3000], vec![3000, 10], vec![2000, 700], vec![512, 512]];
    let spans = |lengths: &[u32]| vec![lengths[0], lengths[1], lengths[0]];
    case("attention of one sequence to another", writer, spans, lengths);

    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[16]);
    let mask = writer.input(F32, STEPS, &[]);
    let turned = writer.op("Transpose", &[&x], vec![ints("perm", &[0, 2, 1])]);
    let scores = writer.op("MatMul", &[&x, &turned], vec![]);
    let axes = writer.ints(&[1]);
    let mask = writer.op("Unsqueeze", &[&mask, &axes], vec![]);
    let scores = writer.op("Add", &[&scores, &mask], vec![]);
    let weights = writer.op("Softmax", &[&scores], vec![int("axis", 1)]);
    let mixed = writer.op("MatMul", &[&weights, &x], vec![]);
    writer.output(&mixed, F32, STEPS, &[16]);
    let spans = |lengths: &[u32]| vec![lengths[0]; 3];
    case("masked attention over columns", writer, spans, of_lengths(&[7, 600, 2500]));
}

fn other_cases(cases: &mut Vec<Case>) {
    let mut case = |name, writer, spans, lengths| cases.push(Case { name, writer, spans, lengths });
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[20]);
    let x = writer.op("Transpose", &[&x], vec![ints("perm", &[0, 2, 1])]);
    let y = convolve(&mut writer, &x, [20, 64], 3, 1);
    let y = writer.op("Relu", &[&y], vec![]);
    let y = convolve(&mut writer, &y, [64, 64], 5, 2);
    let y = writer.op("Relu", &[&y], vec![]);
    let y = convolve(&mut writer, &y, [64, 32], 7, 3);
    let y = writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1])]);
    writer.output(&y, F32, STEPS, &[32]);
    let spans = |lengths: &[u32]| vec![lengths[0], ((lengths[0] - 7) / 2 + 1 - 7) / 3 + 1];
    case("convolutions of strides", writer, spans, of_lengths(&[40, 1000, 20_000, 100_000]));

    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[64]);
    let axes = writer.ints(&[1]);
    let mean = writer.op("ReduceMean", &[&x, &axes], vec![]);
    let centred = writer.op("Sub", &[&x, &mean], vec![]);
    let most = writer.op("ReduceMax", &[&centred, &axes], vec![]);
    let y = writer.op("Concat", &[&x, &centred], vec![int("axis", 2)]);
    let w = writer.linear(&y, 128, 64);
    let y = writer.op("Mul", &[&w, &most], vec![]);
    writer.output(&y, F32, STEPS, &[64]);
    case("reductions and a concatenation", writer, same, of_lengths(&[5, 3000, 30_000]));

    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[48]);
    let (from, to, axis) = (writer.ints(&[0]), writer.ints(&[24]), writer.ints(&[2]));
    let left = writer.op("Slice", &[&x, &from, &to, &axis], vec![]);
    let end = writer.ints(&[48]);
    let right = writer.op("Slice", &[&x, &to, &end, &axis], vec![]);
    let y = writer.op("Tanh", &[&left], vec![]);
    let z = writer.op("Sigmoid", &[&right], vec![]);
    let y = writer.op("Mul", &[&y, &z], vec![]);
    let flat = writer.reshape(&y, &[-1]);
    let y = writer.op("Exp", &[&flat], vec![]);
    let y = reshape_row(&mut writer, &y, &x, &[24]);
    writer.output(&y, F32, STEPS, &[24]);
    case("gates of slices, flattened", writer, same, of_lengths(&[5, 5000, 50_000]));

    let mut writer = Writer::default();
    let ids = writer.input(I64, STEPS, &[]);
    let table = writer.weights(&[10, 100]);
    let y = writer.op("Gather", &[&table, &ids], vec![int("axis", 0)]);
    let y = writer.linear(&y, 100, 50);
    let found = writer.op("ArgMax", &[&y], vec![int("axis", -1), int("keepdims", 0)]);
    writer.output(&found, I64, STEPS, &[]);
    case("ids to ids", writer, same, of_lengths(&[5, 5000, 50_000]));

    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[40]);
    let y = writer.op("Relu", &[&x], vec![]);
    writer.output(&y, F32, STEPS, &[40]);
    case("in place", writer, same, of_lengths(&[5, 100_000]));

    // Pairs of steps, flattened: not a line, and not two axes.
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[]);
    let [rows, columns] = [[2], [1]].map(|axis| writer.ints(&axis));
    let down = writer.op("Unsqueeze", &[&x, &rows], vec![]);
    let across = writer.op("Unsqueeze", &[&x, &columns], vec![]);
    let pairs = writer.op("Sub", &[&down, &across], vec![]);
    let flat = writer.reshape(&pairs, &[-1]);
    let flat = writer.op("Abs", &[&flat], vec![]);
    let most = writer.op("ReduceMax", &[&flat], vec![int("keepdims", 0)]);
    let y = writer.op("Sub", &[&x, &most], vec![]);
    writer.output(&y, F32, STEPS, &[]);
    case("pairs of steps in one axis", writer, same, of_lengths(&[5, 1500, 3000]));
}

const WHOLE: PortAxes = PortAxes { batch: false, steps: true };
const NUMBER: PortAxes = PortAxes { batch: false, steps: false };

fn control_flow_cases(cases: &mut Vec<Case>) {
    let mut case = |name, writer, spans, lengths| cases.push(Case { name, writer, spans, lengths });
    // One branch compares all steps with each other; with zeros the other is taken.
    let mut writer = Writer::default();
    let x = writer.input(F32, WHOLE, &[8]);
    let sum = writer.op("ReduceMax", &[&x], vec![int("keepdims", 0)]);
    let zero = writer.float(0.0);
    let is_positive = writer.op("Greater", &[&sum, &zero], vec![]);
    let then_branch = GraphProto {
        node: vec![
            node("Transpose", &[&x], &["turned"], vec![]),
            node("MatMul", &[&x, "turned"], &["scores"], vec![]),
            node("Softmax", &["scores"], &["weights"], vec![int("axis", -1)]),
            node("MatMul", &["weights", &x], &["mixed"], vec![]),
        ],
        output: names(&["mixed"]),
        ..GraphProto::default()
    };
    let else_branch = GraphProto {
        node: vec![node("Relu", &[&x], &["positive"], vec![])],
        output: names(&["positive"]),
        ..GraphProto::default()
    };
    let attributes = vec![
        graph_attribute("then_branch", then_branch),
        graph_attribute("else_branch", else_branch),
    ];
    let y = writer.op("If", &[&is_positive], attributes);
    let y = writer.op("Exp", &[&y], vec![]);
    writer.output(&y, F32, WHOLE, &[8]);
    case("If", writer, same, of_lengths(&[9, 1000, 3000]));

    // Each iteration compares all steps with one, and gives a row.
    let mut writer = Writer::default();
    let x = writer.input(F32, WHOLE, &[64]);
    let state = writer.weights(&[1, 64]);
    let shape = writer.op("Shape", &[&x], vec![int("end", 1)]);
    let none = writer.ints(&[]);
    let count = writer.op("Reshape", &[&shape, &none], vec![]);
    let body = GraphProto {
        node: vec![
            node("Identity", &["going"], &["going on"], vec![]),
            node("Sub", &[&x, "state"], &["apart"], vec![]),
            node("Mul", &["apart", "apart"], &["squares"], vec![]),
            node("ReduceMean", &["squares"], &["mean"], vec![ints("axes", &[0])]),
            node("Add", &["mean", "state"], &["next"], vec![]),
            node("Identity", &["next"], &["given"], vec![]),
        ],
        input: names(&["number", "going", "state"]),
        output: names(&["going on", "next", "given"]),
        ..GraphProto::default()
    };
    let mut node = node("Loop", &[&count, "", &state], &["last", "rows"], vec![]);
    node.attribute.push(graph_attribute("body", body));
    writer.graph.node.push(node);
    let axes = writer.ints(&[1]);
    let rows = writer.op("Squeeze", &["rows", &axes], vec![]);
    let y = writer.op("Sub", &[&rows, "last"], vec![]);
    writer.output(&y, F32, WHOLE, &[64]);
    case("Loop", writer, same, of_lengths(&[9, 400, 1000]));

    // The number of steps is an input of its own.
    let mut writer = Writer::default();
    let x = writer.input(F32, NUMBER, &[32]);
    let count = writer.input(I64, NUMBER, &[]);
    let one = writer.ints(&[1]);
    let steps = writer.op("Reshape", &[&count, &one], vec![]);
    let width = writer.ints(&[32]);
    let shape = writer.op("Concat", &[&steps, &width], vec![int("axis", 0)]);
    let y = writer.op("Expand", &[&x, &shape], vec![]);
    let y = writer.op("Exp", &[&y], vec![]);
    let w = writer.linear(&y, 32, 64);
    writer.output(&w, F32, WHOLE, &[64]);
    case("steps by a number", writer, |lengths| vec![1, 1, lengths[0]], of_lengths(&[9, 30_000]));
}

/// A program that takes one length only, which is none of those that it is tried with.
fn one_length() -> Case {
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[16]);
    let x = writer.reshape(&x, &[-1, 777, 16]);
    let turned = writer.op("Transpose", &[&x], vec![ints("perm", &[0, 2, 1])]);
    let scores = writer.op("MatMul", &[&x, &turned], vec![]);
    let weights = writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let y = writer.op("MatMul", &[&weights, &x], vec![]);
    writer.output(&y, F32, STEPS, &[16]);
    Case { name: "one length", writer, spans: same, lengths: of_lengths(&[777]) }
}

/// Sequences run in parts that stay below the bound, and give the bits that they give alone.
fn check_parts() {
    let case = Case {
        name: "parts",
        writer: transformer(1, 16, 4),
        spans: |lengths| vec![lengths[0], lengths[0], 1],
        lengths: Vec::new(),
    };
    let program = case.program().bound_batches(4 << 20);
    let spans = (case.spans)(&[600]);
    let batches = program.batches((0..23).map(|_| spans.clone()));
    let sizes: Vec<usize> = batches.iter().map(|batch| batch.nodes.len()).collect();
    assert!(sizes.len() > 1 && sizes.iter().all(|&size| size > 1), "{sizes:?}");
    let nodes: Vec<usize> = batches.iter().flat_map(|batch| batch.nodes.clone()).collect();
    assert_eq!(nodes, (0..23).collect::<Vec<_>>());
    let batch = &batches[0];
    let all = case.inputs(&spans, batch.nodes.len());
    let threads = ExecutorThreads::new();
    let together = program.run(batch, all.clone(), &threads).unwrap();
    let elements = 600 * 16;
    for node in [0, batch.nodes.len() - 1] {
        let alone = SequenceBatch { spans: spans.clone(), nodes: vec![node] };
        let input = part(&all[0], node * elements, elements);
        let alone = program.run(&alone, vec![input], &threads).unwrap();
        let together = bits(&together[0], node * elements, elements);
        assert!(bits(&alone[0], 0, elements) == together, "sequence {node}");
    }
    // A sequence that takes more runs alone.
    let spans = (case.spans)(&[50_000]);
    assert!(program.working_bytes(&spans) > 4 << 20);
    assert_eq!(program.batches((0..3).map(|_| spans.clone())).len(), 3);
    assert!(program.working_bytes(&[u32::MAX; 3]) > 1 << 40);
}

/// A small network over images `[3, size, size]`.
fn convolutional(size: usize) -> Writer {
    let mut writer = Writer::default();
    let x = writer.floats(&[3, size, size]);
    let mut y = x;
    for [from, to] in [[3, 32], [32, 64], [64, 64]] {
        let (w, b) = (writer.weights(&[to, from, 3, 3]), writer.weights(&[to]));
        let attributes =
            vec![ints("strides", &[1, 1]), ints("dilations", &[1, 1]), ints("pads", &[1, 1, 1, 1])];
        y = writer.op("Conv", &[&y, &w, &b], attributes);
        y = writer.op("Relu", &[&y], vec![]);
        let attributes = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
        y = writer.op("MaxPool", &[&y], attributes);
    }
    let y = writer.op("GlobalAveragePool", &[&y], vec![]);
    let y = writer.reshape(&y, &[-1, 64]);
    let y = writer.linear(&y, 64, 10);
    writer.output(&y, F32, ROWS, &[10]);
    writer
}

fn check_rows(name: &str, writer: &Writer) {
    let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
    let program = RowProgram::new(&writer.program(), &inputs, &outputs).unwrap();
    let of_rows = |rows: usize| -> Vec<TensorData> {
        inputs.iter().map(|row| values(row, rows, rows as u32)).collect()
    };
    let threads = ExecutorThreads::new();
    let run = |rows: usize| {
        let inputs = of_rows(rows);
        peak_of(|| program.run(rows, inputs, &threads).unwrap())
    };
    compare(&format!("{name}, one row"), program.row_bytes(), run(1));
    let rows = program.rows_max();
    let row: usize = inputs.iter().map(|row| row.elements() * row.element.bytes()).sum();
    let measured = run(rows) + (rows * row) as u64;
    // 4096 rows are the most that are looked for.
    if rows > 1 && rows < 4096 {
        compare(&format!("{name}, {rows} rows"), BATCH_BYTES_MAX.max(measured), measured);
        assert!(measured <= BATCH_BYTES_MAX, "{name}, {rows} rows: {measured}");
    }
    // Many rows run in parts, beside which there are the inputs of a part and all outputs.
    let many = 3 * rows + 1;
    if many * row < 1 << 30 {
        let outputs: usize = outputs.iter().map(|row| row.elements() * row.element.bytes()).sum();
        let measured = run(many);
        let bound = BATCH_BYTES_MAX.max(program.row_bytes() + row as u64);
        assert!(measured <= bound + 4 * (many * outputs) as u64, "{name}, {many} rows: {measured}");
        let all = of_rows(many);
        let run = |first: usize, count: usize| {
            let input = |(data, row): (&TensorData, &RowSpec)| {
                part(data, first * row.elements(), count * row.elements())
            };
            program.run(count, all.iter().zip(&inputs).map(input).collect(), &threads).unwrap()
        };
        let elements = writer.outputs[0].0.elements();
        let together = run(0, many);
        for row in [0, rows, many - 1] {
            let (alone, together) =
                (bits(&run(row, 1)[0], 0, elements), bits(&together[0], row * elements, elements));
            assert!(alone == together, "{name}: row {row} of {many}");
        }
    }
}

/// One test: another one beside it would be measured too.
#[test]
fn bounds_are_at_least_what_is_measured() {
    let mut cases = Vec::new();
    attention_cases(&mut cases);
    other_cases(&mut cases);
    control_flow_cases(&mut cases);
    cases.iter().for_each(Case::check);
    let case = one_length();
    let spans = (case.spans)(&[777]);
    let batch = SequenceBatch { spans: spans.clone(), nodes: vec![0] };
    let (program, inputs, threads) =
        (case.program(), case.inputs(&spans, 1), ExecutorThreads::new());
    let measured = peak_of(|| program.run(&batch, inputs, &threads).unwrap());
    let bound = program.working_bytes(&spans);
    assert!(bound >= measured, "{measured} bytes are more than {bound}");
    check_parts();
    for size in [32, 128, 224, 512] {
        check_rows(&format!("convolutions of {size} x {size}"), &convolutional(size));
    }
    let mut writer = Writer::default();
    let x = writer.input(Bool, ROWS, &[1000]);
    let y = writer.op("Cast", &[&x], vec![int("to", 1)]);
    let y = writer.linear(&y, 1000, 500);
    let y = writer.op("Tanh", &[&y], vec![]);
    writer.output(&y, F32, ROWS, &[500]);
    check_rows("a product of rows", &writer);
}
