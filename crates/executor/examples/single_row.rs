//! Measures the time of one row and of one sequence, beside their time where one row is padded to two and one
//! sequence is not: microseconds of the processor (Linux), in turns.
//!
//! ```text
//! cargo run --release -p batchmaker-executor --example single_row [sequences]
//! ```

use std::sync::Arc;

use batchmaker_executor::{ExecutorThreads, RowProgram, SequenceBatch, SequenceProgram};
use batchmaker_graph::{ElementType::F32, PortAxes, TensorData};
use rten::{Model, ModelOptions, RunOptions, ThreadPool, Value, ValueOrView};
use support::{ROWS, STEPS, Writer, int, ints, numbers};

#[path = "../tests/support/mod.rs"]
mod support;

const TURNS: usize = 31;

fn main() {
    println!("{:48} {:>4} {:>11} {:>11} {:>6}", "", "rows", "before (us)", "now (us)", "ratio");
    let asked = std::env::args().nth(1);
    if asked.as_deref() != Some("sequences") {
        rows("residual network, 3 x 64 x 64, 18 layers", residual(), 3 * 64 * 64);
        rows("the same with gates", gated(), 3 * 64 * 64);
        rows("layers 256, 256, 64", layers(), 256);
        rows("transformer, 4 layers of 256, 32 tokens a row", transformer(Some(32)), 32 * 256);
    }
    for steps in [1, 4, 16, 64] {
        sequences("transformer, 4 layers of 256", transformer(None), steps);
    }
}

/// rten on the program as it is; one row is padded to two.
struct Plain {
    model: Model,
    pool: Arc<ThreadPool>,
}

impl Plain {
    fn new(writer: &Writer) -> Self {
        let model = ModelOptions::with_all_ops()
            .enable_optimization(true)
            .prepack_weights(true)
            .load(writer.program().bytes.to_vec())
            .unwrap();
        Self { model, pool: Arc::new(ThreadPool::with_num_threads(1)) }
    }

    fn run(&self, shape: &[usize], data: &[f32], outputs: usize) {
        let value = Value::from_shape(shape, data.to_vec()).unwrap();
        let input = (self.model.node_id("in0").unwrap(), ValueOrView::from(value));
        let output = |port| self.model.node_id(&format!("out{port}")).unwrap();
        let outputs: Vec<_> = (0..outputs).map(output).collect();
        let options = RunOptions::default().with_thread_pool(Some(self.pool.clone()));
        self.model.run(vec![input], &outputs, Some(options)).unwrap();
    }
}

/// Microseconds that all threads of this process have had so far.
fn cpu_us() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| -> Option<f64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.filter_map(of_task).sum::<f64>() / 1000.0
}

/// The least microseconds of each, in turns, and the middle of the turns' ratios.
fn in_turns(mut first: impl FnMut(), mut second: impl FnMut()) -> [f64; 3] {
    let mut least = [f64::MAX; 2];
    let mut ratios = Vec::new();
    for turn in 0..TURNS {
        let mut took = [0.0; 2];
        for which in [turn % 2, 1 - turn % 2] {
            let run: &mut dyn FnMut() = if which == 0 { &mut first } else { &mut second };
            run();
            let start = cpu_us();
            let mut count = 0;
            while count < 2 || cpu_us() - start < 8_000.0 {
                run();
                count += 1;
            }
            took[which] = (cpu_us() - start) / f64::from(count);
            least[which] = least[which].min(took[which]);
        }
        ratios.push(took[0] / took[1]);
    }
    ratios.sort_by(f64::total_cmp);
    [least[0], least[1], ratios[TURNS / 2]]
}

fn show(name: &str, count: usize, [before, after, ratio]: [f64; 3]) {
    println!("{name:48} {count:4} {before:11.1} {after:11.1} {ratio:6.2}");
}

fn rows(name: &str, writer: Writer, elements: usize) {
    let plain = Plain::new(&writer);
    let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
    let program = RowProgram::new(&writer.program(), &inputs, &outputs).unwrap();
    assert!(program.computes_single_row_once(), "{name}");
    let threads = ExecutorThreads::new();
    for count in [1, 8] {
        let data = numbers(count * elements, 1);
        let padded = if count == 1 { [&data[..], &data].concat() } else { data.clone() };
        let shape = [&[count.max(2)], &inputs[0].shape[..]].concat();
        let least = in_turns(
            || plain.run(&shape, &padded, outputs.len()),
            || {
                program.run(count, vec![TensorData::F32(data.clone())], &threads).unwrap();
            },
        );
        show(name, count, least);
    }
}

fn sequences(name: &str, writer: Writer, steps: usize) {
    let plain = Plain::new(&writer);
    let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
    let program = SequenceProgram::new(&writer.sequence_cell(), &inputs, &outputs).unwrap();
    assert!(program.computes_single_sequence_once(), "{name}");
    let threads = ExecutorThreads::new();
    let span = |(_, axes): &(_, PortAxes)| if axes.steps { steps as u32 } else { 1 };
    let spans: Vec<u32> = writer.inputs.iter().chain(&writer.outputs).map(span).collect();
    for count in [1, 4] {
        let data = numbers(count * steps * 256, 1);
        let batch = SequenceBatch { spans: spans.clone(), nodes: (0..count).collect() };
        let least = in_turns(
            || plain.run(&[count, steps, 256], &data, outputs.len()),
            || {
                program.run(&batch, vec![TensorData::F32(data.clone())], &threads).unwrap();
            },
        );
        show(&format!("{name}, sequences of {steps}"), count, least);
    }
}

fn layers() -> Writer {
    let mut writer = Writer::default();
    let x = writer.floats(&[256]);
    let x = writer.linear(&x, 256, 256);
    let x = writer.op("Relu", &[&x], vec![]);
    let x = writer.linear(&x, 256, 64);
    writer.output(&x, F32, ROWS, &[64]);
    writer
}

