//! Text in requests and replies of a model: the tables `[inputs.text]` and `[outputs.NAME]`.

use std::collections::HashMap;

use batchmaker_graph::{InvalidRequest, Tensor, TensorData, byte_string_bytes};
use serde::Deserialize;

use crate::error::LoadError;
use crate::file::files::Files;

/// The unit of text that one id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A Unicode scalar value.
    Char,
    /// A run of characters between Unicode white space.
    Word,
}

/// `[inputs.text]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table [inputs.text] with keys such as tensor = \"token\""
)]
pub(crate) struct TextTable {
    pub(crate) tensor: String,
    pub(crate) vocabulary: String,
    pub(crate) unit: Unit,
    pub(crate) unknown: i64,
    #[serde(default)]
    pub(crate) lowercase: bool,
}

/// `[outputs.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { tensor = \"ids\", vocabulary = \"labels.txt\" }"
)]
pub(crate) struct OutputTable {
    pub(crate) tensor: String,
    pub(crate) vocabulary: String,
    pub(crate) join: Option<String>,
    pub(crate) top: Option<usize>,
}

/// Reads a vocabulary's file, which has at least one line: line n, from 0, is id n.
pub(crate) fn read_vocabulary(files: &Files<'_>, name: &str) -> Result<Vec<String>, LoadError> {
    let text = files.read_text(name)?;
    if text.is_empty() {
        let (file, reason) = (files.label(name), "a vocabulary without a line".to_owned());
        return Err(LoadError::Malformed { file, reason });
    }
    let lines = text.lines().enumerate().map(|(number, line)| {
        unescape(line).ok_or_else(|| LoadError::Malformed {
            file: files.label(name),
            reason: format!(
                "line {}: a backslash stands before `n`, `s` or a backslash",
                number + 1
            ),
        })
    });
    lines.collect()
}

fn unescape(line: &str) -> Option<String> {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next()? {
                'n' => '\n',
                's' => ' ',
                '\\' => '\\',
                _ => return None,
            },
            char => char,
        });
    }
    Some(plain)
}

/// Turns text into ids.
#[derive(Clone, Debug)]
pub(crate) struct Tokenizer {
    ids: HashMap<String, i64>,
    unit: Unit,
    unknown: i64,
    lowercase: bool,
}

impl Tokenizer {
    pub(crate) fn new(files: &Files<'_>, table: &TextTable) -> Result<Self, LoadError> {
        let lines = read_vocabulary(files, &table.vocabulary)?;
        let malformed =
            |reason| LoadError::Malformed { file: files.label(&table.vocabulary), reason };
        let count = lines.len();
        let mut ids = HashMap::with_capacity(count);
        for (id, line) in lines.into_iter().enumerate() {
            if let Some(first) = ids.insert(line.clone(), id as i64).filter(|_| !line.is_empty()) {
                let (first, second) = (first + 1, id + 1);
                return Err(malformed(format!("lines {first} and {second} are both {line:?}")));
            }
        }
        ids.remove("");
        Ok(Self { ids, unit: table.unit, unknown: table.unknown, lowercase: table.lowercase })
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// The largest id that text can become.
    pub(crate) fn largest(&self) -> i64 {
        self.ids.values().copied().max().unwrap_or(0).max(self.unknown)
    }

    /// The ids of a text.
    pub(crate) fn encode(&self, text: &str) -> Vec<i64> {
        let lower;
        let text = if self.lowercase {
            lower = text.to_lowercase();
            &lower
        } else {
            text
        };
        let id = |token: &str| self.ids.get(token).copied().unwrap_or(self.unknown);
        match self.unit {
            Unit::Word => text.split_whitespace().map(id).collect(),
            Unit::Char => {
                let mut buffer = [0; 4];
                text.chars().map(|char| id(char.encode_utf8(&mut buffer))).collect()
            }
        }
    }

    /// The ids of request tensor `text`, at most `max`.
    pub(crate) fn encode_tensor(
        &self,
        tensor: &Tensor,
        max: usize,
    ) -> Result<Vec<i64>, InvalidRequest> {
        let invalid = |text: String| Err(InvalidRequest(format!("tensor `text`: {text}")));
        let texts = match tensor.data() {
            TensorData::Bytes(texts) if tensor.shape() == [1] => texts,
            _ => return invalid(format!("expected shape [1], got {:?}", tensor.shape())),
        };
        let Ok(text) = std::str::from_utf8(&texts[0]) else {
            return invalid("expected UTF-8, got other bytes".to_owned());
        };
        // Counted first: a text of many megabytes costs no more than this.
        let count = match self.unit {
            Unit::Word => text.split_whitespace().count(),
            Unit::Char => text.chars().count(),
        };
        if count > max {
            return invalid(format!("expected at most {max} units, got {count}"));
        }
        let ids = self.encode(text);
        if ids.is_empty() {
            return invalid("an empty sequence".to_owned());
        }
        Ok(ids)
    }
}

/// Turns an output into text.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) name: String,
    pub(crate) tensor: String,
    pub(crate) labels: Vec<String>,
    /// The bytes of the longest label.
    pub(crate) longest: usize,
    pub(crate) join: Option<String>,
    pub(crate) top: Option<usize>,
}

