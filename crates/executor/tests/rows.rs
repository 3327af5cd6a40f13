//! A single row gives the same bits as in a batch, for every operator of programs, and is computed once.

use batchmaker_executor::{ExecutorThreads, RowProgram};
use batchmaker_graph::ElementType::{Bool, F32, I64};
use rten::{ModelOptions, RunOptions, ThreadPool, Value, ValueOrView};
use rten_onnx::onnx::AttributeProto;
use std::collections::BTreeSet;
use std::sync::Arc;
use support::{ROWS, Writer, bits, int, ints, part, values};

mod support;

const BATCHES: [usize; 5] = [2, 3, 7, 16, 65];

/// Widths with and without whole vectors, and beyond the blocks in which products are summed.
const WIDTHS: [usize; 4] = [3, 16, 37, 515];

type Case = (String, Writer);

/// One operator over rows of each width.
fn elementwise(cases: &mut Vec<Case>) {
    const FLOATS: &[&str] = &[
        "Abs",
        "Acos",
        "Asin",
        "Atan",
        "Ceil",
        "Clip",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
    ];
    const PAIRS: &[&str] = &["Add", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum"];
    const COMPARISONS: &[&str] = &["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"];
    for width in WIDTHS {
        for operator in FLOATS {
            let mut writer = Writer::default();
            let x = writer.floats(&[width]);
            let y = writer.op(operator, &[&x], vec![]);
            writer.output(&y, F32, ROWS, &[width]);
            cases.push((format!("{operator} of {width}"), writer));
        }
        for (operator, other) in
            PAIRS.iter().flat_map(|o| [(o, "rows"), (o, "constant"), (o, "one")])
        {
            let mut writer = Writer::default();
            let x = writer.floats(&[width]);
            let z = match other {
                "rows" => writer.floats(&[width]),
                "constant" => writer.weights(&[width]),
                _ => writer.floats(&[1]),
            };
            let y = writer.op(operator, &[&x, &z], vec![]);
            writer.output(&y, F32, ROWS, &[width]);
            cases.push((format!("{operator} of {width} with {other}"), writer));
        }
        for operator in COMPARISONS {
            let mut writer = Writer::default();
            let (x, z) = (writer.floats(&[width]), writer.floats(&[width]));
            let is = writer.op(operator, &[&x, &z], vec![]);
            let y = writer.op("Where", &[&is, &x, &z], vec![]);
            writer.output(&y, F32, ROWS, &[width]);
            writer.output(&is, Bool, ROWS, &[width]);
            cases.push((format!("{operator} and Where of {width}"), writer));
        }
        for operator in ["And", "Or", "Xor"] {
            let mut writer = Writer::default();
            let [x, z] = [(); 2].map(|()| writer.input(Bool, ROWS, &[width]));
            let y = writer.op(operator, &[&x, &z], vec![]);
            let y = writer.op("Not", &[&y], vec![]);
            writer.output(&y, Bool, ROWS, &[width]);
            cases.push((format!("{operator} of {width}"), writer));
        }
        for fmod in [0, 1] {
            let mut writer = Writer::default();
            let (x, z) = (writer.floats(&[width]), writer.weights(&[width]));
            let y = writer.op("Mod", &[&x, &z], vec![int("fmod", fmod)]);
            writer.output(&y, F32, ROWS, &[width]);
            cases.push((format!("Mod of {width}"), writer));
        }
        // Patterns that rten fuses.
        let mut writer = Writer::default();
        let x = writer.floats(&[width]);
        let gate = writer.op("Sigmoid", &[&x], vec![]);
        let y = writer.op("Mul", &[&x, &gate], vec![]);
        writer.output(&y, F32, ROWS, &[width]);
        cases.push((format!("Silu of {width}"), writer));
    }
}

/// Reductions, softmax and their like, over rows `[4, width]` or `[width]`.
fn along_axes(cases: &mut Vec<Case>) {
    const REDUCTIONS: &[&str] = &[
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    ];
    for width in WIDTHS {
        for (operator, axis) in REDUCTIONS.iter().flat_map(|o| [(o, 1), (o, 2)]) {
            // rten has no L1: the model crate writes it as a sum of sizes.
            let mut writer = Writer::default();
            let x = writer.floats(&[4, width]);
            let (x, operator) = match *operator {
                "ReduceL1" => (writer.op("Abs", &[&x], vec![]), "ReduceSum"),
                other => (x, other),
            };
            let axes = writer.ints(&[axis]);
            let y = writer.op(operator, &[&x, &axes], vec![int("keepdims", 0)]);
            writer.output(&y, F32, ROWS, &[if axis == 1 { width } else { 4 }]);
            cases.push((format!("{operator} over axis {axis} of 4 x {width}"), writer));
        }
        let attributes = |axis: i64| vec![int("axis", axis)];
        for (operator, axis) in
            ["Softmax", "LogSoftmax", "LpNormalization"].iter().flat_map(|o| [(o, 1), (o, 2)])
        {
            let mut writer = Writer::default();
            let x = writer.floats(&[4, width]);
            let y = writer.op(operator, &[&x], attributes(axis));
            writer.output(&y, F32, ROWS, &[4, width]);
            cases.push((format!("{operator} over axis {axis} of 4 x {width}"), writer));
        }
        let mut writer = Writer::default();
        let x = writer.floats(&[width]);
        let [scale, bias] = [(); 2].map(|()| writer.weights(&[width]));
        let y = writer.op("LayerNormalization", &[&x, &scale, &bias], attributes(-1));
        writer.output(&y, F32, ROWS, &[width]);
        cases.push((format!("LayerNormalization of {width}"), writer));
        for operator in ["ArgMax", "ArgMin"] {
            let mut writer = Writer::default();
            let x = writer.floats(&[width]);
            let y = writer.op(operator, &[&x], vec![int("axis", 1), int("keepdims", 0)]);
            writer.output(&y, I64, ROWS, &[]);
            cases.push((format!("{operator} of {width}"), writer));
        }
        let mut writer = Writer::default();
        let (x, k) = (writer.floats(&[width]), writer.ints(&[3]));
        let y = writer.op("TopK", &[&x, &k], attributes(1));
        writer.output(&y, F32, ROWS, &[3]);
        cases.push((format!("TopK of {width}"), writer));
    }
}

/// Operators that move elements.
fn layout(cases: &mut Vec<Case>) {
    let mut case =
        |name: &str, row: &[usize], write: &dyn Fn(&mut Writer, &str) -> String, out: &[usize]| {
            let mut writer = Writer::default();
            let x = writer.floats(row);
            let y = write(&mut writer, &x);
            writer.output(&y, F32, ROWS, out);
            cases.push((name.to_owned(), writer));
        };
    case(
        "Transpose",
        &[4, 5, 3],
        &|w, x| w.op("Transpose", &[x], vec![ints("perm", &[0, 3, 1, 2])]),
        &[3, 4, 5],
    );
    case("Concat", &[4, 5], &|w, x| w.op("Concat", &[x, x], vec![int("axis", 2)]), &[4, 10]);
    case(
        "Slice",
        &[4, 5],
        &|w, x| {
            let [start, end, axis, step] = [[3], [0], [1], [-1]].map(|n| w.ints(&n));
            w.op("Slice", &[x, &start, &end, &axis, &step], vec![])
        },
        &[3, 5],
    );
    case(
        "Gather",
        &[4, 5],
        &|w, x| {
            let at = w.ints(&[3, 0]);
            w.op("Gather", &[x, &at], vec![int("axis", 1)])
        },
        &[2, 5],
    );
    case(
        "Expand",
        &[1, 5],
        &|w, x| {
            let shape = w.ints(&[1, 6, 1]);
            w.op("Expand", &[x, &shape], vec![])
        },
        &[6, 5],
    );
    case(
        "Pad",
        &[4, 5],
        &|w, x| {
            let pads = w.ints(&[0, 1, 2, 0, 0, 3]);
            w.op("Pad", &[x, &pads], vec![])
        },
        &[5, 10],
    );
    case(
        "CumSum",
        &[7, 5],
        &|w, x| {
            let axis = w.int(1);
            w.op("CumSum", &[x, &axis], vec![])
        },
        &[7, 5],
    );
    case("Trilu", &[6, 6], &|w, x| w.op("Trilu", &[x], vec![int("upper", 0)]), &[6, 6]);
    case(
        "Cast",
        &[9],
        &|w, x| {
            let whole = w.op("Cast", &[x], vec![int("to", 7)]);
            w.op("Cast", &[&whole], vec![int("to", 1)])
        },
        &[9],
    );
    let mut writer = Writer::default();
    let ids = writer.input(I64, ROWS, &[6]);
    let table = writer.weights(&[5, 33]);
    let y = writer.op("Gather", &[&table, &ids], vec![]);
    writer.output(&y, F32, ROWS, &[6, 33]);
    cases.push(("Gather of a table".to_owned(), writer));
    let mut writer = Writer::default();
    let ids = writer.input(I64, ROWS, &[]);
    let (depth, off_on) = (writer.int(5), writer.weights(&[2]));
    let y = writer.op("OneHot", &[&ids, &depth, &off_on], vec![int("axis", -1)]);
    writer.output(&y, F32, ROWS, &[5]);
    cases.push(("OneHot".to_owned(), writer));
}

/// Windows over images that move by one.
fn plain_windows() -> Vec<AttributeProto> {
    let two = |name| ints(name, &[1, 1]);
    vec![two("strides"), two("dilations"), ints("pads", &[0; 4])]
}

/// Convolutions and pools, rows as images `[channels, height, width]` or lines `[channels, width]`.
fn windows(cases: &mut Vec<Case>) {
    // Channels in, out, groups, kernel, stride, size.
    for [c, o, g, k, s, n] in [
        [3, 8, 1, 3, 1, 9],
        [3, 8, 1, 3, 2, 9],
        [16, 8, 1, 1, 1, 9],
        [16, 1, 1, 1, 1, 9],
        [16, 1, 1, 3, 1, 9],
        [16, 8, 1, 1, 2, 9],
        [16, 16, 16, 3, 1, 9],
        [16, 16, 4, 3, 1, 9],
        [8, 8, 8, 3, 2, 9],
        [8, 16, 8, 3, 1, 9],
        [8, 8, 4, 1, 1, 9],
        [64, 40, 1, 3, 1, 5],
        [64, 40, 1, 5, 1, 5],
        [600, 7, 1, 1, 1, 1],
        [64, 1, 1, 5, 1, 5],
        [4, 4, 2, 1, 1, 1],
    ] {
        for image in [true, false] {
            let spatial = |n: usize| if image { vec![n, n] } else { vec![n] };
            let mut writer = Writer::default();
            let x = writer.floats(&[&[c], &spatial(n)[..]].concat());
            let w = writer.weights(&[&[o, c / g], &spatial(k)[..]].concat());
            let b = writer.weights(&[o]);
            let rank = if image { 2 } else { 1 };
            let attributes = vec![
                ints("strides", &vec![s as i64; rank]),
                int("group", g as i64),
                ints("pads", &vec![0; 2 * rank]),
                ints("dilations", &vec![1; rank]),
            ];
            let y = writer.op("Conv", &[&x, &w, &b], attributes);
            let m = (n - k) / s + 1;
            writer.output(&y, F32, ROWS, &[&[o], &spatial(m)[..]].concat());
            let name =
                format!("Conv {c} to {o} in {g} groups of {k}, stride {s}, over {:?}", spatial(n));
            cases.push((name, writer));
        }
    }
    for operator in ["MaxPool", "AveragePool"] {
        let mut writer = Writer::default();
        let x = writer.floats(&[5, 9, 9]);
        let attributes = vec![ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2])];
        let y = writer.op(operator, &[&x], attributes);
        writer.output(&y, F32, ROWS, &[5, 4, 4]);
        cases.push((operator.to_owned(), writer));
    }
    let mut writer = Writer::default();
    let x = writer.floats(&[5, 9, 9]);
    let y = writer.op("GlobalAveragePool", &[&x], vec![]);
    writer.output(&y, F32, ROWS, &[5, 1, 1]);
    cases.push(("GlobalAveragePool".to_owned(), writer));
    // With what batch normalisation comes down to, which rten folds into the weights.
    let mut writer = Writer::default();
    let x = writer.floats(&[8, 9, 9]);
    let w = writer.weights(&[16, 8, 3, 3]);
    let y = writer.op("Conv", &[&x, &w], plain_windows());
    let [scale, offset] = [(); 2].map(|()| writer.weights(&[1, 16, 1, 1]));
    let y = writer.op("Mul", &[&y, &scale], vec![]);
    let y = writer.op("Add", &[&y, &offset], vec![]);
    writer.output(&y, F32, ROWS, &[16, 7, 7]);
    cases.push(("Conv, scaled".to_owned(), writer));
}

