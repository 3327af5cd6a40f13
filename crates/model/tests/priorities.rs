//! Priorities of a file's cells: later in the computation first (section 4.3 of the BatchMaker paper).

use batchmaker_graph::CellRegistry;
use onnx::{Graph, floats, ints, node};
use rten_onnx::onnx::NodeProto;

#[path = "support/onnx.rs"]
mod onnx;

/// Each cell's name and priority, in order of computation.
fn priorities(nodes: Vec<NodeProto>, outputs: &[&str]) -> Vec<(String, i32)> {
    let mut graph = Graph::new(nodes, outputs);
    graph.opset = 18;
    graph.graph.initializer.extend([
        floats("A", &[3, 4]),
        floats("B", &[4, 3]),
        floats("C", &[2, 4]),
        ints("one", &[1]),
    ]);
    graph.graph.initializer.push(ints("axis", &[0]));
    graph.graph.initializer.last_mut().unwrap().dims.clear();
    let model = graph.load(&mut CellRegistry::default()).unwrap();
    model.cells.iter().map(|cell| (cell.name.clone(), cell.priority)).collect()
}

/// Rows, then whole sequences, then rows, and so on: no recurrent operator is upstream of any of them, and each
/// waits for the one before it.
#[test]
fn cells_without_recurrence_are_in_the_order_of_computation() {
    let nodes = vec![
        node("MatMul", "rows", &["x", "A"], &["a"]),
        node("CumSum", "sequences", &["a", "axis"], &["b"]),
        node("MatMul", "rows again", &["b", "B"], &["c"]),
        node("CumSum", "sequences again", &["c", "axis"], &["d"]),
        node("Relu", "last", &["d"], &["z"]),
    ];
    let cells = priorities(nodes, &["z"]);
    assert!(cells.len() > 3, "{cells:?}");
    assert!(cells.is_sorted_by(|(_, before), (_, after)| before < after), "{cells:?}");
}

/// Recurrent operators and what stands between them keep their order: by the recurrent operators upstream.
#[test]
fn recurrent_operators_come_first() {
    let nodes = vec![
        node("LSTM", "first", &["x", "W", "R"], &["y"]),
        node("Squeeze", "turn", &["y", "one"], &["h"]),
        node("MatMul", "between", &["h", "C"], &["p"]),
        node("MatMul", "three", &["p", "B"], &["q"]),
        node("LSTM", "second", &["q", "W", "R"], &["z"]),
        node("CumSum", "beside", &["x", "axis"], &["s"]),
    ];
    let cells = priorities(nodes, &["z", "s"]);
    let expected = [("beside", 0), ("first", 1), ("three", 2), ("second", 3)];
    assert_eq!(cells, expected.map(|(name, priority)| (name.to_owned(), priority)));
}
