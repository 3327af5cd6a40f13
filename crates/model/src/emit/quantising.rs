//! The program that replaces rows by what whole numbers of 8 bits stand for them.

use std::rc::Rc;

use batchmaker_graph::{ElementType, Program, RowSpec};

use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::emit::writer::Writer;

/// Each row of `elements` numbers as 256 whole numbers stand for it, between its least and its greatest element (ONNX
/// operator `DynamicQuantizeLinear`, then `DequantizeLinear`).
pub(super) fn quantising_program(elements: usize) -> Program {
    let mut writer = Writer::default();
    let row = RowSpec::flat(ElementType::F32, elements);
    let x = writer.input(&row);
    let [zero, one, steps] = [0.0, 1.0, 255.0]
        .map(|number| writer.constant(&Rc::new(Literal::F32(Array::scalar(number)))));
    // A division by one number alone would be a product with its reciprocal.
    let ones = Literal::F32(Array::vector(vec![1.0; elements]));
    let ones = writer.constant(&Rc::new(ones));
    let last = writer.constant(&Rc::new(Literal::ints(vec![Int::number(1)])));
    let mut op = |operator: &str, inputs: &[&String]| {
        let name = writer.fresh();
        let inputs = inputs.iter().map(|&input| input.clone()).collect();
        writer.node(operator, inputs, vec![name.clone()], Vec::new());
        name
    };
    let least = op("ReduceMin", &[&x, &last]);
    let least = op("Min", &[&least, &zero]);
    let greatest = op("ReduceMax", &[&x, &last]);
    let greatest = op("Max", &[&greatest, &zero]);
    let span = op("Sub", &[&greatest, &least]);
    let step = op("Div", &[&span, &steps]);
    let is_flat = op("Equal", &[&span, &zero]);
    let scale = op("Where", &[&is_flat, &one, &step]);
    let below = op("Neg", &[&least]);
    let steps_below = op("Div", &[&below, &scale]);
    let inside = op("Clip", &[&steps_below, &zero, &steps]);
    let zero_point = op("Round", &[&inside]);
    let divisor = op("Mul", &[&scale, &ones]);
    let quotient = op("Div", &[&x, &divisor]);
    let rounded = op("Round", &[&quotient]);
    let moved = op("Add", &[&rounded, &zero_point]);
    let whole = op("Clip", &[&moved, &zero, &steps]);
    let centred = op("Sub", &[&whole, &zero_point]);
    let quantised = op("Mul", &[&centred, &scale]);
    writer.node("Identity", vec![quantised], vec!["out0".to_owned()], Vec::new());
    writer.output("out0", &row);
    writer.finish("quantised".to_owned())
}
