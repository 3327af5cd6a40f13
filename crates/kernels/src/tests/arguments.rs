//! Arguments that do not agree are refused by name; panels that do not exist are a bug of the
//! caller.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::kernels::{Kernel, Layer, Row};
use super::random::Random;
use crate::simd::vector_unit::VectorUnit;
use crate::{
    GruParameters, Isa, KernelError, LinearParameters, LstmBytes, LstmParameters, PackedGru,
    PackedLinear, PackedLstm, PackedRnn, PackedTreeInner, PackedTreeLeaf, Recurrence,
    RnnParameters, TreeInnerParameters, TreeLeafParameters, step_dense,
};

type Refused = Result<(), KernelError>;

fn length(tensor: &'static str, expected: usize, actual: usize) -> Refused {
    Err(KernelError::Length { tensor, expected, actual })
}

fn assert_too_large(refused: &Refused) {
    assert!(matches!(refused, Err(KernelError::TooLarge { .. })), "{refused:?}");
}

/// Sizes whose product with others is more than an address space, in different ways.
const TOO_LARGE: [usize; 4] = [usize::MAX, usize::MAX / 2, usize::MAX / 64, 1 << 60];

#[test]
fn of_an_lstm() {
    let cell = Cell::random(&mut Random(1), Kind::Lstm, 3, 5);
    let new = |change: &dyn Fn(&mut LstmParameters<'_>)| {
        let mut parameters = LstmParameters { b: None, ..cell.lstm() };
        change(&mut parameters);
        PackedLstm::new(Isa::Scalar, parameters).map(drop)
    };
    assert_eq!(new(&|_| ()), Ok(()));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 40])), Ok(()));
    assert_eq!(new(&|p| p.p = Some(&[0.0; 15])), Ok(()));
    let bytes = |r_scale, w_scale| Some(LstmBytes { r_scale, w_scale });
    let scales = &[0.1; 20];
    assert_eq!(new(&|p| p.bytes = bytes(scales, None)), Ok(()));
    assert_eq!(new(&|p| p.bytes = bytes(scales, Some(scales))), Ok(()));
    assert_eq!(new(&|p| p.bytes = bytes(&[0.1; 4], None)), length("r_scale", 20, 4));
    assert_eq!(new(&|p| p.bytes = bytes(scales, Some(&[0.1; 4]))), length("w_scale", 20, 4));
    let empty = |p: &mut LstmParameters<'_>| {
        (p.input_size, p.w, p.bytes) = (0, &[], bytes(scales, Some(scales)));
    };
    assert_eq!(new(&empty), length("w", 20, 0), "there is no scale");
    assert_eq!(new(&|p| p.hidden_size = 0), Err(KernelError::NoHiddenUnits));
    assert_eq!(new(&|p| p.input_size = 4), length("w", 80, 60));
    assert_eq!(new(&|p| p.w = &p.w[1..]), length("w", 60, 59));
    assert_eq!(new(&|p| p.r = &p.r[1..]), length("r", 100, 99));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 20])), length("b", 40, 20));
    assert_eq!(new(&|p| p.p = Some(&[0.0; 20])), length("p", 15, 20));
    for size in TOO_LARGE {
        assert_too_large(&new(&|p| p.input_size = size));
        assert_too_large(&new(&|p| p.hidden_size = size));
    }
}

#[test]
fn of_a_gru() {
    for kind in [Kind::GruResetBefore, Kind::GruResetAfter] {
        let cell = Cell::random(&mut Random(2), kind, 3, 5);
        let new = |change: &dyn Fn(&mut GruParameters<'_>)| {
            let mut parameters = GruParameters { b: None, ..cell.gru() };
            change(&mut parameters);
            PackedGru::new(Isa::Scalar, parameters).map(drop)
        };
        assert_eq!(new(&|_| ()), Ok(()));
        assert_eq!(new(&|p| p.b = Some(&[0.0; 30])), Ok(()));
        assert_eq!(new(&|p| p.hidden_size = 0), Err(KernelError::NoHiddenUnits));
        assert_eq!(new(&|p| p.w = &p.w[1..]), length("w", 45, 44));
        assert_eq!(new(&|p| p.r = &p.r[1..]), length("r", 75, 74));
        assert_eq!(new(&|p| p.b = Some(&[0.0; 15])), length("b", 30, 15));
        for size in TOO_LARGE {
            assert_too_large(&new(&|p| p.input_size = size));
            assert_too_large(&new(&|p| p.hidden_size = size));
        }
    }
}

