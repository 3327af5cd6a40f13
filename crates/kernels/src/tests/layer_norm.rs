//! Layer normalisation and GELU against their definitions in f64, and the same bits on every target.

use super::convolutions::erf;
use super::random::{Random, bits};
use crate::layers::activation::{Activation, Finish};
use crate::layers::layer_norm::{LayerNormParameters, layer_norm};
use crate::simd::isa::Isa;
use crate::simd::vector_unit::VectorUnit;

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

#[test]
fn layer_norm_is_its_definition() {
    let mut random = Random(0x1a7e);
    let draws = if cfg!(miri) { 4 } else { 100 };
    for draw in 0..draws {
        let (length, rows) = (2 + random.below(90), 1 + random.below(5));
        let largest = [0.1, 5.0, 100.0][random.below(3)];
        let x = random.vec(length * rows, largest);
        let residual = (draw % 2 == 0).then(|| random.vec(length * rows, 1.0));
        let scale = random.vec(length, 1.0);
        let bias = (draw % 3 != 0).then(|| random.vec(length, 1.0));
        let epsilon = 1e-5;
        let parameters = LayerNormParameters { epsilon, scale: &scale, bias: bias.as_deref() };
        let mut first: Option<Vec<u32>> = None;
        for isa in isas() {
            let mut y = vec![f32::NAN; x.len()];
            layer_norm(isa, parameters, &x, residual.as_deref(), &mut y).unwrap();
            for (row, y) in y.chunks_exact(length).enumerate() {
                let of = |at: usize| {
                    let residual = residual.as_ref().map_or(0.0, |z| z[row * length + at]);
                    f64::from(x[row * length + at] + residual)
                };
                let n = length as f64;
                let mean = (0..length).map(of).sum::<f64>() / n;
                let variance = (0..length).map(|at| (of(at) - mean).powi(2)).sum::<f64>() / n;
                let largest = (0..length).map(|at| of(at).abs()).fold(0.0, f64::max);
                let deviation = (variance + f64::from(epsilon)).sqrt();
                for (at, &y) in y.iter().enumerate() {
                    let bias = bias.as_ref().map_or(0.0, |bias| f64::from(bias[at]));
                    let wanted = (of(at) - mean) / deviation * f64::from(scale[at]) + bias;
                    let error = (f64::from(y) - wanted).abs();
                    assert!(error <= 2e-6 * (1.0 + largest / deviation), "{y}, {wanted}");
                }
            }
            assert_eq!(first.get_or_insert(bits(&y)), &bits(&y), "{isa:?}");
            let alone = length * (rows - 1);
            let mut last = vec![0.0; length];
            let residual = residual.as_ref().map(|residual| &residual[alone..]);
            layer_norm(isa, parameters, &x[alone..], residual, &mut last).unwrap();
            assert_eq!(bits(&last), bits(&y[alone..]), "{isa:?}, a row alone");
        }
    }
}

#[test]
fn lengths_of_a_layer_norm_are_checked() {
    let parameters = LayerNormParameters { epsilon: 0.0, scale: &[1.0; 3], bias: None };
    let run = |x: usize, residual: Option<usize>, y: usize| {
        let residual = residual.map(|len| vec![0.0; len]);
        layer_norm(Isa::Scalar, parameters, &vec![0.0; x], residual.as_deref(), &mut vec![0.0; y])
    };
    assert!(run(6, Some(6), 6).is_ok());
    assert!(run(6, Some(3), 6).is_err());
    assert!(run(3, None, 6).is_err());
    assert!(run(4, None, 4).is_err());
    let parameters = LayerNormParameters { scale: &[], ..parameters };
    assert!(layer_norm(Isa::Scalar, parameters, &[0.0], None, &mut [0.0]).is_err());
    assert!(layer_norm(Isa::Scalar, parameters, &[], None, &mut []).is_ok());
}

#[test]
fn gelu_is_its_definition() {
    let x: Vec<f32> = (-4000..=4000).map(|n| n as f32 * 0.003).collect();
    for unit in VectorUnit::all_for_tests() {
        let mut y = x.clone();
        unit.vectorize(Finish { y: &mut y, residual: None, activation: Activation::Gelu });
        for (&x, &y) in x.iter().zip(&y) {
            let x = f64::from(x);
            let error = (f64::from(y) - x / 2.0 * (1.0 + erf(x / 2.0_f64.sqrt()))).abs();
            assert!(error <= 3e-7 + 2e-7 * x.abs(), "{x}: {y}, {error}");
        }
        let mut ends = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1e30];
        unit.vectorize(Finish { y: &mut ends, residual: None, activation: Activation::Gelu });
        assert!(ends[0].is_nan());
        assert_eq!(ends[1..], [f32::INFINITY, 0.0, 0.0, 1e30]);
    }
}
