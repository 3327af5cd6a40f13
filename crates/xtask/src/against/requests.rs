//! Requests to a model, drawn from a seed by what the model says of its inputs: a fixed set, the same for
//! every build, precision and instruction set.

use std::collections::HashMap;

use anyhow::Context;
use batchmaker_graph::{
    Chunk, ElementType, KeptSteps, NamedTensor, Parameters, Tensor, TensorData, Unfolded,
};
use batchmaker_model::{Axis, Content, InputLayout, Model, TensorInfo};
use batchmaker_wire as wire;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;

use super::difference::Claim;
use super::provenance::Cells;

/// Steps, or inner nodes of trees, and sequences of the requests to a model, in turns.
const SIZES: [(usize, usize); 10] =
    [(1, 1), (7, 1), (2, 1), (24, 1), (5, 3), (13, 1), (61, 1), (3, 1), (31, 2), (17, 1)];

/// Steps to try where a model takes none of [`SIZES`].
const OTHER_STEPS: [usize; 8] = [4, 8, 12, 16, 32, 64, 96, 128];

/// Steps of a session's sequence, and of its chunks.
const CHUNKS: [&[usize]; 2] = [&[5, 1, 11], &[2, 20, 3, 9]];

/// Requests that are sent one after the other: a single one, or the chunks of a session.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// A description for messages.
    pub(crate) what: String,
    pub(crate) bodies: Vec<wire::EncodedBody>,
    /// The distance that outputs may have.
    claims: HashMap<String, Claim>,
}

impl Job {
    /// A job without requests.
    #[cfg(test)]
    pub(crate) fn of_output(what: &str, output: &str, claim: Claim) -> Self {
        let claims = HashMap::from([(output.to_owned(), claim)]);
        Self { what: what.to_owned(), bodies: Vec::new(), claims }
    }

    /// Returns the distance that an output of the reply may have. One that the graph does not name is made of the
    /// others.
    pub(crate) fn claim(&self, output: &str) -> Claim {
        let of_any = || self.claims.values().copied().max().unwrap_or(Claim::Bits);
        self.claims.get(output).copied().unwrap_or_else(of_any)
    }

    /// Makes every output one that a general program took part in.
    pub(crate) fn loosen(&mut self) {
        self.claims.values_mut().for_each(|claim| *claim = (*claim).max(Claim::Close));
    }
}

/// Draws `count` requests to a model, and sessions where it takes them.
pub(crate) fn draw(model: &Model, cells: &Cells, count: usize) -> anyhow::Result<Vec<Job>> {
    let mut jobs: Vec<Job> = Vec::new();
    for index in 0..count {
        jobs.extend(request(model, cells, index)?);
    }
    for (index, steps) in CHUNKS.iter().enumerate() {
        jobs.extend(session(model, cells, index, steps)?);
    }
    Ok(jobs)
}

/// The first request of some steps and sequences that the model takes, if any is.
fn request(model: &Model, cells: &Cells, index: usize) -> anyhow::Result<Option<Job>> {
    let (steps, sequences) = SIZES[index % SIZES.len()];
    let sizes = [(steps, sequences), (steps, 1)];
    let sizes = sizes.into_iter().chain(OTHER_STEPS.map(|steps| (steps, 1)));
    for (steps, sequences) in sizes {
        let size = Size { steps, sequences };
        // Each size with optional inputs in one round of sizes, and without them in the next.
        let has_optional = (index + index / SIZES.len()).is_multiple_of(2);
        let tensors = size.tensors(model, index, has_optional);
        let unfolded = model.unfold(tensors.clone(), &Parameters::default(), &[]);
        let Ok((unfolded, _)) = unfolded else { continue };
        let limit = limit(&unfolded, index);
        let given = limit.map(|(name, steps)| (name.to_owned(), steps.into()));
        let body = encode(tensors, given.into_iter().collect())?;
        let what = format!("request {index} of {steps} steps, {sequences} sequences");
        return Ok(Some(Job { what, bodies: vec![body], claims: cells.claims(&unfolded) }));
    }
    Ok(None)
}

/// The parameter of one in three requests to decoders that says when they end, and of another one.
fn limit(unfolded: &Unfolded, index: usize) -> Option<(&'static str, u64)> {
    let is_open = unfolded.graph.runs().iter().any(|run| run.stop.is_some());
    match index % 3 {
        1 if is_open => Some(("force_steps", 7)),
        2 if is_open => Some(("max_steps", 5)),
        _ => None,
    }
}

