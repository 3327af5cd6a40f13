//! Matrix products. `Gemm` becomes `MatMul` and `Add`, whose weights are packed once.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::input;
use crate::analysis::operators::broadcast::{Over, align, broadcast_dims, repeat};
use crate::analysis::operators::dispatch::{self, apply};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, row_shape};
use crate::data::literal::Literal;
use crate::file::node::Node;

/// `MatMul`.
pub(crate) fn matmul(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    product(analysis, node, input(inputs, 0)?, input(inputs, 1)?)
}

fn product(analysis: &mut Analysis, node: &Node, a: &Val, b: &Val) -> Result<Vec<Val>, String> {
    check_floats(&[a, b])?;
    match (a, b) {
        (Val::View(view), Val::Literal(weights)) if weights.shape().len() <= 2 => {
            times_weights(analysis, node, view, weights)
        }
        (
            Val::View(_) | Val::Literal(_) | Val::Repeat(..),
            Val::View(_) | Val::Literal(_) | Val::Repeat(..),
        ) if matches!((a, b), (Val::View(_), _) | (_, Val::View(_))) => {
            between_rows(analysis, node, a, b)
        }
        (Val::Literal(a), Val::Literal(b)) => {
            analysis.afford(a.shape())?;
            let product = folded(a, b)?;
            analysis.afford(product.shape())?;
            Ok(vec![Val::literal(product)])
        }
        (Val::Repeat(once, dims), Val::Literal(weights)) => {
            let product = folded(once, weights)?;
            let mut out = dims.clone();
            out.pop();
            out.push(Dim::fixed(product.shape().last().copied().unwrap_or(1)));
            Ok(vec![Val::repeated(Rc::new(product), out)])
        }
        (Val::Fill(value, dims), Val::Literal(weights)) => {
            filled(analysis, value, dims, weights).map(|val| vec![val])
        }
        _ => Err("a product of constants that is not folded".to_owned()),
    }
}

/// Refuses products of integers.
pub(super) fn check_floats(operands: &[&Val]) -> Result<(), String> {
    match operands.iter().all(|val| val.element().is_none_or(ElementType::is_float)) {
        true => Ok(()),
        false => Err("products of integers are not supported".to_owned()),
    }
}

/// A product of matrices that are both constant.
fn folded(a: &Literal, b: &Literal) -> Result<Literal, String> {
    let unfolded = || "a product of constants that is not folded".to_owned();
    let (a, b) = (a.as_f32().ok_or_else(unfolded)?, b.as_f32().ok_or_else(unfolded)?);
    let (Some((&k, lead)), &[k2, n]) = (a.shape.split_last(), &b.shape[..]) else {
        return Err(unfolded());
    };
    let m: usize = lead.iter().product();
    if k != k2 || m.saturating_mul(k).saturating_mul(n) > 1 << 28 {
        return Err(unfolded());
    }
    let mut data = vec![0.0; m * n];
    for (row, out) in a.data.chunks_exact(k.max(1)).zip(data.chunks_exact_mut(n.max(1))) {
        for (x, weights) in row.iter().zip(b.data.chunks_exact(n.max(1))) {
            out.iter_mut().zip(weights).for_each(|(out, weight)| *out += x * weight);
        }
    }
    Ok(Literal::F32(Array::new([lead, &[n]].concat(), data)))
}

/// `[..., k]` of one number, times `[k, n]`: the same row everywhere.
fn filled(
    analysis: &mut Analysis,
    value: &Literal,
    dims: &[Dim],
    weights: &Literal,
) -> Result<Val, String> {
    let unfolded = || "a product of constants that is not folded".to_owned();
    let (Some(last), Some(value), &[k, n]) = (dims.last(), value.as_f32(), weights.shape()) else {
        return Err(unfolded());
    };
    analysis.learn(last, k);
    if analysis.need_fixed(last, "sums over")? != k {
        return Err(unfolded());
    }
    let row = Literal::F32(Array::new(vec![1, k], vec![value.data[0]; k]));
    let product = folded(&row, weights)?;
    let mut out = dims.to_vec();
    *out.last_mut().ok_or_else(unfolded)? = Dim::fixed(n);
    repeat(&product, out)
}

/// `[..., k]` times a constant `[k, n]` or `[k]`.
fn times_weights(
    analysis: &mut Analysis,
    node: &Node,
    view: &View,
    weights: &Rc<Literal>,
) -> Result<Vec<Val>, String> {
    let last = view.dims.last().ok_or("a product with a scalar")?;
    weights.shape().first().iter().for_each(|&&k| analysis.learn(last, k));
    let k = analysis.need_fixed(last, "sums over")?;
    if weights.shape().first() != Some(&k) {
        let shape = analysis.axes.show(&view.dims);
        return Err(format!("it multiplies {shape} by {:?}", weights.shape()));
    }
    let mut out = view.dims[..view.dims.len() - 1].to_vec();
    let mut shape = row_shape(&view.dims);
    shape.pop();
    let weights = match *weights.shape() {
        [_, n] => {
            out.push(Dim::fixed(n));
            shape.push(n);
            weights.clone()
        }
        _ => {
            // The product has an axis of one element more than what comes of it.
            shape.push(1);
            Rc::new(weights.reshaped(&[k, 1]))
        }
    };
    let operands = vec![
        Operand::Rows { source: view.source, at: view.at, shape: row_shape(&view.dims) },
        Operand::Constant(weights),
    ];
    let vals = analysis.emit(node, "MatMul", vec![], operands, vec![(ElementType::F32, out)]);
    if let Some(op) = analysis.ops.last_mut() {
        op.outputs[0].shape = shape;
    }
    Ok(vals)
}

