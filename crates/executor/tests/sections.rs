//! Networks of drawn operators around convolutions: the numbers that rten gives for the whole program, and the bits of a row
//! alone as in a batch.

use batchmaker_executor::{ExecutorThreads, OperatorTimer, ProgramOptions, RowProgram, packing};
use batchmaker_graph::{Precision, TensorData};
use batchmaker_kernels::Isa;
use support::networks::{Network, quantised, reference};
use support::{ROWS, Writer, bits, ints, part, values};

mod support;

#[test]
fn networks_in_sections_are_those_of_rten() {
    const ROWS_MAX: usize = 5;
    let threads = ExecutorThreads::new();
    for seed in 0..200 {
        let writer = Network::draw(seed);
        let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
        let program = RowProgram::new(&writer.program(), &inputs, &outputs).unwrap();
        let data = values(&inputs[0], ROWS_MAX, seed as u32);
        let n = inputs[0].elements();
        let run = |first: usize, rows: usize| {
            program.run(rows, vec![part(&data, first * n, rows * n)], &threads).unwrap()
        };
        let together = run(0, ROWS_MAX);
        let TensorData::F32(x) = &data else { panic!("floats") };
        for (port, wanted) in reference(&writer, ROWS_MAX, &x[..ROWS_MAX * n]).iter().enumerate() {
            let TensorData::F32(found) = &together[port] else { panic!("floats") };
            let largest = wanted.iter().fold(1.0_f32, |largest, y| largest.max(y.abs()));
            let error = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error <= 1e-5 * largest, "seed {seed}, port {port}: {error} of {largest}");
        }
        for row in 0..ROWS_MAX {
            let alone = run(row, 1);
            for (port, spec) in outputs.iter().enumerate() {
                let n = spec.elements();
                let of_row = bits(&together[port], row * n, n);
                assert_eq!(bits(&alone[port], 0, n), of_row, "seed {seed}, port {port}, row {row}");
            }
        }
    }
}

#[test]
fn images_are_quantised_in_few_passes() {
    const ROWS_MAX: usize = 3;
    let threads = ExecutorThreads::new();
    for seed in 0..40 {
        let writer = quantised(seed);
        let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
        let data = values(&inputs[0], ROWS_MAX, seed as u32);
        let (n, of_row) = (inputs[0].elements(), outputs[0].elements());
        let TensorData::F32(x) = &data else { panic!("floats") };
        let wanted = &reference(&writer, ROWS_MAX, &x[..ROWS_MAX * n])[0];
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let options = ProgramOptions {
                packing: packing(isa, Precision::F32),
                ..ProgramOptions::default()
            };
            let program = RowProgram::with(&writer.program(), &inputs, &outputs, &options).unwrap();
            let run = |first: usize, rows: usize| {
                let x = part(&data, first * n, rows * n);
                program.run(rows, vec![x], &threads).unwrap().remove(0)
            };
            let together = run(0, ROWS_MAX);
            for row in 0..ROWS_MAX {
                let bits_of_row = bits(&together, row * of_row, of_row);
                assert_eq!(bits(&run(row, 1), 0, of_row), bits_of_row, "seed {seed}, {isa}");
            }
            let TensorData::F32(found) = &together else { panic!("floats") };
            let largest = wanted.iter().fold(1.0_f32, |largest, y| largest.max(y.abs()));
            let differences = found.iter().zip(wanted).map(|(a, b)| (a - b).abs() / largest);
            // What is half way between two numbers may become either.
            let rounded = differences.clone().filter(|&difference| difference > 1e-5).count();
            let worst = differences.fold(0.0, f32::max);
            let is_near = worst < 0.05 && rounded * 50 <= found.len();
            assert!(is_near, "seed {seed}, {isa}: {rounded} of {}, {worst}", found.len());
        }
        let timer =
            OperatorTimer::of_rows(&writer.program(), &inputs, &outputs, Isa::best().into());
        let operators = timer.unwrap().run(1, None, 1, &threads).unwrap();
        let operators: Vec<&str> =
            operators.iter().map(|operator| operator.operators.as_str()).collect();
        let count = |wanted: &[&str]| {
            let is_wanted = |of: &&&str| wanted.iter().any(|wanted| of.starts_with(wanted));
            operators.iter().filter(is_wanted).count()
        };
        let quantisings = count(&["ReduceLeast, ReduceGreatest"]);
        let of_scalars = [
            "Min, Max, Sub, Div, Where, Neg, Div, Clip, Round",
            "Max, Min, Sub, Div, Where, Neg, Div, Clip, Round",
        ];
        assert_eq!([quantisings, count(&of_scalars)], [1 + quantisings / 2; 2], "{operators:?}");
        // The last one is of pixels whose channels lie side by side; only what has one pixel, and the output, is read otherwise.
        let of_pixels = ["Div, Add, Sub, Add, Clip, Sub, Add, Mul, Swish"];
        assert_eq!(count(&of_pixels), 1, "seed {seed}: {operators:?}");
        let is_standardised = count(&["Add, Sqrt"]) > 0;
        let turned = if is_standardised { 3 } else { 1 };
        assert_eq!(count(&["to channels first"]), turned, "seed {seed}: {operators:?}");
    }
}