#[test]
fn of_an_rnn() {
    let cell = Cell::random(&mut Random(3), Kind::RnnTanh, 3, 5);
    let new = |change: &dyn Fn(&mut RnnParameters<'_>)| {
        let mut parameters = RnnParameters { b: None, ..cell.rnn() };
        change(&mut parameters);
        PackedRnn::new(Isa::Scalar, parameters).map(drop)
    };
    assert_eq!(new(&|_| ()), Ok(()));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 10])), Ok(()));
    assert_eq!(new(&|p| p.hidden_size = 0), Err(KernelError::NoHiddenUnits));
    assert_eq!(new(&|p| p.w = &p.w[1..]), length("w", 15, 14));
    assert_eq!(new(&|p| p.r = &p.r[1..]), length("r", 25, 24));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 5])), length("b", 10, 5));
    for size in TOO_LARGE {
        assert_too_large(&new(&|p| p.input_size = size));
        assert_too_large(&new(&|p| p.hidden_size = size));
    }
}

#[test]
fn of_a_leaf() {
    let leaf = Leaf::random(&mut Random(4), 3, 5);
    let new = |change: &dyn Fn(&mut TreeLeafParameters<'_>)| {
        let mut parameters = TreeLeafParameters { b: None, ..leaf.parameters() };
        change(&mut parameters);
        PackedTreeLeaf::new(Isa::Scalar, parameters).map(drop)
    };
    assert_eq!(new(&|_| ()), Ok(()));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 15])), Ok(()));
    assert_eq!(new(&|p| p.hidden_size = 0), Err(KernelError::NoHiddenUnits));
    assert_eq!(new(&|p| p.w = &p.w[1..]), length("w", 45, 44));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 30])), length("b", 15, 30));
    for size in TOO_LARGE {
        assert_too_large(&new(&|p| p.input_size = size));
        assert_too_large(&new(&|p| p.hidden_size = size));
    }
}

#[test]
fn of_an_inner_node() {
    let inner = Inner::random(&mut Random(5), 5);
    let new = |change: &dyn Fn(&mut TreeInnerParameters<'_>)| {
        let mut parameters = TreeInnerParameters { b: None, ..inner.parameters() };
        change(&mut parameters);
        PackedTreeInner::new(Isa::Scalar, parameters).map(drop)
    };
    assert_eq!(new(&|_| ()), Ok(()));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 25])), Ok(()));
    assert_eq!(new(&|p| p.hidden_size = 0), Err(KernelError::NoHiddenUnits));
    assert_eq!(new(&|p| p.l = &p.l[1..]), length("l", 125, 124));
    assert_eq!(new(&|p| p.r = &p.r[1..]), length("r", 125, 124));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 15])), length("b", 25, 15));
    for size in TOO_LARGE {
        assert_too_large(&new(&|p| p.hidden_size = size));
    }
}

#[test]
fn of_a_linear_layer() {
    let linear = Linear::random(&mut Random(6), 3, 5);
    let new = |change: &dyn Fn(&mut LinearParameters<'_>)| {
        let mut parameters = LinearParameters { b: None, ..linear.parameters() };
        change(&mut parameters);
        PackedLinear::new(Isa::Scalar, parameters).map(drop)
    };
    assert_eq!(new(&|_| ()), Ok(()));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 5])), Ok(()));
    assert_eq!(new(&|p| p.output_size = 0), Err(KernelError::NoHiddenUnits));
    assert_eq!(new(&|p| p.w = &p.w[1..]), length("w", 15, 14));
    assert_eq!(new(&|p| p.b = Some(&[0.0; 10])), length("b", 5, 10));
    for size in TOO_LARGE {
        assert_too_large(&new(&|p| p.input_size = size));
        assert_too_large(&new(&|p| p.output_size = size));
    }
}

