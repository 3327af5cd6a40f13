//! Files that are cut into stages at their nodes.

use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadError, LoadOptions, Model, StageStarts, load_embedded};
use onnx::{Graph, TOML, floats, info, node};
use rten_onnx::onnx::DataType;

#[path = "support/onnx.rs"]
mod onnx;

/// Four convolutions of three channels, the second and the third of which a sum skips. The last has no name: by its place it is `OP_5`.
fn network() -> Graph {
    let mut graph = Graph::new(
        vec![
            node("Conv", "first", &["image", "W"], &["0"]),
            node("Relu", "relu", &["0"], &["1"]),
            node("Conv", "second", &["1", "W"], &["2"]),
            node("Conv", "third", &["2", "W"], &["3"]),
            node("Add", "sum", &["1", "3"], &["4"]),
            node("Conv", "", &["4", "W"], &["y"]),
        ],
        &["y"],
    );
    graph.graph.input = vec![info("image", DataType::FLOAT, &["N", "3", "6", "6"])];
    graph.graph.initializer.push(floats("W", &[3, 3, 1, 1]));
    graph
}

fn load(graph: Graph, starts: &[&str], registry: &mut CellRegistry) -> Result<Model, LoadError> {
    let starts = starts.iter().map(|&start| start.to_owned()).collect();
    load_in(graph, StageStarts::Named(starts), registry)
}

fn load_in(
    graph: Graph,
    stages: StageStarts,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let bytes = graph.bytes();
    let files: [(&str, &[u8]); 2] = [("m.onnx", &bytes), ("model.toml", TOML.as_bytes())];
    let options = LoadOptions { stages, ..LoadOptions::new(ModelId(0)) };
    load_embedded("network", &files, &options, registry)
}

/// Name and stage of each cell.
fn cells(starts: &[&str]) -> Vec<(String, usize)> {
    let mut registry = CellRegistry::default();
    let model = load(network(), starts, &mut registry).unwrap();
    for cell in &model.cells {
        assert_eq!(registry.get(cell.cell_type).stage, cell.stage);
    }
    model.cells.into_iter().map(|cell| (cell.name, cell.stage)).collect()
}

fn named(cells: &[(&str, usize)]) -> Vec<(String, usize)> {
    cells.iter().map(|&(name, stage)| (name.to_owned(), stage)).collect()
}

#[test]
fn a_stage_begins_with_each_node() {
    assert_eq!(cells(&[]), named(&[("OP_5", 0)]));
    assert_eq!(cells(&["third"]), named(&[("second", 0), ("OP_5", 1)]));
    let all = [("relu", 0), ("second", 1), ("sum", 2), ("OP_5", 3)];
    assert_eq!(cells(&["second", "third", "OP_5"]), named(&all));
}

/// Cells of equal weights are one type within a stage; two types in two stages.
#[test]
fn a_cell_type_is_of_one_stage() {
    let mut registry = CellRegistry::default();
    let model = load(network(), &["third", "sum", "OP_5"], &mut registry).unwrap();
    let [first, third, .., last] = &model.cells[..] else { panic!("{:?}", model.cells) };
    assert_ne!(registry.get(first.cell_type).identity, registry.get(third.cell_type).identity);
    assert_eq!(registry.get(third.cell_type).identity, registry.get(last.cell_type).identity);
    assert_ne!(third.cell_type, last.cell_type);
}

/// Before the third convolution two tensors lie that are read behind it: the sum's operand crosses there too.
#[test]
fn stages_may_begin_where_the_fewest_tensors_cross() {
    let all = |graph: Graph| {
        let model = load_in(graph, StageStarts::All, &mut CellRegistry::default()).unwrap();
        (model.stage_starts, model.cells.iter().map(|cell| cell.stage).collect::<Vec<_>>())
    };
    let starts = ["second", "OP_5"].map(str::to_owned).to_vec();
    assert_eq!(all(network()), (starts, vec![0, 1, 2]));
    assert_eq!(all(lstm()).0, Vec::<String>::new());
}

/// The first convolution reads the request alone, of images of any size.
#[test]
fn stages_may_begin_behind_the_first_operator() {
    let nodes = vec![
        node("Conv", "first", &["image", "W"], &["0"]),
        node("Conv", "second", &["0", "W"], &["1"]),
        node("Conv", "third", &["1", "W"], &["y"]),
    ];
    let mut graph = Graph::new(nodes, &["y"]);
    graph.graph.input = vec![info("image", DataType::FLOAT, &["N", "3", "H", "W"])];
    graph.graph.initializer.push(floats("W", &[3, 3, 1, 1]));
    let model = load_in(graph, StageStarts::All, &mut CellRegistry::default()).unwrap();
    assert_eq!(model.stage_starts, ["second", "third"]);
    assert_eq!(model.cells.iter().map(|cell| cell.stage).collect::<Vec<_>>(), [0, 1, 2]);
}

fn lstm() -> Graph {
    let nodes =
        vec![node("LSTM", "lstm", &["x", "W", "R"], &["Y"]), node("Relu", "r", &["Y"], &["y"])];
    Graph::new(nodes, &["y"])
}

#[test]
fn what_cannot_be_cut_is_told() {
    let mut registry = CellRegistry::default();
    let error = load(network(), &["fifth"], &mut registry).unwrap_err().to_string();
    assert!(error.contains("no operator `fifth` is computed"), "{error}");
    for starts in [["third", "second"], ["second", "second"]] {
        let error = load(network(), &starts, &mut registry).unwrap_err().to_string();
        assert!(error.contains("stages begin in the order of the file"), "{error}");
    }
    let error = load(network(), &["first"], &mut registry).unwrap_err().to_string();
    assert!(error.contains("no cell lies before `first`"), "{error}");
    let error = load(lstm(), &["r"], &mut registry).unwrap_err().to_string();
    assert!(error.contains("it has recurrent operators"), "{error}");
    assert!(registry.cell_types().is_empty());
}
