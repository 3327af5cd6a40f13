//! Quantised numbers: whole numbers that stand for floats by a scale and a zero point.
//!
//! Whole numbers of 8 and 16 bits are stored as FLOAT, which holds them and their products exactly, so the file's own
//! arithmetic is one of floats. A scale that is computed from data is computed for each sequence by itself.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::{AttributeProto, DataType};

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input};
use crate::analysis::operators::composed::composer::{Composer, ints, number};
use crate::analysis::operators::narrow::range_of_type;
use crate::analysis::operators::sequence_op::has_batch;
use crate::analysis::state::Analysis;
use crate::analysis::value::{OF_BYTES, Val, View};
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;
use crate::file::tensor::element_type;

fn optional(inputs: &Inputs, index: usize) -> Option<&Val> {
    inputs.get(index).and_then(Option::as_ref)
}

impl Composer<'_> {
    pub(super) fn as_float(&mut self, val: &Val) -> Result<Val, String> {
        self.cast(val, DataType::FLOAT)
    }

    fn cast(&mut self, val: &Val, to: DataType) -> Result<Val, String> {
        self.op_with("Cast", vec![int_attribute("to", to.0.into())], &[val])
    }

    /// A scale or zero point so that it broadcasts with `x`: one number, or one for each index along `axis`.
    fn along(&mut self, val: &Val, x: &Val, axis: i64) -> Result<Val, String> {
        let rank = x.dims().len();
        match val.dims().len() {
            1 if val.dims()[0].is_one() => self.reshaped(val, vec![]),
            1 => {
                let mut shape = vec![Int::number(1); rank];
                shape[axis_of(axis, rank)?] = self.lengths(val).remove(0);
                self.reshaped(val, shape)
            }
            0 => Ok(val.clone()),
            _ => Err("a scale for each block is not supported".to_owned()),
        }
    }

    /// Numbers less their zero point, as FLOAT.
    fn less(&mut self, x: &Val, zero_point: Option<&Val>, axis: i64) -> Result<Val, String> {
        let x = self.as_float(x)?;
        let Some(zero_point) = zero_point else { return Ok(x) };
        let zero_point = self.as_float(zero_point)?;
        if let Val::Literal(literal) | Val::Fill(literal, _) = &zero_point
            && literal.as_f32().is_some_and(|array| array.data.iter().all(|&n| n == 0.0))
        {
            return Ok(x);
        }
        let zero_point = self.along(&zero_point, &x, axis)?;
        self.op("Sub", &[&x, &zero_point])
    }

    /// x * scale.
    fn scaled(&mut self, x: &Val, scale: &Val, axis: i64) -> Result<Val, String> {
        let scale = self.as_float(scale)?;
        let scale = self.along(&scale, x, axis)?;
        self.op("Mul", &[x, &scale])
    }

    /// A number for each of the elements along the last axis of `x`, where that has a fixed length: a division by one
    /// number alone would be a product with its reciprocal.
    fn widened(&mut self, scale: &Val, x: &Val) -> Result<Val, String> {
        let last = x.dims().last().and_then(|last| self.analysis.fixed(last));
        match last.filter(|&length| length > 1 && length <= 1 << 20) {
            Some(length) => {
                let ones = Val::literal(Literal::F32(Array::vector(vec![1.0; length])));
                self.op("Mul", &[scale, &ones])
            }
            None => Ok(scale.clone()),
        }
    }

    /// x to the nearest whole number, ties to even, where its magnitude is below 2^22; something near x elsewhere, which is
    /// beyond all that has 16 bits. The general executor's `Round` calls a function for each element.
    fn rounded(&mut self, x: &Val) -> Result<Val, String> {
        // From here on the last bit of a FLOAT is 1.
        const WHOLE: f32 = 1.5 * (1 << 23) as f32;
        let moved = self.op("Add", &[x, &number(WHOLE)])?;
        self.op("Sub", &[&moved, &number(WHOLE)])
    }

    /// x / scale rounded, plus the zero point, within the range of `element`.
    fn quantised(
        &mut self,
        x: &Val,
        scale: &Val,
        zero_point: Option<&Val>,
        (axis, element): (i64, ElementType),
    ) -> Result<Val, String> {
        let (low, high) = range_of_type(element).ok_or_else(|| format!("numbers of {element}"))?;
        let (x, scale) = (self.as_float(x)?, self.as_float(scale)?);
        let scale = self.along(&scale, &x, axis)?;
        let divisor = self.widened(&scale, &x)?;
        let quotient = self.op("Div", &[&x, &divisor])?;
        let mut rounded = self.rounded(&quotient)?;
        if let Some(zero_point) = zero_point {
            let zero_point = self.as_float(zero_point)?;
            let zero_point = self.along(&zero_point, &x, axis)?;
            rounded = self.op("Add", &[&rounded, &zero_point])?;
        }
        let bounds = [number(low as f32), number(high as f32)];
        let whole = self.op("Clip", &[&rounded, &bounds[0], &bounds[1]])?;
        Ok(self.labelled(whole, element))
    }

    /// A FLOAT that holds whole numbers of a narrow type, as one of that type.
    fn labelled(&mut self, val: Val, element: ElementType) -> Val {
        match val {
            Val::View(view) => Val::View(View { element, ..view }),
            Val::PerSequence(view) => Val::PerSequence(View { element, ..view }),
            Val::Literal(literal) => match literal.as_f32() {
                Some(array) => Val::literal(Literal::Whole(array.clone(), element)),
                None => Val::Literal(literal),
            },
            other => other,
        }
    }

    /// The product of two tensors of bytes, less their zero points, by an operator: `MatMul`, or `Conv` with or without a bias.
    pub(super) fn whole_product(
        &mut self,
        operator: &str,
        attributes: Vec<AttributeProto>,
        factors: &[&Val],
    ) -> Result<Val, String> {
        let before = self.analysis.ops.len();
        let product = self.op_with(operator, attributes, factors)?;
        // They are bytes of one type less a zero point.
        let are_bytes = matches!(factors[1], Val::Literal(_));
        let added = self.analysis.ops[before..].iter_mut();
        for op in added.filter(|op| op.operator == operator && are_bytes) {
            op.attributes.push(int_attribute(OF_BYTES, 1));
        }
        if let Val::View(view) = &product {
            self.analysis.whole.insert(view.source);
        }
        Ok(product)
    }
}