/// Products: of rows with weights, and between tensors of a row, with equally many matrices or not.
fn products(cases: &mut Vec<Case>) {
    for (k, n) in WIDTHS.iter().flat_map(|&k| WIDTHS.map(|n| (k, n))) {
        for lead in [&[][..], &[1], &[2], &[1, 1], &[3, 1]] {
            let mut writer = Writer::default();
            let x = writer.floats(&[lead, &[k]].concat());
            let w = writer.weights(&[k, n]);
            let y = writer.op("MatMul", &[&x, &w], vec![]);
            writer.output(&y, F32, ROWS, &[lead, &[n]].concat());
            cases.push((format!("MatMul of {lead:?} x {k} by {k} x {n}"), writer));
        }
    }
    // Matrices of A and B, rows of A; whether A, B are constants.
    for (a, b) in [(1, 1), (4, 4), (4, 1), (1, 4)] {
        for (m, k, n) in [(1, 37, 5), (1, 300, 40), (3, 37, 40), (1, 40, 1), (2, 16, 1)] {
            for (a_constant, b_constant) in [(false, false), (true, false), (false, true)] {
                let mut writer = Writer::default();
                let mut operand = |matrices: usize, rows, columns, is_constant| match is_constant {
                    true => writer.weights(&[1, matrices, rows, columns]),
                    false => writer.floats(&[matrices, rows, columns]),
                };
                let (x, z) = (operand(a, m, k, a_constant), operand(b, k, n, b_constant));
                let y = writer.op("MatMul", &[&x, &z], vec![]);
                writer.output(&y, F32, ROWS, &[a.max(b), m, n]);
                let name = format!(
                    "MatMul of {a} {m} x {k} by {b} {k} x {n}, constant {a_constant} {b_constant}"
                );
                cases.push((name, writer));
            }
        }
    }
    // A transposed operand, as of keys.
    for m in [1, 3] {
        let mut writer = Writer::default();
        let (x, z) = (writer.floats(&[2, m, 40]), writer.floats(&[5, 2, 40]));
        let z = writer.op("Transpose", &[&z], vec![ints("perm", &[0, 2, 3, 1])]);
        let y = writer.op("MatMul", &[&x, &z], vec![]);
        let scale = writer.float(0.3);
        let y = writer.op("Mul", &[&y, &scale], vec![]);
        writer.output(&y, F32, ROWS, &[2, m, 5]);
        cases.push((format!("MatMul of {m} x 40 by transposed"), writer));
    }
}

