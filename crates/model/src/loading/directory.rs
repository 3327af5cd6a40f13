//! The `model.toml` of a model directory.

use std::collections::BTreeMap;

use batchmaker_graph::{Precision, Tensor, TensorData};
use serde::Deserialize;

use crate::data::direction::Direction;
use crate::error::LoadError;
use crate::file::files::Files;
use crate::loading::model::Tables;
use crate::loading::text::{OutputTable, TextTable, Unit};
use crate::unfold::templates::used_cell::StepOutput;

/// The most rows (steps of all sequences) that a request may carry, unless the model says.
pub const MAX_LENGTH: usize = 65536;

/// A directory, read.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) unfold: UnfoldTable,
    pub(crate) cells: Vec<CellTable>,
    pub(crate) max_length: usize,
    pub(crate) tables: Tables,
    /// Inputs that are constants.
    pub(crate) fixed: BTreeMap<String, Tensor>,
}

/// `[unfold]`.
#[derive(Debug)]
pub(crate) enum UnfoldTable {
    Onnx { graph: String },
    Chain(ChainTable),
    Tree(TreeTable),
    EncoderDecoder(EncoderDecoderTable),
}

/// `[[cell]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub(crate) struct LeafTable {
    pub(crate) cell: String,
    pub(crate) sequence: Vec<String>,
}

/// `[unfold.internal]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub(crate) struct StopTable {
    pub(crate) output: String,
    pub(crate) value: i64,
}

/// `max_steps` of `[unfold.decoder]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelToml {
    name: Option<String>,
    version: Option<String>,
    max_length: Option<usize>,
    unfold: toml::Table,
    inputs: Option<InputsToml>,
    #[serde(default)]
    outputs: BTreeMap<String, OutputTable>,
    #[serde(default)]
    fixed: BTreeMap<String, toml::Value>,
    #[serde(default)]
    cell: Vec<CellTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputsToml {
    text: Option<TextTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnnxToml {
    #[serde(rename = "kind")]
    _kind: String,
    graph: String,
}

/// Reads `model.toml`; `name` is the model's unless the file has one.
pub(crate) fn read(files: &Files<'_>, name: String) -> Result<Directory, LoadError> {
    const FILE: &str = "model.toml";
    let malformed = |reason: String| LoadError::Malformed { file: files.label(FILE), reason };
    let text = files.read_text(FILE)?;
    let parsed: ModelToml =
        toml::from_str(&text).map_err(|error| malformed(error.to_string().trim_end().into()))?;
    let kind = match parsed.unfold.get("kind").map(|kind| (kind, kind.as_str())) {
        Some((_, Some(kind))) => kind.to_owned(),
        Some(_) => return Err(malformed("unfold.kind: expected a string".to_owned())),
        None => return Err(malformed("unfold: missing `kind`".to_owned())),
    };
    let fixed = parsed
        .fixed
        .iter()
        .map(|(name, value)| match tensor(value) {
            Some(tensor) => Ok((name.clone(), tensor)),
            None => Err(malformed(format!(
                "fixed `{name}`: expected a number, true or false, or arrays of them of equal \
                 lengths, got {value}"
            ))),
        })
        .collect::<Result<_, _>>()?;
    let table = toml::Value::Table(parsed.unfold);
    let unfold = |error: toml::de::Error| malformed(format!("unfold: {}", error.message()));
    let unfold = match kind.as_str() {
        "onnx" if !parsed.cell.is_empty() => {
            let reason = "[[cell]]: a whole ONNX file (unfold.kind = \"onnx\") has its own cells";
            return Err(malformed(reason.to_owned()));
        }
        "onnx" => {
            let OnnxToml { graph, .. } = table.try_into().map_err(unfold)?;
            UnfoldTable::Onnx { graph }
        }
        "chain" => UnfoldTable::Chain(table.try_into().map_err(unfold)?),
        "tree" => UnfoldTable::Tree(table.try_into().map_err(unfold)?),
        "encoder_decoder" => UnfoldTable::EncoderDecoder(table.try_into().map_err(unfold)?),
        _ => {
            let expected = "expected \"onnx\", \"chain\", \"tree\" or \"encoder_decoder\"";
            return Err(malformed(format!("unfold.kind: {expected}, got \"{kind}\"")));
        }
    };
    for cell in &parsed.cell {
        let of_name = parsed.cell.iter().filter(|other| other.name == cell.name);
        if of_name.count() > 1 {
            return Err(malformed(format!("[[cell]]: two cells are named `{}`", cell.name)));
        }
        if cell.max_batch_size == Some(0) {
            return Err(malformed(format!(
                "cell `{}`: max_batch_size: expected 1 or more",
                cell.name
            )));
        }
    }
    let max_length = parsed.max_length.unwrap_or(MAX_LENGTH);
    if max_length == 0 || max_length > i32::MAX as usize {
        return Err(malformed(format!("max_length: expected 1 to {}, got {max_length}", i32::MAX)));
    }
    let tables = Tables {
        name: parsed.name.unwrap_or(name),
        version: parsed.version.unwrap_or_else(|| "1".to_owned()),
        text: parsed.inputs.and_then(|inputs| inputs.text),
        outputs: parsed.outputs,
        notes: Vec::new(),
    };
    Ok(Directory { unfold, cells: parsed.cell, max_length, tables, fixed })
}

/// A number or truth value, or nested arrays of them.
fn tensor(value: &toml::Value) -> Option<Tensor> {
    let (mut shape, mut elements) = (Vec::new(), vec![value]);
    while let Some(toml::Value::Array(first)) = elements.first() {
        let length = first.len();
        let inner = elements.iter().map(|element| element.as_array());
        let inner: Vec<_> = inner.collect::<Option<_>>()?;
        if inner.iter().any(|array| array.len() != length) {
            return None;
        }
        elements = inner.into_iter().flatten().collect();
        shape.push(length);
    }
    if elements.is_empty() {
        return None;
    }
    let ints = || elements.iter().map(|element| element.as_integer()).collect();
    let bools = || elements.iter().map(|element| element.as_bool()).collect();
    let float = |element: &&toml::Value| match element {
        toml::Value::Integer(x) => Some(*x as f32),
        toml::Value::Float(x) => Some(*x as f32),
        _ => None,
    };
    let data = match (ints(), bools()) {
        (Some(ints), _) => TensorData::I64(ints),
        (_, Some(bools)) => TensorData::Bool(bools),
        _ => TensorData::F32(elements.iter().map(float).collect::<Option<_>>()?),
    };
    Some(Tensor::new(shape, data))
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
