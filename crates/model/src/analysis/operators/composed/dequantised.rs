//! Products of numbers that `DequantizeLinear` gave (the QDQ form of quantised files), as products of the whole numbers
//! that stand for them.
//!
//! With one scale for x, and one for each output of the weights, `sum of (x - zx) * sx * (w - zw) * sw` is `sx * sw` times
//! a sum of whole numbers, which is exact.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::composed::composer::Composer;
use crate::analysis::operators::composed::quantised::of_convolution;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::node::Node;

/// `MatMul`, `Gemm` or `Conv` of dequantised numbers with dequantised weights, and a bias. None: it is not one.
pub(crate) fn product(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Option<Vec<Val>>, String> {
    let [Some(x @ Val::View(_)), Some(w @ Val::Literal(_)), ..] = inputs else { return Ok(None) };
    let known = (analysis.dequantised.find(x), analysis.dequantised.find(w));
    let (Some(x), Some(w)) = known else { return Ok(None) };
    let (operator, is_transposed) = match node.operator.as_str() {
        "Gemm" => ("MatMul", node.int("transB").unwrap_or(0) != 0),
        "MatMul" => ("MatMul", false),
        _ => ("Conv", false),
    };
    let is_plain = |name: &str| node.float(name).unwrap_or(1.0) == 1.0;
    let is_scaled = operator == "MatMul" && !(is_plain("alpha") && is_plain("beta"));
    let rank = w.whole.dims().len();
    let fits = operator == "Conv" || rank == 2;
    if is_scaled || node.int("transA").unwrap_or(0) != 0 || !fits || !x.has_one_scale() {
        return Ok(None);
    }
    let of_outputs = if operator == "Conv" || is_transposed { 0 } else { rank - 1 };
    let scales = (x.scale_along(0), w.scale_along(of_outputs));
    let (Some(of_x), Some(of_w)) = scales else { return Ok(None) };
    let unit: Vec<f32> = of_w.iter().map(|of_w| of_x[0] * of_w).collect();
    if unit.iter().any(|unit| !unit.is_normal()) {
        return Ok(None);
    }
    let weights = match &w.whole {
        Val::Literal(whole) if is_transposed => {
            let form = (true, 1_f32.to_bits());
            Val::Literal(analysis.gemm_matrices.get(whole, form, || whole.transposed(&[1, 0])))
        }
        whole => whole.clone(),
    };
    analysis.dequantised.count(&node.operator);
    let mut to = Composer { analysis, node };
    let attributes = if operator == "Conv" { of_convolution(node) } else { Vec::new() };
    let sums = to.whole_product(operator, attributes, &[&x.whole, &weights])?;
    let mut unit = Val::literal(Literal::F32(Array::vector(unit)));
    let mut bias = inputs.get(2).cloned().flatten();
    if operator == "Conv" {
        // Outputs are along axis 1.
        for val in [Some(&mut unit), bias.as_mut()].into_iter().flatten() {
            let mut shape = vec![to.lengths(val).remove(0)];
            shape.extend((2..rank).map(|_| Int::number(1)));
            *val = to.reshaped(val, shape)?;
        }
    }
    let product = to.op("Mul", &[&sums, &unit])?;
    Ok(Some(vec![match bias {
        Some(bias) => to.op("Add", &[&product, &bias])?,
        None => product,
    }]))
}
