//! The contents of requests, drawn before the clock starts: a request is a copy from a pool, as it would be from a
//! socket. Lengths and arrivals are drawn elsewhere.

use batchmaker::{Axis, Content, InputLayout};
use batchmaker::{ElementType, NamedTensor, Tensor, TensorData};
use rand_distr::{Distribution, StandardNormal};

use crate::random::{Purpose, stream};
use crate::shape::{Shape, Tree};

/// Numbers in the pool: 16 MiB of floats.
const POOL: usize = 4 << 20;

/// The tensors that a model takes, and what to fill them with.
#[derive(Clone, Debug)]
pub struct Inputs {
    tensors: Vec<(String, ElementType, InputLayout)>,
    /// Standard normal, like features that were scaled.
    numbers: Vec<f32>,
}

/// A model whose requests have no lengths, so that the lengths of a workload mean nothing to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no input of the model has an axis of time, so its requests have no lengths to vary")]
pub struct NoLength;

impl Inputs {
    /// Inputs for requests with these tensors: names, element types, layouts.
    ///
    /// # Errors
    /// If no tensor has a length.
    pub fn new(
        tensors: Vec<(String, ElementType, InputLayout)>,
        seed: u64,
    ) -> Result<Self, NoLength> {
        let is_long = |layout: &InputLayout| {
            layout.axes.contains(&Axis::Time)
                || matches!(layout.content, Content::Chars | Content::Words)
        };
        if !tensors.iter().any(|(_, _, layout)| is_long(layout)) {
            return Err(NoLength);
        }
        let mut rng = stream(seed, Purpose::Inputs);
        let numbers = (0..POOL).map(|_| StandardNormal.sample(&mut rng)).collect();
        Ok(Self { tensors, numbers })
    }

    /// The number of children of an inner node, where requests are trees.
    pub fn arity(&self) -> Option<u32> {
        let children = self.tensors.iter().find(|(_, _, l)| l.content == Content::Children)?;
        match children.2.axes[..] {
            [_, Axis::Fixed(arity)] => Some(arity as u32),
            _ => None,
        }
    }

    /// The tensors of request number `index`; those that a request may leave out are left out.
    ///
    /// # Panics
    /// If the shape is a tree whose nodes have not [as many children](Self::arity) as they should.
    pub fn request(&self, index: usize, shape: &Shape) -> Vec<NamedTensor> {
        let length = shape.length();
        // Odd, so that starts are spread over the whole pool.
        let mut start = index.wrapping_mul(0x9e37_79b1) % POOL;
        let tensor = |(name, element, layout): &(String, ElementType, InputLayout)| {
            let axes = layout.shape(length as usize);
            let count = axes.iter().product();
            let numbers = Numbers { pool: &self.numbers, start };
            start = (start + count) % POOL;
            let data = match (layout.content, element, shape) {
                (Content::Children, _, Shape::Tree(tree)) => return children(name, tree, layout),
                (Content::Ids(below), _, Shape::Tree(tree)) if tree.words.len() == count => {
                    words(tree, below, *element)
                }
                (Content::Chars, ..) => numbers.text(length, 1),
                (Content::Words, ..) => numbers.text(length, 6),
                (_, ElementType::Bytes, _) => TensorData::Bytes(vec![b"a".to_vec(); count]),
                (_, element, _) if element.is_float() => TensorData::F32(numbers.floats(count)),
                (content, element, _) => numbers.integers(content, *element, count),
            };
            NamedTensor { name: name.clone(), tensor: Tensor::new(axes, data) }
        };
        self.tensors.iter().filter(|(_, _, layout)| !layout.optional).map(tensor).collect()
    }
}

fn children(name: &str, tree: &Tree, layout: &InputLayout) -> NamedTensor {
    let arity = match layout.axes[..] {
        [_, Axis::Fixed(arity)] => arity,
        _ => 0,
    };
    let ids: Vec<i32> = tree.children.iter().flatten().map(|&child| child as i32).collect();
    let tensor = Tensor::new(vec![tree.children.len(), arity], TensorData::I32(ids));
    NamedTensor { name: name.to_owned(), tensor }
}

/// Ids by hash.
fn words(tree: &Tree, below: u64, element: ElementType) -> TensorData {
    let ids = tree.words.iter().map(|&word| u64::from(word) % below.max(1));
    match element {
        ElementType::I32 => TensorData::I32(ids.map(|id| id as i32).collect()),
        _ => TensorData::I64(ids.map(|id| id as i64).collect()),
    }
}

/// Numbers from a place in the pool on, which begins anew where it ends.
struct Numbers<'a> {
    pool: &'a [f32],
    start: usize,
}

