//! The step against a plain f64 reference, against itself on every vector unit, and alone against
//! in any company.

use std::ptr;

use proptest::prelude::{ProptestConfig, any, proptest};

use super::*;

/// Numbers from a seed, the same on every machine (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `-scale..scale`.
    fn f32(&mut self, scale: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
    }

    fn vec(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.f32(scale)).collect()
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A cell with weights of its own.
struct Cell {
    input_size: usize,
    hidden_size: usize,
    w: Vec<f32>,
    r: Vec<f32>,
    b: Option<Vec<f32>>,
}

impl Cell {
    fn random(random: &mut Random, input_size: usize, hidden_size: usize) -> Self {
        // Larger than a trained cell's, so that gates open and close.
        let scale = 3.0 / (hidden_size as f32).sqrt();
        let has_bias = random.below(4) > 0;
        Self {
            input_size,
            hidden_size,
            w: random.vec(4 * hidden_size * input_size, scale),
            r: random.vec(4 * hidden_size * hidden_size, scale),
            b: has_bias.then(|| random.vec(8 * hidden_size, 1.0)),
        }
    }

    fn pack(&self, unit: VectorUnit) -> PackedLstm {
        PackedLstm::for_unit(unit, self.parameters()).expect("consistent sizes")
    }

    fn parameters(&self) -> LstmParameters<'_> {
        LstmParameters {
            input_size: self.input_size,
            hidden_size: self.hidden_size,
            w: &self.w,
            r: &self.r,
            b: self.b.as_deref(),
        }
    }
}

/// The state of a batch, dense.
#[derive(Clone, Debug, PartialEq)]
struct State {
    h: Vec<f32>,
    c: Vec<f32>,
}

impl State {
    fn random(random: &mut Random, batch: usize, hidden_size: usize) -> Self {
        Self { h: random.vec(batch * hidden_size, 1.0), c: random.vec(batch * hidden_size, 2.0) }
    }

    fn step(&mut self, lstm: &PackedLstm, batch: usize, x: &[f32]) {
        let mut h_out = vec![f32::NAN; self.h.len()];
        lstm.step_dense(batch, x, &self.h, &mut h_out, &mut self.c).expect("consistent lengths");
        self.h = h_out;
    }

    fn bits(&self) -> (Vec<u32>, Vec<u32>) {
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
        (bits(&self.h), bits(&self.c))
    }
}

/// The equations in f64, element by element, written from the operator's specification.
fn reference_step(cell: &Cell, x: &[f64], h: &mut Vec<f64>, c: &mut [f64]) {
    let hidden = cell.hidden_size;
    let dot = |weights: &[f32], values: &[f64]| -> f64 {
        weights.iter().zip(values).map(|(&w, v)| f64::from(w) * v).sum()
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gate = |gate: usize, unit: usize| {
        let row = gate * hidden + unit;
        let bias = |b: &Vec<f32>| f64::from(b[row]) + f64::from(b[4 * hidden + row]);
        dot(&cell.w[row * cell.input_size..][..cell.input_size], x)
            + dot(&cell.r[row * hidden..][..hidden], h)
            + cell.b.as_ref().map_or(0.0, bias)
    };
    let mut h_new = Vec::with_capacity(hidden);
    for (unit, c) in c.iter_mut().enumerate() {
        let [i, o, f, g] = [0, 1, 2, 3].map(|index| gate(index, unit));
        *c = sigmoid(f) * *c + sigmoid(i) * g.tanh();
        h_new.push(sigmoid(o) * c.tanh());
    }
    *h = h_new;
}

/// `|a - b| <= 1e-5 * max(1, max |b|)`
fn assert_close(actual: &[f32], expected: &[f64], what: &str) {
    let largest = expected.iter().fold(1.0_f64, |max, v| max.max(v.abs()));
    for (index, (&a, &b)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(a) - b).abs();
        assert!(error <= 1e-5 * largest, "{what}[{index}]: {a} is not {b} (off by {error:e})");
    }
}

