//! Conditions of a request that are known when it comes: of its lengths, and of single numbers that it brings.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Source, Val};
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::scalar::{Function, Number, Scalar};
use crate::file::attribute::named_int;

/// The functions that conditions are made of, by their operators' names.
const FUNCTIONS: &[(&str, Function)] = &[
    ("Add", Function::Add),
    ("Sub", Function::Sub),
    ("Mul", Function::Mul),
    ("Equal", Function::Equal),
    ("Less", Function::Less),
    ("LessOrEqual", Function::LessOrEqual),
    ("Greater", Function::Greater),
    ("GreaterOrEqual", Function::GreaterOrEqual),
    ("Not", Function::Not),
    ("And", Function::And),
    ("Or", Function::Or),
];

/// The deepest that functions may lie in each other.
const DEPTH_MAX: usize = 32;

/// What a value of one element is, if that is known when a request comes.
pub(crate) fn scalar_of(analysis: &Analysis, val: &Val) -> Option<Scalar> {
    match val {
        Val::Literal(literal) | Val::Fill(literal, _) => of_literal(literal),
        Val::View(view) => of_source(analysis, view.source, DEPTH_MAX),
        _ => None,
    }
}

fn of_literal(literal: &Literal) -> Option<Scalar> {
    if literal.shape().iter().product::<usize>() != 1 {
        return None;
    }
    Some(match literal {
        Literal::F32(array) | Literal::Whole(array, _) => {
            Scalar::Constant(Number::Float(array.data[0]))
        }
        Literal::Bool(array) => Scalar::Constant(Number::Int(array.data[0].into())),
        Literal::Int(array, _) => match array.data[0].as_number() {
            Some(number) => Scalar::Constant(Number::Int(number)),
            None => Scalar::Length(array.data[0].clone()),
        },
    })
}

fn of_source(analysis: &Analysis, source: Source, depth: usize) -> Option<Scalar> {
    match source {
        Source::Length(symbol) => Some(Scalar::Length(Int::symbol(symbol))),
        Source::Input(index) => {
            let input = &analysis.inputs[index];
            let is_one = input.dims.iter().all(|dim| dim.is_one());
            let is_number = input.element != ElementType::Bytes;
            (is_one && is_number).then_some(Scalar::Input(index))
        }
        Source::Op(index, 0) => of_op(analysis, &analysis.ops[index], depth.checked_sub(1)?),
        _ => None,
    }
}

fn of_op(analysis: &Analysis, op: &RowOp, depth: usize) -> Option<Scalar> {
    let of = |operand: &Operand| match operand {
        Operand::Rows { source, at: None, .. } | Operand::Tensor { source, at: None, .. } => {
            of_source(analysis, *source, depth)
        }
        Operand::Constant(literal) => of_literal(literal),
        Operand::Lengths(ints) => match &ints[..] {
            [int] => Some(Scalar::Length(int.clone())),
            _ => None,
        },
        _ => None,
    };
    match &*op.operator {
        // Of one element, these choose or move nothing.
        "Identity" | "Reshape" | "Transpose" | "Gather" | "Slice" => of(op.operands.first()?),
        "Cast" => {
            let whole = of(op.operands.first()?)?;
            let to = named_int(&op.attributes, "to").unwrap_or(0) as i32;
            let function = match DataType(to) {
                DataType::INT64 => Function::Int64,
                DataType::INT32 => Function::Int32,
                DataType::FLOAT => Function::Float,
                _ => return None,
            };
            Some(Scalar::Of(function, vec![whole]))
        }
        operator => {
            let (_, function) = FUNCTIONS.iter().find(|(name, _)| *name == operator)?;
            let operands = op.operands.iter().filter(|o| !matches!(o, Operand::Length(_)));
            Some(Scalar::Of(*function, operands.map(of).collect::<Option<_>>()?))
        }
    }
}