fn residual() -> Writer {
    residual_network(false)
}

fn gated() -> Writer {
    residual_network(true)
}

/// A ResNet-18 for images of 64 x 64; with a gate after each block as of squeeze-and-excitation.
fn residual_network(has_gates: bool) -> Writer {
    let mut writer = Writer::default();
    let x = writer.floats(&[3, 64, 64]);
    let mut x = convolve(&mut writer, &x, [3, 64, 7, 2]);
    let windows = |kernel: i64, stride| {
        vec![
            ints("kernel_shape", &[kernel, kernel]),
            ints("strides", &[stride, stride]),
            ints("pads", &[kernel / 2; 4]),
        ]
    };
    x = writer.op("Relu", &[&x], vec![]);
    x = writer.op("MaxPool", &[&x], windows(3, 2));
    let mut channels = 64;
    for (to, stride) in
        [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
    {
        let y = convolve(&mut writer, &x, [channels, to, 3, stride]);
        let y = writer.op("Relu", &[&y], vec![]);
        let mut y = convolve(&mut writer, &y, [to, to, 3, 1]);
        if has_gates {
            let gate = writer.op("GlobalAveragePool", &[&y], vec![]);
            let gate = writer.reshape(&gate, &[-1, to as i64]);
            let gate = writer.linear(&gate, to, to / 16);
            let gate = writer.op("Relu", &[&gate], vec![]);
            let gate = writer.linear(&gate, to / 16, to);
            let gate = writer.op("Sigmoid", &[&gate], vec![]);
            let gate = writer.reshape(&gate, &[-1, to as i64, 1, 1]);
            y = writer.op("Mul", &[&y, &gate], vec![]);
        }
        if stride == 2 {
            x = convolve(&mut writer, &x, [channels, to, 1, 2]);
        }
        x = writer.op("Add", &[&x, &y], vec![]);
        x = writer.op("Relu", &[&x], vec![]);
        channels = to;
    }
    let pooled = writer.op("GlobalAveragePool", &[&x], vec![]);
    let pooled = writer.reshape(&pooled, &[-1, 512]);
    let y = writer.linear(&pooled, 512, 1000);
    writer.output(&y, F32, ROWS, &[1000]);
    writer
}

fn convolve(writer: &mut Writer, x: &str, [from, to, kernel, stride]: [usize; 4]) -> String {
    let (w, b) = (writer.weights(&[to, from, kernel, kernel]), writer.weights(&[to]));
    let attributes = vec![
        ints("strides", &[stride as i64; 2]),
        ints("dilations", &[1, 1]),
        ints("pads", &[kernel as i64 / 2; 4]),
    ];
    writer.op("Conv", &[x, &w, &b], attributes)
}

/// Over rows of so many tokens, or over sequences.
fn transformer(tokens: Option<usize>) -> Writer {
    let (width, heads) = (256, 4);
    let mut writer = Writer::default();
    let mut x = match tokens {
        Some(tokens) => writer.floats(&[tokens, width]),
        None => writer.input(F32, STEPS, &[width]),
    };
    let input = x.clone();
    let reshape = |writer: &mut Writer, x: &str, row: &[i64]| match tokens {
        Some(tokens) => writer.reshape(x, &[&[-1, tokens as i64], row].concat()),
        None => {
            let shape = writer.op("Shape", &[&input], vec![int("end", 2)]);
            let row = writer.ints(row);
            let shape = writer.op("Concat", &[&shape, &row], vec![int("axis", 0)]);
            writer.op("Reshape", &[x, &shape], vec![])
        }
    };
    let norm = |writer: &mut Writer, x: &str| {
        let [scale, bias] = [(); 2].map(|()| writer.weights(&[width]));
        writer.op("LayerNormalization", &[x, &scale, &bias], vec![int("axis", -1)])
    };
    for _ in 0..4 {
        let normed = norm(&mut writer, &x);
        let head = |writer: &mut Writer, perm: &[i64]| {
            let y = writer.linear(&normed, width, width);
            let y = reshape(writer, &y, &[heads as i64, (width / heads) as i64]);
            writer.op("Transpose", &[&y], vec![ints("perm", perm)])
        };
        let q = head(&mut writer, &[0, 2, 1, 3]);
        let k = head(&mut writer, &[0, 2, 3, 1]);
        let v = head(&mut writer, &[0, 2, 1, 3]);
        let scores = writer.op("MatMul", &[&q, &k], vec![]);
        let scale = writer.float(0.125);
        let scores = writer.op("Mul", &[&scores, &scale], vec![]);
        let weights = writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
        let y = writer.op("MatMul", &[&weights, &v], vec![]);
        let y = writer.op("Transpose", &[&y], vec![ints("perm", &[0, 2, 1, 3])]);
        let y = reshape(&mut writer, &y, &[width as i64]);
        let y = writer.linear(&y, width, width);
        x = writer.op("Add", &[&x, &y], vec![]);
        let y = norm(&mut writer, &x);
        let y = writer.linear(&y, width, 4 * width);
        let y = writer.op("Gelu", &[&y], vec![]);
        let y = writer.linear(&y, 4 * width, width);
        x = writer.op("Add", &[&x, &y], vec![]);
    }
    let axes = if tokens.is_some() { ROWS } else { STEPS };
    let row = [tokens, Some(width)].into_iter().flatten().collect::<Vec<_>>();
    writer.output(&x, F32, axes, &row);
    let at = writer.int(0);
    let first = writer.op("Gather", &[&x, &at], vec![int("axis", 1)]);
    let y = writer.linear(&first, width, 7);
    writer.output(&y, F32, ROWS, &[7]);
    writer
}