/// In every precision, on every instruction set of this machine.
#[test]
fn a_row_alone_has_its_bits_in_every_precision() {
    const ROWS_MAX: usize = 3;
    let threads = ExecutorThreads::new();
    let largest = |values: &[f32]| values.iter().fold(1.0_f32, |largest, y| largest.max(y.abs()));
    for seed in 0..200 {
        let writer = Network::draw(seed);
        let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
        let data = values(&inputs[0], ROWS_MAX, seed as u32);
        let n = inputs[0].elements();
        let mut of_f32: Vec<f32> = Vec::new();
        for (precision, bound) in
            [(Precision::F32, 0.0), (Precision::Bf16, 2e-2), (Precision::Int8, 5e-2)]
        {
            let mut of_first_isa = Vec::new();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let options = ProgramOptions {
                    packing: packing(isa, precision),
                    ..ProgramOptions::default()
                };
                let program =
                    RowProgram::with(&writer.program(), &inputs, &outputs, &options).unwrap();
                let run = |first: usize, rows: usize| {
                    program.run(rows, vec![part(&data, first * n, rows * n)], &threads).unwrap()
                };
                let what = format!("seed {seed}, {precision}, {isa}");
                let together = run(0, ROWS_MAX);
                for row in 0..ROWS_MAX {
                    let alone = run(row, 1);
                    for (port, spec) in outputs.iter().enumerate() {
                        let n = spec.elements();
                        let of_row = bits(&together[port], row * n, n);
                        assert_eq!(
                            bits(&alone[port], 0, n),
                            of_row,
                            "{what}, port {port}, row {row}"
                        );
                    }
                }
                let TensorData::F32(found) = &together[0] else { panic!("floats") };
                let of_isa = bits(&together[0], 0, found.len());
                if precision == Precision::F32 && of_f32.is_empty() {
                    of_f32.clone_from(found);
                }
                let differences = found.iter().zip(&of_f32).map(|(a, b)| (a - b).abs());
                let error = differences.fold(0.0, f32::max) / largest(&of_f32);
                // The layer norm of attention amplifies rounding.
                let bound = if seed % 6 == 3 { 10.0 * bound } else { bound };
                assert!(error <= bound, "{what}: {error}");
                if of_first_isa.is_empty() {
                    of_first_isa = of_isa;
                } else if precision != Precision::Bf16 {
                    assert_eq!(of_isa, of_first_isa, "{what}");
                }
            }
        }
    }
}

/// Whole numbers from `least` on, below `least + 256`.
fn bytes(count: usize, seed: usize, least: f32) -> Vec<f32> {
    let byte = |at: usize| (at + seed) * 7919 % 65_537 % 256;
    (0..count).map(|at| byte(at) as f32 + least).collect()
}

