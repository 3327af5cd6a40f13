//! A model directory: what its `model.toml` says.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::LoadError;
use crate::files::Files;
use crate::load::MAX_LENGTH;
use crate::model::Tables;
use crate::text::{OutputTable, TextTable, Unit};

/// A directory of `kind = "onnx"`.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) graph: String,
    pub(crate) max_length: usize,
    pub(crate) tables: Tables,
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
    fixed: Option<toml::Value>,
    cell: Option<toml::Value>,
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
    match kind.as_str() {
        "onnx" => {}
        "chain" | "encoder_decoder" | "tree" => {
            return Err(malformed(format!("unfold.kind: \"{kind}\" is not supported yet")));
        }
        _ => {
            return Err(malformed(format!("unfold.kind: expected \"onnx\", got \"{kind}\"")));
        }
    }
    if parsed.cell.is_some() {
        return Err(malformed("[[cell]] is not supported yet".to_owned()));
    }
    if parsed.fixed.is_some() {
        return Err(malformed("`fixed` is not supported yet".to_owned()));
    }
    let onnx: OnnxToml = toml::Value::Table(parsed.unfold)
        .try_into()
        .map_err(|error: toml::de::Error| malformed(format!("unfold: {}", error.message())))?;
    let max_length = parsed.max_length.unwrap_or(MAX_LENGTH);
    if max_length == 0 || max_length > i32::MAX as usize {
        return Err(malformed(format!("max_length: expected 1 to {}, got {max_length}", i32::MAX)));
    }
    let tables = Tables {
        name: parsed.name.unwrap_or(name),
        version: parsed.version.unwrap_or_else(|| "1".to_owned()),
        text: parsed.inputs.and_then(|inputs| inputs.text),
        outputs: parsed.outputs,
    };
    Ok(Directory { graph: onnx.graph, max_length, tables })
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