/// Operators that models are made of.
fn networks(cases: &mut Vec<Case>) {
    for k in [37, 515] {
        // Layers with a bias, which rten adds in the product.
        let mut writer = Writer::default();
        let x = writer.floats(&[k]);
        let hidden = writer.linear(&x, k, 300);
        let hidden = writer.op("Relu", &[&hidden], vec![]);
        let scale = writer.float(0.7);
        let scaled = writer.op("Mul", &[&hidden, &scale], vec![]);
        let y = writer.linear(&scaled, 300, 11);
        writer.output(&y, F32, ROWS, &[11]);
        writer.output(&hidden, F32, ROWS, &[300]);
        cases.push((format!("layers from {k}"), writer));
        // A product that is scaled before and after.
        let mut writer = Writer::default();
        let x = writer.floats(&[k]);
        let scale = writer.float(0.7);
        let w = writer.weights(&[k, 9]);
        let y = writer.op("Mul", &[&x, &scale], vec![]);
        let y = writer.op("MatMul", &[&y, &w], vec![]);
        let y = writer.op("Div", &[&y, &scale], vec![]);
        writer.output(&y, F32, ROWS, &[9]);
        cases.push((format!("scaled product of {k}"), writer));
    }
    for width in WIDTHS {
        // A mean put together of others, as `RMSNormalization` is.
        let mut writer = Writer::default();
        let (x, axes) = (writer.floats(&[width]), writer.ints(&[-1]));
        let square = writer.op("Mul", &[&x, &x], vec![]);
        let mean = writer.op("ReduceMean", &[&square, &axes], vec![]);
        let epsilon = writer.float(1e-5);
        let mean = writer.op("Add", &[&mean, &epsilon], vec![]);
        let root = writer.op("Sqrt", &[&mean], vec![]);
        let unit = writer.op("Div", &[&x, &root], vec![]);
        let scale = writer.weights(&[width]);
        let y = writer.op("Mul", &[&unit, &scale], vec![]);
        writer.output(&y, F32, ROWS, &[width]);
        cases.push((format!("root mean square of {width}"), writer));
    }
    cases.push(("convolutional network".to_owned(), convolutional(false)));
    cases.push(("convolutional network with gates".to_owned(), convolutional(true)));
    cases.push(("transformer over 5 tokens a row".to_owned(), transformer()));
    // Rows that reach a costly product of more rows after a small one of one row.
    let mut writer = Writer::default();
    let (x, tokens) = (writer.floats(&[16]), writer.floats(&[20, 64]));
    let x = writer.linear(&x, 16, 64);
    let x = writer.reshape(&x, &[-1, 1, 64]);
    let sum = writer.op("Add", &[&tokens, &x], vec![]);
    let y = writer.linear(&sum, 64, 64);
    writer.output(&y, F32, ROWS, &[20, 64]);
    cases.push(("conditioned tokens".to_owned(), writer));
}

