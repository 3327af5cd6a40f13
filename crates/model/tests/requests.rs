//! Requests that are refused, with the texts that say why, and requests that are unfolded.

use batchmaker_graph::{
    CellRegistry, ModelId, NamedTensor, Parameters, Tensor, TensorData, UnfoldError,
};
use batchmaker_model::{LoadOptions, Model, ReplyError, load};
use onnx::{Graph, TOML, floats, info, ints, load_files, node};
use rten_onnx::onnx::{AttributeProto, DataType, GraphProto, NodeProto};

#[path = "support/onnx.rs"]
mod onnx;

fn f32s(name: &str, shape: &[usize]) -> NamedTensor {
    let data = TensorData::zeros(batchmaker_graph::ElementType::F32, shape.iter().product());
    NamedTensor { name: name.to_owned(), tensor: Tensor::new(shape.to_vec(), data) }
}

fn ids(shape: &[usize], ids: &[i64]) -> NamedTensor {
    let tensor = Tensor::new(shape.to_vec(), TensorData::I64(ids.to_vec()));
    NamedTensor { name: "ids".to_owned(), tensor }
}

fn refused(model: &Model, tensors: Vec<NamedTensor>) -> String {
    model.unfold(tensors, &Parameters::default(), &[]).unwrap_err().to_string()
}

/// x `[T, B, 3]` and a first state h0 `[1, B, 2]`.
fn with_state(toml: &str) -> Model {
    let mut graph =
        Graph::new(vec![node("LSTM", "l", &["x", "W", "R", "", "", "h0"], &["Y"])], &["Y"]);
    graph.graph.input.push(info("h0", DataType::FLOAT, &["1", "batch", "2"]));
    let files: &[(&str, &[u8])] = &[("m.onnx", &graph.bytes())];
    load_files(files, toml, &mut CellRegistry::default()).unwrap()
}

#[test]
fn names_types_and_shapes() {
    let model = with_state(TOML);
    let state = || f32s("h0", &[1, 1, 2]);
    let good = || f32s("x", &[2, 1, 3]);
    assert!(model.unfold(vec![state(), good()], &Parameters::default(), &[]).is_ok());
    assert_eq!(refused(&model, vec![good()]), "tensor `h0`: missing; expected FP32 [1, -1, 2]");
    assert_eq!(
        refused(&model, vec![good(), f32s("y", &[1])]),
        "tensor `y`: unknown; the model's inputs are `x`, `h0`"
    );
    assert_eq!(refused(&model, vec![good(), good()]), "tensor `x`: given twice");
    let tensor = Tensor::new(vec![1, 1, 3], TensorData::I64(vec![0; 3]));
    let wrong = NamedTensor { name: "x".to_owned(), tensor };
    assert_eq!(refused(&model, vec![wrong, state()]), "tensor `x`: expected FP32, got INT64");
    assert_eq!(
        refused(&model, vec![f32s("x", &[2, 3]), state()]),
        "tensor `x`: expected shape [-1, -1, 3], got [2, 3]"
    );
    assert_eq!(
        refused(&model, vec![f32s("x", &[2, 1, 4]), state()]),
        "tensor `x`: expected shape [time, batch, 3], got [2, 1, 4]"
    );
    assert_eq!(
        refused(&model, vec![f32s("x", &[0, 1, 3]), state()]),
        "tensor `x`: expected shape [time, batch, 3], got [0, 1, 3]: an empty sequence"
    );
    assert_eq!(
        refused(&model, vec![f32s("x", &[2, 3, 3]), state()]),
        "tensor `h0`: expected shape [1, batch, 2], got [1, 1, 2]: batch is 3 by tensor `x`"
    );
}

#[test]
fn too_many_rows() {
    let model = with_state(&format!("max_length = 4\n{TOML}"));
    assert_eq!(
        refused(&model, vec![f32s("x", &[5, 1, 3]), f32s("h0", &[1, 1, 2])]),
        "tensor `x`: expected at most 4 rows, got 5"
    );
    // Steps of all sequences, not their features.
    let fits = vec![f32s("x", &[1, 4, 3]), f32s("h0", &[1, 4, 2])];
    assert!(model.unfold(fits, &Parameters::default(), &[]).is_ok());
}

#[test]
fn ids_outside_the_table() {
    let mut graph = Graph::new(
        vec![
            node("Gather", "embed", &["table", "ids"], &["x"]),
            node("LSTM", "l", &["x", "W", "R"], &["", "h"]),
        ],
        &["h"],
    );
    graph.graph.input = vec![info("ids", DataType::INT64, &["T", "B"])];
    graph.graph.initializer.push(floats("table", &[5, 3]));
    let model = graph.load(&mut CellRegistry::default()).unwrap();
    assert!(model.unfold(vec![ids(&[3, 1], &[0, 4, 1])], &Parameters::default(), &[]).is_ok());
    assert_eq!(
        refused(&model, vec![ids(&[3, 1], &[0, 5, 1])]),
        "tensor `ids`: expected ids in 0..5, got 5"
    );
    assert_eq!(
        refused(&model, vec![ids(&[1, 1], &[-1])]),
        "tensor `ids`: expected ids in 0..5, got -1"
    );
}

