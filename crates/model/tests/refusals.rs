//! Files that are refused at load, and the messages.

use batchmaker_graph::CellRegistry;
use rten_onnx::onnx::{AttributeProto, DataType, GraphProto, NodeProto};
use support::onnx::{Graph, TOML, info, int, load_files, node, string};

#[path = "support/onnx.rs"]
mod onnx;
mod support {
    pub(crate) use super::onnx;
}

fn lstm(attributes: Vec<AttributeProto>) -> NodeProto {
    let node = node("LSTM", "lstm", &["x", "W", "R"], &["Y", "Y_h", "Y_c"]);
    NodeProto { attribute: attributes, ..node }
}

fn refusal(nodes: Vec<NodeProto>, output: &str) -> Vec<String> {
    Graph::new(nodes, &[output]).refusal()
}

#[test]
fn attributes_of_the_lstm() {
    let one = |attribute| refusal(vec![lstm(vec![attribute])], "Y").join("|");
    assert_eq!(
        one(string("direction", "sideways")),
        "LSTM `lstm`: there is no direction \"sideways\""
    );
    let clip = AttributeProto { f: Some(-3.0), ..int("clip", 0) };
    assert_eq!(one(clip), "LSTM `lstm`: clip of -3");
    let activations = |names: &[&str]| {
        let strings = names.iter().map(|&name| name.to_owned()).collect();
        AttributeProto { strings, ..string("activations", "") }
    };
    assert_eq!(one(activations(&["Relu"])), "LSTM `lstm`: 1 activations, not 3");
    assert_eq!(
        one(activations(&["Relu", "Cosine", "Tanh"])),
        "LSTM `lstm`: there is no activation \"Cosine\""
    );
}

#[test]
fn every_reason_of_every_node_is_given() {
    let bidirectional = NodeProto {
        attribute: vec![
            string("direction", "bidirectional"),
            AttributeProto { f: Some(-1.0), ..int("clip", 0) },
        ],
        ..node("LSTM", "both", &["x", "W2", "R2"], &["Y2"])
    };
    let lines = refusal(
        vec![
            bidirectional,
            node("LSTM", "", &["x", "W", "R", "", "zero", "", "", "P"], &["Y"]),
            node("Cumsum2", "odd", &["Y"], &["a"]),
            NodeProto { domain: Some("my".to_owned()), ..node("F", "f", &["a"], &["b"]) },
            node("Concat", "join", &["b", "Y2"], &["c"]),
        ],
        "c",
    );
    assert_eq!(
        lines,
        [
            "LSTM `both`: clip of -1",
            "LSTM `OP_1`: its sequence_lens are of 1 sequences",
            "Cumsum2 `odd`: the operator is not supported",
            "F `f`: operators of domain `my` (functions of the file included) are not supported",
        ]
    );
}

#[test]
fn sequences_that_interact() {
    let after = |node: NodeProto| {
        let mut graph = Graph::new(vec![lstm(vec![]), node], &["z"]);
        graph.graph.input = vec![info("x", DataType::FLOAT, &["T", "2", "3"])];
        graph.refusal().join("|")
    };
    let mean = NodeProto {
        attribute: vec![AttributeProto { ints: vec![2], ..int("axes", 0) }],
        ..node("ReduceMean", "mean", &["Y"], &["z"])
    };
    assert_eq!(
        after(mean),
        "ReduceMean `mean`: it reduces over the axis of batch: its rows interact; on whole \
         sequences: rows of the batch interact"
    );
    let softmax =
        NodeProto { attribute: vec![int("axis", 2)], ..node("Softmax", "s", &["Y"], &["z"]) };
    assert_eq!(
        after(softmax),
        "Softmax `s`: it normalises over the axis of batch: its rows interact; on whole \
         sequences: rows of the batch interact"
    );
    let twice =
        NodeProto { attribute: vec![int("axis", 0)], ..node("Concat", "c", &["Y", "Y"], &["z"]) };
    assert_eq!(
        after(twice),
        "Concat `c`: it joins along the axis of T: its rows interact; on whole sequences: it joins \
         several tensors along steps"
    );
}

