//! Row ops as formulas over a cell's inputs.

use std::collections::HashMap;
use std::rc::Rc;

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Source};
use crate::data::array::Array;
use crate::data::literal::Literal;

/// The formula that a row op computes for one row.
#[derive(Debug)]
pub(super) enum Expression {
    /// An input of the cell, as it is or looked up.
    Input(Input),
    /// A weighted sum of inputs.
    Affine(Affine),
    /// A function, element by element.
    Apply(Function, Rc<Expression>),
    /// Element by element.
    Product(Rc<Expression>, Rc<Expression>),
    /// Element by element.
    Sum(Rc<Expression>, Rc<Expression>),
    /// The elements of several formulas, one after the other.
    Joined(Vec<Rc<Expression>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sigmoid,
    Tanh,
}

/// An input's row: `[width]`, or one id and the table that has a row of `width` for it.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) index: usize,
    pub(super) width: usize,
    pub(super) table: Option<Rc<Literal>>,
}

impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        let same_table = match (&self.table, &other.table) {
            (None, None) => true,
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            _ => false,
        };
        self.index == other.index && same_table
    }
}

/// The sum of the inputs' rows times their weights, and a bias.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    /// Each input once, with `[input width, width]` weights.
    pub(super) terms: Vec<(Input, Array<f32>)>,
    /// `[width]`.
    pub(super) bias: Vec<f32>,
}

impl Affine {
    pub(super) fn width(&self) -> usize {
        self.bias.len()
    }

    /// The weights of an input.
    pub(super) fn weights(&self, input: &Input) -> Option<&Array<f32>> {
        self.terms.iter().find(|(known, _)| known == input).map(|(_, weights)| weights)
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        if self.width() != other.width() {
            return None;
        }
        let mut sum = self.clone();
        sum.bias.iter_mut().zip(&other.bias).for_each(|(a, b)| *a += b);
        for (input, weights) in &other.terms {
            match sum.terms.iter_mut().find(|(known, _)| known == input) {
                Some((_, known)) => {
                    known.data.iter_mut().zip(&weights.data).for_each(|(a, b)| *a += b);
                }
                None => sum.terms.push((input.clone(), weights.clone())),
            }
        }
        Some(sum)
    }

    fn columns(&self, start: usize, end: usize) -> Self {
        let take = |weights: &Array<f32>| {
            let rows = weights.data.chunks_exact(self.width());
            let data = rows.flat_map(|row| row[start..end].iter().copied()).collect();
            Array::new(vec![weights.shape[0], end - start], data)
        };
        let terms = self.terms.iter().map(|(input, weights)| (input.clone(), take(weights)));
        Self { terms: terms.collect(), bias: self.bias[start..end].to_vec() }
    }
}

/// Reads row ops, each once: equal sources are one expression.
pub(super) struct Reader<'a> {
    analysis: &'a Analysis,
    known: HashMap<Source, Option<Rc<Expression>>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(analysis: &'a Analysis) -> Self {
        Self { analysis, known: HashMap::new() }
    }

    /// The formula of a source; none where it is no such formula.
    pub(super) fn read(&mut self, source: Source) -> Option<Rc<Expression>> {
        if let Some(known) = self.known.get(&source) {
            return known.clone();
        }
        let read = match source {
            Source::Input(index) => {
                let width = row_of(self.analysis, source).elements();
                Some(Rc::new(Expression::Input(Input { index, width, table: None })))
            }
            Source::Op(op, 0) => self.read_op(op),
            _ => None,
        };
        self.known.insert(source, read.clone());
        read
    }

    fn read_op(&mut self, op: usize) -> Option<Rc<Expression>> {
        let op = &self.analysis.ops[op];
        let row = &op.outputs[0];
        if row.shape.iter().filter(|&&n| n != 1).count() > 1 {
            return None;
        }
        let read = self.read_flat_op(op, row.elements())?;
        (width(&read) == Some(row.elements())).then_some(read)
    }

    fn read_flat_op(&mut self, op: &RowOp, width: usize) -> Option<Rc<Expression>> {
        match (op.operator.as_str(), &op.operands[..]) {
            ("Identity" | "Reshape", [operand, ..]) => self.operand(operand),
            ("Sigmoid", [operand]) => self.apply(Function::Sigmoid, operand),
            ("Tanh", [operand]) => self.apply(Function::Tanh, operand),
            ("Gather", [Operand::Constant(table), id]) if table.shape().len() == 2 => {
                let id = self.operand(id)?;
                let Expression::Input(Input { index, width: 1, table: None }) = *id else {
                    return None;
                };
                let (width, table) = (table.shape()[1], Some(table.clone()));
                Some(Rc::new(Expression::Input(Input { index, width, table })))
            }
            ("MatMul", [rows, Operand::Constant(weights)]) => {
                let rows = self.operand(rows)?;
                affine(times(&rows, weights.as_f32()?)?)
            }
            ("Add" | "Sum", [first, rest @ ..]) => {
                let mut sum = self.summand(first, width)?;
                for operand in rest {
                    let next = self.summand(operand, width)?;
                    sum = match (&*sum, &*next) {
                        (Expression::Affine(a), Expression::Affine(b)) => affine(a.plus(b)?)?,
                        _ => Rc::new(Expression::Sum(sum, next)),
                    };
                }
                Some(sum)
            }
            ("Mul", [a, b]) => {
                let (a, b) = (self.operand(a)?, self.operand(b)?);
                Some(Rc::new(Expression::Product(a, b)))
            }
            ("Concat", operands) => {
                let parts = operands.iter().map(|operand| self.operand(operand));
                let parts = parts.collect::<Option<Vec<_>>>()?;
                Some(joined_affine(&parts).unwrap_or_else(|| Rc::new(Expression::Joined(parts))))
            }
            ("Slice", [operand, Operand::Constant(start), Operand::Constant(end), _]) => {
                let one = |literal: &Literal| match literal.as_numbers()?[..] {
                    [number] => usize::try_from(number).ok(),
                    _ => None,
                };
                let of = self.operand(operand)?;
                columns(&of, one(start)?, one(end)?)
            }
            _ => None,
        }
    }

    /// The rows of an operand, where they are flat.
    fn operand(&mut self, operand: &Operand) -> Option<Rc<Expression>> {
        let Operand::Rows { source, at: None, shape } = operand else { return None };
        let is_flat = shape.iter().filter(|&&n| n != 1).count() <= 1;
        if is_flat { self.read(*source) } else { None }
    }

    fn apply(&mut self, function: Function, operand: &Operand) -> Option<Rc<Expression>> {
        Some(Rc::new(Expression::Apply(function, self.operand(operand)?)))
    }

    /// An operand of a sum; constants as an affine map of nothing.
    fn summand(&mut self, operand: &Operand, width: usize) -> Option<Rc<Expression>> {
        let Operand::Constant(constant) = operand else { return self.operand(operand) };
        let data = &constant.as_f32()?.data;
        let bias = match data.len() {
            1 => vec![data[0]; width],
            len if len == width => data.clone(),
            _ => return None,
        };
        affine(Affine { terms: Vec::new(), bias })
    }
}

