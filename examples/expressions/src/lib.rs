//! An encoder of arithmetic expressions, such as `(* (+ x y) (sin (+ x y)))`, as an unfolding
//! function of its own.
//!
//! Equal parts of an expression are one node: `(+ x y)` above is computed once, and read twice. So
//! a request is no chain and no tree but an acyclic graph, of three cell types in any order:
//! `symbol` for a letter, `unary` and `binary` for functions. All requests' nodes of a type share
//! batches.
//!
//! `docs/unfolding.md` leads through this file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use batchmaker_graph::{
    CellGraphBuilder, CellRegistry, CellTypeId, DagBuilder, ElementType, InvalidRequest, ModelId,
    ModelPriority, NamedTensor, NodeId, Operand, OutputTensor, RowSpec, Tensor, TensorData, Unfold,
    Unfolded,
};
use batchmaker_model::{
    Axis, CellUse, Content, InputLayout, LoadError, Model, NamedCell, ReplyTensor, RequestTensor,
    TensorInfo, Unfolding,
};

/// Functions of one argument; the position is the id.
const UNARY: [&str; 3] = ["neg", "sin", "exp"];

/// Functions of two arguments; the position is the id.
const BINARY: [&str; 4] = ["+", "-", "*", "/"];

/// The most nodes of an expression.
const NODES_MAX: usize = 4096;

/// A cell as the unfolding function uses it.
struct Used {
    cell_type: CellTypeId,
    cell: NamedCell,
}

/// The unfolding function: `expression`, BYTES `[1]`, becomes `code`, `[hidden]` of the whole
/// expression, and `parts`, `[parts, hidden]` of all its parts in the order in which they end.
struct Expressions {
    symbol: Used,
    unary: Used,
    binary: Used,
    /// A node's h.
    h: RowSpec,
}

/// Loads the cells of `folder` and registers them for the model with id `model`.
///
/// # Errors
/// Where a cell cannot be loaded.
pub fn load(
    folder: &Path,
    model: ModelId,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let mut cells = Vec::new();
    let mut take = |name: &str, priority: i32| -> Result<Used, LoadError> {
        let cell = NamedCell::load(folder, &format!("{name}.onnx"))?;
        let rank = ModelPriority { model, priority };
        let cell_type = registry.add(name, cell.cell.clone(), 64, rank);
        let (name, fused, why) = (name.to_owned(), cell.fused, cell.why.clone());
        cells.push(CellUse { name, cell_type, fused, limit_given: true, priority, why });
        Ok(Used { cell_type, cell })
    };
    let (symbol, unary, binary) = (take("symbol", 0)?, take("unary", 1)?, take("binary", 1)?);
    let h = symbol.cell.cell.outputs[0].clone();
    let hidden = h.elements() as i64;
    let unfolder = Arc::new(Expressions { symbol, unary, binary, h });

    let info = |name: &str, element, shape| TensorInfo { name: name.to_owned(), element, shape };
    let layout =
        InputLayout { axes: vec![Axis::Fixed(1)], content: Content::Words, optional: false };
    let expression = info("expression", ElementType::Bytes, vec![1]);
    let inputs = vec![RequestTensor { info: expression, layout, step_axis: None }];
    let reply =
        |name, shape| ReplyTensor { info: info(name, ElementType::F32, shape), batch_axis: None };
    let outputs = vec![reply("code", vec![hidden]), reply("parts", vec![-1, hidden])];
    let unfolding = Unfolding { unfolder, inputs, outputs, cells, max_length: NODES_MAX };
    Model::new("expressions", "1", unfolding)
}

impl Unfold for Expressions {
    fn unfold(&self, tensors: Vec<NamedTensor>) -> Result<Unfolded, InvalidRequest> {
        let refuse = |text: String| InvalidRequest(format!("tensor `expression`: {text}"));
        let text = match tensors[0].tensor.data() {
            TensorData::Bytes(texts) if texts.len() == 1 => &texts[0],
            _ => {
                return Err(refuse(format!(
                    "expected shape [1], got {:?}",
                    tensors[0].tensor.shape()
                )));
            }
        };
        let text = std::str::from_utf8(text).map_err(|error| refuse(error.to_string()))?;
        let parts = parts(text).map_err(refuse)?;

        let mut graph = CellGraphBuilder::new();
        // The request brings an id for each node: of a letter, or of a function.
        let ids: Vec<i64> = parts.iter().map(|part| part.id()).collect();
        let id = graph.input(RowSpec::new(ElementType::I64, []), ids.len() as u32);
        let inputs = vec![Tensor::new(vec![ids.len()], TensorData::I64(ids))];

        let mut dag = DagBuilder::new();
        let mut nodes: Vec<NodeId> = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let id = Operand::Row(id, number as u32);
            let h = |of: usize| Operand::Output(nodes[of], 0);
            // Operands in the order of the cell's ports, which here is that of the file's inputs.
            let (used, operands) = match *part {
                Part::Symbol(_) => (&self.symbol, vec![id]),
                Part::Unary(_, a) => (&self.unary, vec![id, h(a)]),
                Part::Binary(_, a, b) => (&self.binary, vec![id, h(a), h(b)]),
            };
            nodes.push(dag.node(used.cell_type, &used.cell.cell, &operands));
        }
        let placed = dag.add_to(&mut graph);