/// A session of one sequence, whose chunks have these numbers of steps, if the model takes it.
fn session(
    model: &Model,
    cells: &Cells,
    index: usize,
    chunks: &[usize],
) -> anyhow::Result<Option<Job>> {
    let size = Size { steps: chunks.iter().sum(), sequences: 1 };
    let whole = size.tensors(model, 1000 + index, true);
    let unfolded = model.unfold(whole.clone(), &Parameters::default(), &[]);
    let Ok((unfolded, _)) = unfolded else { return Ok(None) };
    let layouts = model.layouts();
    let axis = |name: &str| {
        let input = model.inputs.iter().position(|input| input.name == name)?;
        layouts[input].axes.iter().position(|axis| *axis == Axis::Time)
    };
    if !whole.iter().any(|tensor| axis(&tensor.name).is_some()) {
        return Ok(None);
    }
    let static_inputs = model.static_inputs(&whole);
    let (mut bodies, mut first, mut kept) = (Vec::new(), 0, KeptSteps::default());
    for (number, &steps) in chunks.iter().enumerate() {
        let of_chunk = |tensor: &NamedTensor| match axis(&tensor.name) {
            Some(axis) => Some(slice(tensor, axis, first, steps)),
            None => (number == 0).then(|| tensor.clone()),
        };
        let tensors: Vec<NamedTensor> = whole.iter().filter_map(of_chunk).collect();
        let chunk = if number == 0 { Chunk::First } else { Chunk::Next };
        let answered_steps = kept.answered;
        let (all, next) = model.after_kept(&kept, tensors.clone());
        kept = next;
        let all = match number {
            0 => Ok(all),
            _ => model.later_chunk(all, &static_inputs),
        };
        let parameters = Parameters { chunk, answered_steps, ..Parameters::default() };
        if !all.is_ok_and(|all| model.unfold(all, &parameters, &[]).is_ok()) {
            return Ok(None);
        }
        let parameters = [
            ("sequence_id".to_owned(), wire::Parameter::from(format!("{}-{index}", model.name))),
            ("sequence_start".to_owned(), (number == 0).into()),
            ("sequence_end".to_owned(), (number == chunks.len() - 1).into()),
        ];
        bodies.push(encode(tensors, parameters.into_iter().collect())?);
        first += steps;
    }
    let what = format!("session {index} of chunks of {chunks:?} steps");
    Ok(Some(Job { what, bodies, claims: cells.claims(&unfolded) }))
}

/// The size of a request.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Steps of a sequence, or inner nodes of a tree.
    steps: usize,
    sequences: usize,
}

impl Size {
    /// The tensors of request number `index`, with or without those that may be left out.
    fn tensors(self, model: &Model, index: usize, with_optional: bool) -> Vec<NamedTensor> {
        let layouts = model.layouts();
        let arity = layouts.iter().find_map(|layout| match layout.axes[..] {
            [_, Axis::Fixed(arity)] if layout.content == Content::Children => Some(arity),
            _ => None,
        });
        let (time, inner) = match arity {
            Some(arity) => (self.steps * arity.saturating_sub(1) + 1, self.steps),
            None => (self.steps, 0),
        };
        let extent = |axis: &Axis| match *axis {
            Axis::Fixed(extent) => extent,
            Axis::Batch => self.sequences,
            Axis::Time => time,
            Axis::Inner => inner,
        };
        let inputs = model.inputs.iter().zip(&layouts).enumerate();
        let given = inputs.filter(|(_, (_, layout))| with_optional || !layout.optional);
        let tensor = |(number, (info, layout)): (usize, (&TensorInfo, &InputLayout))| {
            let mut rng = Pcg64Mcg::seed_from_u64((index as u64) << 8 | number as u64);
            let shape: Vec<usize> = layout.axes.iter().map(extent).collect();
            let data = contents(&mut rng, info, layout, &shape, time);
            NamedTensor { name: info.name.clone(), tensor: Tensor::new(shape, data) }
        };
        given.map(tensor).collect()
    }
}

/// Elements for a tensor of this shape, in a request of `steps` steps.
fn contents(
    rng: &mut Pcg64Mcg,
    info: &TensorInfo,
    layout: &InputLayout,
    shape: &[usize],
    time: usize,
) -> TensorData {
    let count: usize = shape.iter().product();
    let integers = |integers: Vec<i64>| match info.element {
        ElementType::I32 => TensorData::I32(integers.into_iter().map(|id| id as i32).collect()),
        _ => TensorData::I64(integers),
    };
    match (layout.content, info.element) {
        (Content::Children, _) => integers(children(rng, shape[0], shape[1])),
        (Content::Chars | Content::Words, _) => TensorData::Bytes(vec![text(rng, time)]),
        (Content::Ids(below), _) => {
            integers((0..count).map(|_| rng.random_range(0..below.max(1)) as i64).collect())
        }
        // Numbers for which there is no other name are lengths, or count something.
        (Content::Numbers, element) if element.is_narrow() => {
            TensorData::F32((0..count).map(|_| f32::from(rng.random_range(0..=127u8))).collect())
        }
        (Content::Numbers, element) if element.is_integer() => {
            integers((0..count).map(|_| rng.random_range(1..=time as i64)).collect())
        }
        (Content::Numbers, ElementType::Bool) => {
            TensorData::Bool((0..count).map(|_| rng.random()).collect())
        }
        (Content::Numbers, ElementType::Bytes) => TensorData::Bytes(vec![b"a".to_vec(); count]),
        // Ones, then zeros: sums over what it covers are divided by their number.
        (Content::Numbers, _) if info.name.contains("mask") => {
            let covered = rng.random_range(1..=count.max(1));
            TensorData::F32((0..count).map(|at| f32::from(u8::from(at < covered))).collect())
        }
        (Content::Numbers, _) => {
            TensorData::F32((0..count).map(|_| StandardNormal.sample(rng)).collect())
        }
    }
}