/// `DequantizeLinear`.
pub(crate) fn dequantize_linear(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    refuse_blocks(node)?;
    let axis = node.int("axis").unwrap_or(1);
    let (x, scale) = (input(inputs, 0)?, input(inputs, 1)?);
    let element = x.element();
    let mut to = Composer { analysis, node };
    let whole = to.less(x, optional(inputs, 2), axis)?;
    let val = to.scaled(&whole, scale, axis)?;
    if let Some(element) = element {
        analysis.dequantised.add(&val, (&whole, element), scale, axis);
    }
    Ok(vec![val])
}

fn refuse_blocks(node: &Node) -> Result<(), String> {
    match node.int("block_size").unwrap_or(0) {
        0 => Ok(()),
        size => Err(format!("block_size={size}")),
    }
}

/// `QuantizeLinear`.
pub(crate) fn quantize_linear(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    refuse_blocks(node)?;
    let zero_point = optional(inputs, 2);
    let declared = node.int("output_dtype").filter(|&to| to != 0);
    let element = match (zero_point.and_then(Val::element), declared) {
        (Some(element), _) => element,
        (None, Some(to)) => element_type(DataType(to as i32))?,
        (None, None) => ElementType::U8,
    };
    let axis = node.int("axis").unwrap_or(1);
    let (x, scale) = (input(inputs, 0)?, input(inputs, 1)?);
    let mut to = Composer { analysis, node };
    to.quantised(x, scale, zero_point, (axis, element)).map(|val| vec![val])
}

/// `DynamicQuantizeLinear`, for each sequence by itself. Each has its scale and its zero point.
pub(crate) fn dynamic_quantize_linear(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    dynamically_quantised(analysis, node, input(inputs, 0)?).map(Vec::from)
}

pub(super) fn dynamically_quantised(
    analysis: &mut Analysis,
    node: &Node,
    x: &Val,
) -> Result<[Val; 3], String> {
    let dims = x.dims();
    let is_joint = |axis: usize| dims[axis].as_symbol() != Some(BATCH);
    let of_batch: Vec<usize> = (0..dims.len()).filter(|&a| has_batch(&dims[a..=a])).collect();
    if of_batch.iter().any(|&axis| is_joint(axis)) && analysis.has_roles() {
        // The next pass takes one sequence a request.
        analysis.bind(BATCH, 1);
    }
    let axes = (0..dims.len()).filter(|axis| !of_batch.contains(axis));
    let axes = ints(axes.map(|axis| axis as i64));
    let mut to = Composer { analysis, node };
    let least = to.op("ReduceMin", &[x, &axes])?;
    let least = to.op("Min", &[&least, &number(0.0)])?;
    let greatest = to.op("ReduceMax", &[x, &axes])?;
    let greatest = to.op("Max", &[&greatest, &number(0.0)])?;
    let span = to.op("Sub", &[&greatest, &least])?;
    let step = to.op("Div", &[&span, &number(255.0)])?;
    let is_flat = to.op("Equal", &[&span, &number(0.0)])?;
    let mut scale = to.op("Where", &[&is_flat, &number(1.0), &step])?;
    let below = to.op("Neg", &[&least])?;
    let steps_below = to.op("Div", &[&below, &scale])?;
    let inside = to.op("Clip", &[&steps_below, &number(0.0), &number(255.0)])?;
    let mut zero_point = to.op("Round", &[&inside])?;
    for val in [&mut scale, &mut zero_point] {
        let shape: Vec<Int> =
            of_batch.iter().map(|&axis| to.analysis.axes.int(&dims[axis])).collect();
        let is_per_sequence = !shape.is_empty();
        *val = match to.reshaped(val, shape)? {
            Val::View(view) if is_per_sequence => Val::PerSequence(view),
            other => other,
        };
    }
    let divisor = to.widened(&scale, x)?;
    let quotient = to.op("Div", &[x, &divisor])?;
    let rounded = to.rounded(&quotient)?;
    let moved = to.op("Add", &[&rounded, &zero_point])?;
    let whole = to.op("Clip", &[&moved, &number(0.0), &number(255.0)])?;
    let [whole, zero_point] = [whole, zero_point].map(|val| to.labelled(val, ElementType::U8));
    Ok([whole, scale, zero_point])
}