/// Two convolutions, a global pool, a classifier; with gates as of squeeze-and-excitation.
fn convolutional(has_gates: bool) -> Writer {
    let mut writer = Writer::default();
    let mut x = writer.floats(&[3, 12, 12]);
    for channels in [[3, 16], [16, 32]] {
        let [from, to] = channels;
        let w = writer.weights(&[to, from, 3, 3]);
        x = writer.op("Conv", &[&x, &w], plain_windows());
        let [scale, offset] = [(); 2].map(|()| writer.weights(&[1, to, 1, 1]));
        x = writer.op("Mul", &[&x, &scale], vec![]);
        x = writer.op("Add", &[&x, &offset], vec![]);
        x = writer.op("Relu", &[&x], vec![]);
        if has_gates {
            let gate = writer.op("GlobalAveragePool", &[&x], vec![]);
            let gate = writer.reshape(&gate, &[-1, to as i64]);
            let gate = writer.linear(&gate, to, 4);
            let gate = writer.op("Relu", &[&gate], vec![]);
            let gate = writer.linear(&gate, 4, to);
            let gate = writer.op("Sigmoid", &[&gate], vec![]);
            let gate = writer.reshape(&gate, &[-1, to as i64, 1, 1]);
            x = writer.op("Mul", &[&x, &gate], vec![]);
        }
    }
    let pooled = writer.op("GlobalAveragePool", &[&x], vec![]);
    let pooled = writer.reshape(&pooled, &[-1, 32]);
    let y = writer.linear(&pooled, 32, 10);
    writer.output(&y, F32, ROWS, &[10]);
    writer
}