#[test]
fn instruction_sets_that_the_machine_lacks_are_refused() {
    let mut random = Random(7);
    let [lstm, gru, rnn] = [Kind::Lstm, Kind::GruResetAfter, Kind::RnnRelu]
        .map(|kind| Cell::random(&mut random, kind, 1, 2));
    let leaf = Leaf::random(&mut random, 1, 2);
    let inner = Inner::random(&mut random, 2);
    let linear = Linear::random(&mut random, 1, 2);
    for isa in Isa::ALL {
        let expected = match isa.is_available() {
            true => Ok(isa),
            false => Err(KernelError::IsaUnavailable(isa)),
        };
        assert_eq!(PackedLstm::new(isa, lstm.lstm()).map(|p| p.isa()), expected);
        assert_eq!(PackedGru::new(isa, gru.gru()).map(|p| p.isa()), expected);
        assert_eq!(PackedRnn::new(isa, rnn.rnn()).map(|p| p.isa()), expected);
        assert_eq!(PackedTreeLeaf::new(isa, leaf.parameters()).map(|p| p.isa()), expected);
        assert_eq!(PackedTreeInner::new(isa, inner.parameters()).map(|p| p.isa()), expected);
        assert_eq!(PackedLinear::new(isa, linear.parameters()).map(|p| p.isa()), expected);
    }
}

#[test]
fn of_a_dense_step() {
    for kind in Kind::ALL {
        let cell = Cell::random(&mut Random(8), kind, 3, 5).pack(VectorUnit::all_for_tests()[1]);
        let (x, h, c_len) = ([0.0; 6], [0.0; 10], 2 * cell.c_len());
        let (mut h_out, mut c) = (h, vec![0.0; c_len + 1]);
        let mut step = |batch, x: &[f32], h: &[f32], h_out_len, c_len| {
            step_dense(&*cell, batch, x, h, &mut h_out[..h_out_len], &mut c[..c_len])
        };
        assert_eq!(step(2, &x, &h, 10, c_len), Ok(()), "{kind:?}");
        assert_eq!(step(0, &[], &[], 0, 0), Ok(()), "{kind:?}");
        assert_eq!(step(3, &x, &h, 10, c_len), length("x", 9, 6), "{kind:?}");
        assert_eq!(step(2, &x, &h[1..], 10, c_len), length("h", 10, 9), "{kind:?}");
        assert_eq!(step(2, &x, &h, 9, c_len), length("h_out", 10, 9), "{kind:?}");
        assert_eq!(step(2, &x, &h, 10, c_len + 1), length("c", c_len, c_len + 1), "{kind:?}");
        assert_too_large(&step(usize::MAX, &x, &h, 10, c_len));
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map_or("no text", |message| message)
}

#[test]
fn panels_out_of_range_are_a_bug_of_the_caller() {
    for layer in Layer::random_all(&mut Random(9), 2, 70) {
        for unit in VectorUnit::all_for_tests() {
            let kernel = layer.pack(unit);
            for phase in 0..kernel.phases() {
                let count = kernel.panels(phase);
                // Nothing is to be done, and done.
                run(&*kernel, phase, 0, count);
                run(&*kernel, phase, count, count);
                for (start, end) in [(0, count + 1), (count + 1, count + 1), (1, 0)] {
                    let what = format!("{unit:?} {} {start}..{end}", layer.name());
                    let panic = catch_unwind(AssertUnwindSafe(|| run(&*kernel, phase, start, end)))
                        .expect_err(&what);
                    let expected = format!("panels {start}..{end} of {count}");
                    assert_eq!(message(&*panic), expected, "{what}");
                }
            }
        }
    }
}

/// Runs panels of no rows.
fn run(kernel: &dyn Kernel, phase: usize, start: usize, end: usize) {
    let rows: &[Row] = &[];
    // SAFETY: there are no rows, so there is nothing to promise.
    unsafe { kernel.run(phase, rows, start..end) };
}
