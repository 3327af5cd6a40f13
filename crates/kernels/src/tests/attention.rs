//! Attention and softmax of drawn sizes against their definition in f64, and the same bits on every target and alone.

use super::random::{Random, bits};
use crate::layers::attention::{Attention, AttentionSizes, Head, Matrix};
use crate::layers::softmax::softmax;
use crate::simd::isa::Isa;

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn softmax_in_f64(row: &[f64]) -> Vec<f64> {
    let greatest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|x| (x - greatest).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|exp| exp / sum).collect()
}

#[test]
fn softmax_is_its_definition() {
    let mut random = Random(0x50f7);
    let draws = if cfg!(miri) { 4 } else { 100 };
    for _ in 0..draws {
        let (length, rows) = (1 + random.below(70), 1 + random.below(5));
        let scale = [0.1, 5.0, 100.0][random.below(3)];
        let x = random.vec(length * rows, scale);
        let mut first: Option<Vec<u32>> = None;
        for isa in isas() {
            let mut y = x.clone();
            softmax(isa, length, &mut y).unwrap();
            for (x, y) in x.chunks_exact(length).zip(y.chunks_exact(length)) {
                let wanted = softmax_in_f64(&x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
                for (&y, wanted) in y.iter().zip(wanted) {
                    // The difference to the greatest is rounded, at most by 8e-6.
                    let error = (f64::from(y) - wanted).abs();
                    assert!(error <= 1.2e-5 * wanted + 1e-37, "{y}, {wanted}");
                }
            }
            assert_eq!(first.get_or_insert(bits(&y)), &bits(&y), "{isa:?}");
        }
    }
}

#[test]
fn softmax_of_what_is_not_finite() {
    for isa in isas() {
        let mut y = [1.0, f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY];
        softmax(isa, 4, &mut y).unwrap();
        assert_eq!(y, [0.5, 0.0, 0.5, 0.0]);
        let mut y = [f32::NAN, 0.0, 1.0, 2.0, 0.0];
        softmax(isa, 5, &mut y).unwrap();
        assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
    }
}

struct Case {
    sizes: AttentionSizes,
    scale: f32,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mask: Option<(Vec<f32>, usize)>,
    /// Elements between two rows of queries, keys and values.
    apart: usize,
}

impl Case {
    fn draw(random: &mut Random) -> Self {
        let queries = 1 + random.below(70);
        let longest = if random.below(8) == 0 { 600 } else { 50 };
        let keys = 1 + random.below(longest);
        let of_key = [1, 8, 13, 64][random.below(4)];
        let of_value = [1, 8, 13, 64][random.below(4)];
        let mask = match random.below(3) {
            0 => None,
            1 => Some((random.vec(keys, 3.0), 0)),
            _ => Some((random.vec(queries * keys, 3.0), keys)),
        };
        Self {
            sizes: AttentionSizes { queries, keys, of_key, of_value },
            scale: 0.3,
            q: random.vec(queries * of_key, 2.0),
            k: random.vec(of_key * keys, 2.0),
            v: random.vec(keys * of_value, 1.0),
            mask,
            apart: random.below(3),
        }
    }

    /// y of one query, or of all.
    fn run(&self, isa: Isa, query: Option<usize>) -> Vec<f32> {
        let AttentionSizes { queries, keys, of_key, of_value } = self.sizes;
        let of = query.map_or(0..queries, |query| query..query + 1);
        let sizes = AttentionSizes { queries: of.len(), ..self.sizes };
        let mask = self.mask.as_ref().map(|(mask, step)| {
            let end = if *step == 0 { mask.len() } else { of.end * step };
            (&mask[of.start * step..end], *step)
        });
        let q = &self.q[of.start * of_key..of.end * of_key];
        let mut y = vec![f32::NAN; of.len() * of_value];
        let mut attention = Attention::new(isa, sizes, self.scale).unwrap();
        let [q_apart, v_apart] =
            [(q, of_key), (&self.v, of_value)].map(|(rows, len)| apart(rows, len, self.apart));
        let q = Matrix::of_rows(&q_apart, of_key + self.apart);
        let v = Matrix::of_rows(&v_apart, of_value + self.apart);
        let k = Matrix::of_rows(&self.k, keys);
        attention.run(Head { q, k, v, mask }, &mut y).unwrap();
        // The keys as they may lie, one behind the other.
        let turned: Vec<f32> =
            (0..keys * of_key).map(|at| k.data[at % of_key * keys + at / of_key]).collect();
        let turned = apart(&turned, of_key, self.apart);
        let k = Matrix { data: &turned, strides: [1, of_key + self.apart] };
        let mut again = vec![f32::NAN; y.len()];
        attention.run(Head { q, k, v, mask }, &mut again).unwrap();
        assert_eq!(bits(&again), bits(&y), "with keys in rows");
        y
    }

    /// The definition.
    fn reference(&self) -> Vec<f64> {
        let AttentionSizes { queries, keys, of_key, of_value } = self.sizes;
        let mut y = Vec::new();
        for query in 0..queries {
            let score = |key: usize| {
                let product = |at: usize| {
                    f64::from(self.q[query * of_key + at]) * f64::from(self.k[at * keys + key])
                };
                let score = f64::from(self.scale) * (0..of_key).map(product).sum::<f64>();
                let mask = self.mask.as_ref();
                score + mask.map_or(0.0, |(mask, step)| f64::from(mask[query * step + key]))
            };
            let weights = softmax_in_f64(&(0..keys).map(score).collect::<Vec<_>>());
            for at in 0..of_value {
                let value = |key: usize| weights[key] * f64::from(self.v[key * of_value + at]);
                y.push((0..keys).map(value).sum());
            }
        }
        y
    }
}

/// Rows of `len` elements with `apart` others behind each but the last.
fn apart(rows: &[f32], len: usize, apart: usize) -> Vec<f32> {
    let mut all: Vec<f32> =
        rows.chunks_exact(len).flat_map(|row| [row, &vec![f32::NAN; apart]].concat()).collect();
    all.truncate(all.len() - apart);
    all
}

#[test]
fn attention_is_its_definition() {
    let mut random = Random(0xa77e);
    let draws = if cfg!(miri) { 2 } else { 60 };
    for _ in 0..draws {
        let case = Case::draw(&mut random);
        let wanted = case.reference();
        let mut first: Option<Vec<u32>> = None;
        for isa in isas() {
            let y = case.run(isa, None);
            for (&y, &wanted) in y.iter().zip(&wanted) {
                assert!((f64::from(y) - wanted).abs() <= 2e-5, "{y}, {wanted}: {:?}", case.sizes);
            }
            assert_eq!(first.get_or_insert(bits(&y)), &bits(&y), "{isa:?}");
            let query = random.below(case.sizes.queries);
            let of_value = case.sizes.of_value;
            let alone = case.run(isa, Some(query));
            assert_eq!(bits(&alone), bits(&y[query * of_value..][..of_value]));
        }
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let sizes = AttentionSizes { queries: 2, keys: 3, of_key: 4, of_value: 5 };
    let mut attention = Attention::new(Isa::Scalar, sizes, 1.0).unwrap();
    let mut y = [0.0; 10];
    let rows = |count, columns| Matrix::of_rows(&[0.0; 15][..count], columns);
    let head = Head { q: rows(8, 4), k: rows(12, 3), v: rows(15, 5), mask: None };
    assert!(attention.run(head, &mut y).is_ok());
    assert!(attention.run(Head { q: rows(7, 4), ..head }, &mut y).is_err());
    assert!(attention.run(Head { k: rows(11, 3), ..head }, &mut y).is_err());
    assert!(attention.run(Head { v: rows(14, 5), ..head }, &mut y).is_err());
    let with = |strides| Matrix { data: &[0.0; 15], strides };
    assert!(attention.run(Head { k: with([1, 4]), ..head }, &mut y).is_ok(), "keys in rows");
    assert!(attention.run(Head { k: with([2, 4]), ..head }, &mut y).is_err(), "elements apart");
    assert!(attention.run(Head { q: with([1, 4]), ..head }, &mut y).is_err(), "queries in columns");
    assert!(attention.run(Head { mask: Some((&[0.0; 3], 3)), ..head }, &mut y).is_err());
    assert!(attention.run(head, &mut y[1..]).is_err());
    assert!(Attention::bytes(sizes) >= 4 * (4 * 3 + 3 * 5 + 2 * 3));
}
