//! Holds `docs/model-toml.md` to the tables: every example is read, and the page lists every key and no other.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use crate::file::files::Files;
use crate::loading::directory::{Directory, UnfoldTable, read};
use crate::loading::text::{OutputTable, TextTable};
use crate::loading::toml_tables::{
    CellTable, ChainTable, DecoderTable, EncoderDecoderTable, EncoderTable, ExitTable, InputsToml,
    InternalTable, LeafTable, MaxStepsTable, ModelToml, OnnxToml, SkipTable, StepOutputTable,
    StopTable, TreeTable,
};

const PAGE: &str = include_str!("../../../../docs/model-toml.md");

fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

fn read_text(text: &str) -> Result<Directory, String> {
    let files: &[(&str, &[u8])] = &[("model.toml", text.as_bytes())];
    read(&Files::Embedded(files), "example".to_owned()).map_err(|error| error.to_string())
}

#[test]
fn every_example_is_read() {
    let mut kinds = BTreeSet::new();
    for text in examples() {
        let directory = read_text(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
        kinds.insert(match directory.unfold {
            UnfoldTable::Onnx { .. } => "onnx",
            UnfoldTable::Chain(table) => table.direction().map(|_| "chain").unwrap(),
            UnfoldTable::Tree(_) => "tree",
            UnfoldTable::EncoderDecoder(table) => {
                table.encoder.direction().unwrap();
                table.decoder.states().map(|_| "encoder_decoder").unwrap()
            }
        });
    }
    assert_eq!(kinds, BTreeSet::from(["chain", "encoder_decoder", "onnx", "tree"]));
}

#[test]
fn the_models_of_the_project_are_examples() {
    let langid = include_str!("../../../../models/langid/model.toml");
    let g2p = include_str!("../../../../models/g2p/model.toml");
    let digits = include_str!("../../../../models/digits/model.toml");
    for model in [langid, g2p, digits] {
        assert!(examples().contains(&model), "the page lacks\n{model}");
    }
}

/// The keys of a table: serde lists those that it expects where it finds another one.
fn keys<T: DeserializeOwned>(path: &str) -> Vec<String> {
    let Err(error) = toml::from_str::<T>("unexpected = 0") else {
        panic!("`{path}` takes any key");
    };
    let error = error.message().to_owned();
    let (_, expected) = error.split_once("expected ").unwrap_or_else(|| panic!("{error}"));
    let names = expected.split('`').skip(1).step_by(2);
    names.map(|name| if path.is_empty() { name.into() } else { format!("{path}.{name}") }).collect()
}

#[test]
fn every_key_is_listed_and_no_other() {
    let all = [
        keys::<ModelToml>(""),
        keys::<CellTable>("cell"),
        keys::<InputsToml>("inputs"),
        keys::<TextTable>("inputs.text"),
        keys::<OutputTable>("outputs.NAME"),
        keys::<OnnxToml>("unfold"),
        keys::<ExitTable>("exit"),
        keys::<SkipTable>("skip"),
        keys::<ChainTable>("unfold"),
        keys::<TreeTable>("unfold"),
        keys::<LeafTable>("unfold.leaf"),
        keys::<InternalTable>("unfold.internal"),
        keys::<EncoderDecoderTable>("unfold"),
        keys::<EncoderTable>("unfold.encoder"),
        keys::<DecoderTable>("unfold.decoder"),
        keys::<StopTable>("unfold.decoder.stop"),
        keys::<MaxStepsTable>("unfold.decoder.max_steps"),
        keys::<StepOutputTable>("unfold.outputs.NAME"),
    ];
    let mut accepted: BTreeSet<String> = all.into_iter().flatten().collect();
    // Its keys are inputs of the model.
    assert!(accepted.remove("fixed"));
    accepted.insert("fixed.INPUT".to_owned());
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let listed: BTreeSet<String> = rows.map(|(key, _)| key.to_owned()).collect();
    assert_eq!(listed, accepted);
}

#[test]
fn errors_name_the_line_in_words_of_the_file() {
    let g2p = include_str!("../../../../models/g2p/model.toml");
    let refusal = |from: &str, to: &str| {
        assert!(g2p.contains(from), "{from}");
        read_text(&g2p.replace(from, to)).expect_err(to)
    };
    let stop = "stop = { output = \"token_out\", value = 0 }";
    assert_eq!(
        refusal(stop, "stop = 2"),
        "model.toml: line 23, `stop = 2`: invalid type: integer `2`, expected a table such as \
         { output = \"token_out\", value = 2 }"
    );
    assert_eq!(
        refusal("sequence = [\"letter\"]", "sequences = [\"letter\"]"),
        "model.toml: line 17, `sequences = [\"letter\"]`: unknown field `sequences`, expected one \
         of `cell`, `direction`, `sequence`, `state`"
    );
    assert_eq!(
        refusal("max_steps = {", "max_steps = 5 # {"),
        "model.toml: line 26, `max_steps = 5 # { per_input = 2.0, plus = 8 }`: invalid type: \
         integer `5`, expected a table such as { per_input = 1.0, plus = 50 }"
    );
    let single =
        refusal("[[cell]]\nname = \"encoder\"\ngraph = \"encoder.onnx\"\n[[cell]]", "[cell]");
    assert_eq!(single, "model.toml: [cell]: write [[cell]], as there may be several");
    assert_eq!(
        read_text("name = \"m\"").unwrap_err(),
        "model.toml: there is no table [unfold]; the least is [unfold] with kind = \"onnx\" and \
         graph = \"model.onnx\""
    );
    for table in [
        "cell = [2]",
        "inputs = 2",
        "[inputs]\ntext = 2",
        "[outputs]\nids = 2",
        "[unfold]\nkind = \"tree\"\nleaf = 2",
        "[unfold]\nkind = \"tree\"\ninternal = 2",
        "[unfold]\nkind = \"encoder_decoder\"\nencoder = 2",
        "[unfold]\nkind = \"encoder_decoder\"\ndecoder = 2",
        "[unfold]\nkind = \"chain\"\ncell = \"c\"\noutputs = { y = 2 }",
    ] {
        let error = read_text(table).expect_err(table);
        assert!(error.contains("expected a table") && !error.contains("struct"), "{error}");
    }
}