/// A layer of a transformer over `[5, 48]`, 3 heads, and a classifier of the first token.
fn transformer() -> Writer {
    let (tokens, width, heads) = (5, 48, 3);
    let mut writer = Writer::default();
    let x = writer.floats(&[tokens, width]);
    let norm = |writer: &mut Writer, x: &str| {
        let [scale, bias] = [(); 2].map(|()| writer.weights(&[width]));
        writer.op("LayerNormalization", &[x, &scale, &bias], vec![int("axis", -1)])
    };
    let normed = norm(&mut writer, &x);
    let head = |writer: &mut Writer, perm: &[i64]| {
        let y = writer.linear(&normed, width, width);
        let y = writer.reshape(&y, &[-1, tokens as i64, heads as i64, (width / heads) as i64]);
        writer.op("Transpose", &[&y], vec![ints("perm", perm)])
    };
    let q = head(&mut writer, &[0, 2, 1, 3]);
    let k = head(&mut writer, &[0, 2, 3, 1]);
    let v = head(&mut writer, &[0, 2, 1, 3]);
    let scores = writer.op("MatMul", &[&q, &k], vec![]);
    let scale = writer.float(0.25);
    let scores = writer.op("Mul", &[&scores, &scale], vec![]);
    let weights = writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let y = writer.op("MatMul", &[&weights, &v], vec![]);
    let y = writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1, 3])]);
    let y = writer.reshape(&y, &[-1, tokens as i64, width as i64]);
    let y = writer.linear(&y, width, width);
    let x = writer.op("Add", &[&x, &y], vec![]);
    let y = norm(&mut writer, &x);
    let y = writer.linear(&y, width, 4 * width);
    let y = writer.op("Gelu", &[&y], vec![]);
    let y = writer.linear(&y, 4 * width, width);
    let x = writer.op("Add", &[&x, &y], vec![]);
    writer.output(&x, F32, ROWS, &[tokens, width]);
    let at = writer.int(0);
    let first = writer.op("Gather", &[&x, &at], vec![int("axis", 1)]);
    let y = writer.linear(&first, width, 7);
    writer.output(&y, F32, ROWS, &[7]);
    writer
}