#[test]
fn every_load_of_a_file_unfolds_a_request_alike() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/lstm2_states.onnx");
    let unfold = || {
        let options = LoadOptions::new(ModelId(0));
        let model = load(&path, &options, &mut CellRegistry::default()).unwrap();
        let tensors = vec![f32s("x", &[3, 1, 5]), f32s("h0", &[2, 1, 4]), f32s("c0", &[2, 1, 4])];
        format!("{:?}", model.unfold(tensors, &Parameters::default(), &[]).unwrap().0)
    };
    let first = unfold();
    // Two outputs are stacks of layers: if their order were left to chance, eight loads would show it.
    for _ in 0..8 {
        assert_eq!(unfold(), first);
    }
}

/// Wherever the bound is met, the graph is given up, and nothing else happens.
#[test]
fn graphs_beyond_the_bound_are_given_up() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = |text: &str| {
        let data = TensorData::Bytes(vec![text.as_bytes().to_vec()]);
        vec![NamedTensor { name: "text".to_owned(), tensor: Tensor::new(vec![1], data) }]
    };
    let states = vec![f32s("x", &[3, 2, 5]), f32s("h0", &[2, 2, 4]), f32s("c0", &[2, 2, 4])];
    let requests = [
        ("../../models/langid", text("hello there")),
        ("../../models/g2p", text("hello")),
        ("tests/vectors/lstm2_states.onnx", states),
    ];
    for (path, tensors) in requests {
        let options = LoadOptions::new(ModelId(0));
        let model = load(&root.join(path), &options, &mut CellRegistry::default()).unwrap();
        let mut bound = 0;
        let (graph, refusals) = loop {
            let parameters = Parameters { graph_bytes_max: Some(bound), ..Parameters::default() };
            match model.unfold(tensors.clone(), &parameters, &[]) {
                Ok((unfolded, _)) => break (unfolded.graph, bound),
                Err(error) => {
                    assert_eq!(error, UnfoldError::TooLarge { bytes_max: bound }, "{path}")
                }
            }
            bound += 8;
        };
        assert!((refusals - 7..=refusals).contains(&graph.record_bytes()), "{path}: {refusals}");
    }
}

/// Ids that the graph computes are clamped, so that nobody else's row is touched; the request that they belong to is
/// refused when its values are there.
#[test]
fn computed_ids_are_checked_when_they_are_there() {
    let mut graph = Graph::new(
        vec![
            node("Add", "add", &["ids", "one"], &["next"]),
            node("Gather", "embed", &["table", "next"], &["x"]),
            node("LSTM", "lstm", &["x", "W", "R"], &["Y"]),
        ],
        &["Y"],
    );
    graph.graph.input = vec![info("ids", DataType::INT64, &["T", "B"])];
    graph.graph.initializer.extend([ints("one", &[1]), floats("table", &[5, 3])]);
    let model = graph.load(&mut CellRegistry::default()).unwrap();
    let unfold = || model.unfold(vec![ids(&[2, 1], &[0, 3])], &Parameters::default(), &[]).unwrap();
    let (unfolded, plan) = unfold();
    let [check] = &unfolded.checks[..] else { panic!("{:?}", unfolded.checks) };
    assert_eq!((check.low, check.high), (-5, 4));
    let outputs = unfolded.graph.outputs();
    let values = |next: i64| -> Vec<TensorData> {
        let value = |value: &batchmaker_graph::ValueIndex| match *value == check.value {
            true => TensorData::I64(vec![1, next]),
            false => TensorData::F32(vec![0.0; 4]),
        };
        outputs.iter().map(value).collect()
    };
    assert_eq!(plan.reply(values(4), &[]).unwrap().len(), 1, "the ids are no output");
    let error = unfold().1.reply(values(5), &[]).unwrap_err();
    let text = "an index that node `embed` computes is out of range: expected -5..=4, got 5";
    assert!(matches!(&error, ReplyError::Request(_)) && error.to_string() == text, "{error}");
}

/// A condition on a number that the request brings takes a branch for each request.
#[test]
fn a_request_takes_the_branch_of_its_own_number() {
    let branch = |name: &str, operator: &str| AttributeProto {
        name: Some(name.to_owned()),
        g: Some(GraphProto {
            node: vec![node(operator, operator, &["Y"], &[name])],
            output: vec![info(name, DataType::FLOAT, &[])],
            ..GraphProto::default()
        }),
        ..AttributeProto::default()
    };
    let choose = NodeProto {
        attribute: vec![branch("then_branch", "Relu"), branch("else_branch", "Neg")],
        ..node("If", "if", &["is_one"], &["z"])
    };
    let nodes = vec![
        node("LSTM", "lstm", &["x", "W", "R"], &["Y"]),
        node("Equal", "equal", &["rate", "one"], &["is_one"]),
        choose,
    ];
    let mut graph = Graph::new(nodes, &["z"]);
    graph.graph.input.push(info("rate", DataType::INT64, &["1"]));
    graph.graph.initializer.push(ints("one", &[1]));
    let model = graph.load(&mut CellRegistry::default()).unwrap();
    let cells = |rate: i64| -> Vec<u32> {
        let tensor = Tensor::new(vec![1], TensorData::I64(vec![rate]));
        let rate = NamedTensor { name: "rate".to_owned(), tensor };
        let (unfolded, _) =
            model.unfold(vec![f32s("x", &[2, 1, 3]), rate], &Parameters::default(), &[]).unwrap();
        unfolded.graph.runs().iter().map(|run| run.cell_type.0).collect()
    };
    assert_eq!(model.cells.len(), 3, "the recurrent cell is shared");
    assert_eq!((cells(1), cells(2)), (vec![0, 1], vec![0, 2]));
}
