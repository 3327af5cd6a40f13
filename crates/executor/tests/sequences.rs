//! A single sequence gives the same bits as stacked with others of its lengths, however few steps it has.

use batchmaker_executor::{ExecutorThreads, SequenceBatch, SequenceProgram};
use batchmaker_graph::{ElementType::F32, PortAxes};
use support::{ROWS, STEPS, Writer, bits, int, ints, part, values};

mod support;

const BATCHES: [usize; 4] = [2, 3, 5, 16];
const STEP_COUNTS: [u32; 7] = [1, 2, 3, 4, 9, 33, 200];

/// A program, and the steps of its outputs from those of its inputs; none where there are too few.
struct Case {
    name: &'static str,
    writer: Writer,
    output_steps: fn(u32) -> Option<u32>,
}

fn same(steps: u32) -> Option<u32> {
    Some(steps)
}

/// `[batch, steps, row]` with its row as `row`, by lengths that are read from the tensor `of`.
fn reshape_row(writer: &mut Writer, x: &str, of: &str, row: &[i64]) -> String {
    let shape = writer.op("Shape", &[of], vec![int("end", 2)]);
    let row = writer.ints(row);
    let shape = writer.op("Concat", &[&shape, &row], vec![int("axis", 0)]);
    writer.op("Reshape", &[x, &shape], vec![])
}

fn norm(writer: &mut Writer, x: &str, width: usize) -> String {
    let [scale, bias] = [(); 2].map(|()| writer.weights(&[width]));
    writer.op("LayerNormalization", &[x, &scale, &bias], vec![int("axis", -1)])
}

/// A layer normalisation as older exporters write it.
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

/// A convolution of every 32nd step, and its channels over the sum of their magnitudes: one number alone for up to 32 steps.
fn strided_norm() -> Writer {
    let (inputs, outputs) = (6, 5);
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[inputs]);
    let x = writer.op("Transpose", &[&x], vec![ints("perm", &[0, 2, 1])]);
    let w = writer.weights(&[outputs, inputs, 1]);
    let windows = vec![ints("kernel_shape", &[1]), ints("strides", &[32])];
    let y = writer.op("Conv", &[&x, &w], windows);
    let size = writer.op("Abs", &[&y], vec![]);
    let axes = writer.ints(&[1]);
    let size = writer.op("ReduceSum", &[&size, &axes], vec![int("keepdims", 1)]);
    let y = writer.op("Div", &[&y, &size], vec![]);
    let y = writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1])]);
    writer.output(&y, F32, STEPS, &[outputs]);
    writer
}

/// A convolution of every 64th step, and its channels gated by a function of their means.
fn strided_gate() -> Writer {
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[6]);
    let x = writer.op("Transpose", &[&x], vec![ints("perm", &[0, 2, 1])]);
    let w = writer.weights(&[5, 6, 1]);
    let windows = vec![ints("kernel_shape", &[1]), ints("strides", &[64])];
    let y = writer.op("Conv", &[&x, &w], windows);
    let axes = writer.ints(&[-1]);
    let mean = writer.op("ReduceMean", &[&y, &axes], vec![int("keepdims", 1)]);
    let w = writer.weights(&[5, 5, 1]);
    let gate = writer.op("Conv", &[&mean, &w], vec![ints("kernel_shape", &[1])]);
    let gate = writer.op("Sigmoid", &[&gate], vec![]);
    let gated = writer.op("Mul", &[&gate, &y], vec![]);
    // What has a single window at the lengths that are probed has more at others.
    let centred = writer.op("Sub", &[&y, &mean], vec![]);
    let y = writer.op("Add", &[&gated, &centred], vec![]);
    let y = writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1])]);
    writer.output(&y, F32, STEPS, &[5]);
    writer
}