fn operators() -> Vec<Case> {
    let mut cases = Vec::new();
    for add in [elementwise, along_axes, layout, windows, products] {
        add(&mut cases);
    }
    cases
}

#[test]
fn a_single_row_gives_the_bits_that_it_has_in_a_batch() {
    let threads = ExecutorThreads::new();
    let (mut wrong, mut twice) = (Vec::new(), Vec::new());
    let mut cases = operators();
    networks(&mut cases);
    for (seed, (name, writer)) in cases.into_iter().enumerate() {
        let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
        let program = RowProgram::new(&writer.program(), &inputs, &outputs)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        if !program.computes_single_row_once() {
            twice.push(name.clone());
        }
        let most = BATCHES[BATCHES.len() - 1];
        let all: Vec<_> = inputs.iter().map(|row| values(row, most, seed as u32)).collect();
        let run = |first: usize, rows: usize| {
            let inputs = inputs.iter().zip(&all);
            let inputs =
                inputs.map(|(row, data)| part(data, first * row.elements(), rows * row.elements()));
            program.run(rows, inputs.collect(), &threads).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let single: Vec<_> = (0..most.min(7)).map(|row| run(row, 1)).collect();
        for rows in BATCHES {
            let together = run(0, rows);
            for (row, single) in single.iter().enumerate().take(rows) {
                for (port, spec) in outputs.iter().enumerate() {
                    let n = spec.elements();
                    let is_equal = bits(&together[port], row * n, n) == bits(&single[port], 0, n);
                    if !is_equal && wrong.last() != Some(&name) {
                        wrong.push(name.clone());
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty() && twice.is_empty(), "wrong: {wrong:#?}, twice: {twice:#?}");
}

/// Asks rten itself: of all operators, only `MatMul` and `Div` compute otherwise for one row. An upgrade of
/// rten that changes this is seen here.
#[test]
fn only_products_and_divisions_need_a_row_twice() {
    let pool = Arc::new(ThreadPool::with_num_threads(1));
    let mut needy = BTreeSet::new();
    for (seed, (name, writer)) in operators().into_iter().enumerate() {
        let model = ModelOptions::with_all_ops()
            .enable_optimization(true)
            .prepack_weights(true)
            .load(writer.program().bytes.to_vec())
            .unwrap();
        let run = |rows: usize| {
            let inputs = writer.inputs.iter().enumerate().map(|(port, (row, _))| {
                let shape = [&[rows], &row.shape[..]].concat();
                let value = match values(row, 4, seed as u32) {
                    batchmaker_graph::TensorData::F32(mut data) => {
                        data.truncate(rows * row.elements());
                        Value::from_shape(&shape, data).unwrap()
                    }
                    batchmaker_graph::TensorData::I64(data) => {
                        let data: Vec<i32> = data.into_iter().map(|n| n as i32).collect();
                        Value::from_shape(&shape, data[..rows * row.elements()].to_vec()).unwrap()
                    }
                    batchmaker_graph::TensorData::Bool(data) => {
                        let data: Vec<i32> = data.into_iter().map(i32::from).collect();
                        Value::from_shape(&shape, data[..rows * row.elements()].to_vec()).unwrap()
                    }
                    other => panic!("{other:?}"),
                };
                (model.node_id(&format!("in{port}")).unwrap(), ValueOrView::from(value))
            });
            let options = RunOptions::default().with_thread_pool(Some(pool.clone()));
            let out = model.node_id("out0").unwrap();
            model.run(inputs.collect(), &[out], Some(options)).unwrap().remove(0)
        };
        let bits = |value: Value| -> Vec<u32> {
            match value {
                Value::FloatTensor(x) => x.into_data().into_iter().map(f32::to_bits).collect(),
                Value::Int32Tensor(x) => x.into_data().into_iter().map(|n| n as u32).collect(),
                _ => panic!("{name}"),
            }
        };
        let (single, together) = (bits(run(1)), bits(run(4)));
        if single[..] != together[..single.len()] {
            needy.extend(name.split_whitespace().next().map(str::to_owned));
        }
    }
    assert_eq!(needy.iter().map(String::as_str).collect::<Vec<_>>(), ["Div", "MatMul"]);
}