/// Shapes at and around every lane count and tile height, then any.
fn shapes(random: &mut Random, count: usize) -> Vec<(usize, usize, usize)> {
    // [input, hidden, batch]
    let mut shapes = vec![
        (1, 1, 1),
        (0, 3, 2),
        (2, 7, 3),
        (3, 8, 4),
        (5, 9, 5),
        (8, 15, 6),
        (1, 16, 7),
        (7, 17, 8),
        (33, 31, 2),
        (4, 32, 13),
        (16, 64, 1),
        (9, 70, 20),
    ];
    while shapes.len() < count {
        shapes.push((1 + random.below(40), 1 + random.below(70), 1 + random.below(20)));
    }
    shapes.truncate(count);
    if !cfg!(miri) {
        shapes.push((128, 128, 7));
    }
    shapes
}

#[test]
fn agrees_with_the_f64_reference_over_several_steps() {
    let mut random = Random(1);
    for (input, hidden, batch) in shapes(&mut random, if cfg!(miri) { 7 } else { 40 }) {
        let cell = Cell::random(&mut random, input, hidden);
        let start = State::random(&mut random, batch, hidden);
        let xs: Vec<_> = (0..3).map(|_| random.vec(batch * input, 1.0)).collect();
        for unit in VectorUnit::all_for_tests() {
            let lstm = cell.pack(unit);
            let mut state = start.clone();
            for x in &xs {
                state.step(&lstm, batch, x);
            }
            for row in 0..batch {
                let wide = |values: &[f32], size: usize| -> Vec<f64> {
                    let row = &values[row * size..][..size];
                    row.iter().map(|&v| f64::from(v)).collect()
                };
                let (mut h, mut c) = (wide(&start.h, hidden), wide(&start.c, hidden));
                for x in &xs {
                    reference_step(&cell, &wide(x, input), &mut h, &mut c);
                }
                let what = format!("{unit:?} [{input}, {hidden}, {batch}] row {row}");
                let at = row * hidden;
                assert_close(&state.h[at..][..hidden], &h, &format!("{what} h"));
                assert_close(&state.c[at..][..hidden], &c, &format!("{what} c"));
            }
        }
    }
}