/// A layer of a transformer, and a classifier of the first step. Keys and values have `key_heads` heads.
fn transformer(key_heads: usize, norm: fn(&mut Writer, &str, usize) -> String) -> Writer {
    let (width, heads) = (48, 3);
    let size = width / heads;
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[width]);
    let normed = norm(&mut writer, &x, width);
    let head = |writer: &mut Writer, heads: usize, perm: &[i64]| {
        let y = writer.linear(&normed, width, heads * size);
        let y = reshape_row(writer, &y, &x, &[heads as i64, size as i64]);
        writer.op("Transpose", &[&y], vec![ints("perm", perm)])
    };
    let q = head(&mut writer, heads, &[0, 2, 1, 3]);
    let k = head(&mut writer, key_heads, &[0, 2, 3, 1]);
    let v = head(&mut writer, key_heads, &[0, 2, 1, 3]);
    let scores = writer.op("MatMul", &[&q, &k], vec![]);
    let scale = writer.float(0.25);
    let scores = writer.op("Mul", &[&scores, &scale], vec![]);
    let weights = writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let y = writer.op("MatMul", &[&weights, &v], vec![]);
    let y = writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1, 3])]);
    let y = reshape_row(&mut writer, &y, &x, &[width as i64]);
    let y = writer.linear(&y, width, width);
    let x = writer.op("Add", &[&x, &y], vec![]);
    let y = norm(&mut writer, &x, width);
    let y = writer.linear(&y, width, 4 * width);
    let y = writer.op("Gelu", &[&y], vec![]);
    let y = writer.linear(&y, 4 * width, width);
    let x = writer.op("Add", &[&x, &y], vec![]);
    writer.output(&x, F32, STEPS, &[width]);
    let at = writer.int(0);
    let first = writer.op("Gather", &[&x, &at], vec![int("axis", 1)]);
    let y = writer.linear(&first, width, 7);
    writer.output(&y, F32, ROWS, &[7]);
    writer
}

/// A convolution over steps, `[batch, steps, from]` to `[batch, windows, to]`.
fn convolve(
    writer: &mut Writer,
    x: &str,
    from: usize,
    to: usize,
    kernel: usize,
    stride: i64,
) -> String {
    let turned = writer.op("Transpose", &[x], vec![ints("perm", &[0, 2, 1])]);
    let w = writer.weights(&[to, from, kernel]);
    let attributes =
        vec![ints("strides", &[stride]), ints("dilations", &[1]), ints("pads", &[0, 0])];
    let y = writer.op("Conv", &[&turned, &w], attributes);
    writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1])])
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, writer, output_steps| cases.push(Case { name, writer, output_steps });
    case("transformer", transformer(3, norm), same);
    case("transformer with one head of keys", transformer(1, norm), same);
    case("transformer with norms in parts", transformer(3, norm_in_parts), same);

    // Few windows of many steps: a product sees one row before its sequence has one step.
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[5]);
    let y = convolve(&mut writer, &x, 5, 300, 3, 2);
    let y = writer.op("Relu", &[&y], vec![]);
    let y = writer.linear(&y, 300, 20);
    writer.output(&y, F32, STEPS, &[20]);
    case("convolution, then a product", writer, |steps| steps.checked_sub(3).map(|n| n / 2 + 1));

    // One row a sequence, whatever its steps.
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[300]);
    let axes = writer.ints(&[1]);
    let mean = writer.op("ReduceMean", &[&x, &axes], vec![int("keepdims", 0)]);
    let y = writer.linear(&mean, 300, 40);
    let y = writer.op("Tanh", &[&y], vec![]);
    let y = writer.linear(&y, 40, 3);
    writer.output(&y, F32, ROWS, &[3]);
    case("mean, then products", writer, same);

    // What one row a sequence decides, on all steps, and products after it.
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[64]);
    let axes = writer.ints(&[1]);
    let mean = writer.op("ReduceMean", &[&x, &axes], vec![]);
    let gate = writer.linear(&mean, 64, 64);
    let gate = writer.op("Sigmoid", &[&gate], vec![]);
    let y = writer.op("Mul", &[&x, &gate], vec![]);
    let y = writer.linear(&y, 64, 64);
    writer.output(&y, F32, STEPS, &[64]);
    case("gates", writer, same);

    // Steps by the largest of them: a division by one number.
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[9]);
    let axes = writer.ints(&[1, 2]);
    let size = writer.op("Abs", &[&x], vec![]);
    let most = writer.op("ReduceMax", &[&size, &axes], vec![]);
    let y = writer.op("Div", &[&x, &most], vec![]);
    writer.output(&y, F32, STEPS, &[9]);
    case("quotients", writer, same);

    // A product with what stands for positions, which no sequence has a part in.
    let mut writer = Writer::default();
    let x = writer.input(F32, STEPS, &[37]);
    let table = writer.weights(&[64, 37]);
    let [start, axis] = [(); 2].map(|()| writer.ints(&[0]));
    let end = writer.op("Shape", &[&x], vec![int("start", 1), int("end", 2)]);
    let positions = writer.op("Slice", &[&table, &start, &end, &axis], vec![]);
    let positions = writer.linear(&positions, 37, 37);
    let y = writer.op("Add", &[&x, &positions], vec![]);
    writer.output(&y, F32, STEPS, &[37]);
    case("positions", writer, |steps| (steps <= 64).then_some(steps));
    case("strided norm", strided_norm(), |steps| Some(steps.div_ceil(32)));
    case("strided gate", strided_gate(), |steps| Some(steps.div_ceil(64)));
    cases
}