fn affine(affine: Affine) -> Option<Rc<Expression>> {
    Some(Rc::new(Expression::Affine(affine)))
}

/// Rows times `[k, n]` weights.
fn times(rows: &Expression, weights: &Array<f32>) -> Option<Affine> {
    let &[k, n] = &weights.shape[..] else { return None };
    let bias = vec![0.0; n];
    match rows {
        Expression::Input(input) if input.width == k => {
            Some(Affine { terms: vec![(input.clone(), weights.clone())], bias })
        }
        Expression::Sum(a, b) => times(a, weights)?.plus(&times(b, weights)?),
        Expression::Joined(parts) => {
            let (mut sum, mut first) = (Affine { terms: Vec::new(), bias }, 0);
            for part in parts {
                let last = first + width(part)?;
                let block = weights.data.get(first * n..last * n)?.to_vec();
                sum = sum.plus(&times(part, &Array::new(vec![last - first, n], block))?)?;
                first = last;
            }
            (first == k).then_some(sum)
        }
        _ => None,
    }
}

fn width(expression: &Expression) -> Option<usize> {
    match expression {
        Expression::Input(input) => Some(input.width),
        Expression::Affine(affine) => Some(affine.width()),
        Expression::Apply(_, of) => width(of),
        Expression::Product(a, b) | Expression::Sum(a, b) => {
            width(a).filter(|&a| width(b) == Some(a))
        }
        Expression::Joined(parts) => parts.iter().map(|part| width(part)).sum(),
    }
}

/// Columns of affine maps, one map's after the other's.
fn joined_affine(parts: &[Rc<Expression>]) -> Option<Rc<Expression>> {
    let maps = parts.iter().map(|part| match &**part {
        Expression::Affine(affine) => Some(affine),
        _ => None,
    });
    let maps = maps.collect::<Option<Vec<_>>>()?;
    let total: usize = maps.iter().map(|map| map.width()).sum();
    let (mut joined, mut first) = (Affine { terms: Vec::new(), bias: vec![0.0; total] }, 0);
    for map in maps {
        let place = |weights: &Array<f32>| {
            let mut data = vec![0.0; weights.shape[0] * total];
            let rows = data.chunks_exact_mut(total).zip(weights.data.chunks_exact(map.width()));
            rows.for_each(|(to, from)| to[first..first + map.width()].copy_from_slice(from));
            Array::new(vec![weights.shape[0], total], data)
        };
        let terms = map.terms.iter().map(|(input, weights)| (input.clone(), place(weights)));
        let mut bias = vec![0.0; total];
        bias[first..first + map.width()].copy_from_slice(&map.bias);
        joined = joined.plus(&Affine { terms: terms.collect(), bias })?;
        first += map.width();
    }
    affine(joined)
}

/// Elements `start..end` of an expression.
fn columns(of: &Expression, start: usize, end: usize) -> Option<Rc<Expression>> {
    match of {
        Expression::Affine(map) if start <= end && end <= map.width() => {
            affine(map.columns(start, end))
        }
        Expression::Apply(function, of) => {
            Some(Rc::new(Expression::Apply(*function, columns(of, start, end)?)))
        }
        _ => None,
    }
}