/// A cell whose pre-activations can be read off its state: only the candidate gate has weights,
/// the forget gate is shut (sigmoid of -200 is zero) and the input gate open (of 200, one), so
/// `c' = tanh(sum)`.
#[test]
fn sums_are_accumulated_in_the_documented_order() {
    let mut random = Random(2);
    for (input, hidden, batch) in shapes(&mut random, if cfg!(miri) { 7 } else { 30 }) {
        let mut cell = Cell::random(&mut random, input, hidden);
        cell.w[..3 * hidden * input].fill(0.0);
        cell.r[..3 * hidden * hidden].fill(0.0);
        let mut b = vec![0.0; 8 * hidden];
        b[..hidden].fill(200.0);
        b[2 * hidden..3 * hidden].fill(-200.0);
        b[3 * hidden..4 * hidden].fill_with(|| random.f32(1.0));
        b[7 * hidden..].fill_with(|| random.f32(1.0));
        let x = random.vec(batch * input, 1.0);
        let start = State::random(&mut random, batch, hidden);

        // The sums as documented; then, for tanh, a cell with no other work to do: input 1, the
        // sum itself, weight 1.
        let mut sums = Vec::new();
        for row in 0..batch {
            for unit in 0..hidden {
                let at = 3 * hidden + unit;
                let mut sum = b[at] + b[4 * hidden + at];
                for k in 0..input {
                    sum = cell.w[at * input + k].mul_add(x[row * input + k], sum);
                }
                for k in 0..hidden {
                    sum = cell.r[at * hidden + k].mul_add(start.h[row * hidden + k], sum);
                }
                sums.push(sum);
            }
        }
        let mut state = State { h: vec![0.0; sums.len()], c: vec![0.0; sums.len()] };
        let tanh_cell = LstmParameters {
            input_size: 1,
            hidden_size: 1,
            w: &[0.0, 0.0, 0.0, 1.0],
            r: &[0.0; 4],
            b: Some(&[200.0, 0.0, -200.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        };
        let tanh = PackedLstm::new(Isa::Scalar, tanh_cell).expect("consistent sizes");
        state.step(&tanh, sums.len(), &sums);
        let expected = state.bits().1;

        cell.b = Some(b);
        for unit in VectorUnit::all_for_tests() {
            let mut state = start.clone();
            state.step(&cell.pack(unit), batch, &x);
            assert_eq!(state.bits().1, expected, "{unit:?} [{input}, {hidden}, {batch}]");
        }
    }
}

#[test]
fn every_vector_unit_gives_the_same_bits() {
    let mut random = Random(3);
    for (input, hidden, batch) in shapes(&mut random, if cfg!(miri) { 8 } else { 50 }) {
        let cell = Cell::random(&mut random, input, hidden);
        let start = State::random(&mut random, batch, hidden);
        let xs: Vec<_> = (0..3).map(|_| random.vec(batch * input, 2.0)).collect();
        let run = |unit| {
            let lstm = cell.pack(unit);
            let mut state = start.clone();
            for x in &xs {
                state.step(&lstm, batch, x);
            }
            state.bits()
        };
        let units = VectorUnit::all_for_tests();
        let expected = run(units[0]);
        for &unit in &units[1..] {
            assert_eq!(run(unit), expected, "{unit:?} [{input}, {hidden}, {batch}]");
        }
    }
}

/// One row's memory, every array an allocation of its exact size.
struct RowMemory {
    x: Box<[f32]>,
    h_in: Box<[f32]>,
    h_out: Box<[f32]>,
    c: Box<[f32]>,
    y: Option<Box<[f32]>>,
}

impl RowMemory {
    fn new(x: &[f32], h: &[f32], c: &[f32], with_y: bool) -> Self {
        let unwritten = || vec![f32::NAN; h.len()].into_boxed_slice();
        Self {
            x: x.into(),
            h_in: h.into(),
            h_out: unwritten(),
            c: c.into(),
            y: with_y.then(unwritten),
        }
    }

    fn row(&mut self) -> LstmRow {
        LstmRow {
            x: self.x.as_ptr(),
            h_in: self.h_in.as_ptr(),
            h_out: self.h_out.as_mut_ptr(),
            c: self.c.as_mut_ptr(),
            y: self.y.as_mut().map_or(ptr::null_mut(), |y| y.as_mut_ptr()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A row alone equals the row in any batch, at any place, with the panels and the rows split
    /// in any way, with y or without.
    #[test]
    fn a_row_does_not_see_its_batch(
        seed in any::<u64>(),
        input in 0_usize..24,
        hidden in 1_usize..70,
        batch in 1_usize..24,
    ) {
        let mut random = Random(seed);
        let cell = Cell::random(&mut random, input, hidden);
        let x = random.vec(batch * input, 2.0);
        let start = State::random(&mut random, batch, hidden);
        // Rows of the batch stand in an order of their own.
        let mut order: Vec<usize> = (0..batch).collect();
        for place in (1..batch).rev() {
            order.swap(place, random.below(place + 1));
        }

        for unit in VectorUnit::all_for_tests() {
            let lstm = cell.pack(unit);
            let memory = |row: usize, with_y| {
                RowMemory::new(
                    &x[row * input..][..input],
                    &start.h[row * hidden..][..hidden],
                    &start.c[row * hidden..][..hidden],
                    with_y,
                )
            };
            let mut together: Vec<RowMemory> =
                order.iter().map(|&row| memory(row, random.below(2) == 0)).collect();
            let rows: Vec<LstmRow> = together.iter_mut().map(RowMemory::row).collect();
            let mut first_panel = 0;
            while first_panel < lstm.panels() {
                let panels = 1 + random.below(lstm.panels() - first_panel);
                let mut rest = &rows[..];
                while !rest.is_empty() {
                    let (part, after) = rest.split_at(1 + random.below(rest.len()));
                    // SAFETY: each row has memory of its own, of the cell's sizes.
                    unsafe { lstm.step(part, first_panel..first_panel + panels) };
                    rest = after;
                }
                first_panel += panels;
            }

            for (&row, together) in order.iter().zip(&together) {
                let mut alone = memory(row, false);
                let rows = [alone.row()];
                // SAFETY: as above.
                unsafe { lstm.step(&rows, 0..lstm.panels()) };
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&together.h_out), bits(&alone.h_out), "{unit:?} h of {row}");
                assert_eq!(bits(&together.c), bits(&alone.c), "{unit:?} c of {row}");
                if let Some(y) = &together.y {
                    assert_eq!(bits(y), bits(&alone.h_out), "{unit:?} y of {row}");
                }
            }
        }
    }
}

#[test]
fn nothing_outside_the_panels_units_is_written() {
    const GUARD: f32 = -123.25;
    const GUARDS: usize = 19;
    let mut random = Random(4);
    let input = 3;
    for hidden in (1..=35).step_by(if cfg!(miri) { 9 } else { 1 }) {
        let cell = Cell::random(&mut random, input, hidden);
        for unit in VectorUnit::all_for_tests() {
            let lstm = cell.pack(unit);
            let (x, h) = (random.vec(input, 1.0), random.vec(hidden, 1.0));
            for panel in 0..lstm.panels() {
                for batch in 1..=2 {
                    // [h_out, c, y] of each row, each between guards.
                    let mut memory: Vec<[Vec<f32>; 3]> = (0..batch)
                        .map(|_| [(); 3].map(|()| vec![GUARD; hidden + 2 * GUARDS]))
                        .collect();
                    let rows: Vec<LstmRow> = memory
                        .iter_mut()
                        .map(|arrays| {
                            let [h_out, c, y] = arrays.each_mut().map(|a| a[GUARDS..].as_mut_ptr());
                            let (x, h_in) = (x.as_ptr(), h.as_ptr());
                            LstmRow { x, h_in, h_out, c, y }
                        })
                        .collect();
                    // SAFETY: each row has memory of its own, of the cell's sizes.
                    unsafe { lstm.step(&rows, panel..panel + 1) };

                    let units = panel * unit.lanes()..hidden.min((panel + 1) * unit.lanes());
                    for (at, value) in
                        memory.iter().flatten().flat_map(|array| array.iter().enumerate())
                    {
                        let written = at.checked_sub(GUARDS).is_some_and(|u| units.contains(&u));
                        assert_eq!(
                            *value != GUARD,
                            written,
                            "{unit:?} hidden {hidden} panel {panel} element {at}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn threads_may_divide_one_step_by_panels() {
    let mut random = Random(5);
    let (input, hidden, batch) = (6, 45, 5);
    let cell = Cell::random(&mut random, input, hidden);
    let x = random.vec(batch * input, 1.0);
    let start = State::random(&mut random, batch, hidden);
    for unit in VectorUnit::all_for_tests() {
        let lstm = cell.pack(unit);
        let mut expected = start.clone();
        expected.step(&lstm, batch, &x);

        let mut memory: Vec<RowMemory> = (0..batch)
            .map(|row| {
                RowMemory::new(
                    &x[row * input..][..input],
                    &start.h[row * hidden..][..hidden],
                    &start.c[row * hidden..][..hidden],
                    false,
                )
            })
            .collect();
        let rows: Vec<LstmRow> = memory.iter_mut().map(RowMemory::row).collect();
        std::thread::scope(|scope| {
            let (lstm, rows) = (&lstm, &rows);
            for panel in 0..lstm.panels() {
                // SAFETY: each row has memory of its own, and each thread other units of it.
                scope.spawn(move || unsafe { lstm.step(rows, panel..panel + 1) });
            }
        });
        let actual = State {
            h: memory.iter().flat_map(|row| row.h_out.to_vec()).collect(),
            c: memory.iter().flat_map(|row| row.c.to_vec()).collect(),
        };
        assert_eq!(actual.bits(), expected.bits(), "{unit:?}");
    }
}

#[test]
fn infinities_saturate_and_a_nan_stays_in_its_row() {
    // One unit: i = o = f = sigmoid(x), g = tanh(x), nothing from h.
    let parameters =
        LstmParameters { input_size: 1, hidden_size: 1, w: &[1.0; 4], r: &[0.0; 4], b: None };
    for unit in VectorUnit::all_for_tests() {
        let lstm = PackedLstm::for_unit(unit, parameters).expect("consistent sizes");
        let mut state = State { h: vec![0.5; 5], c: vec![0.25, 0.25, 0.25, 0.25, f32::INFINITY] };
        let x = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, 0.0];
        state.step(&lstm, 5, &x);
        assert_eq!(state.c[0], 1.25, "{unit:?}");
        assert!((f64::from(state.h[0]) - 1.25_f64.tanh()).abs() < 1e-6);
        assert_eq!((state.c[1], state.h[1]), (0.0, 0.0));
        assert!(state.c[2].is_nan() && state.h[2].is_nan());
        assert_eq!(state.c[3], 0.125);
        assert_eq!((state.c[4], state.h[4]), (f32::INFINITY, 0.5));
    }
}

#[test]
fn inconsistent_arguments_are_refused() {
    let cell = Cell::random(&mut Random(6), 3, 5);
    let new = |change: fn(&mut LstmParameters<'_>)| {
        let mut parameters = cell.parameters();
        parameters.b = None;
        change(&mut parameters);
        PackedLstm::new(Isa::Scalar, parameters).map(|_| ())
    };
    let length = |tensor, expected, actual| Err(KernelError::Length { tensor, expected, actual });
    assert_eq!(new(|_| ()), Ok(()));
    assert_eq!(new(|p| p.hidden_size = 0), Err(KernelError::NoHiddenUnits));
    assert_eq!(new(|p| p.w = &p.w[1..]), length("w", 60, 59));
    assert_eq!(new(|p| p.r = &p.r[1..]), length("r", 100, 99));
    assert_eq!(new(|p| p.b = Some(&[0.0; 20])), length("b", 40, 20));
    assert!(matches!(new(|p| p.input_size = usize::MAX), Err(KernelError::TooLarge { .. })));
    assert!(matches!(new(|p| p.hidden_size = usize::MAX / 2), Err(KernelError::TooLarge { .. })));
    for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
        assert_eq!(
            PackedLstm::new(isa, cell.parameters()).map(|_| ()),
            Err(KernelError::IsaUnavailable(isa))
        );
    }

    let lstm = PackedLstm::new(Isa::best(), cell.parameters()).expect("consistent sizes");
    let (x, h) = (vec![0.0; 6], vec![0.0; 10]);
    let (mut h_out, mut c) = (h.clone(), h.clone());
    assert_eq!(lstm.step_dense(2, &x, &h, &mut h_out, &mut c), Ok(()));
    assert_eq!(lstm.step_dense(3, &x, &h, &mut h_out, &mut c), length("x", 9, 6));
    assert_eq!(lstm.step_dense(2, &x, &h[1..], &mut h_out, &mut c), length("h", 10, 9));
    assert_eq!(lstm.step_dense(2, &x, &h, &mut h_out[1..], &mut c), length("h_out", 10, 9));
    assert_eq!(lstm.step_dense(2, &x, &h, &mut h_out, &mut c[1..]), length("c", 10, 9));
    assert!(matches!(
        lstm.step_dense(usize::MAX, &x, &h, &mut h_out, &mut c),
        Err(KernelError::TooLarge { .. })
    ));
}

#[test]
#[should_panic(expected = "panels 0..2 of 1")]
fn panels_out_of_range_are_a_bug_of_the_caller() {
    let cell = Cell::random(&mut Random(7), 1, 1);
    let lstm = cell.pack(VectorUnit::all_for_tests()[1]);
    // SAFETY: there are no rows, so there is nothing to promise.
    unsafe { lstm.step(&[], 0..2) };
}

#[test]
fn sizes_are_as_documented() {
    fn is_shared_between_threads<T: Send + Sync>() {}
    is_shared_between_threads::<PackedLstm>();
    is_shared_between_threads::<LstmRow>();

    let cell = Cell::random(&mut Random(8), 3, 17);
    for unit in VectorUnit::all_for_tests() {
        let lstm = cell.pack(unit);
        assert_eq!((lstm.input_size(), lstm.hidden_size()), (3, 17));
        assert_eq!(lstm.isa(), unit.isa());
        assert_eq!(lstm.panels(), 17_usize.div_ceil(unit.lanes()));
        let floats = lstm.panels() * (1 + 3 + 17) * 4 * unit.lanes();
        assert_eq!(lstm.bytes(), (4 * floats).next_multiple_of(64));
    }
}