/// A product whose sums pass 2^24, where FLOAT would round each.
#[test]
fn marked_products_run_on_bytes() {
    const K: usize = 4000;
    const OUTPUTS: usize = 9;
    let weights = bytes(K * OUTPUTS, 5, -3.0);
    for operator in ["MatMul", "Conv"] {
        let mut writer = Writer::default();
        let product = match operator {
            "MatMul" => {
                let x = writer.floats(&[K]);
                let w = writer.numbers(&[K, OUTPUTS], weights.clone());
                writer.op("MatMul", &[&x, &w], vec![])
            }
            _ => {
                // Channels first: a matrix of the columns.
                let x = writer.floats(&[K, 1]);
                let mut turned = Vec::new();
                for output in 0..OUTPUTS {
                    turned.extend(weights[output..].iter().step_by(OUTPUTS));
                }
                let w = writer.numbers(&[OUTPUTS, K, 1], turned);
                let kernel = ints("kernel_shape", &[1]);
                writer.op("Conv", &[&x, &w], vec![kernel, ints("pads", &[0, 0])])
            }
        };
        writer.byte_products.push(product.clone());
        let y = writer.reshape(&product, &[-1, OUTPUTS as i64]);
        writer.output(&y, batchmaker_graph::ElementType::F32, ROWS, &[OUTPUTS]);
        let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
        let program = RowProgram::new(&writer.program(), &inputs, &outputs).unwrap();
        let rows = [bytes(K, 1, -200.0), bytes(K, 77, 0.0), bytes(K, 9, -255.0)];
        let threads = ExecutorThreads::new();
        let found =
            program.run(rows.len(), vec![TensorData::F32(rows.concat())], &threads).unwrap();
        let TensorData::F32(found) = &found[0] else { panic!("floats") };
        for (at, &found) in found.iter().enumerate() {
            let column = weights[at % OUTPUTS..].iter().step_by(OUTPUTS);
            let terms = rows[at / OUTPUTS].iter().zip(column);
            let sum: i64 = terms.map(|(&x, &w)| x as i64 * w as i64).sum();
            assert!(sum.abs() > 1 << 24, "{sum}");
            assert_eq!(found, sum as f32, "{operator}: sum {at}");
        }
    }
}

#[test]
fn operators_that_kernels_have_are_recognised() {
    let threads = ExecutorThreads::new();
    let mut found = String::new();
    for seed in 0..60 {
        let writer = Network::draw(seed);
        let (inputs, outputs) = (Writer::rows(&writer.inputs), Writer::rows(&writer.outputs));
        let timer =
            OperatorTimer::of_rows(&writer.program(), &inputs, &outputs, Isa::best().into())
                .unwrap();
        for operator in timer.run(1, None, 1, &threads).unwrap() {
            assert!(!operator.output.is_empty(), "{}", operator.operators);
            found += &format!("{}\n", operator.operators);
        }
        assert!(!found.contains("Erf"), "seed {seed}: a GELU");
    }
    let wanted = [
        "Conv ",
        " in 2 groups",
        "ConvTranspose 2x2",
        "Resize 2x3",
        "shuffle of 2 groups",
        "Pool",
        "MatMul, Softmax, MatMul",
        "Concat",
        "ReduceMean",
        ", HardSwish",
        ", Add",
        ", Gelu",
        "Add, LayerNormalization",
        "Pad",
        "Gather",
        "Slice, Reshape, Transpose",
        "ReduceGreatest",
        "Sub, Add",
        "Max, Mul",
    ];
    let is_line = |line: &&str| line.starts_with("Conv 1x3,") && line.ends_with(", Relu");
    assert!(found.lines().any(|line| is_line(&line)), "no convolution along a line");
    for wanted in wanted {
        assert!(found.contains(wanted), "none is {wanted}");
    }
}
