//! Convolutions and pools of drawn sizes against their definition in f64; the bits of an image alone, and on every target.

use super::random::{Random, bits};
use crate::layers::activation::Activation;
use crate::layers::convolution::{
    ConvolutionParameters, Epilogue, Factors, Images, PackedConvolution,
};
use crate::layers::pool::{Pooling, pool};
use crate::layers::window::Window;
use crate::packing::reduced::Format;
use crate::packing::target::Target;

struct Case {
    inputs: usize,
    outputs: usize,
    groups: usize,
    windows: [Window; 2],
    count: usize,
    size: [usize; 2],
    w: Vec<f32>,
    b: Option<Vec<f32>>,
    x: Vec<f32>,
    residual: Option<Vec<f32>>,
    activation: Activation,
    factors: Factors,
}

fn window(random: &mut Random, is_line: bool) -> Window {
    if is_line {
        return Window::POINT;
    }
    Window {
        kernel: 1 + random.below(4),
        stride: 1 + random.below(3),
        dilation: 1 + random.below(2),
        before: random.below(4),
        after: random.below(4),
    }
}

/// The error function, by its series; 1 and -1 where that converges slowly.
pub(super) fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let term = |term: &mut f64, n: u32| {
        let of_n = *term / f64::from(2 * n + 1);
        *term *= -x * x / f64::from(n + 1);
        Some(of_n)
    };
    let sum: f64 = (0..200).scan(x, term).sum();
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn activation(random: &mut Random) -> Activation {
    match random.below(10) {
        0 | 1 => Activation::Identity,
        2 => Activation::Clip { low: -0.1, high: 0.4 },
        3 => Activation::Leaky { slope: 0.1 },
        4 => Activation::HardSwish { slope: 1.0 / 6.0, shift: 0.5 },
        5 => Activation::HardSigmoid { slope: 0.2, shift: 0.5 },
        6 => Activation::Sigmoid,
        7 => Activation::Swish,
        8 => Activation::Gelu,
        _ => Activation::Tanh,
    }
}

impl Case {
    fn draw(random: &mut Random) -> Self {
        let groups = [1, 1, 1, 2, 5, 19][random.below(6)];
        let inputs = groups * [1, 1, 3, 8, 33][random.below(5)];
        let outputs = groups * [1, 1, 4, 8, 40, 70][random.below(6)];
        let is_line = random.coin();
        let windows = [window(random, is_line), window(random, false)];
        let count = 1 + random.below(3);
        let mut size = || loop {
            let size = [if is_line { 1 } else { 1 + random.below(9) }, 1 + random.below(40)];
            if (0..2).all(|axis| windows[axis].count(size[axis]).is_some()) {
                return size;
            }
        };
        let size = size();
        let taps = windows[0].kernel * windows[1].kernel;
        let of_y =
            count * windows.iter().zip(size).map(|(w, n)| w.count(n).unwrap()).product::<usize>();
        Self {
            inputs,
            outputs,
            groups,
            windows,
            count,
            size,
            w: random.vec(outputs * inputs / groups * taps, 0.5),
            b: random.coin().then(|| random.vec(outputs, 0.5)),
            x: random.vec(count * size[0] * size[1] * inputs, 1.0),
            residual: random.coin().then(|| random.vec(of_y * outputs, 1.0)),
            activation: activation(random),
            factors: Factors::Any,
        }
    }

    /// Windows of 3 by 3 over many channels, which are computed tile by tile.
    fn of_tiles(random: &mut Random) -> Self {
        let mut side = || Window {
            kernel: 3,
            before: random.below(3),
            after: random.below(3),
            ..Window::POINT
        };
        let windows = [side(), side()];
        // Of more channels than are summed up at a time, now and then.
        let inputs = if random.below(8) == 0 { 16 * 17 } else { 16 * (4 + random.below(2)) };
        let outputs = 16 * (2 + random.below(2));
        let size = [3 + random.below(7), 3 + random.below(20)];
        let count = 1 + random.below(3);
        let pixels = (0..2).map(|axis| windows[axis].count(size[axis]).unwrap()).product::<usize>();
        Self {
            inputs,
            outputs,
            groups: 1,
            windows,
            count,
            size,
            w: random.vec(outputs * inputs * 9, 0.2),
            b: random.coin().then(|| random.vec(outputs, 0.5)),
            x: random.vec(count * size[0] * size[1] * inputs, 1.0),
            residual: random.coin().then(|| random.vec(count * pixels * outputs, 1.0)),
            activation: activation(random),
            factors: Factors::Any,
        }
    }