#[test]
fn types_and_opsets() {
    let mut graph = Graph::new(vec![lstm(vec![])], &["Y"]);
    graph.graph.input = vec![info("x", DataType::STRING, &["T", "B", "3"])];
    graph.opset = 6;
    assert_eq!(
        graph.refusal(),
        [
            "graph `m.onnx`: opset 6; 7 and later are supported",
            "input `x`: data type STRING is not supported (floats of 16 bits and more, integers of 8 \
             bits and more and BOOL are)",
        ]
    );
    let mut graph = Graph::new(vec![lstm(vec![])], &["Y"]);
    graph.graph.initializer[0].data_type = Some(DataType::FLOAT8E5M2);
    let lines = graph.refusal();
    assert!(lines[0].starts_with("initializer `W`: data type FLOAT8E5M2 is not supported ("));
}

#[test]
fn conditions_of_several_elements() {
    let branch = NodeProto {
        attribute: vec![AttributeProto { g: Some(GraphProto::default()), ..int("then_branch", 0) }],
        ..node("If", "if", &["Y"], &["z"])
    };
    assert_eq!(
        refusal(vec![lstm(vec![]), branch], "z"),
        ["If `if`: its condition is of several elements"]
    );
}

#[test]
fn files_that_are_no_models() {
    let load = |bytes: &[u8], toml: &str| {
        let files: &[(&str, &[u8])] = &[("m.onnx", bytes)];
        load_files(files, toml, &mut CellRegistry::default()).unwrap_err().to_string()
    };
    assert!(load(b"no onnx", TOML).starts_with("m.onnx: not an ONNX file"));
    let toml = |text: &str| load(b"", &format!("{text}\n{TOML}"));
    assert!(toml("colour = 3").contains("unknown field `colour`"));
    assert_eq!(
        toml("fixed = { sr = \"fast\" }"),
        "model.toml: fixed `sr`: expected a number, true or false, or arrays of them of equal \
         lengths, got \"fast\""
    );
    assert_eq!(
        load(b"", "max_length = 9\n[unfold]\nkind = \"encoder_decoder\""),
        "model.toml: line 2, `[unfold]`: missing field `encoder`"
    );
    assert_eq!(
        load(b"", "[unfold]\nkind = \"tree\"\nleaf = {}"),
        "model.toml: line 3, `leaf = {}`: missing field `cell`"
    );
    assert_eq!(
        load(b"", "[unfold]\nkind = \"onnx\"\ngraph = \"../m.onnx\""),
        "../m.onnx: a file outside the model's directory"
    );
    assert!(load(b"", "[unfold]\nkind = \"onnx\"").contains("missing field `graph`"));
}

#[test]
fn vocabularies_too_short_for_their_outputs() {
    let choice = NodeProto {
        attribute: vec![int("axis", 2), int("keepdims", 0)],
        ..node("ArgMax", "choose", &["x"], &["ids"])
    };
    let mut graph = Graph::new(vec![choice, node("Identity", "copy", &["x"], &["scores"])], &[]);
    graph.graph.output =
        vec![info("ids", DataType::INT64, &["T", "B"]), info("scores", DataType::FLOAT, &[])];
    let bytes = graph.bytes();
    let load = |labels: &str, output: &str| {
        let toml = format!("{TOML}[outputs.label]\nvocabulary = \"labels.txt\"\n{output}");
        let files: &[(&str, &[u8])] = &[("m.onnx", &bytes), ("labels.txt", labels.as_bytes())];
        let loaded = load_files(files, &toml, &mut CellRegistry::default());
        loaded.map(|_| ()).map_err(|error| error.to_string())
    };
    let (ids, scores) = ("tensor = \"ids\"", "tensor = \"scores\"\ntop = 1");
    assert_eq!(load("a\nb\nc\n", ids), Ok(()));
    assert_eq!(load("a\nb\nc\nnever\n", ids), Ok(()));
    assert_eq!(load("a\nb\nc\n", scores), Ok(()));
    assert_eq!(
        load("a\nb\n", ids).unwrap_err(),
        "labels.txt: it has 2 lines; output `ids` holds ids 0 to 2, which need 3 (outputs.label)"
    );
    assert_eq!(
        load("a\nb\n", scores).unwrap_err(),
        "labels.txt: it has 2 lines; output `scores` [-1, -1, 3] needs 3, a line for each score of \
         a row (outputs.label)"
    );
    assert_eq!(load("", ids).unwrap_err(), "labels.txt: a vocabulary without a line");
}