impl Labels {
    /// An upper bound of the bytes of an element's text.
    pub(crate) fn text_bytes(&self) -> usize {
        /// What is added to a label: a score, or what joins it to the next.
        const ADDED_BYTES: usize = 16;
        let join = self.join.as_ref().map_or(0, String::len);
        byte_string_bytes(self.longest + join + ADDED_BYTES)
    }

    /// The shape of the text that a tensor of `shape` becomes.
    pub(crate) fn shape(&self, shape: &[i64]) -> Vec<i64> {
        self.joined_shape(shape, self.join.is_some())
    }

    fn joined_shape(&self, shape: &[i64], is_joined: bool) -> Vec<i64> {
        let mut shape = shape.to_vec();
        match (self.top, is_joined) {
            (Some(k), _) => {
                shape.pop();
                shape.push(k as i64);
            }
            (None, true) => {
                shape.pop();
                if shape.is_empty() {
                    shape.push(1);
                }
            }
            (None, false) => {}
        }
        shape
    }

    /// The text of an output.
    pub(crate) fn apply(&self, tensor: Tensor) -> Result<Tensor, String> {
        self.apply_joined(tensor, self.join.as_deref())
    }

    /// The text of an output, none of it joined.
    pub(crate) fn apply_apart(&self, tensor: Tensor) -> Result<Tensor, String> {
        self.apply_joined(tensor, None)
    }