    /// The same with bytes.
    fn of_bytes(random: &mut Random) -> Self {
        let mut case = Self { factors: Factors::Bytes, ..Self::draw(random) };
        let least = random.below(256) as f32;
        let least_weight = if random.coin() { 128.0 } else { random.below(256) as f32 };
        case.w.iter_mut().for_each(|w| *w = random.below(256) as f32 - least_weight);
        case.x.iter_mut().for_each(|x| *x = random.below(256) as f32 - least);
        case
    }

    fn packed(&self, target: Target) -> PackedConvolution {
        let &Self { inputs, outputs, groups, windows, .. } = self;
        let (w, b) = (&self.w[..], self.b.as_deref());
        let factors = self.factors;
        let parameters = ConvolutionParameters { inputs, outputs, groups, windows, w, b, factors };
        PackedConvolution::for_target(target, parameters).unwrap()
    }

    /// y of the images in `images`.
    fn run(&self, target: Target, images: std::ops::Range<usize>) -> Vec<f32> {
        let packed = self.packed(target);
        let x_len = self.x.len() / self.count;
        let [height, width] = packed.size(self.size).unwrap();
        let y_len = height * width * self.outputs;
        let mut y = vec![f32::NAN; images.len() * y_len];
        let residual = self
            .residual
            .as_ref()
            .map(|residual| &residual[images.start * y_len..images.end * y_len]);
        let x = &self.x[images.start * x_len..images.end * x_len];
        let of = Images { count: images.len(), size: self.size, x };
        packed.run(of, Epilogue { residual, activation: self.activation }, &mut y).unwrap();
        y
    }