impl Numbers<'_> {
    fn floats(&self, count: usize) -> Vec<f32> {
        let mut floats = Vec::with_capacity(count);
        let mut start = self.start;
        while floats.len() < count {
            let take = (count - floats.len()).min(self.pool.len() - start);
            floats.extend_from_slice(&self.pool[start..start + take]);
            start = 0;
        }
        floats
    }

    /// As good as uniform: the low bits of a normal number's digits.
    fn bits(&self, count: usize) -> impl Iterator<Item = u64> + '_ {
        let all = self.pool[self.start..].iter().chain(self.pool.iter().cycle());
        all.take(count).map(|number| u64::from(number.to_bits()) & 0xffff)
    }

    fn integers(&self, content: Content, element: ElementType, count: usize) -> TensorData {
        let below = match content {
            Content::Ids(below) => below.max(1),
            _ => 2,
        };
        let ids = self.bits(count).map(|bits| bits % below);
        match element {
            ElementType::I32 => TensorData::I32(ids.map(|id| id as i32).collect()),
            ElementType::Bool => TensorData::Bool(ids.map(|id| id == 1).collect()),
            ElementType::Bytes => TensorData::Bytes(ids.map(|id| vec![b'a' + id as u8]).collect()),
            element if element.is_narrow() => TensorData::F32(ids.map(|id| id as f32).collect()),
            _ => TensorData::I64(ids.map(|id| id as i64).collect()),
        }
    }

    /// One string of `words` words with `letters` letters each, with spaces between them unless they are single
    /// letters.
    fn text(&self, words: u32, letters: usize) -> TensorData {
        let mut bits = self.bits(words as usize * letters);
        let word = |_| -> Vec<u8> {
            bits.by_ref().take(letters).map(|bits| b'a' + (bits % 26) as u8).collect()
        };
        let words: Vec<Vec<u8>> = (0..words).map(word).collect();
        let between: &[u8] = if letters == 1 { b"" } else { b" " };
        TensorData::Bytes(vec![words.join(between)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(tensors: &[(&str, ElementType, &str)]) -> Result<Inputs, NoLength> {
        let tensor = |&(name, element, layout): &(&str, ElementType, &str)| {
            (name.to_owned(), element, layout.parse().unwrap())
        };
        Inputs::new(tensors.iter().map(tensor).collect(), 1)
    }

    #[test]
    fn tensors_have_the_layouts_shape_and_contents() {
        let drawn = inputs(&[
            ("x", ElementType::F32, "[time, batch, 3] numbers"),
            ("h0", ElementType::F32, "[1, batch, 4] numbers"),
            ("token", ElementType::I64, "[batch, time] ids below 7"),
        ]);
        let request = drawn.unwrap().request(5, &Shape::Sequence(100));
        let shapes: Vec<&[usize]> = request.iter().map(|tensor| tensor.tensor.shape()).collect();
        assert_eq!(shapes, [&[100, 1, 3][..], &[1, 1, 4], &[1, 100]]);
        let TensorData::F32(x) = request[0].tensor.data() else { panic!("{request:?}") };
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        assert!(mean.abs() < 0.3 && x.iter().any(|&x| x > 1.0), "{mean}");
        let TensorData::I64(ids) = request[2].tensor.data() else { panic!("{request:?}") };
        assert!((0..7).all(|id| ids.contains(&id)) && ids.iter().all(|id| (0..7).contains(id)));
    }

    #[test]
    fn requests_differ_and_repeat_by_number() {
        let inputs = inputs(&[("x", ElementType::F32, "[time, batch, 3] numbers")]).unwrap();
        let four = &Shape::Sequence(4);
        assert_eq!(inputs.request(3, four), inputs.request(3, four));
        assert_ne!(inputs.request(3, four), inputs.request(4, four));
        // The last starts run over the pool's end.
        assert_eq!(inputs.request(POOL - 1, &Shape::Sequence(9))[0].tensor.shape(), [9, 1, 3]);
    }

    #[test]
    fn text_is_so_many_characters_or_words() {
        let text = |layout| {
            let request = inputs(&[("text", ElementType::Bytes, layout)])
                .unwrap()
                .request(1, &Shape::Sequence(5));
            let TensorData::Bytes(texts) = request[0].tensor.data() else { panic!("{request:?}") };
            String::from_utf8(texts[0].clone()).unwrap()
        };
        assert_eq!(text("[1] chars").chars().count(), 5);
        assert_eq!(text("[1] words").split_whitespace().count(), 5);
    }

    #[test]
    fn trees_have_children_and_words() {
        let inputs = inputs(&[
            ("token", ElementType::I64, "[time] ids below 7"),
            ("children", ElementType::I32, "[inner, 2] children"),
            ("h", ElementType::F32, "[4] numbers, optional"),
        ]);
        let (inputs, tree) = (inputs.unwrap(), Tree::read("(1 (2 a) (3 b))").unwrap());
        assert_eq!(inputs.arity(), Some(2));
        let words: Vec<i64> = tree.words.iter().map(|word| i64::from(word % 7)).collect();
        let request = inputs.request(1, &Shape::Tree(tree.into()));
        assert_eq!(request[0].tensor.data(), &TensorData::I64(words));
        assert_eq!(request[1].tensor, Tensor::new(vec![1, 2], TensorData::I32(vec![0, 1])));
        assert_eq!(request.len(), 2);
    }

    #[test]
    fn a_model_without_time_is_refused() {
        assert_eq!(inputs(&[("x", ElementType::F32, "[batch, 3] numbers")]).unwrap_err(), NoLength);
    }
}
