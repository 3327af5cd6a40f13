//! Early exits and skips: `[[exit]]` and `[[skip]]` of a `model.toml`, and an `If` on data in the file.

use batchmaker_graph::{
    CellRegistry, Guard, ModelId, NamedTensor, Parameters, Tensor, TensorData, Unfolded, ValueIndex,
};
use batchmaker_model::{LoadError, LoadOptions, Model, StageStarts, load_embedded};
use onnx::{Graph, TOML, floats, info, load_files, node};
use rten_onnx::onnx::{AttributeProto, DataType, GraphProto, NodeProto};

#[path = "support/onnx.rs"]
mod onnx;

/// Three products one after the other; behind the first, scores and the greatest of them.
fn network() -> Graph {
    let mut graph = Graph::new(
        vec![
            node("MatMul", "first", &["x", "A"], &["a"]),
            node("MatMul", "scores", &["a", "A"], &["early"]),
            node("ReduceMax", "greatest", &["early"], &["confidence"]),
            node("MatMul", "second", &["a", "A"], &["b"]),
            node("MatMul", "third", &["b", "A"], &["y"]),
        ],
        &["y", "early", "confidence"],
    );
    let axes = AttributeProto {
        ints: vec![1],
        ..AttributeProto { name: Some("axes".to_owned()), ..AttributeProto::default() }
    };
    let keep = onnx::int("keepdims", 0);
    graph.graph.node[2].attribute = vec![axes, keep];
    graph.graph.input = vec![info("x", DataType::FLOAT, &["N", "4"])];
    graph.graph.initializer.push(floats("A", &[4, 4]));
    graph
}

fn load(graph: Graph, rules: &str) -> Result<Model, LoadError> {
    let toml = format!("{TOML}{rules}");
    load_files(&[("m.onnx", &graph.bytes())], &toml, &mut CellRegistry::default())
}

const EXIT: &str = "[[exit]]\nwhen = \"confidence\"\nabove = 0.5\nreply = { y = \"early\" }\n";

fn unfold(model: &Model, rows: usize) -> (Unfolded, batchmaker_model::ReplyPlan) {
    let tensor = Tensor::new(vec![rows, 4], TensorData::F32(vec![1.0; 4 * rows]));
    let x = NamedTensor { name: "x".to_owned(), tensor };
    model.unfold(vec![x], &Parameters::default(), &[]).unwrap()
}

/// For each run: the row of the decision that it waits for, and when it is needed.
fn guards(unfolded: &Unfolded) -> Vec<Option<(u32, bool)>> {
    let graph = &unfolded.graph;
    let guard = |Guard { decision, when }: Guard| (graph.decisions()[decision.index()].row, when);
    graph.runs().iter().map(|run| run.guard.map(guard)).collect()
}

/// The trunk and its scores run for each sequence; the rest only where the sequence's own confidence is low.
#[test]
fn what_follows_an_exit_has_a_guard() {
    let model = load(network(), EXIT).unwrap();
    assert_eq!(model.outputs.iter().map(|of| &*of.name).collect::<Vec<_>>(), ["y"]);
    assert_eq!(model.cells.len(), 2, "{:?}", model.cells);
    assert!(model.cells[1].description.contains("only where exit 1 gives false"));
    let (unfolded, _) = unfold(&model, 2);
    assert_eq!(guards(&unfolded), [None, None, Some((0, false)), Some((1, false))]);
    assert_eq!(unfolded.graph.choices().len(), 1);
}

/// The reply has the rows of the exit where its condition is true.
#[test]
fn the_reply_takes_each_row_from_where_it_left() {
    let model = load(network(), EXIT).unwrap();
    let (unfolded, plan) = unfold(&model, 2);
    let graph = &unfolded.graph;
    let choice = graph.choices()[0];
    let value = |&value: &ValueIndex| match value {
        value if value == choice.condition => TensorData::Bool(vec![false, true]),
        value if value == choice.other => TensorData::F32(vec![2.0; 8]),
        _ => TensorData::F32(vec![1.0; 8]),
    };
    let reply = plan.reply(graph.outputs().iter().map(value).collect(), &[]).unwrap();
    let [y] = &reply[..] else { panic!("{reply:?}") };
    assert_eq!(y.tensor.data(), &TensorData::F32([[1.0; 4], [2.0; 4]].concat()));
}

/// A sequence that skips the second product has the first one's output in its place, and goes on.
#[test]
fn a_skip_leaves_out_what_one_tensor_takes() {
    let model = load(network(), SKIP).unwrap();
    assert_eq!(model.outputs.len(), 3, "they are outputs as before");
    let (unfolded, _) = unfold(&model, 1);
    assert_eq!(guards(&unfolded), [None, Some((0, false)), None]);
    assert!(unfolded.graph.choices().is_empty());
}

