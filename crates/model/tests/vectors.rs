//! Cell graphs compute what ONNX Runtime computes (`vectors/make.py` writes both
//! the files and the results).

use std::path::{Path, PathBuf};

use batchmaker_graph::{
    CellRegistry, ElementType, ModelId, NamedTensor, Parameters, Tensor, TensorData,
};
use batchmaker_model::{LoadOptions, Model, load};

mod support;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn load_file(name: &str, registry: &mut CellRegistry) -> Model {
    let options = LoadOptions::new(ModelId(0));
    load(&folder().join(format!("{name}.onnx")), &options, registry)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[derive(Default)]
struct Case {
    inputs: Vec<NamedTensor>,
    outputs: Vec<NamedTensor>,
}

fn cases(name: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if line == "case" {
            cases.push(Case::default());
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().unwrap();
        let (kind, name, element, shape) = (word(), word(), word(), word());
        let shape = match shape {
            "-" => Vec::new(),
            shape => shape.split('x').map(|n| n.parse().unwrap()).collect(),
        };
        let data = match element {
            "FP32" => TensorData::F32(words.map(|x| x.parse().unwrap()).collect()),
            "INT64" => TensorData::I64(words.map(|x| x.parse().unwrap()).collect()),
            "INT32" => TensorData::I32(words.map(|x| x.parse().unwrap()).collect()),
            _ => TensorData::Bool(words.map(|x| x == "1").collect()),
        };
        let tensor = NamedTensor { name: name.to_owned(), tensor: Tensor::new(shape, data) };
        let case = cases.last_mut().unwrap();
        if kind == "in" { case.inputs.push(tensor) } else { case.outputs.push(tensor) }
    }
    cases
}

fn assert_close(name: &str, found: &[NamedTensor], expected: &[NamedTensor]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.name, expected.name);
        let context = format!("{name}: output {}", found.name);
        assert_eq!(found.tensor.shape(), expected.tensor.shape(), "{context}");
        match (found.tensor.data(), expected.tensor.data()) {
            (TensorData::F32(a), TensorData::F32(b)) => {
                let largest = b.iter().fold(1.0f32, |m, x| m.max(x.abs()));
                for (a, b) in a.iter().zip(b) {
                    assert!((a - b).abs() <= 1e-5 * largest, "{context}: {a} for {b}");
                }
            }
            (a, b) => assert_eq!(a, b, "{context}"),
        }
    }
}

fn check(name: &str) -> (Model, CellRegistry) {
    let mut registry = CellRegistry::default();
    let model = load_file(name, &mut registry);
    for case in cases(name) {
        let (unfolded, plan) = model.unfold(case.inputs, &Parameters::default(), &[]).unwrap();
        let outputs = support::interpreter::run(&registry, &unfolded);
        let reply = plan.reply(outputs, &[]).unwrap();
        assert_close(name, &reply, &case.outputs);
    }
    (model, registry)
}

fn names(model: &Model) -> Vec<&str> {
    model.cells.iter().map(|cell| cell.name.as_str()).collect()
}

#[test]
fn one_layer() {
    let (model, _) = check("lstm1");
    assert_eq!(model.cells.len(), 1);
    assert_eq!(model.inputs[0].shape, [-1, -1, 5]);
    assert_eq!(model.outputs[1].shape, [1, -1, 4]);
}

#[test]
fn one_layer_batch_first_with_states() {
    assert_eq!(check("lstm1_batch_first_states").0.cells.len(), 1);
}

#[test]
fn two_layers_with_states_need_no_programs() {
    assert_eq!(check("lstm2_states").0.cells.len(), 2);
}

#[test]
fn two_layers_batch_first() {
    assert_eq!(check("lstm2_batch_first").0.cells.len(), 2);
}

#[test]
fn the_newer_exporter() {
    assert_eq!(check("lstm2_dynamo").0.cells.len(), 2);
}

#[test]
fn an_embedding_is_looked_up_in_the_step() {
    let (model, registry) = check("tagger");
    assert_eq!(model.cells.len(), 3, "{:?}", names(&model));
    let first = &registry.get(model.cells[0].cell_type).cell;
    assert_eq!(first.inputs[0].element, ElementType::I64);
    assert_eq!(model.cells.iter().map(|cell| cell.priority).collect::<Vec<_>>(), [0, 1, 2]);
    let program = &registry.get(model.cells[2].cell_type).cell;
    assert!(format!("{program:?}").contains("MatMul, Add, LogSoftmax"), "{program:?}");
}

#[test]
fn a_classifier_of_the_last_step_computes_it_alone() {
    let (model, _) = check("classifier");
    assert_eq!(model.cells.len(), 3, "{:?}", names(&model));
    assert!(
        model.cells[2].description.contains("once a sequence"),
        "{}",
        model.cells[2].description
    );
}

#[test]
fn last_states_of_two_layers() {
    check("last_state");
}

#[test]
fn a_constant_of_the_sequence_joins_every_step() {
    check("speaker");
}

#[test]
fn static_dimensions() {
    let (model, _) = check("static");
    assert_eq!(model.inputs[0].shape, [1, 7]);
}

#[test]
fn no_axis_of_batch() {
    check("unbatched");
}

#[test]
fn both_directions() {
    let (model, _) = check("bidirectional");
    // A cell for each direction, and one that puts their rows side by side.
    assert_eq!(model.cells.len(), 3);
}

#[test]
fn the_operator_alone() {
    check("raw");
}

#[test]
fn first_states_in_the_file() {
    check("raw_constant_state");
}

#[test]
fn a_static_batch_with_states() {
    let (model, _) = check("raw_states");
    assert_eq!(model.inputs[0].shape, [-1, 3, 3]);
}

#[test]
fn axes_in_any_order() {
    check("layout");
}