    fn apply_joined(&self, tensor: Tensor, join: Option<&str>) -> Result<Tensor, String> {
        let shape: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
        let shape = self.joined_shape(&shape, join.is_some());
        let shape: Vec<usize> = shape.into_iter().map(|n| n as usize).collect();
        // The width of a row, which is 0 where a decoder gave no step.
        let width = tensor.shape().last().copied().unwrap_or(1);
        let label = |id: i64| {
            let found = usize::try_from(id).ok().and_then(|id| self.labels.get(id));
            found.ok_or_else(|| {
                let (tensor, count) = (&self.tensor, self.labels.len());
                format!("output `{tensor}` holds id {id}, its vocabulary {count} lines")
            })
        };
        let ids = match tensor.into_data() {
            TensorData::F32(scores) => {
                let k = self.top.unwrap_or(1);
                let mut texts = Vec::new();
                for row in scores.chunks(width.max(1)) {
                    let mut order: Vec<usize> = (0..row.len()).collect();
                    // The highest first; of equals the first.
                    let rank = |a: &usize, b: &usize| row[*b].total_cmp(&row[*a]).then(a.cmp(b));
                    if k < order.len() {
                        order.select_nth_unstable_by(k, rank);
                        order.truncate(k);
                    }
                    order.sort_unstable_by(rank);
                    for id in order {
                        let text = format!("{}:{:.4}", label(id as i64)?, row[id]);
                        texts.push(text.into_bytes());
                    }
                }
                return Ok(Tensor::new(shape, TensorData::Bytes(texts)));
            }
            TensorData::I64(ids) => ids,
            TensorData::I32(ids) => ids.into_iter().map(i64::from).collect(),
            _ => return Err(format!("output `{}` holds no ids", self.tensor)),
        };
        let texts: Vec<&String> = ids.into_iter().map(label).collect::<Result<_, _>>()?;
        let bytes = match join {
            None => texts.into_iter().map(|text| text.clone().into_bytes()).collect(),
            Some(separator) => (0..shape.iter().product())
                .map(|row| {
                    let row = texts[row * width..][..width].iter();
                    let row: Vec<&str> = row.map(|text| text.as_str()).collect();
                    row.join(separator).into_bytes()
                })
                .collect(),
        };
        Ok(Tensor::new(shape, TensorData::Bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_joined_row_by_row() {
        let labels = Labels {
            name: "text".to_owned(),
            tensor: "ids".to_owned(),
            labels: ["a", "b", "c"].map(str::to_owned).into(),
            longest: 1,
            join: Some(" ".to_owned()),
            top: None,
        };
        let joined = |shape: &[usize], ids: &[i64]| {
            let text = labels.apply(Tensor::new(shape.to_vec(), TensorData::I64(ids.to_vec())));
            let text = text.unwrap();
            let TensorData::Bytes(texts) = text.data() else { panic!("{text:?}") };
            let texts = texts.iter().map(|text| String::from_utf8(text.clone()).unwrap());
            (text.shape().to_vec(), texts.collect::<Vec<_>>())
        };
        let of = |shape: &[usize], texts: &[&str]| {
            (shape.to_vec(), texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(joined(&[3], &[0, 2, 1]), of(&[1], &["a c b"]));
        assert_eq!(joined(&[2, 2], &[0, 1, 2, 0]), of(&[2], &["a b", "c a"]));
        assert_eq!(joined(&[0], &[]), of(&[1], &[""]), "a decoder that said nothing");
        assert_eq!(joined(&[2, 0], &[]), of(&[2], &["", ""]));
    }

    fn tokenizer(unit: Unit, lowercase: bool) -> Tokenizer {
        let files: &[(&str, &[u8])] = &[("v", b"<unk>\na\nb\n\\s\n\\n\n\\\\\nab\n")];
        let table = TextTable {
            tensor: "token".to_owned(),
            vocabulary: "v".to_owned(),
            unit,
            unknown: 0,
            lowercase,
        };
        Tokenizer::new(&Files::Embedded(files), &table).unwrap()
    }

    #[test]
    fn characters_become_ids() {
        let plain = tokenizer(Unit::Char, false);
        assert_eq!(plain.encode("ab \n\\Aé"), [1, 2, 3, 4, 5, 0, 0]);
        assert_eq!(tokenizer(Unit::Char, true).encode("AB"), [1, 2]);
    }

    #[test]
    fn words_become_ids() {
        let words = tokenizer(Unit::Word, false);
        assert_eq!(words.encode("  ab\u{3000}a\tc "), [6, 1, 0]);
        let empty = Tensor::new(vec![1], TensorData::Bytes(vec![b" ".to_vec()]));
        let error = words.encode_tensor(&empty, 10).unwrap_err();
        assert_eq!(error.to_string(), "tensor `text`: an empty sequence");
    }

    #[test]
    fn a_vocabulary_is_checked() {
        let files: &[(&str, &[u8])] = &[("v", b"a\\b\n")];
        let error = read_vocabulary(&Files::Embedded(files), "v").unwrap_err();
        let expected = "v: line 1: a backslash stands before `n`, `s` or a backslash";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn outputs_become_labels() {
        let mut labels = Labels {
            name: "language".to_owned(),
            tensor: "ids".to_owned(),
            labels: vec!["x".to_owned(), "y".to_owned(), "z".to_owned()],
            longest: 1,
            join: None,
            top: None,
        };
        let bytes = |shape: &[usize], texts: &[&str]| {
            let texts = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
            Tensor::new(shape.to_vec(), TensorData::Bytes(texts))
        };
        let ids = Tensor::new(vec![2, 2], TensorData::I64(vec![2, 0, 1, 1]));
        assert_eq!(labels.apply(ids.clone()).unwrap(), bytes(&[2, 2], &["z", "x", "y", "y"]));
        labels.join = Some("-".to_owned());
        assert_eq!(labels.apply(ids.clone()).unwrap(), bytes(&[2], &["z-x", "y-y"]));
        assert_eq!(labels.apply(ids.reshaped(vec![4])).unwrap(), bytes(&[1], &["z-x-y-y"]));
        labels.join = None;
        labels.top = Some(2);
        let scores = Tensor::new(vec![1, 3], TensorData::F32(vec![0.25, 0.125, 0.5]));
        assert_eq!(labels.apply(scores).unwrap(), bytes(&[1, 2], &["z:0.5000", "x:0.2500"]));
        let equal = Tensor::new(vec![2, 3], TensorData::F32(vec![0.5, 0.5, 0.5, 0.0, 1.0, 1.0]));
        let first = ["x:0.5000", "y:0.5000", "y:1.0000", "z:1.0000"];
        assert_eq!(labels.apply(equal).unwrap(), bytes(&[2, 2], &first));
        let bad = Tensor::new(vec![], TensorData::I64(vec![3]));
        let error = labels.apply(bad).unwrap_err();
        assert_eq!(error, "output `ids` holds id 3, its vocabulary 3 lines");
    }
}
