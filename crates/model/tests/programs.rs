//! Programs: a row's bits do not depend on the rows beside it, and names play no part in a
//! program's identity.

use batchmaker_executor::{ExecutorThreads, RowProgram};
use batchmaker_graph::{CellBody, CellRegistry, ElementType, TensorData};
use onnx::{Graph, floats, int, node};
use proptest::prelude::*;
use rten_onnx::onnx::NodeProto;

#[path = "support/onnx.rs"]
mod onnx;

const WIDTH: i64 = 40;

/// A head over every step: normalise, project up, rectify, project down, soften.
fn head(registry: &mut CellRegistry, prefix: &str) -> batchmaker_graph::CellTypeId {
    let n = |name: &str| format!("{prefix}{name}");
    let last = |node: NodeProto| NodeProto { attribute: vec![int("axis", -1)], ..node };
    let mut graph = Graph::new(
        vec![
            node("LSTM", "lstm", &["x", "W", "R"], &["Y"]),
            node("MatMul", &n("m0"), &["Y", "A"], &[&n("0")]),
            last(node("LayerNormalization", &n("ln"), &[&n("0"), "g"], &[&n("1")])),
            node("MatMul", &n("m1"), &[&n("1"), "B"], &[&n("2")]),
            node("Add", &n("a"), &[&n("2"), "b"], &[&n("3")]),
            node("Relu", &n("r"), &[&n("3")], &[&n("4")]),
            last(node("Softmax", &n("s"), &[&n("4")], &["z"])),
        ],
        &["z"],
    );
    graph.opset = 17;
    graph.graph.initializer.extend([
        floats("A", &[2, WIDTH]),
        floats("g", &[WIDTH]),
        floats("B", &[WIDTH, 19]),
        floats("b", &[19]),
    ]);
    let model = graph.load(registry).unwrap();
    model.cells[1].cell_type
}

#[test]
fn names_play_no_part() {
    let mut registry = CellRegistry::default();
    assert_eq!(head(&mut registry, "a"), head(&mut registry, "other"));
}

fn bits(data: &[TensorData]) -> Vec<u32> {
    match &data[0] {
        TensorData::F32(data) => data.iter().map(|x| x.to_bits()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_row_alone_equals_the_row_in_a_batch() {
    let mut registry = CellRegistry::default();
    let id = head(&mut registry, "n");
    let cell = &registry.get(id).cell;
    assert_eq!(cell.inputs[0].element, ElementType::F32);
    let CellBody::Program(program) = &cell.body else { panic!("{cell:?}") };
    let threads = ExecutorThreads::new();
    let program = RowProgram::new(program, &cell.inputs, &cell.outputs).unwrap();
    let (inside, outside) = (cell.inputs[0].elements(), cell.outputs[0].elements());
    let rows = prop::collection::vec(prop::collection::vec(-4.0f32..4.0, inside), 1..70);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: 60,
        ..ProptestConfig::default()
    });
    runner
        .run(&rows, |rows| {
            let batch =
                program.run(rows.len(), vec![TensorData::F32(rows.concat())], &threads).unwrap();
            let batch = bits(&batch);
            for (row, together) in rows.iter().zip(batch.chunks(outside)) {
                let alone = program.run(1, vec![TensorData::F32(row.clone())], &threads).unwrap();
                prop_assert_eq!(bits(&alone), together);
            }
            Ok(())
        })
        .unwrap();
}
