//! Writes operators on whole tensors into a program.
//!
//! Tensors are written and read under dimensions of their own; what lies between is reshaping and transposing by
//! way of a plain form, where axes that vary come first.

use std::collections::BTreeMap;
use std::rc::Rc;

use batchmaker_graph::ElementType;
use rten_onnx::onnx::AttributeProto;

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Source, ValueRef};
use crate::data::array::Array;
use crate::data::dim::{Dim, Factor};
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::{BATCH, Symbol, Windows};
use crate::emit::clipped_windows::write_pool;
use crate::emit::writer::Writer;
use crate::file::attribute::{int_attribute, ints_attribute};

pub(crate) struct Builder<'a> {
    pub(crate) analysis: &'a Analysis,
    pub(crate) writer: Writer,
    /// The name of a tensor and the dimensions that it has.
    pub(crate) tensors: BTreeMap<ValueRef, (String, Vec<Dim>)>,
    /// Tensors under further dimensions: the original's name, the dimensions, the name.
    converted: Vec<(String, Vec<Dim>, String)>,
    /// A tensor and its axis of that length.
    known: BTreeMap<Symbol, (String, usize)>,
    /// Vectors of one length.
    pub(super) vectors: BTreeMap<Symbol, String>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(analysis: &'a Analysis) -> Self {
        Self {
            analysis,
            writer: Writer::default(),
            tensors: BTreeMap::new(),
            converted: Vec::new(),
            known: BTreeMap::new(),
            vectors: BTreeMap::new(),
        }
    }

    /// Writes an operator on whole tensors, number `index` of the analysis.
    pub(crate) fn sequence_level_op(&mut self, index: usize, op: &RowOp) -> Result<(), String> {
        let mut names = Vec::new();
        for operand in &op.operands {
            names.push(match operand {
                Operand::Tensor { source, at, dims } => {
                    let reference = self.analysis.resolve(*source, *at);
                    self.tensor(reference, dims)?
                }
                Operand::Constant(literal) => self.writer.constant(literal),
                Operand::Lengths(lengths) => self.lengths(lengths)?,
                Operand::Length(_) => continue,
                Operand::Absent => String::new(),
                Operand::Rows { .. } => unreachable!("an operator on rows in a whole segment"),
            });
        }
        let mut attributes = op.attributes.clone();
        if op.operator == "Loop" {
            let graph = attributes.iter().find_map(|attribute| attribute.g.as_ref());
            let outer = names.split_off(graph.map_or(0, |graph| graph.input.len()));
            bind(&mut attributes, &outer);
            // The trip count is a number, not a vector.
            let first = self.constant(vec![0]);
            names[0] = self.op("Squeeze", &[&names[0].clone(), &first], vec![]);
        }
        let mut produced = Vec::new();
        for (port, dims) in op.tensor_dims.iter().enumerate() {
            let reference = ValueRef { source: Source::Op(index, port), at: None };
            let name = self.writer.fresh();
            self.tensors.insert(reference, (name.clone(), dims.clone()));
            produced.push(name);
        }
        let first = produced[0].clone();
        if !write_pool(&mut self.writer, op, &names, &first) {
            self.writer.op(&op.operator, names, produced, attributes);
        }
        self.learn_lengths(&first, &op.tensor_dims[0]);
        Ok(())
    }

    pub(crate) fn learn_lengths(&mut self, name: &str, dims: &[Dim]) {
        for (axis, symbol) in
            dims.iter().enumerate().filter_map(|(axis, d)| Some((axis, d.as_symbol()?)))
        {
            self.known.entry(symbol).or_insert((name.to_owned(), axis));
        }
    }

    pub(crate) fn op(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attribute: Vec<(&str, Vec<i64>)>,
    ) -> String {
        let name = self.writer.fresh();
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        let attributes = attribute.into_iter().map(|(name, values)| match values[..] {
            [value] if name == "axis" => int_attribute(name, value),
            _ => ints_attribute(name, values),
        });
        self.writer.node(operator, inputs, vec![name.clone()], attributes.collect());
        name
    }

    pub(super) fn constant(&mut self, numbers: Vec<i64>) -> String {
        let ints = numbers.into_iter().map(Int::number).collect();
        self.writer.constant(&Rc::new(Literal::ints(ints)))
    }

    /// A vector that holds the length of one axis.
    fn length(&mut self, symbol: Symbol) -> Result<String, String> {
        if let Some(name) = self.vectors.get(&symbol) {
            return Ok(name.clone());
        }
        let unknown =
            || format!("nothing tells the length of {}", self.analysis.axes.label(symbol));
        let windows = self.analysis.axes.windows_of(symbol);
        let (tensor, axis) = match (self.known.get(&symbol).cloned(), windows) {
            (Some(known), _) => known,
            (None, Some((of, windows))) => return self.count(symbol, of, windows),
            (None, None) => match self.counted_along(symbol) {
                Some((count, windows)) => return self.uncount(symbol, count, windows),
                None => return Err(unknown()),
            },
        };
        let shape = self.op("Shape", &[&tensor], vec![]);
        let axis = self.constant(vec![axis as i64]);
        let name = self.op("Gather", &[&shape, &axis], vec![("axis", vec![0])]);
        self.vectors.insert(symbol, name.clone());
        Ok(name)
    }

    /// An axis whose length is known and tells that of another one, which it has windows at every element of.
    fn counted_along(&self, symbol: Symbol) -> Option<(Symbol, Windows)> {
        let known = self.known.keys().chain(self.vectors.keys());
        let mut along = known.filter_map(|&count| {
            let (of, windows) = self.analysis.axes.windows_of(count)?;
            (of == symbol && windows.stride == 1 && windows.multiple == 1)
                .then_some((count, windows))
        });
        along.next()
    }

    /// A vector that holds the length of an axis, of which another has that many windows.
    fn uncount(
        &mut self,
        symbol: Symbol,
        count: Symbol,
        windows: Windows,
    ) -> Result<String, String> {
        let count = self.length(count)?;
        let less = self.constant(vec![windows.extra + 1]);
        let length = self.op("Sub", &[&count, &less], vec![]);
        self.vectors.insert(symbol, length.clone());
        Ok(length)
    }

    /// A vector that holds the number of windows over an axis. The division rounds to zero, so that an axis that lacks
    /// elements for its first window has one.
    fn count(&mut self, symbol: Symbol, of: Symbol, windows: Windows) -> Result<String, String> {
        let Windows { multiple, extra, stride, .. } = windows;
        let mut count = self.length(of)?;
        for (operator, number) in [("Mul", multiple), ("Add", extra), ("Div", stride), ("Add", 1)] {
            let number = self.constant(vec![number]);
            count = self.op(operator, &[&count, &number], vec![]);
        }
        self.vectors.insert(symbol, count.clone());
        Ok(count)
    }

    /// A vector of integers.
    pub(crate) fn lengths(&mut self, ints: &[Int]) -> Result<String, String> {
        let numbers: Option<Vec<i64>> = ints.iter().map(Int::as_number).collect();
        if let Some(numbers) = numbers {
            return Ok(self.constant(numbers));
        }
        let mut parts = Vec::new();
        for int in ints {
            let mut sum: Option<String> = None;
            for (number, symbols) in int.terms() {
                let mut product =
                    (number != 1 || symbols.is_empty()).then(|| self.constant(vec![number]));
                for &symbol in symbols {
                    let length = self.length(symbol)?;
                    product = Some(match product {
                        None => length,
                        Some(product) => self.op("Mul", &[&product, &length], vec![]),
                    });
                }
                sum = match (sum, product) {
                    (Some(sum), Some(product)) => Some(self.op("Add", &[&sum, &product], vec![])),
                    (None, product) => product,
                    (sum, None) => sum,
                };
            }
            let part = sum.unwrap_or_else(|| self.constant(vec![0]));
            parts.push(part);
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.op("Concat", &parts, vec![("axis", vec![0])]))
    }

    /// A scalar integer.
    pub(crate) fn scalar(&mut self, n: i64) -> String {
        let literal = Literal::Int(Array::scalar(Int::number(n)), ElementType::I64);
        self.writer.constant(&Rc::new(literal))
    }

    fn reshape(&mut self, name: &str, dims: &[Dim]) -> Result<String, String> {
        let ints: Vec<Int> = dims.iter().map(|dim| self.analysis.axes.open_int(dim)).collect();
        // One length that is not a number may be left to the executor.
        let is_open = |int: &Int| int.as_number().is_none();
        let target = match ints.iter().filter(|int| is_open(int)).count() {
            1 => {
                let number = |int: &Int| int.as_number().unwrap_or(-1);
                self.constant(ints.iter().map(number).collect())
            }
            _ => self.lengths(&ints)?,
        };
        let produced = self.op("Reshape", &[name, &target], vec![]);
        self.learn_lengths(&produced, dims);
        Ok(produced)
    }

    /// Adds one step of a tensor that was produced at all steps.
    fn add_step(&mut self, source: Source, at: i64) -> Result<(), String> {
        let domain = self.analysis.domain(source);
        let time = domain.time.ok_or("a step of no axis")?;
        let row = Dim::fixed(row_of(self.analysis, source).elements());
        let along = self.analysis.axes.factors(time);
        let along = Dim(along.into_iter().map(Factor::Symbol).collect());
        let batch: Vec<Dim> = domain.batch.then(|| Dim::symbol(BATCH)).into_iter().collect();
        let of_step = |steps: Dim| [&batch[..], &[steps, row.clone()]].concat();
        let all = self.tensor(ValueRef { source, at: None }, &of_step(along))?;
        let axis = self.constant(vec![batch.len() as i64]);
        let start = self.constant(vec![at]);
        let end = self.constant(vec![if at == -1 { i64::MAX } else { at + 1 }]);
        let step = self.op("Slice", &[&all, &start, &end, &axis], vec![]);
        let one = of_step(Dim::fixed(1));
        self.tensors.insert(ValueRef { source, at: Some(at) }, (step, one));
        Ok(())
    }

    /// The name of a value under these dimensions.
    pub(crate) fn tensor(&mut self, reference: ValueRef, dims: &[Dim]) -> Result<String, String> {
        if let (Some(at), false) = (reference.at, self.tensors.contains_key(&reference)) {
            self.add_step(reference.source, at)?;
        }
        let (name, from) = self.tensors[&reference].clone();
        if from == dims {
            return Ok(name);
        }
        let known = self.converted.iter().find(|(of, as_, _)| *of == name && as_ == dims);
        if let Some((.., produced)) = known {
            return Ok(produced.clone());
        }
        let produced = self.convert(&name, &from, dims)?;
        self.converted.push((name, dims.to_vec(), produced.clone()));
        Ok(produced)
    }

    /// Converts a tensor from dimensions `from` to `to` by way of the plain form, where axes that vary
    /// come first.
    fn convert(&mut self, name: &str, from: &[Dim], to: &[Dim]) -> Result<String, String> {
        let factors = |dims: &[Dim]| -> Vec<Dim> {
            dims.iter().flat_map(|dim| &dim.0).map(|&factor| Dim(vec![factor])).collect()
        };
        let varies = |dim: &Dim| matches!(dim.0[0], Factor::Symbol(_));
        // The places of a list's factors when those that vary come first, by their ids.
        let plain_order = |list: &[Dim]| -> Vec<usize> {
            let mut order: Vec<usize> = (0..list.len()).collect();
            order.sort_by_key(|&at| match list[at].0[0] {
                Factor::Symbol(symbol) => (0, symbol.0),
                Factor::Fixed(_) => (1, 0),
            });
            order
        };
        let (old, new) = (factors(from), factors(to));
        if old == new {
            // Axes are divided, joined, or come or go with one element: none moves.
            return self.reshape(name, to);
        }
        let mut name = name.to_owned();
        if from != old {
            name = self.reshape(&name, &old)?;
        }
        let order = plain_order(&old);
        if !order.is_sorted() {
            let perm = order.iter().map(|&at| at as i64).collect();
            name = self.op("Transpose", &[&name], vec![("perm", perm)]);
        }
        let sorted: Vec<Dim> = order.iter().map(|&at| old[at].clone()).collect();
        let order = plain_order(&new);
        let wanted: Vec<Dim> = order.iter().map(|&at| new[at].clone()).collect();
        if sorted.iter().filter(|d| varies(d)).ne(wanted.iter().filter(|d| varies(d))) {
            let (from, to) = (self.analysis.axes.show(from), self.analysis.axes.show(to));
            return Err(format!("{from} cannot be {to}"));
        }
        if sorted != wanted {
            name = self.reshape(&name, &wanted)?;
        }
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &at)| back[at] = place as i64);
        if !back.is_sorted() {
            name = self.op("Transpose", &[&name], vec![("perm", back)]);
        }
        if to != new {
            name = self.reshape(&name, to)?;
        }
        self.learn_lengths(&name, to);
        Ok(name)
    }
}
/// Names the tensors from around the loop in a body that [`loop_body`](crate::emit::loop_body) wrote.
pub(crate) fn bind(attributes: &mut [AttributeProto], outer: &[String]) {
    let graphs = attributes.iter_mut().filter_map(|attribute| attribute.g.as_mut());
    for name in graphs.flat_map(|graph| &mut graph.node).flat_map(|node| &mut node.input) {
        let place = name.rsplit_once("_outer").and_then(|(_, place)| place.parse::<usize>().ok());
        if let Some(given) = place.and_then(|place| outer.get(place)) {
            given.clone_into(name);
        }
    }
}
