//! The tables of a `model.toml`, as they are written.

use std::collections::BTreeMap;

use batchmaker_graph::Precision;
use serde::Deserialize;

use crate::data::direction::Direction;
use crate::file::rules::{Comparison, Condition, Exit, Skip};
use crate::loading::text::{OutputTable, TextTable, Unit};
use crate::unfold::templates::template_cell::StepOutput;

/// `[[cell]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table [[cell]] with a name and a graph")]
pub(crate) struct CellTable {
    pub(crate) name: String,
    pub(crate) graph: String,
    pub(crate) max_batch_size: Option<u32>,
    #[serde(default, deserialize_with = "precision")]
    pub(crate) precision: Option<Precision>,
    pub(crate) priority: Option<i32>,
    #[serde(default)]
    pub(crate) batch_axis: BTreeMap<String, usize>,
    /// The rows of inputs whose shape the file leaves open.
    #[serde(default)]
    pub(crate) row: BTreeMap<String, Vec<usize>>,
}

/// A precision by its name.
fn precision<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Precision>, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map(Some).map_err(serde::de::Error::custom)
}

/// `[unfold]` of `kind = "chain"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChainTable {
    #[serde(rename = "kind")]
    _kind: String,
    pub(crate) cell: String,
    #[serde(default)]
    direction: Option<String>,
    #[serde(default)]
    pub(crate) sequence: Vec<String>,
    #[serde(default)]
    pub(crate) constant: Vec<String>,
    #[serde(default)]
    pub(crate) state: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) outputs: BTreeMap<String, StepOutputTable>,
}

/// `[unfold]` of `kind = "tree"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TreeTable {
    #[serde(rename = "kind")]
    _kind: String,
    pub(crate) leaf: LeafTable,
    pub(crate) internal: InternalTable,
    #[serde(default)]
    pub(crate) outputs: BTreeMap<String, StepOutputTable>,
}

/// `[unfold.leaf]`.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { cell = \"leaf\", sequence = [\"token\"] }"
)]
pub(crate) struct LeafTable {
    pub(crate) cell: String,
    pub(crate) sequence: Vec<String>,
}

/// `[unfold.internal]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table [unfold.internal] with a cell and children")]
pub(crate) struct InternalTable {
    pub(crate) cell: String,
    pub(crate) children: Vec<BTreeMap<String, String>>,
}

/// `[unfold]` of `kind = "encoder_decoder"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EncoderDecoderTable {
    #[serde(rename = "kind")]
    _kind: String,
    pub(crate) encoder: EncoderTable,
    pub(crate) decoder: DecoderTable,
    #[serde(default)]
    pub(crate) outputs: BTreeMap<String, StepOutputTable>,
}

/// `[unfold.encoder]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table [unfold.encoder] with a cell and a sequence")]
pub(crate) struct EncoderTable {
    pub(crate) cell: String,
    #[serde(default)]
    direction: Option<String>,
    pub(crate) sequence: Vec<String>,
    #[serde(default)]
    pub(crate) state: BTreeMap<String, String>,
}

/// `[unfold.decoder]`.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table [unfold.decoder] with a cell, feed, start and max_steps"
)]
pub(crate) struct DecoderTable {
    pub(crate) cell: String,
    pub(crate) feed: BTreeMap<String, String>,
    pub(crate) start: BTreeMap<String, i64>,
    pub(crate) stop: Option<StopTable>,
    #[serde(default)]
    pub(crate) state: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) init: BTreeMap<String, String>,
    pub(crate) max_steps: MaxStepsTable,
}

/// `stop` of `[unfold.decoder]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { output = \"token_out\", value = 2 }")]
pub(crate) struct StopTable {
    pub(crate) output: String,
    pub(crate) value: i64,
}

/// `max_steps` of `[unfold.decoder]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { per_input = 1.0, plus = 50 }")]
pub(crate) struct MaxStepsTable {
    #[serde(default)]
    pub(crate) per_input: f64,
    #[serde(default)]
    pub(crate) plus: u32,
}

impl DecoderTable {
    /// Inputs that an output of the step before is fed to: states, and what is fed back.
    pub(crate) fn states(&self) -> Result<BTreeMap<String, String>, String> {
        let mut states = self.state.clone();
        for (input, output) in &self.feed {
            if !self.start.contains_key(input) {
                return Err(format!("unfold.decoder.start: nothing for `{input}`, which is fed"));
            }
            if states.insert(input.clone(), output.clone()).is_some() {
                return Err(format!("unfold.decoder: `{input}` is both fed and a state"));
            }
        }
        let first = |map: &BTreeMap<String, _>| -> Vec<String> { map.keys().cloned().collect() };
        for input in self.start.keys().chain(&first(&self.init)) {
            if !states.contains_key(input) {
                return Err(format!("unfold.decoder: `{input}` is neither fed nor a state"));
            }
        }
        if let Some(twice) = self.init.keys().find(|input| self.start.contains_key(*input)) {
            return Err(format!("unfold.decoder: `{twice}` has both a start and an init"));
        }
        Ok(states)
    }
}

