//! Linear layers whose greatest output is wanted.

use batchmaker_cuda::linear::{ArgMaxRow, Greatest, PackedLinearArgMax};
use batchmaker_cuda_emulator::{KernelLibrary, Memory, Place, Report};
use batchmaker_graph::LinearArgMax;

use crate::harness::{Found, SEEDS, bugs, launch, library, number, numbers, pointer};

const FILE: &str = "linear_arg_max.cu";

/// Rows, elements of x, outputs: the last one has more blocks than a warp has threads.
const SHAPES: [[usize; 3]; 3] = [[3, 5, 7], [18, 50, 70], [2, 3, 1100]];

/// A layer some of whose outputs are equal.
fn layer(inputs: usize, outputs: usize) -> LinearArgMax {
    let twins = |values: Vec<f32>, of_output: usize| {
        let of = |at: usize| values[at / of_output / 2 * 2 * of_output + at % of_output];
        (0..outputs * of_output).map(of).collect()
    };
    let w = twins(numbers((outputs + 1) * inputs, 1), inputs);
    LinearArgMax {
        input_size: inputs,
        output_size: outputs,
        w,
        b: Some(twins(numbers(outputs + 1, 2), 1)),
    }
}

/// The first index of the greatest sum, in the kernels' order of sums.
fn expected(layer: &LinearArgMax, x: &[f32]) -> i64 {
    let b = layer.b.as_ref().unwrap();
    let sum = |output: usize| {
        let of_output = &layer.w[output * layer.input_size..][..layer.input_size];
        x.iter().zip(of_output).fold(b[output], |sum, (x, w)| x.mul_add(*w, sum))
    };
    let sums = (0..layer.output_size).map(|output| (output, sum(output)));
    let first = (0, f32::NEG_INFINITY);
    sums.fold(first, |best, of| if of.1 > best.1 { of } else { best }).0 as i64
}

/// What the kernels report of a batch, and the indices that they find; then those that are right.
fn run(
    library: &KernelLibrary,
    layer: &LinearArgMax,
    rows: usize,
    seed: u64,
) -> (Vec<Report>, Vec<i64>, Vec<i64>) {
    let packed = PackedLinearArgMax::new(layer);
    let memory = Memory::new(64 << 20);
    let mut x = numbers(rows * packed.inputs(), 7);
    // The last row has a sum that is no number for each output.
    x[(rows - 1) * packed.inputs()] = f32::NAN;
    let x_at = memory.upload(&x, "x").unwrap();
    let y_at = memory.allocate(8 * rows, "y", Place::Device).unwrap();
    let row = |row: usize| ArgMaxRow {
        x: x_at as u64 + (4 * row * packed.inputs()) as u64,
        // From the last place to the first.
        y: y_at as u64 + 8 * (rows - 1 - row) as u64,
    };
    let batch: Vec<ArgMaxRow> = (0..rows).map(row).collect();
    let batch = memory.upload(&batch, "batch").unwrap();
    let upload = |data: &[f32], name| memory.upload(data, name).unwrap();
    let (w, b) = (upload(&packed.w, "w"), upload(&packed.b, "b"));
    let blocks = packed.blocks_of_a_row();
    let parts = size_of::<Greatest>() * rows * blocks;
    let parts = memory.allocate(parts, "parts", Place::Device).unwrap();
    let (batch, count, parts) = (pointer(batch), number(rows), pointer(parts));
    let sizes = [number(packed.inputs()), number(packed.outputs())];
    let first = [batch.clone(), count.clone(), pointer(w), pointer(b), parts.clone()];
    let arguments = [[&first[..], &sizes].concat(), vec![batch, count, parts, number(blocks)]];
    let mut reports = Vec::new();
    let launches = PackedLinearArgMax::KERNELS.into_iter().zip(packed.grids(rows)).zip(arguments);
    for ((kernel, grid), arguments) in launches {
        let kernel = library.kernel(kernel).unwrap();
        reports.extend(launch(&memory, kernel, grid, arguments, seed));
    }
    // SAFETY: no kernel runs; any bytes are numbers.
    let mut found: Vec<i64> = unsafe { memory.download(y_at, rows) };
    found.reverse();
    let right = x.chunks(packed.inputs()).map(|x| expected(layer, x)).collect();
    (reports, found, right)
}

#[test]
fn the_first_of_the_greatest_is_found() {
    let library = library("arg_max", FILE, None);
    let mut others = 0;
    for [rows, inputs, outputs] in SHAPES {
        let layer = layer(inputs, outputs);
        for seed in 0..SEEDS {
            let (reports, found, right) = run(&library, &layer, rows, seed);
            let of = format!("{outputs} outputs, seed {seed}");
            assert!(reports.is_empty(), "{of}: {}", reports[0]);
            assert_eq!(found, right, "{of}");
            assert_eq!(right[rows - 1], 0, "of a row without numbers");
            others += right.iter().filter(|&&index| index > 0).count();
        }
    }
    assert!(others > 0, "no row has another output than the first");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for [rows, inputs, outputs] in SHAPES {
        let (reports, indices, right) = run(&library, &layer(inputs, outputs), rows, 0);
        if found.is_by(&reports, || indices != right) {
            return;
        }
    }
    panic!("{name} is not found");
}

bugs! {
    super::is_found;
    last_of_equals: "a.output < b.output" => "a.output > b.output", Found::ByValues;
    no_check_of_outputs: "output < outputs && sum > LEAST" => "sum > LEAST", Found::ByAnything;
    rows_beyond: "threadIdx.x == 0 && row < rows" => "threadIdx.x == 0", Found::By(Fault::OutOfBounds);
    all_threads_write: "threadIdx.x == 0 && row < rows" => "row < rows", Found::By(Fault::DataRace);
    half_of_a_warp: "for (int by = 16;" => "for (int by = 8;", Found::ByValues;
    wrong_mask: "{__shfl_xor_sync(0xffffffffu, own.sum, by)" => "{__shfl_xor_sync(0x7fffffffu, own.sum, by)", Found::By(Fault::WarpMask);
    parts_of_another_row: "parts[(long)row * blocks + part]" => "parts[part]", Found::ByValues;
}