fn load(case: &Case) -> SequenceProgram {
    let (inputs, outputs) = (Writer::rows(&case.writer.inputs), Writer::rows(&case.writer.outputs));
    SequenceProgram::new(&case.writer.sequence_cell(), &inputs, &outputs)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

#[test]
fn a_single_sequence_gives_the_bits_that_it_has_stacked() {
    let threads = ExecutorThreads::new();
    for (seed, case) in cases().iter().enumerate() {
        let program = load(case);
        assert!(program.computes_single_sequence_once(), "{}", case.name);
        for steps in STEP_COUNTS {
            let Some(output_steps) = (case.output_steps)(steps) else { continue };
            let span = |(_, axes): &(_, PortAxes), steps| if axes.steps { steps } else { 1 };
            let inputs = case.writer.inputs.iter().map(|port| span(port, steps));
            let outputs = case.writer.outputs.iter().map(|port| span(port, output_steps));
            let spans: Vec<u32> = inputs.chain(outputs).collect();
            let most = BATCHES[BATCHES.len() - 1];
            let (row, span) = (&case.writer.inputs[0].0, spans[0] as usize);
            let all = values(row, most * span, seed as u32 + 100 * steps);
            let run = |first: usize, count: usize| {
                let size = span * row.elements();
                let batch = SequenceBatch { spans: spans.clone(), nodes: (0..count).collect() };
                let inputs = vec![part(&all, first * size, count * size)];
                let ran = program.run(&batch, inputs, &threads);
                ran.unwrap_or_else(|error| panic!("{}, {steps} steps: {error}", case.name))
            };
            for count in BATCHES {
                let together = run(0, count);
                for at in 0..count.min(3) {
                    let single = run(at, 1);
                    for (port, (row, _)) in case.writer.outputs.iter().enumerate() {
                        let n = spans[1 + port] as usize * row.elements();
                        assert!(
                            bits(&single[port], 0, n) == bits(&together[port], at * n, n),
                            "{}: sequence {at} of {count}, {steps} steps, output {port}",
                            case.name
                        );
                    }
                }
            }
        }
    }
}

/// Nodes of equal spans run together, in the order in which they came.
#[test]
fn nodes_are_divided_by_their_spans() {
    let program = load(&cases()[0]);
    let spans = [[3, 3, 1], [5, 5, 1], [3, 3, 1]];
    let batches = program.batches(spans.iter().map(|spans| spans.to_vec()));
    let batch = |spans: [u32; 3], nodes: &[usize]| SequenceBatch {
        spans: spans.into(),
        nodes: nodes.into(),
    };
    assert_eq!(batches, [batch(spans[0], &[0, 2]), batch(spans[1], &[1])]);
}

/// A program of which a port is not by sequences runs one node at a time.
#[test]
fn a_port_without_a_batch_axis_prevents_stacking() {
    let mut writer = Writer::default();
    let x = writer.input(F32, PortAxes { batch: false, steps: true }, &[4]);
    let y = writer.op("Relu", &[&x], vec![]);
    writer.output(&y, F32, PortAxes { batch: false, steps: true }, &[4]);
    let program = load(&Case { name: "not stacked", writer, output_steps: same });
    let batches = program.batches([vec![2, 2], vec![2, 2]].into_iter());
    assert_eq!(batches.len(), 2);
}