/// Two heads share what is behind an exit. An operator that computes once for all sequences of a request is not left out by one of them.
#[test]
fn an_exit_leaves_out_what_all_outputs_need_behind_it() {
    let mut graph = network();
    graph.graph.node.push(node("MatMul", "fourth", &["b", "A"], &["z"]));
    graph.graph.node.push(node("MatMul", "for all", &["t", "A"], &["u"]));
    graph.graph.node.push(node("Add", "with all", &["z", "u"], &["v"]));
    graph.graph.input.push(info("t", DataType::FLOAT, &["4"]));
    graph.graph.output.push(info("v", DataType::FLOAT, &["N", "4"]));
    let model = load(graph, &EXIT.replace(" }", ", v = \"a\" }")).unwrap();
    let only = |name: &str| {
        let cell = model.cells.iter().find(|cell| cell.description.contains(name)).unwrap();
        cell.description.contains("only where exit 1 gives false")
    };
    assert!(only("second") && only("third") && only("fourth"), "{:?}", model.cells);
    assert!(!only("for all") && !only("scores"), "{:?}", model.cells);
}

/// The second exit's decision lies in what the first one leaves out.
#[test]
fn exits_are_taken_in_their_order() {
    let mut graph = network();
    let greatest = graph.graph.node[2].clone();
    let later = NodeProto {
        name: Some("later".to_owned()),
        input: vec!["b".to_owned()],
        output: vec!["later".to_owned()],
        ..greatest
    };
    graph.graph.node.push(later);
    graph.graph.output.push(info("later", DataType::FLOAT, &["N"]));
    let second = "[[exit]]\nwhen = \"later\"\nabove = 0.5\nreply = { y = \"b\" }\n";
    let model = load(graph, &format!("{EXIT}{second}")).unwrap();
    let (unfolded, _) = unfold(&model, 1);
    assert_eq!(guards(&unfolded), [None, Some((0, false)), Some((0, false))]);
    let decisions: Vec<u32> = unfolded.graph.decisions().iter().map(|of| of.run.0).collect();
    assert_eq!(decisions, [0, 1]);
    assert_eq!(unfolded.graph.choices().len(), 2);
}

/// An `If` of the file is an exit too; one whose branches cost little is computed as before.
#[test]
fn an_if_on_data_runs_one_branch_where_the_other_costs_much() {
    let branch = |name: &str, nodes: Vec<NodeProto>, output: &str| AttributeProto {
        name: Some(name.to_owned()),
        g: Some(GraphProto {
            node: nodes,
            output: vec![info(output, DataType::FLOAT, &[])],
            ..GraphProto::default()
        }),
        ..AttributeProto::default()
    };
    let with = |otherwise: NodeProto| {
        let mut graph = Graph::new(
            vec![
                node("MatMul", "first", &["x", "A"], &["a"]),
                node("ReduceMax", "greatest", &["a"], &["confidence"]),
                node("Greater", "sure", &["confidence", "half"], &["is_sure"]),
                NodeProto {
                    attribute: vec![
                        branch("then_branch", vec![], "a"),
                        branch("else_branch", vec![otherwise], "b"),
                    ],
                    ..node("If", "leave", &["is_sure"], &["y"])
                },
            ],
            &["y"],
        );
        graph.graph.node[1].attribute = vec![onnx::int("keepdims", 0)];
        graph.graph.input = vec![info("x", DataType::FLOAT, &["1", "4"])];
        graph.graph.initializer.extend([floats("A", &[4, 4]), floats("half", &[])]);
        let model = load(graph, "").unwrap();
        guards(&unfold(&model, 1).0)
    };
    assert_eq!(with(node("MatMul", "second", &["a", "A"], &["b"])), [None, Some((0, false))]);
    assert_eq!(with(node("Neg", "second", &["a"], &["b"])), [None]);
}

/// The nodes before which exits and skips of the network are decided, and the stage of each cell by the last of its nodes.
fn decided(graph: Graph, rules: &str) -> (Vec<String>, Vec<(String, usize)>) {
    let (toml, bytes) = (format!("{TOML}{rules}"), graph.bytes());
    let files: [(&str, &[u8]); 2] = [("m.onnx", &bytes), ("model.toml", toml.as_bytes())];
    let load = |stages| {
        let options = LoadOptions { stages, ..LoadOptions::new(ModelId(0)) };
        load_embedded("network", &files, &options, &mut CellRegistry::default()).unwrap()
    };
    let model = load(StageStarts::Decided);
    assert_eq!(model.stage_starts, model.decided_starts);
    let all = load(StageStarts::All);
    assert_eq!(all.decided_starts, model.decided_starts);
    assert!(all.decided_starts.iter().all(|start| all.stage_starts.contains(start)));
    assert_eq!(load(StageStarts::default()).decided_starts, Vec::<String>::new());
    let stages = model.cells.iter().map(|cell| (cell.name.clone(), cell.stage)).collect();
    (model.decided_starts, stages)
}

