//! Linear layers whose greatest output is wanted.

use batchmaker_cuda::kernels::batch::Operand;
use batchmaker_cuda::kernels::linear::{LinearArguments, PART_BYTES, PackedLinearArgMax};
use batchmaker_cuda::kernels::weights::{Storage, bf16};
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_graph::LinearArgMax;

use crate::harness::{
    Found, Gpu, SEEDS, Value, bugs, half_of, input_node, library, numbers, rows, slots,
};

const FILE: &str = "linear_arg_max.cu";

/// Rows, elements of x, outputs: the last one has more blocks than a warp has threads.
const SHAPES: [[usize; 3]; 3] = [[3, 5, 7], [18, 70, 70], [2, 3, 1100]];

/// Where the operands lie.
#[derive(Clone, Copy, Debug)]
enum Places {
    /// x in ports, indices dense.
    PortsAndDense,
    /// x dense, indices in slots.
    DenseAndSlots,
}

const PLACES: [Places; 2] = [Places::PortsAndDense, Places::DenseAndSlots];

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

const STORAGES: [Storage; 2] = [Storage::F32, Storage::Bf16];

/// The number that is multiplied for one.
fn factor(storage: Storage, value: f32) -> f32 {
    match storage {
        Storage::F32 => value,
        Storage::Bf16 => f32::from_bits(u32::from(bf16(value)) << 16),
    }
}

/// The first index of the greatest sum, in the kernels' order of sums.
fn expected((layer, storage): (&LinearArgMax, Storage), x: &[f32]) -> i64 {
    let b = layer.b.as_ref().unwrap();
    let sum = |output: usize| {
        let of_output = &layer.w[output * layer.input_size..][..layer.input_size];
        let factors = x.iter().zip(of_output).map(|(&x, &w)| [x, w].map(|of| factor(storage, of)));
        factors.fold(b[output], |sum, [x, w]| x.mul_add(w, sum))
    };
    let sums = (0..layer.output_size).map(|output| (output, sum(output)));
    let first = (0, f32::NEG_INFINITY);
    sums.fold(first, |best, of| if of.1 > best.1 { of } else { best }).0 as i64
}

/// What the kernels report of a batch, and the indices that they find; then those that are right.
fn run(
    library: &KernelLibrary,
    (layer, storage): (&LinearArgMax, Storage),
    (count, places): (usize, Places),
    seed: u64,
) -> (Vec<Report>, Vec<i64>, Vec<i64>) {
    let (gpu, packed) = (Gpu::new(), PackedLinearArgMax::new(layer, storage));
    let (inputs, rows) = (packed.inputs(), rows(count, 1));
    let (mut x, mut ports) = (Vec::new(), Vec::new());
    for (number, row) in rows.iter().enumerate() {
        let (node, length) = (input_node(row), row.length as usize);
        let mut values = numbers(length * inputs, 7 + number);
        // The last row has a sum that is no number for each output.
        if number == count - 1 {
            // All its bits are set, as those of a GPU are: rounding must not overflow.
            values[node * inputs] = f32::from_bits(0x7fff_ffff);
        }
        x.push(values[node * inputs..][..inputs].to_vec());
        ports.push(Value::upload(&gpu, number, length, &values).port(&gpu, 0));
    }
    let indices = gpu.upload(&vec![-1i64; slots(count) * 2], "indices");
    let (of_x, of_y) = match places {
        Places::PortsAndDense => (Operand::port(0), Operand::dense(indices, 8)),
        Places::DenseAndSlots => {
            let x = gpu.upload(&x.concat(), "x");
            (Operand::dense(x, 4 * inputs), Operand::next_state(indices, 8))
        }
    };
    let (batch, rows_max) = gpu.batch_of(&rows, &ports, 0, seed);
    let arguments = LinearArguments {
        batch,
        x: of_x,
        y: of_y,
        w: gpu.upload(&packed.w, "w"),
        b: gpu.upload(&packed.b, "b"),
        parts: gpu.room(PART_BYTES * count * packed.blocks_of_a_row(), "parts"),
        inputs: inputs as i32,
        outputs: packed.outputs() as i32,
    };
    let mut reports = Vec::new();
    for (kernel, grid) in packed.kernels.into_iter().zip(packed.grids(rows_max)) {
        reports.extend(gpu.launch_tiles((library, kernel), grid, &arguments, seed));
    }
    // Places that are no row's have no index.
    let mut right = vec![-1; slots(count) * 2];
    for (number, (row, x)) in rows.iter().zip(&x).enumerate() {
        let place = match places {
            Places::PortsAndDense => number,
            Places::DenseAndSlots => half_of(row, true),
        };
        right[place] = expected((layer, storage), x);
    }
    (reports, gpu.read(indices, right.len()), right)
}