/// `[unfold.outputs.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { from = \"h_out\", every_step = true }")]
pub(crate) struct StepOutputTable {
    pub(crate) from: String,
    #[serde(default)]
    pub(crate) every_step: bool,
}

/// The reply's tensors, in the order of their names.
pub(crate) fn step_outputs(table: &BTreeMap<String, StepOutputTable>) -> Vec<StepOutput> {
    let output = |(name, output): (&String, &StepOutputTable)| StepOutput {
        name: name.clone(),
        from: output.from.clone(),
        every_step: output.every_step,
    };
    table.iter().map(output).collect()
}

impl ChainTable {
    pub(crate) fn direction(&self) -> Result<Direction, String> {
        direction("unfold.direction", self.direction.as_deref())
    }
}

impl EncoderTable {
    pub(crate) fn direction(&self) -> Result<Direction, String> {
        direction("unfold.encoder.direction", self.direction.as_deref())
    }
}

fn direction(key: &str, value: Option<&str>) -> Result<Direction, String> {
    match value {
        None | Some("forward") => Ok(Direction::Forward),
        Some("reverse") => Ok(Direction::Reverse),
        Some(other) => Err(format!("{key}: expected \"forward\" or \"reverse\", got \"{other}\"")),
    }
}

/// The whole file, but for what `[unfold]` holds, which its `kind` decides.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelToml {
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) max_length: Option<usize>,
    pub(super) unfold: Option<toml::Table>,
    pub(super) inputs: Option<InputsToml>,
    #[serde(default)]
    pub(super) outputs: BTreeMap<String, OutputTable>,
    #[serde(default)]
    pub(super) fixed: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(super) cell: Vec<CellTable>,
    #[serde(default)]
    pub(super) exit: Vec<ExitTable>,
    #[serde(default)]
    pub(super) skip: Vec<SkipTable>,
}

/// `[inputs]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table [inputs.text]")]
pub(super) struct InputsToml {
    pub(super) text: Option<TextTable>,
}

/// `[unfold]` of `kind = "onnx"`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnnxToml {
    #[serde(rename = "kind")]
    _kind: String,
    pub(super) graph: String,
    /// Inputs whose lengths the file leaves open: their axes without the batch, which is axis 0.
    #[serde(default)]
    pub(super) row: BTreeMap<String, Vec<usize>>,
}

/// `[[exit]]`.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table [[exit]] with when, one of above, below and is, and a table reply"
)]
pub(super) struct ExitTable {
    pub(super) when: String,
    pub(super) above: Option<f32>,
    pub(super) below: Option<f32>,
    pub(super) is: Option<bool>,
    pub(super) reply: BTreeMap<String, String>,
}

/// `[[skip]]`.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table [[skip]] with when, one of above, below and is, tensor and from"
)]
pub(super) struct SkipTable {
    pub(super) when: String,
    pub(super) above: Option<f32>,
    pub(super) below: Option<f32>,
    pub(super) is: Option<bool>,
    pub(super) tensor: String,
    pub(super) from: String,
}

impl ExitTable {
    pub(super) fn rule(self) -> Result<Exit, String> {
        let Self { when, above, below, is, reply } = self;
        Ok(Exit { when: condition(when, above, below, is)?, reply })
    }
}

impl SkipTable {
    pub(super) fn rule(self) -> Result<Skip, String> {
        let Self { when, above, below, is, tensor, from } = self;
        Ok(Skip { when: condition(when, above, below, is)?, tensor, from })
    }
}

fn condition(
    tensor: String,
    above: Option<f32>,
    below: Option<f32>,
    is: Option<bool>,
) -> Result<Condition, String> {
    let is = match (above, below, is) {
        (Some(bound), None, None) => Comparison::Above(bound),
        (None, Some(bound), None) => Comparison::Below(bound),
        (None, None, Some(is)) => Comparison::Equal(is),
        _ => return Err(format!("`{tensor}` is compared by one of `above`, `below` and `is`")),
    };
    Ok(Condition { tensor, is })
}

/// Unit of text, as `model.toml` spells it.
impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "char" => Ok(Self::Char),
            "word" => Ok(Self::Word),
            other => {
                let text = format!("unit: expected \"char\" or \"word\", got \"{other}\"");
                Err(serde::de::Error::custom(text))
            }
        }
    }
}
