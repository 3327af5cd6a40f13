//! Reads the `model.toml` of a model directory, and checks what its tables say by themselves.

use std::collections::BTreeMap;

use batchmaker_graph::{Tensor, TensorData};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::LoadError;
use crate::file::files::Files;
use crate::file::rules::Rules;
use crate::loading::model::Tables;
use crate::loading::toml_tables::{
    CellTable, ChainTable, EncoderDecoderTable, ExitTable, ModelToml, OnnxToml, SkipTable,
    TreeTable,
};

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
    /// Early exits and skips of a whole file.
    pub(crate) rules: Rules,
}

/// `[unfold]`.
#[derive(Debug)]
pub(crate) enum UnfoldTable {
    Onnx { graph: String, row: BTreeMap<String, Vec<usize>> },
    Chain(ChainTable),
    Tree(TreeTable),
    EncoderDecoder(EncoderDecoderTable),
}

/// Reads `model.toml`; `name` is the model's unless the file has one.
pub(crate) fn read(files: &Files<'_>, name: String) -> Result<Directory, LoadError> {
    const FILE: &str = "model.toml";
    let malformed = |reason: String| LoadError::Malformed { file: files.label(FILE), reason };
    let text = files.read_text(FILE)?;
    let cell = text.parse::<toml::Table>().ok().and_then(|mut table| table.remove("cell"));
    if cell.is_some_and(|cell| cell.is_table()) {
        let reason = "[cell]: write [[cell]], as there may be several";
        return Err(malformed(reason.to_owned()));
    }
    let parsed: ModelToml = parse(&text).map_err(malformed)?;
    let Some(unfold) = &parsed.unfold else {
        let least = "[unfold] with kind = \"onnx\" and graph = \"model.onnx\"";
        return Err(malformed(format!("there is no table [unfold]; the least is {least}")));
    };
    let kind = match unfold.get("kind").map(|kind| (kind, kind.as_str())) {
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
    let unfold = match kind.as_str() {
        "onnx" if !parsed.cell.is_empty() => {
            let reason = "[[cell]]: a whole ONNX file (unfold.kind = \"onnx\") has its own cells";
            return Err(malformed(reason.to_owned()));
        }
        "onnx" => {
            let OnnxToml { graph, row, .. } = parse_unfold(&text).map_err(malformed)?;
            UnfoldTable::Onnx { graph, row }
        }
        "chain" => UnfoldTable::Chain(parse_unfold(&text).map_err(malformed)?),
        "tree" => UnfoldTable::Tree(parse_unfold(&text).map_err(malformed)?),
        "encoder_decoder" => UnfoldTable::EncoderDecoder(parse_unfold(&text).map_err(malformed)?),
        _ => {
            let expected = "expected \"onnx\", \"chain\", \"tree\" or \"encoder_decoder\"";
            return Err(malformed(format!("unfold.kind: {expected}, got \"{kind}\"")));
        }
    };
    let has_rules = !parsed.exit.is_empty() || !parsed.skip.is_empty();
    if has_rules && kind != "onnx" {
        let reason = "[[exit]] and [[skip]] are for a whole ONNX file (unfold.kind = \"onnx\")";
        return Err(malformed(reason.to_owned()));
    }
    let of = |what: &str, reason: String| malformed(format!("[[{what}]]: {reason}"));
    let exits = parsed.exit.into_iter().map(ExitTable::rule).collect::<Result<_, _>>();
    let skips = parsed.skip.into_iter().map(SkipTable::rule).collect::<Result<_, _>>();
    let rules = Rules {
        exits: exits.map_err(|reason| of("exit", reason))?,
        skips: skips.map_err(|reason| of("skip", reason))?,
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
        ..Tables::default()
    };
    Ok(Directory { unfold, cells: parsed.cell, max_length, tables, fixed, rules })
}

/// Parses a `model.toml`. An error says on which line it is.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let message = error.message();
        // A key that is missing from the whole file is on no line: its span is empty.
        let span = error.span().filter(|span| *span != (0..0));
        let Some(before) = span.and_then(|span| text.get(..span.start)) else {
            return message.to_owned();
        };
        let number = before.matches('\n').count();
        let line = text.lines().nth(number).unwrap_or_default().trim();
        format!("line {}, `{line}`: {message}", number + 1)
    })
}

/// Parses `[unfold]` as its kind has it.
fn parse_unfold<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Only<T> {
        unfold: T,
    }
    parse::<Only<T>>(text).map(|only| only.unfold)
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