#[test]
fn vocabularies_too_short_for_their_decoders() {
    // A step whose next token is the greatest of three scores.
    let choice = NodeProto {
        attribute: vec![int("axis", 1), int("keepdims", 0)],
        ..node("ArgMax", "choose", &["scores"], &["next"])
    };
    let mut graph = Graph::new(vec![node("Tanh", "squash", &["x"], &["scores"]), choice], &[]);
    graph.graph.input = vec![info("x", DataType::FLOAT, &["batch", "3"])];
    graph.graph.output = vec![info("next", DataType::INT64, &["batch"])];
    let toml = "[[cell]]\nname = \"step\"\ngraph = \"m.onnx\"\n\
                [unfold]\nkind = \"chain\"\ncell = \"step\"\nsequence = [\"x\"]\n\
                [unfold.outputs]\ntoken = { from = \"next\", every_step = true }\n\
                [outputs.text]\ntensor = \"token\"\nvocabulary = \"v.txt\"\njoin = \"\"\n";
    let bytes = graph.bytes();
    let load = |vocabulary: &str| {
        let files: &[(&str, &[u8])] = &[("m.onnx", &bytes), ("v.txt", vocabulary.as_bytes())];
        load_files(files, toml, &mut CellRegistry::default()).map(|_| ())
    };
    assert!(load("a\nb\nc\n").is_ok());
    assert_eq!(
        load("a\nb\n").unwrap_err().to_string(),
        "v.txt: it has 2 lines; output `token` holds ids 0 to 2, which need 3 (outputs.text)"
    );
}

#[test]
fn one_number_fills_an_input_of_any_shape() {
    let load = |temperature: &str| {
        let scale = node("Mul", "scale", &["x", "temperature"], &["scaled"]);
        let recurrent = node("LSTM", "lstm", &["scaled", "W", "R"], &["Y"]);
        let mut graph = Graph::new(vec![scale, recurrent], &["Y"]);
        graph.graph.input.push(info("temperature", DataType::FLOAT, &["n", "3"]));
        let toml = format!("fixed = {{ temperature = {temperature} }}\n{TOML}");
        let loaded = load_files(&[("m.onnx", &graph.bytes())], &toml, &mut CellRegistry::default());
        loaded.map(|model| model.inputs.len()).map_err(|error| error.to_string())
    };
    assert_eq!(load("0.8"), Ok(1));
    assert_eq!(load("[[0.8, 0.8, 0.8]]"), Ok(1));
    assert_eq!(
        load("[0.8]").unwrap_err(),
        "model.toml: fixed `temperature`: expected shape [n, 3] or one number, got [1]"
    );
}

#[test]
fn fixed_lengths_are_noted() {
    let notes = |time: &str, batch: &str| {
        let mut graph = Graph::new(vec![lstm(vec![])], &["Y"]);
        graph.graph.input = vec![info("x", DataType::FLOAT, &[time, batch, "3"])];
        graph.load(&mut CellRegistry::default()).unwrap().notes
    };
    let note = |steps: &str| {
        format!(
            "input `x` takes exactly {steps}: the file fixes its axis 0, which is time; export it \
             with a dynamic axis to serve sequences of any length"
        )
    };
    let of_batch = |sequences: &str| {
        format!(
            "a request takes exactly {sequences}: the file fixes axis 1 of input `x`, which is the \
             batch; export it with a dynamic axis to send several"
        )
    };
    assert_eq!(notes("T", "B"), [""; 0]);
    assert_eq!(notes("T", "1"), [of_batch("1 sequence")]);
    assert_eq!(notes("24", "B"), [note("24 steps")]);
    assert_eq!(notes("24", "24"), [note("24 steps"), of_batch("24 sequences")]);
    assert_eq!(notes("1", "B"), [note("1 step")]);
}
