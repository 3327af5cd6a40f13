//! The models that the engine serves in these tests, and requests to them.

use std::path::Path;
use std::sync::Arc;

use batchmaker_engine::{NamedTensor, Request, Tensor, TensorData};
use batchmaker_graph::{
    Cell, CellGraphBuilder, CellRegistry, DagBuilder, ElementType, Lookup, ModelId, ModelPriority,
    NodeId, Operand, OutputTensor, Parameters, RowSpec, TreeCell, Unfold, UnfoldError, Unfolded,
};
use batchmaker_model::{
    Axis, Content, InputLayout, LoadOptions, Model, ModelCell, ReplyTensor, RequestTensor, Takes,
    TensorInfo, Unfolding, load,
};

/// Models that are files, and one of trees.
const FILES: [&str; 5] = [
    "crates/model/tests/vectors/lstm2_batch_first.onnx",
    "crates/model/tests/vectors/tagger.onnx",
    "crates/model/tests/vectors/classifier.onnx",
    "models/g2p",
    "crates/model/tests/vectors/bidirectional.onnx",
];

/// The form of reply that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Two layers over vectors: every step, and streamed.
    Stacked,
    /// Two layers over ids with a head on every step.
    Tagged,
    /// A head on the last step.
    Classified,
    /// An encoder and a decoder, whose end its own output decides: a composite cell.
    Decoded,
    /// Both directions of a layer over vectors.
    Bidirectional,
    /// A TreeLSTM.
    Tree,
}

pub(crate) const KINDS: [Kind; 6] =
    [Kind::Stacked, Kind::Tagged, Kind::Classified, Kind::Decoded, Kind::Bidirectional, Kind::Tree];

impl Kind {
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Stacked => "lstm2_batch_first",
            Self::Tagged => "tagger",
            Self::Classified => "classifier",
            Self::Decoded => "g2p",
            Self::Bidirectional => "bidirectional",
            Self::Tree => "trees",
        }
    }

    /// A request of so many steps, words or leaves, whose contents follow from `salt`.
    pub(crate) fn request(self, length: usize, salt: usize) -> Request {
        let number = |at: usize| (at * 7919 + salt * 104_729 + at * at * salt) % 1009;
        let ids = |shape: Vec<usize>, below: usize| {
            let count = shape.iter().product();
            let ids = (0..count).map(|at| (number(at) % below) as i64);
            Tensor::new(shape, TensorData::I64(ids.collect()))
        };
        let (name, tensor) = match self {
            Self::Stacked | Self::Classified | Self::Bidirectional => {
                let x = (0..5 * length).map(|at| number(at) as f32 / 504.5 - 1.0);
                let shape = match self {
                    Self::Stacked => vec![1, length, 5],
                    _ => vec![length, 1, 5],
                };
                ("x", Tensor::new(shape, TensorData::F32(x.collect())))
            }
            Self::Tagged => ("ids", ids(vec![1, length], 11)),
            Self::Decoded => {
                let word = (0..length).map(|at| b'a' + (number(at) % 26) as u8).collect();
                ("text", Tensor::new(vec![1], TensorData::Bytes(vec![word])))
            }
            Self::Tree => ("tree", ids(vec![2 * length], 1000)),
        };
        let tensors = vec![NamedTensor { name: name.to_owned(), tensor }];
        Request::from(tensors)
    }
}

/// Loads all models.
pub(crate) fn load_all() -> (Vec<Model>, CellRegistry) {
    let mut registry = CellRegistry::default();
    let mut models = Vec::new();
    for (file, id) in FILES.into_iter().zip(0..) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        models.push(load(&path, &LoadOptions::new(ModelId(id)), &mut registry).unwrap());
    }
    let id = ModelId(models.len() as u32);
    models.push(trees(id, &mut registry));
    (models, registry)
}

const HIDDEN: usize = 6;
const WORDS: usize = 1000;

/// A TreeLSTM over words: the request's numbers are a word for each leaf, then what decides which
/// neighbours are joined.
struct Trees {
    leaf: Cell,
    inner: Cell,
    cell_types: [batchmaker_graph::CellTypeId; 2],
}

