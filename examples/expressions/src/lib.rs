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

use batchmaker::{
    CustomModel, ElementType, Graph, InvalidRequest, LoadError, NamedCell, Node, Operand, Tensor,
    TensorData,
};

/// Functions of one argument; the position is the id.
const UNARY: [&str; 3] = ["neg", "sin", "exp"];

/// Functions of two arguments; the position is the id.
const BINARY: [&str; 4] = ["+", "-", "*", "/"];

/// The most nodes of an expression.
const NODES_MAX: usize = 4096;

/// The model, with its cells from the files of `folder`. `expression`, BYTES `[1]`, becomes `code`,
/// `[hidden]` of the whole expression, and `parts`, `[parts, hidden]` of all its parts in the order in
/// which they end.
///
/// # Errors
/// If a cell cannot be loaded.
pub fn model(folder: &Path) -> Result<CustomModel, LoadError> {
    let mut model = CustomModel::new("expressions");
    // Later cells of the computation are preferred where cells compete.
    let mut load = |name: &str| -> Result<_, LoadError> {
        Ok(model.cell_file(name, NamedCell::load(folder, &format!("{name}.onnx"))?))
    };
    let (symbol, unary, binary) = (load("symbol")?, load("unary")?, load("binary")?);
    let hidden = symbol.cell().outputs[0].elements();
    let unfold = move |text: Tensor, graph: &mut Graph| {
        let parts = read(&text)?;
        // The request brings an id for each node: of a letter, or of a function.
        let ids: Vec<i64> = parts.iter().map(|part| part.id()).collect();
        let ids = graph.input(Tensor::new(vec![ids.len()], TensorData::I64(ids)), &[]);
        let mut nodes: Vec<Node> = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let id = Operand::Row(ids, number);
            let h = |of: usize| Operand::Output(nodes[of], 0);
            // Operands stand in the order of the cell's ports, which here is that of the file's inputs.
            let node = match *part {
                Part::Symbol(_) => graph.node(&symbol, &[id]),
                Part::Unary(_, a) => graph.node(&unary, &[id, h(a)]),
                Part::Binary(_, a, b) => graph.node(&binary, &[id, h(a), h(b)]),
            };
            nodes.push(node);
        }
        graph.output_of("code", &nodes[nodes.len() - 1..], 0, &[hidden]);
        graph.output_of("parts", &nodes, 0, &[nodes.len(), hidden]);
        Ok(())
    };
    let model = model
        .input("expression", ElementType::Bytes, &[1])
        .output("code", ElementType::F32, &[hidden as i64])
        .output("parts", ElementType::F32, &[-1, hidden as i64])
        .unfold(move |mut request, graph| unfold(request.take("expression")?, graph));
    Ok(model)
}

/// The parts of the expression that a request brings.
fn read(text: &Tensor) -> Result<Vec<Part>, InvalidRequest> {
    let refuse = |text: String| InvalidRequest(format!("tensor `expression`: {text}"));
    let text = match text.data() {
        TensorData::Bytes(texts) if texts.len() == 1 => &texts[0],
        _ => return Err(refuse(format!("expected shape [1], got {:?}", text.shape()))),
    };
    let text = std::str::from_utf8(text).map_err(|error| refuse(error.to_string()))?;
    parts(text).map_err(refuse)
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
/// The mistake in the text.
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