    /// The definition.
    fn reference(&self) -> Vec<f64> {
        let [height, width] = self.size;
        let [down, along] = self.windows;
        let [rows, columns] = [down.count(height).unwrap(), along.count(width).unwrap()];
        let (of_group, to_group) = (self.inputs / self.groups, self.outputs / self.groups);
        let mut y = Vec::new();
        for at in 0..self.count * rows * columns {
            let (image, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
            for output in 0..self.outputs {
                let mut sum = self.b.as_ref().map_or(0.0, |b| f64::from(b[output]));
                for tap in 0..down.kernel * along.kernel {
                    let (tap_row, tap_column) = (tap / along.kernel, tap % along.kernel);
                    let from = |window: Window, at: usize, tap: usize| {
                        (at * window.stride + tap * window.dilation).checked_sub(window.before)
                    };
                    let (Some(i), Some(j)) =
                        (from(down, row, tap_row), from(along, column, tap_column))
                    else {
                        continue;
                    };
                    if i >= height || j >= width {
                        continue;
                    }
                    for channel in 0..of_group {
                        let w = (output * of_group + channel) * down.kernel * along.kernel + tap;
                        let x = ((image * height + i) * width + j) * self.inputs
                            + output / to_group * of_group
                            + channel;
                        sum += f64::from(self.w[w]) * f64::from(self.x[x]);
                    }
                }
                sum += self.residual.as_ref().map_or(0.0, |residual| f64::from(residual[y.len()]));
                let gate = |slope: f32, shift: f32| {
                    (f64::from(slope) * sum + f64::from(shift)).clamp(0.0, 1.0)
                };
                y.push(match self.activation {
                    Activation::Identity => sum,
                    Activation::Clip { low, high } => sum.clamp(low.into(), high.into()),
                    Activation::Leaky { slope } if sum < 0.0 => sum * f64::from(slope),
                    Activation::Leaky { .. } => sum,
                    Activation::HardSwish { slope, shift } => sum * gate(slope, shift),
                    Activation::HardSigmoid { slope, shift } => gate(slope, shift),
                    Activation::Sigmoid => 1.0 / (1.0 + (-sum).exp()),
                    Activation::Swish => sum / (1.0 + (-sum).exp()),
                    Activation::Tanh => sum.tanh(),
                    Activation::Gelu => sum / 2.0 * (1.0 + erf(sum / 2.0_f64.sqrt())),
                });
            }
        }
        y
    }
}

#[test]
fn convolutions_are_their_definition() {
    let mut random = Random(0x00c0_ffee);
    let draws = if cfg!(miri) { 6 } else { 300 };
    for draw in 0..draws {
        let mut targets = Target::all_f32_for_tests();
        let case = match draw % 3 {
            0 => {
                targets.extend(Target::all_reduced_for_tests(Format::Int8));
                Case::of_bytes(&mut random)
            }
            1 if draw % 5 == 0 => Case::of_tiles(&mut random),
            _ => Case::draw(&mut random),
        };
        let wanted = case.reference();
        let mut first: Option<Vec<u32>> = None;
        for target in targets {
            let y = case.run(target, 0..case.count);
            assert_eq!(y.len(), wanted.len());
            let largest = wanted.iter().fold(1.0_f64, |largest, y| largest.max(y.abs()));
            for (at, (&y, &wanted)) in y.iter().zip(&wanted).enumerate() {
                let error = (f64::from(y) - wanted).abs();
                assert!(error <= 1e-5 * largest, "{at}: {y}, {wanted}; {:?}", case.windows);
            }
            let bits = bits(&y);
            assert_eq!(first.get_or_insert(bits.clone()), &bits, "{:?}", target.isa);
        }
    }
}

/// Sums of bytes to one output, over lengths on both sides of that up to which they are computed as f32.
#[test]
fn sums_of_large_bytes_are_rounded_once() {
    let mut random = Random(0x255);
    let three = Window { kernel: 3, ..Window::POINT };
    let of_windows = [(3, [three, Window::POINT]), (1, [Window::POINT; 2])];
    let lengths = [16, 100, 171, 172, 512, 516, 517, 1000, 2000];
    for (length, (taps, windows)) in
        lengths.into_iter().flat_map(|length| of_windows.map(|of| (length, of)))
    {
        for draw in 0..8 {
            let range = if draw == 0 { 1 } else { 4 };
            let mut large = || {
                (0..length * taps).map(|_| 255.0 - random.below(range) as f32).collect::<Vec<_>>()
            };
            let case = Case {
                inputs: length,
                outputs: 1,
                groups: 1,
                windows,
                count: 1,
                size: [taps, 1],
                w: vec![255.0; length * taps],
                b: None,
                x: large(),
                residual: None,
                activation: Activation::Identity,
                factors: Factors::Bytes,
            };
            let wanted = case.x.iter().map(|&x| 255 * x as i64).sum::<i64>() as f32;
            let mut targets = Target::all_f32_for_tests();
            targets.extend(Target::all_reduced_for_tests(Format::Int8));
            for target in targets {
                let y = case.run(target, 0..1);
                assert_eq!(y, [wanted], "{length} of {taps} taps on {:?}", target.isa);
            }
        }
    }
}

/// Weights and inputs at the ends of their ranges: sums of pairs come as near to 16 bits as they can.
#[test]
fn sums_of_extreme_bytes_are_exact() {
    let mut random = Random(0x127);
    for (least_weight, length) in [(-127, 64), (-127, 37), (-128, 64)] {
        for draw in 0..4 {
            let mut extreme = |low: i32, high: i32, count: usize| -> Vec<f32> {
                let is_low = (0..count).map(|_| random.below(4) < draw);
                is_low.map(|is_low| if is_low { low } else { high } as f32).collect()
            };
            let (outputs, pixels) = (24, 5);
            let case = Case {
                inputs: length,
                outputs,
                groups: 1,
                windows: [Window::POINT; 2],
                count: 1,
                size: [pixels, 1],
                w: extreme(least_weight, 127, outputs * length),
                b: None,
                x: extreme(0, 255, pixels * length),
                residual: None,
                activation: Activation::Identity,
                factors: Factors::Bytes,
            };
            let of_pixel = |x: &[f32]| -> Vec<f32> {
                let sum = |w: &[f32]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
                case.w.chunks_exact(length).map(sum).collect()
            };
            let wanted: Vec<f32> = case.x.chunks_exact(length).flat_map(of_pixel).collect();
            let mut targets = Target::all_f32_for_tests();
            targets.extend(Target::all_reduced_for_tests(Format::Int8));
            for target in targets {
                let y = case.run(target, 0..1);
                assert_eq!(y, wanted, "{length} from {least_weight} on {:?}", target.isa);
            }
        }
    }
}

#[test]
fn parts_have_the_bits_of_the_whole() {
    let mut random = Random(0x9a27);
    let draws = if cfg!(miri) { 4 } else { 200 };
    for draw in 0..draws {
        let case = match draw % 6 {
            0 | 3 => Case::of_bytes(&mut random),
            1 => Case::of_tiles(&mut random),
            _ => Case::draw(&mut random),
        };
        for target in Target::all_f32_for_tests() {
            let whole = case.run(target, 0..case.count);
            let packed = case.packed(target);
            let images = Images { count: case.count, size: case.size, x: &case.x };
            let parts = packed.parts(images, 1 + random.below(5));
            let mut y = vec![f32::NAN; whole.len()];
            let mut rest = &mut y[..];
            for part in parts {
                let first = part.start * case.outputs;
                let (own, others) = rest.split_at_mut(part.len() * case.outputs);
                let residual = case.residual.as_ref().map(|of| &of[first..][..own.len()]);
                let epilogue = Epilogue { residual, activation: case.activation };
                packed.run_part(images, epilogue, part, own).unwrap();
                rest = others;
            }
            assert!(rest.is_empty());
            assert_eq!(bits(&y), bits(&whole), "{:?} {:?}", case.windows, target.isa);
        }
    }
}

#[test]
fn a_part_is_of_whole_rows_of_tiles() {
    let mut random = Random(0x711e);
    let side = Window { kernel: 3, before: 1, after: 1, ..Window::POINT };
    let case = Case { windows: [side; 2], size: [4, 5], ..Case::of_tiles(&mut random) };
    let packed = case.packed(Target::all_f32_for_tests()[0]);
    let x = random.vec(4 * 5 * case.inputs, 1.0);
    let images = Images { count: 1, size: case.size, x: &x };
    let columns = 5;
    let after = Epilogue { residual: None, activation: Activation::Identity };
    let run = |part: std::ops::Range<usize>| {
        let mut y = vec![0.0; part.len() * case.outputs];
        packed.run_part(images, after, part, &mut y).is_ok()
    };
    assert!(run(0..2 * columns));
    assert!(!run(0..columns) && !run(columns..2 * columns) && !run(1..2 * columns));
}

#[test]
fn parts_of_the_outputs_have_the_bits_of_the_whole() {
    let mut random = Random(0x0172);
    let draws = if cfg!(miri) { 1 } else { 20 };
    for draw in 0..draws {
        // A few pixels with much weight; every third time computed tile by tile.
        let (kernel, channels) = (1 + draw % 3, if draw % 3 == 2 { 16 } else { 1 });
        let channels = |least: usize, random: &mut Random| {
            (least + random.below(100)).next_multiple_of(channels)
        };
        let (inputs, outputs) = (channels(300, &mut random), channels(195, &mut random));
        let point = Window { kernel, ..Window::POINT };
        let windows =
            [Window { before: kernel - 1, ..point }, Window { after: kernel - 1, ..point }];
        let (w, b) = (random.vec(inputs * outputs * kernel.pow(2), 0.1), random.vec(outputs, 1.0));
        let (count, size) = (1 + random.below(2), [2 + random.below(3), 2 + random.below(5)]);
        let x = random.vec(count * size[0] * size[1] * inputs, 1.0);
        let images = Images { count, size, x: &x };
        for target in Target::all_f32_for_tests() {
            let packed = PackedConvolution::for_target(
                target,
                ConvolutionParameters {
                    inputs,
                    outputs,
                    groups: 1,
                    windows,
                    w: &w,
                    b: Some(&b),
                    factors: Factors::Any,
                },
            );
            let packed = packed.unwrap();
            let pixels = count * packed.size(size).unwrap().iter().product::<usize>();
            let residual = random.vec(pixels * outputs, 1.0);
            let epilogue =
                Epilogue { residual: Some(&residual), activation: activation(&mut random) };
            let mut whole = vec![f32::NAN; pixels * outputs];
            packed.run(images, epilogue, &mut whole).unwrap();
            let parts = packed.output_parts(images, 1 + random.below(4)).unwrap();
            assert_eq!((parts[0].start, parts.last().unwrap().end), (0, outputs));
            let mut y = vec![f32::NAN; whole.len()];
            for part in parts {
                let rows = y.chunks_exact_mut(outputs).map(|row| &mut row[part.clone()]);
                let mut rows: Vec<&mut [f32]> = rows.collect();
                packed.run_outputs(images, epilogue, &part, &mut rows).unwrap();
                let other = part.start..part.end - 1;
                assert!(packed.run_outputs(images, epilogue, &other, &mut rows).is_err());
                assert!(packed.run_outputs(images, epilogue, &part, &mut rows[1..]).is_err());
            }
            assert_eq!(bits(&y), bits(&whole), "{inputs} to {outputs}, {:?}", target.isa);
        }
    }
}

#[test]
fn an_image_has_the_same_bits_alone() {
    let mut random = Random(77);
    let target = *Target::all_f32_for_tests().last().unwrap();
    for draw in 0..if cfg!(miri) { 3 } else { 100 } {
        let draws = [Case::of_bytes, Case::draw, Case::of_tiles];
        let case = draws[draw % 3](&mut random);
        let together = bits(&case.run(target, 0..case.count));
        let alone: Vec<u32> =
            (0..case.count).flat_map(|image| bits(&case.run(target, image..image + 1))).collect();
        assert_eq!(alone, together, "{:?}", case.windows);
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let parameters = |w: &'static [f32], groups: usize| ConvolutionParameters {
        inputs: 4,
        outputs: 6,
        groups,
        windows: [Window::POINT; 2],
        w,
        b: None,
        factors: Factors::Any,
    };
    let target = Target::all_f32_for_tests()[0];
    assert!(PackedConvolution::for_target(target, parameters(&[0.0; 24], 1)).is_ok());
    assert!(PackedConvolution::for_target(target, parameters(&[0.0; 24], 3)).is_err());
    assert!(PackedConvolution::for_target(target, parameters(&[0.0; 24], 0)).is_err());
    let packed = PackedConvolution::for_target(target, parameters(&[0.0; 12], 2)).unwrap();
    let after = Epilogue { residual: None, activation: Activation::Identity };
    let images = Images { count: 1, size: [2, 3], x: &[0.0; 24] };
    assert!(packed.run(images, after, &mut [0.0; 36]).is_ok());
    assert!(packed.run(images, after, &mut [0.0; 35]).is_err());
    assert!(packed.run(Images { x: &[0.0; 23], ..images }, after, &mut [0.0; 36]).is_err());
    assert!(
        packed
            .run(images, Epilogue { residual: Some(&[0.0; 30]), ..after }, &mut [0.0; 36])
            .is_err()
    );
}

#[test]
fn pools_are_their_definition() {
    let mut random = Random(5);
    for _ in 0..if cfg!(miri) { 4 } else { 200 } {
        let windows = [window(&mut random, false), window(&mut random, false)];
        let (count, channels) = (1 + random.below(3), 1 + random.below(40));
        let size = [1 + random.below(9), 1 + random.below(9)];
        let [Some(rows), Some(columns)] = [0, 1].map(|axis| windows[axis].count(size[axis])) else {
            continue;
        };
        // Of a window in the padding alone there is no greatest element.
        let is_inside = |axis: usize, at: usize| !windows[axis].inside(at, size[axis]).0.is_empty();
        if !(0..rows).all(|at| is_inside(0, at)) || !(0..columns).all(|at| is_inside(1, at)) {
            continue;
        }
        let x = random.vec(count * size[0] * size[1] * channels, 1.0);
        let images = Images { count, size, x: &x };
        for pooling in [Pooling::Max, Pooling::Mean, Pooling::MeanOfPadded] {
            let mut first: Option<Vec<u32>> = None;
            for target in Target::all_f32_for_tests() {
                let mut y = vec![f32::NAN; count * rows * columns * channels];
                let of = (channels, [rows, columns]);
                if pool(target.isa, pooling, windows, images, of, 0..usize::MAX, &mut y).is_err() {
                    continue;
                }
                let bits = bits(&y);
                assert_eq!(first.get_or_insert(bits.clone()), &bits, "{:?}", target.isa);
                for (at, &y) in y.iter().enumerate() {
                    let (pixel, channel) = (at / channels, at % channels);
                    let (row, column) = (pixel / columns % rows, pixel % columns);
                    let image = pixel / (rows * columns);
                    let mut elements = Vec::new();
                    for tap in 0..windows[0].kernel * windows[1].kernel {
                        let taps = [tap / windows[1].kernel, tap % windows[1].kernel];
                        let place = |axis: usize, at: usize| {
                            let Window { stride, dilation, before, .. } = windows[axis];
                            (at * stride + taps[axis] * dilation).checked_sub(before)
                        };
                        if let (Some(i), Some(j)) = (place(0, row), place(1, column))
                            && i < size[0]
                            && j < size[1]
                        {
                            let pixel = (image * size[0] + i) * size[1] + j;
                            elements.push(f64::from(x[pixel * channels + channel]));
                        }
                    }
                    let sum: f64 = elements.iter().sum();
                    let wanted = match pooling {
                        Pooling::Max => elements.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                        Pooling::Mean => sum / elements.len() as f64,
                        Pooling::MeanOfPadded => {
                            sum / (windows[0].kernel * windows[1].kernel) as f64
                        }
                    };
                    assert!((f64::from(y) - wanted).abs() < 1e-6, "{pooling:?}: {y}, {wanted}");
                }
            }
        }
    }
}

#[test]
fn long_windows_are_summed_in_parts() {
    let mut random = Random(11);
    let (inputs, outputs) = (4000, 40);
    let (w, x) = (random.vec(inputs * outputs, 1.0), vec![1.0; inputs]);
    let windows = [Window::POINT; 2];
    let factors = Factors::Any;
    let parameters =
        ConvolutionParameters { inputs, outputs, groups: 1, windows, w: &w, b: None, factors };
    let target = *Target::all_f32_for_tests().last().unwrap();
    let packed = PackedConvolution::for_target(target, parameters).unwrap();
    let mut y = [0.0; 40];
    let after = Epilogue { residual: None, activation: Activation::Identity };
    packed.run(Images { count: 1, size: [1, 1], x: &x }, after, &mut y).unwrap();
    let (mut error, mut of_one_chain) = (0.0, 0.0);
    for (y, w) in y.iter().zip(w.chunks_exact(inputs)) {
        let wanted: f64 = w.iter().map(|&w| f64::from(w)).sum();
        error += (f64::from(*y) - wanted).abs();
        of_one_chain += (f64::from(w.iter().sum::<f32>()) - wanted).abs();
    }
    assert!(2.0 * error < of_one_chain, "{error}, in one chain {of_one_chain}");
}