fn trees(model: ModelId, registry: &mut CellRegistry) -> Model {
    let numbers = |count: usize, salt: usize| -> Arc<[f32]> {
        let number = |at: usize| ((at * 7919 + salt * 31) % 997) as f32 / 997.0 - 0.5;
        (0..count).map(number).collect()
    };
    let leaf = Cell::tree(TreeCell::Leaf {
        input_size: 3,
        hidden_size: HIDDEN,
        w: numbers(3 * HIDDEN * 3, 1),
        b: Some(numbers(3 * HIDDEN, 2)),
        lookup: Some(Lookup { table: numbers(WORDS * 3, 3), width: 3 }),
    });
    let inner = Cell::tree(TreeCell::Inner {
        hidden_size: HIDDEN,
        l: numbers(5 * HIDDEN * HIDDEN, 4),
        r: numbers(5 * HIDDEN * HIDDEN, 5),
        b: Some(numbers(5 * HIDDEN, 6)),
    });
    let mut cells = Vec::new();
    let mut add = |name: &str, cell: &Cell, priority| {
        let rank = ModelPriority { model, priority };
        let cell_type = registry.add(name, cell.clone(), 64, rank);
        let (name, description) = (name.to_owned(), String::new());
        let (fused, limit_given) = (true, true);
        cells.push(ModelCell {
            name,
            cell_type,
            stage: 0,
            fused,
            limit_given,
            priority,
            description,
        });
        cell_type
    };
    let cell_types = [add("leaf", &leaf, 0), add("inner", &inner, 1)];
    let info = |name: &str, element, shape| TensorInfo { name: name.to_owned(), element, shape };
    let layout = InputLayout {
        axes: vec![Axis::Time],
        content: Content::Ids(WORDS as u64),
        optional: false,
    };
    let tree = info("tree", ElementType::I64, vec![-1]);
    let inputs = vec![RequestTensor { info: tree, layout, step_axis: None }];
    let root = info("root", ElementType::F32, vec![HIDDEN as i64]);
    let outputs = vec![ReplyTensor { info: root, batch_axis: None }];
    let unfolder = Arc::new(Trees { leaf, inner, cell_types });
    let unfolding =
        Unfolding { unfolder, inputs, outputs, cells, max_length: 4096, takes: Takes::NONE };
    Model::new("trees", "1", unfolding).unwrap()
}

impl Unfold for Trees {
    fn unfold(&self, tensors: Vec<NamedTensor>, _: &Parameters) -> Result<Unfolded, UnfoldError> {
        let TensorData::I64(numbers) = tensors[0].tensor.data() else { panic!("ids") };
        let (words, choices) = numbers.split_at(numbers.len() / 2);
        let mut graph = CellGraphBuilder::new();
        let ids = graph.input(RowSpec::new(ElementType::I64, []), words.len() as u32);
        let inputs = vec![Tensor::new(vec![words.len()], TensorData::I64(words.to_vec()))];
        let mut dag = DagBuilder::new();
        let leaf = |dag: &mut DagBuilder, at: u32| {
            dag.node(self.cell_types[0], &self.leaf, &[Operand::Row(ids, at)])
        };
        let mut open: Vec<NodeId> = (0..words.len() as u32).map(|at| leaf(&mut dag, at)).collect();
        let mut choices = choices.iter();
        while open.len() > 1 {
            let at = *choices.next().unwrap() as usize % (open.len() - 1);
            let [l, r] = [open[at], open.remove(at + 1)];
            let operands =
                [(l, 0), (l, 1), (r, 0), (r, 1)].map(|(of, port)| Operand::Output(of, port));
            open[at] = dag.node(self.cell_types[1], &self.inner, &operands);
        }
        let placed = dag.add_to(&mut graph);
        let (value, row) = placed.output(open[0], 0);
        graph.output(value);
        let (name, shape, row) = ("root".to_owned(), vec![HIDDEN], row as usize);
        let rows = Some(row..row + 1);
        let output = OutputTensor { name, value, rows, shape, until: None, permutation: None };
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs: vec![output], checks: Vec::new() })
    }
}