        // All outputs are rows of one value, in the order in which the nodes were described.
        let (value, last) = placed.output(nodes[nodes.len() - 1], 0);
        graph.output(value);
        let (hidden, last) = (self.h.elements(), last as usize);
        let output = |name: &str, rows, shape| {
            let name = name.to_owned();
            OutputTensor { name, value, rows, shape, until: None, permutation: None }
        };
        let outputs = vec![
            output("code", Some(last..last + 1), vec![hidden]),
            output("parts", None, vec![nodes.len(), hidden]),
        ];
        Ok(Unfolded { graph: graph.finish(), inputs, outputs })
    }
}

/// A part of an expression: an id, and the numbers of the parts that are its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A letter.
    Symbol(i64),
    /// A function of one argument.
    Unary(i64, usize),
    /// A function of two.
    Binary(i64, usize, usize),
}

impl Part {
    fn id(self) -> i64 {
        match self {
            Self::Symbol(id) | Self::Unary(id, _) | Self::Binary(id, _, _) => id,
        }
    }
}

/// The different parts of an expression, arguments before functions; the last is all of it.
///
/// # Errors
/// What is wrong with the text.
pub fn parts(text: &str) -> Result<Vec<Part>, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut parts = Vec::new();
    let mut known: HashMap<Part, usize> = HashMap::new();
    // For each bracket that is open: the function, and its arguments so far.
    let mut open: Vec<(Option<&str>, Vec<usize>)> = vec![(None, Vec::new())];
    for word in spaced.split_whitespace() {
        let part = match word {
            "(" => {
                open.push((None, Vec::new()));
                continue;
            }
            ")" => {
                let (function, arguments) = open.pop().expect("the outermost is never closed");
                if open.is_empty() {
                    return Err("a bracket is closed that was not opened".to_owned());
                }
                apply(function.ok_or("an empty bracket")?, &arguments)?
            }
            function if open.len() > 1 && open[open.len() - 1].0.is_none() => {
                open.last_mut().expect("it is not empty").0 = Some(function);
                continue;
            }
            symbol => match symbol.as_bytes() {
                [letter @ b'a'..=b'z'] => Part::Symbol(i64::from(letter - b'a')),
                _ => return Err(format!("`{symbol}` is no letter from a to z")),
            },
        };
        let number = *known.entry(part).or_insert_with(|| {
            parts.push(part);
            parts.len() - 1
        });
        open.last_mut().expect("it is not empty").1.push(number);
    }
    match &open[..] {
        _ if parts.len() > NODES_MAX => Err(format!("more than {NODES_MAX} different parts")),
        // What is met again as a whole was a part of itself.
        [(_, whole)] if whole.len() == 1 && whole[0] + 1 == parts.len() => Ok(parts),
        [(_, whole)] => Err(format!("expected one expression, got {}", whole.len())),
        _ => Err("a bracket is not closed".to_owned()),
    }
}

fn apply(function: &str, arguments: &[usize]) -> Result<Part, String> {
    let id = |of: &[&str]| of.iter().position(|&known| known == function).map(|id| id as i64);
    match (arguments, id(&UNARY), id(&BINARY)) {
        (&[a], Some(id), _) => Ok(Part::Unary(id, a)),
        (&[a, b], _, Some(id)) => Ok(Part::Binary(id, a, b)),
        (_, None, None) => Err(format!("`{function}` is no function")),
        _ => Err(format!("`{function}` has {} arguments", arguments.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_are_one() {
        let parts = parts("(* (+ x y) (sin (+ x y)))").unwrap();
        let (x, y) = (Part::Symbol(23), Part::Symbol(24));
        assert_eq!(parts, [x, y, Part::Binary(0, 0, 1), Part::Unary(1, 2), Part::Binary(2, 2, 3)]);
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for (text, expected) in [
            ("", "expected one expression, got 0"),
            ("x y", "expected one expression, got 2"),
            ("(+ x", "a bracket is not closed"),
            ("x)", "a bracket is closed that was not opened"),
            ("(+ x)", "`+` has 1 arguments"),
            ("(foo x)", "`foo` is no function"),
            ("xy", "`xy` is no letter from a to z"),
            ("()", "an empty bracket"),
        ] {
            assert_eq!(parts(text).unwrap_err(), expected, "{text}");
        }
    }
}