/// The children of the inner nodes of a tree: neighbours are joined, anywhere, until one is left.
fn children(rng: &mut Pcg64Mcg, inner: usize, arity: usize) -> Vec<i64> {
    let leaves = inner * (arity - 1) + 1;
    let mut roots: Vec<i64> = (0..leaves as i64).collect();
    let mut all = Vec::new();
    for node in 0..inner {
        let first = rng.random_range(0..=roots.len() - arity);
        all.extend(roots.splice(first..first + arity, [(leaves + node) as i64]));
    }
    all
}

/// Words of letters, some of them not of ASCII.
fn text(rng: &mut Pcg64Mcg, length: usize) -> Vec<u8> {
    const LETTERS: [char; 30] = [
        'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r',
        's', 't', 'u', 'v', 'w', 'x', 'y', 'z', 'ä', 'é', 'ж', 'の',
    ];
    let letter = |_| match rng.random_range(0..LETTERS.len() + 4) {
        at if at < LETTERS.len() => LETTERS[at],
        _ => ' ',
    };
    let text: String = (0..length).map(letter).collect();
    // A text of nothing but spaces may be no sequence.
    format!("w{text}").into_bytes()
}

/// Rows `first` to `first + count` of an axis.
fn slice(tensor: &NamedTensor, axis: usize, first: usize, count: usize) -> NamedTensor {
    let shape = tensor.tensor.shape();
    let (outer, inner): (usize, usize) =
        (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
    let data = tensor.tensor.data();
    let mut part = data.slice(0..0);
    for at in 0..outer {
        let start = (at * shape[axis] + first) * inner;
        append(&mut part, data.slice(start..start + count * inner));
    }
    let mut shape = shape.to_vec();
    shape[axis] = count;
    NamedTensor { name: tensor.name.clone(), tensor: Tensor::new(shape, part) }
}

fn append(data: &mut TensorData, more: TensorData) {
    match (data, more) {
        (TensorData::F32(data), TensorData::F32(more)) => data.extend(more),
        (TensorData::I64(data), TensorData::I64(more)) => data.extend(more),
        (TensorData::I32(data), TensorData::I32(more)) => data.extend(more),
        (TensorData::Bool(data), TensorData::Bool(more)) => data.extend(more),
        (TensorData::Bytes(data), TensorData::Bytes(more)) => data.extend(more),
        _ => unreachable!("parts of one tensor are of one type"),
    }
}

/// A request's body, all tensors in binary.
fn encode(
    tensors: Vec<NamedTensor>,
    parameters: wire::Parameters,
) -> anyhow::Result<wire::EncodedBody> {
    let to_wire = |NamedTensor { name, tensor }: NamedTensor| {
        let shape = tensor.shape().to_vec();
        let data: wire::TensorData = match tensor.into_data() {
            TensorData::F32(values) => values.into(),
            TensorData::I64(values) => values.into(),
            TensorData::I32(values) => values.into(),
            TensorData::Bool(values) => values.into(),
            TensorData::Bytes(values) => values.into(),
        };
        wire::Tensor::new(name, shape, data)
    };
    let inputs: Vec<wire::Tensor> = tensors.into_iter().map(to_wire).collect::<Result<_, _>>()?;
    let mut request = wire::InferRequest { inputs, parameters, ..Default::default() };
    request.outputs.default_format = wire::DataFormat::Binary;
    wire::encode_request(&request, wire::DataFormat::Binary).context("a drawn request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_join_everything_once() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for (inner, arity) in [(1, 2), (9, 2), (4, 3)] {
            let mut children = children(&mut rng, inner, arity);
            assert_eq!(children.len(), inner * arity);
            for (node, of_node) in children.chunks(arity).enumerate() {
                let own = (inner * (arity - 1) + 1 + node) as i64;
                assert!(of_node.iter().all(|&child| child < own), "children come before parents");
            }
            children.sort_unstable();
            let all: Vec<i64> = (0..(inner * arity) as i64).collect();
            assert_eq!(children, all, "all nodes but the root are somebody's child");
        }
    }

    #[test]
    fn slices_are_of_any_axis() {
        let data = TensorData::I64((0..12).collect());
        let tensor = NamedTensor { name: "x".to_owned(), tensor: Tensor::new(vec![2, 3, 2], data) };
        let part = slice(&tensor, 1, 1, 2).tensor;
        assert_eq!(part.shape(), [2, 2, 2]);
        assert_eq!(part.data(), &TensorData::I64(vec![2, 3, 4, 5, 8, 9, 10, 11]));
    }
}