#[test]
fn the_first_of_the_greatest_is_found() {
    let library = library("right", FILE, None);
    let mut others = 0;
    for ([rows, inputs, outputs], storage) in
        SHAPES.into_iter().flat_map(|shape| STORAGES.map(|storage| (shape, storage)))
    {
        let layer = layer(inputs, outputs);
        for (seed, places) in (0..SEEDS).zip(PLACES.into_iter().cycle()) {
            let (reports, found, right) = run(&library, (&layer, storage), (rows, places), seed);
            let of = format!("{outputs} outputs, {storage:?}, {places:?}, seed {seed}");
            assert!(reports.is_empty(), "{of}: {}", reports[0]);
            assert_eq!(found, right, "{of}");
            assert!(right.contains(&0), "{of}: of a row without numbers");
            others += right.iter().filter(|&&index| index > 0).count();
        }
    }
    assert!(others > 0, "no row has another output than the first");
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    for [rows, inputs, outputs] in SHAPES {
        for (places, storage) in
            PLACES.into_iter().flat_map(|places| STORAGES.map(|storage| (places, storage)))
        {
            let layer = layer(inputs, outputs);
            let (reports, indices, right) = run(&library, (&layer, storage), (rows, places), 0);
            if found.is_by(&reports, || indices != right) {
                return;
            }
        }
    }
    panic!("{name} is not found");
}

bugs! {
    super::is_found;
    last_of_equals: "a.output < b.output" => "a.output > b.output", Found::ByValues;
    no_check_of_outputs: "part.unit < of.outputs && sum > LEAST" => "sum > LEAST", Found::ByAnything;
    rows_beyond: "  if (part.thread >= part.rows) return;\n" => "  if (part.thread >= ROWS) return;\n", Found::By(Fault::OutOfBounds);
    all_threads_write: "if (threadIdx.x < 4) of_warps" => "of_warps", Found::By(Fault::DataRace);
    greatest_of_warps_read_too_early: "  __syncthreads();\n  if (part.thread >= part.rows)" => "  if (part.thread >= part.rows)", Found::By(Fault::DataRace);
    units_of_the_first_warp: "warp < GROUPS; warp++" => "warp < 1; warp++", Found::ByValues;
    units_of_other_rows: "part.unit}, 4);" => "part.unit}, 2);", Found::ByAnything;
    indices_of_rows_beyond: "  if (row >= of.batch.count) return;\n" => "", Found::By(Fault::OutOfBounds);
    all_threads_write_indices: "if (threadIdx.x == 0) *(long long*)" => "*(long long*)", Found::By(Fault::DataRace);
    half_of_a_warp: "for (int by = 16;" => "for (int by = 8;", Found::ByValues;
    wrong_mask: "{__shfl_xor_sync(0xffffffffu, own.sum, by)" => "{__shfl_xor_sync(0x7fffffffu, own.sum, by)", Found::By(Fault::WarpMask);
    parts_of_another_row: "of.parts[(long long)row * blocks + part]" => "of.parts[part]", Found::ByValues;
    no_number_becomes_one: "return x == x ? __uint_as_float(normal) : x;" => "return __uint_as_float(normal);", Found::ByValues;
    parts_of_32_blocks: "part < blocks; part += UNITS" => "part < UNITS; part += UNITS", Found::ByAnything;
}