/// A product of matrices that lie within the rows.
fn between_rows(
    analysis: &mut Analysis,
    node: &Node,
    a: &Val,
    b: &Val,
) -> Result<Vec<Val>, String> {
    let (da, db) = (a.dims(), b.dims());
    if da.len() < 2 || db.len() < 2 {
        return Err("a product with a vector that depends on the request".to_owned());
    }
    let (ra, rb) = (da.len() - 2, db.len() - 2);
    let what = "multiplies matrices along";
    let m = analysis.need_fixed(&da[ra], what)?;
    let k = analysis.need_fixed(&da[ra + 1], what)?;
    let k2 = analysis.need_fixed(&db[rb], what)?;
    let n = analysis.need_fixed(&db[rb + 1], what)?;
    if k != k2 {
        return Err(format!("it multiplies matrices of {k} columns and {k2} rows"));
    }
    let mut out = broadcast_dims(analysis, &[da[..ra].to_vec(), db[..rb].to_vec()], Over::Rows)?;
    // Operands are aligned as if the matrix axes were those of the result.
    let with_matrix = |out: &[Dim], rows: usize, columns: usize| {
        let mut dims = out.to_vec();
        dims.extend([Dim::fixed(rows), Dim::fixed(columns)]);
        dims
    };
    let operands = vec![
        align(analysis, a, &with_matrix(&out, m, k))?,
        align(analysis, b, &with_matrix(&out, k, n))?,
    ];
    out.extend([Dim::fixed(m), Dim::fixed(n)]);
    Ok(analysis.emit(node, "MatMul", vec![], operands, vec![(ElementType::F32, out)]))
}

/// `Gemm`, as `MatMul` and `Add`.
pub(crate) fn gemm(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (a, Val::Literal(weights)) = (input(inputs, 0)?, input(inputs, 1)?) else {
        return Err("its weights are not constant".to_owned());
    };
    if node.int("transA").unwrap_or(0) != 0 {
        return Err("transA=1: it sums over rows".to_owned());
    }
    if weights.shape().len() != 2 {
        return Err("its weights are no matrix".to_owned());
    }
    let is_transposed = node.int("transB").unwrap_or(0) != 0;
    let alpha = node.float("alpha").unwrap_or(1.0);
    let weights = match is_transposed || alpha != 1.0 {
        true => analysis.gemm_matrices.get(weights, (is_transposed, alpha.to_bits()), || {
            let turned = if is_transposed { &weights.transposed(&[1, 0]) } else { &**weights };
            scaled(turned, alpha)
        }),
        false => weights.clone(),
    };
    let product = match a {
        Val::View(view) => times_weights(analysis, node, view, &weights)?,
        constant => product(analysis, node, constant, &Val::Literal(weights))?,
    };
    let Some(Some(bias)) = inputs.get(2) else { return Ok(product) };
    let beta = node.float("beta").unwrap_or(1.0);
    let bias = match bias {
        other if beta == 1.0 => other.clone(),
        Val::Literal(bias) => Val::literal(scaled(bias, beta)),
        _ => return Err("beta with a bias that depends on the request".to_owned()),
    };
    if !matches!((&product[0], &bias), (Val::View(_), _) | (_, Val::View(_))) {
        let sum = Node::plain("Add", node);
        return dispatch::on_rows(analysis, &sum, &[Some(product[0].clone()), Some(bias)]);
    }
    add(analysis, node, "Add", &product[0], &bias)
}

fn scaled(literal: &Literal, factor: f32) -> Literal {
    match literal {
        Literal::F32(array) if factor != 1.0 => {
            let data = array.data.iter().map(|x| x * factor).collect();
            Literal::F32(Array::new(array.shape.clone(), data))
        }
        other => other.clone(),
    }
}

fn add(
    analysis: &mut Analysis,
    node: &Node,
    operator: &str,
    a: &Val,
    b: &Val,
) -> Result<Vec<Val>, String> {
    let out = broadcast_dims(analysis, &[a.dims(), b.dims()], Over::Rows)?;
    let operands = vec![align(analysis, a, &out)?, align(analysis, b, &out)?];
    Ok(analysis.emit(node, operator, vec![], operands, vec![(ElementType::F32, out)]))
}

/// `BatchNormalization` with constant statistics: a scale and an offset for each channel (axis 1).
pub(crate) fn batch_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    if node.int("training_mode").unwrap_or(0) != 0 || node.output(1).is_some() {
        return Err("training mode".to_owned());
    }
    let x = input(inputs, 0)?;
    if !matches!(x, Val::View(_)) {
        return Err("its input does not depend on the request".to_owned());
    }
    let dims = x.dims();
    let channels = dims.get(1).ok_or("it has no channels")?;
    let channels = analysis.need_fixed(channels, "takes for channels")?;
    let mut parts = Vec::new();
    for index in 1..5 {
        match input(inputs, index)? {
            Val::Literal(literal) if literal.shape() == [channels] => {
                parts.push(literal.as_f32().ok_or("its statistics are not FLOAT")?.data.clone());
            }
            _ => return Err("its statistics are not constant".to_owned()),
        }
    }
    let epsilon = node.float("epsilon").unwrap_or(1e-5);
    let factor: Vec<f32> =
        (0..channels).map(|c| parts[0][c] / (parts[3][c] + epsilon).sqrt()).collect();
    let offset: Vec<f32> = (0..channels).map(|c| parts[1][c] - parts[2][c] * factor[c]).collect();
    let mut shape = vec![1; dims.len() - 1];
    shape[0] = channels;
    let literal = |data| Val::literal(Literal::F32(Array::new(shape.clone(), data)));
    let scaled = apply(analysis, node, "Mul", vec![], vec![x.clone(), literal(factor)])?;
    apply(analysis, node, "Add", vec![], vec![scaled, literal(offset)]).map(|val| vec![val])
}