const SKIP: &str = "[[skip]]\nwhen = \"confidence\"\nbelow = 0.5\ntensor = \"b\"\nfrom = \"a\"\n";

/// A stage begins behind the decision of an exit; one with what a skip leaves out, and one with what follows.
#[test]
fn stages_begin_where_decisions_fall() {
    let (starts, stages) = decided(network(), EXIT);
    assert_eq!(starts, ["second"]);
    assert_eq!(stages.iter().map(|(_, stage)| *stage).collect::<Vec<_>>(), [0, 1]);
    let (starts, stages) = decided(network(), SKIP);
    assert_eq!(starts, ["second", "skip 1: b"], "what merges both ways goes on with what follows");
    assert_eq!(stages.iter().map(|(_, stage)| *stage).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(decided(network(), "").0, Vec::<String>::new());
}

/// The stage behind an exit begins with the operators that compute what its first product reads, not with the product.
#[test]
fn a_stage_begins_with_what_leads_to_its_products() {
    let mut graph = network();
    graph.graph.node[3].input[0] = "c".to_owned();
    graph.graph.node.insert(3, node("Relu", "between", &["a"], &["c"]));
    let (starts, stages) = decided(graph, EXIT);
    assert_eq!(starts, ["between"]);
    assert_eq!(stages.iter().map(|(_, stage)| *stage).collect::<Vec<_>>(), [0, 1], "{stages:?}");
}

/// More decisions than stages make none.
#[test]
fn many_decisions_divide_nothing() {
    let skips: String = (0..8).map(|at| SKIP.replace("\"b\"", &format!("\"b{at}\""))).collect();
    let mut graph = network();
    graph.graph.node.truncate(3);
    for at in 0..8 {
        let from = if at == 0 { "a".to_owned() } else { format!("s{}", at - 1) };
        let (name, b, s) = (format!("second{at}"), format!("b{at}"), format!("s{at}"));
        graph.graph.node.push(node("MatMul", &name, &[&from, "A"], &[&b]));
        graph.graph.node.push(node("MatMul", &format!("third{at}"), &[&b, "A"], &[&s]));
    }
    graph.graph.node.push(node("MatMul", "last", &["s7", "A"], &["y"]));
    assert_eq!(decided(graph, &skips).0, Vec::<String>::new());
}

/// The file computes the scores that decide behind all that they decide on: they are of the first stage all the same.
#[test]
fn what_decides_comes_before_what_it_decides_on() {
    let mut graph = network();
    let heads: Vec<NodeProto> = graph.graph.node.drain(1..3).collect();
    graph.graph.node.extend(heads);
    let (starts, stages) = decided(graph, EXIT);
    assert_eq!(starts, ["second"]);
    assert_eq!(stages.iter().map(|(_, stage)| *stage).collect::<Vec<_>>(), [0, 1], "{stages:?}");
}

#[test]
fn rules_that_do_not_fit_are_refused() {
    let refusal = |rule: &str| load(network(), rule).unwrap_err().to_string();
    let exit = |from: &str, to: &str| refusal(&EXIT.replace(from, to));
    for (text, expected) in [
        (exit("above = 0.5\n", ""), "compared by one of `above`, `below` and `is`"),
        (exit("when = \"confidence\"", "when = \"sure\""), "no output depends on a tensor `sure`"),
        (exit("{ y", "{ z"), "there is no output `z`"),
        (exit("y = \"early\"", ""), "nothing for the output `y`"),
        (exit("\"early\"", "\"late\""), "no output depends on a tensor `late`"),
        (
            refusal(&format!("{}early = \"confidence\" }}\n", EXIT.replace("}\n", ", "))),
            "`early` is replaced, so that no exit can take it",
        ),
        (
            refusal("[[skip]]\nwhen = \"confidence\"\nabove = 1\ntensor = \"a\"\nfrom = \"x\"\n"),
            "depends on what the rule computes of it",
        ),
        (
            refusal("[[skip]]\nwhen = \"a\"\nabove = 1\ntensor = \"b\"\nfrom = \"a\"\n"),
            "its condition is of several elements",
        ),
    ] {
        assert!(text.contains(expected), "{text}");
    }
}