/// The zero point of a matrix of weights: one number, or one for each column.
fn of_columns<'a>(b: &Val, zero_point: Option<&'a Val>) -> (Option<&'a Val>, i64) {
    (zero_point, b.dims().len() as i64 - 1)
}

/// `MatMulInteger`.
pub(crate) fn matmul_integer(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (a, b) = (input(inputs, 0)?, input(inputs, 1)?);
    let mut to = Composer { analysis, node };
    let rows = a.dims().len() as i64 - 2;
    let zero_point = optional(inputs, 2);
    // A zero point that was computed has the axes of its tensor.
    let a = match zero_point {
        Some(zero_point) if zero_point.dims().len() > 1 => {
            let (a, zero_point) = (to.as_float(a)?, to.as_float(zero_point)?);
            to.op("Sub", &[&a, &zero_point])?
        }
        _ => to.less(a, zero_point, rows)?,
    };
    let (zero_point, columns) = of_columns(b, optional(inputs, 3));
    let b = to.less(b, zero_point, columns)?;
    let product = to.whole_product("MatMul", vec![], &[&a, &b])?;
    to.cast(&product, DataType::INT32).map(|val| vec![val])
}

/// The attributes of a convolution.
pub(super) fn of_convolution(node: &Node) -> Vec<AttributeProto> {
    let names = ["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];
    node.attributes_named(&names)
}

/// `ConvInteger`.
pub(crate) fn conv_integer(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, w) = (input(inputs, 0)?, input(inputs, 1)?);
    let mut to = Composer { analysis, node };
    let x = match optional(inputs, 2) {
        Some(zero_point) if zero_point.dims().len() > 1 => {
            let (x, zero_point) = (to.as_float(x)?, to.as_float(zero_point)?);
            to.op("Sub", &[&x, &zero_point])?
        }
        zero_point => to.less(x, zero_point, 1)?,
    };
    let w = to.less(w, optional(inputs, 3), 0)?;
    let sums = to.whole_product("Conv", of_convolution(node), &[&x, &w])?;
    to.cast(&sums, DataType::INT32).map(|val| vec![val])
}

/// `QLinearMatMul`.
pub(crate) fn q_linear_matmul(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (a, b) = (input(inputs, 0)?, input(inputs, 3)?);
    let mut to = Composer { analysis, node };
    let rows = a.dims().len() as i64 - 2;
    let a = to.less(a, optional(inputs, 2), rows)?;
    let (zero_point, columns) = of_columns(b, optional(inputs, 5));
    let b = to.less(b, zero_point, columns)?;
    let sums = to.whole_product("MatMul", vec![], &[&a, &b])?;
    let product = to.scaled(&sums, input(inputs, 1)?, sums.dims().len() as i64 - 2)?;
    let product = to.scaled(&product, input(inputs, 4)?, sums.dims().len() as i64 - 1)?;
    let zero_point = input(inputs, 7)?;
    let element = zero_point.element().ok_or("its zero point has no type")?;
    let to_type = (-1, element);
    to.quantised(&product, input(inputs, 6)?, Some(zero_point), to_type).map(|val| vec![val])
}

/// `QLinearConv`.
pub(crate) fn q_linear_conv(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let mut to = Composer { analysis, node };
    let x = to.less(input(inputs, 0)?, optional(inputs, 2), 1)?;
    let w = to.less(input(inputs, 3)?, optional(inputs, 5), 0)?;
    // The bias is in units of both scales, as the sums are.
    let bias = optional(inputs, 8).map(|bias| to.as_float(bias)).transpose()?;
    let factors: Vec<&Val> = [Some(&x), Some(&w), bias.as_ref()].into_iter().flatten().collect();
    let sums = to.whole_product("Conv", of_convolution(node), &factors)?;
    let unit = to.op("Mul", &[input(inputs, 1)?, input(inputs, 4)?])?;
    let sums = to.scaled(&sums, &unit, 1)?;
    let zero_point = input(inputs, 7)?;
    let element = zero_point.element().ok_or("its zero point has no type")?;
    to.quantised(&sums, input(inputs, 6)?, Some(zero_point), (1, element)).map(|val| vec![val])
}
