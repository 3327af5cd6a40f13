//! Operators that are no function of rows: convolutions and pools along steps, reductions and softmax
//! over them, products between steps. They run on whole tensors, a sequence at a time where no operator
//! looks from one sequence at another.
//!
//! An operator whose tensors are `[rows, ...]` with all else fixed is a row's after all, and becomes
//! one.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::{AttributeProto, DataType};

use super::elementwise::{attributes, broadcast_dims, check_types, clip_bounds, is_elementwise};
use super::layout::{dim_of, int_list, numbers};
use super::{
    Inputs, axis_of, float_attribute, input, int_attribute, ints_attribute, string_attribute,
};
use crate::analysis::{Analysis, Domain, Operand, RowOp, Scope, Source, Val, View};
use crate::array::Array;
use crate::literal::Literal;
use crate::onnx_file::{Node, element_type};
use crate::symbolic::{BATCH, Dim, Factor, Int, Windows, row_shape, steps};

/// An end of a slice that no axis reaches backwards.
const FAR_BELOW: i64 = -(1 << 30);

/// What a node is on whole tensors.
struct Whole {
    operator: String,
    attributes: Vec<AttributeProto>,
    operands: Vec<Operand>,
    outputs: Vec<(ElementType, Vec<Dim>)>,
    /// Whether a sequence's part of the outputs depends on its part of the inputs alone.
    is_independent: bool,
    /// Whether so does each part along axis 0, which is that of the outputs too.
    is_along_first: bool,
}

/// Operators on rows that are known on whole tensors too.
pub(crate) fn is_known(operator: &str) -> bool {
    const OTHERS: &[&str] = &[
        "ArgMax",
        "ArgMin",
        "Cast",
        "Concat",
        "Dropout",
        "Expand",
        "Flatten",
        "Identity",
        "LayerNormalization",
        "LogSoftmax",
        "MatMul",
        "Reshape",
        "Slice",
        "Softmax",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ];
    let on_rows_alone = matches!(operator, "Celu" | "PRelu" | "Selu" | "Sign" | "Softplus");
    let is_elementwise = is_elementwise(operator) && !on_rows_alone;
    OTHERS.contains(&operator) || operator.starts_with("Reduce") || is_elementwise
}

/// The node's outputs, or why it cannot be served.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let whole = match node.operator.as_str() {
        "Conv" => convolution(analysis, node, inputs),
        "MaxPool" | "AveragePool" => pool(analysis, node, inputs),
        "GlobalAveragePool" | "GlobalMaxPool" => global_pool(node, inputs),
        "Pad" => pad(analysis, node, inputs),
        "Softmax" | "LogSoftmax" => softmax(analysis, node, inputs),
        "ArgMax" | "ArgMin" => arg(node, inputs),
        "MatMul" => matmul(analysis, inputs),
        "Transpose" => transpose(node, inputs),
        "Reshape" => {
            let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
            let keep_zero = node.int("allowzero").unwrap_or(0) != 0;
            let out = reshaped(analysis, &view(inputs, 0)?.dims.clone(), target, keep_zero)?;
            relabelled(analysis, inputs, out)
        }
        "Flatten" | "Squeeze" | "Unsqueeze" => regrouped(analysis, node, inputs),
        "Expand" => expand(analysis, inputs),
        "Cast" => cast(node, inputs),
        "Identity" => return Ok(vec![input(inputs, 0)?.clone()]),
        "Dropout" => return super::layout::dropout(node, inputs),
        "Concat" => concat(analysis, node, inputs),
        "Slice" => slice(analysis, node, inputs),
        "LayerNormalization" => layer_normalization(analysis, node, inputs),
        "Trilu" => trilu(analysis, node, inputs),
        "CumSum" => cumulative_sum(node, inputs),
        operator if operator.starts_with("Reduce") => reduce(node, inputs),
        operator if is_elementwise(operator) => elementwise(analysis, node, inputs),
        _ => Err("not supported".to_owned()),
    }?;
    emit(analysis, node, whole)
}

fn view(inputs: &Inputs, index: usize) -> Result<&View, String> {
    match input(inputs, index)? {
        Val::View(view) => Ok(view),
        _ => Err(format!("its input {index} does not depend on the request")),
    }
}

fn literal(inputs: &Inputs, index: usize, name: &str) -> Result<Rc<Literal>, String> {
    match input(inputs, index)? {
        Val::Literal(literal) if literal.data().is_some() => Ok(literal.clone()),
        _ => Err(format!("its {name} is not constant")),
    }
}

fn whole(view: &View) -> Operand {
    Operand::Whole { source: view.source, at: view.at, dims: view.dims.clone() }
}

fn ints(values: impl IntoIterator<Item = i64>) -> Operand {
    Operand::Constant(Rc::new(Literal::ints(values.into_iter().map(Int::number).collect())))
}

fn has_batch(dims: &[Dim]) -> bool {
    dims.iter().any(|dim| dim.atoms().any(|atom| atom == BATCH))
}

/// Adds the operator; gives a view of each output.
fn emit(analysis: &mut Analysis, node: &Node, whole: Whole) -> Result<Vec<Val>, String> {
    let Whole { operator, attributes, operands, outputs, is_independent, is_along_first } = whole;
    let batches =
        |dims: &Vec<Dim>| dims.iter().flat_map(Dim::atoms).filter(|&a| a == BATCH).count();
    if !analysis.draft && outputs.iter().any(|(_, dims)| batches(dims) > 1) {
        return Err("the batch is two of its axes".to_owned());
    }
    let on_rows = on_rows(&operands, &outputs).filter(|_| is_along_first && !analysis.draft);
    if let Some(operands) = on_rows {
        if operator == "Conv"
            && let Some(val) =
                convolution_of_rows(analysis, node, &attributes, &operands, &outputs[0].1)
        {
            return Ok(vec![val]);
        }
        return Ok(analysis.emit(node, &operator, attributes, operands, outputs));
    }
    let mut of = operands.iter().filter_map(|operand| match operand {
        Operand::Whole { dims, .. } => Some(dims),
        _ => None,
    });
    let is_batched = of.any(|dims| has_batch(dims));
    if !analysis.draft && (analysis.is_cell || (is_batched && !is_independent)) {
        if !analysis.is_cell && analysis.axes.length(BATCH).is_none() {
            // The next pass takes one sequence a request.
            analysis.bind(BATCH, 1);
        } else {
            return Err("rows of the batch interact".to_owned());
        }
    }
    let sources = operands.iter().filter_map(|operand| match operand {
        Operand::Whole { source, .. } => Some(*source),
        _ => None,
    });
    let level = sources.map(|source| analysis.level(source)).max().unwrap_or(0);
    let mut domain = Domain::default();
    for (_, dims) in &outputs {
        domain = domain.union(Domain::of(dims));
    }
    let index = analysis.ops.len();
    analysis.ops.push(RowOp {
        label: node.label.clone(),
        operator,
        attributes,
        operands,
        outputs: outputs.iter().map(|(e, dims)| RowSpec::new(*e, row_shape(dims))).collect(),
        domain,
        scope: if is_batched { Scope::Sequence } else { Scope::Request },
        whole: outputs.iter().map(|(_, dims)| dims.clone()).collect(),
        level,
        bound: None,
    });
    let views = outputs.into_iter().enumerate().map(|(port, (element, dims))| {
        Val::View(View { source: Source::Op(index, port), at: None, element, dims })
    });
    Ok(views.collect())
}

/// The operands as those of a row's operator: all tensors are `[rows, ...]`, and the rest is fixed.
fn on_rows(operands: &[Operand], outputs: &[(ElementType, Vec<Dim>)]) -> Option<Vec<Operand>> {
    let lead = outputs.first()?.1.first()?;
    let is_of_rows = |dims: &[Dim]| {
        dims.split_first().is_some_and(|(first, rest)| {
            first == lead && !first.in_row() && rest.iter().all(|dim| dim.atoms().next().is_none())
        })
    };
    if steps(std::slice::from_ref(lead)).len() > 1 || !outputs.iter().all(|(_, d)| is_of_rows(d)) {
        return None;
    }
    let operand = |operand: &Operand| match operand {
        Operand::Whole { source, at, dims } => {
            let rows = Operand::Rows { source: *source, at: *at, shape: row_shape(dims) };
            is_of_rows(dims).then_some(rows)
        }
        Operand::Lengths(_) => None,
        other => Some(other.clone()),
    };
    operands.iter().map(operand).collect()
}

/// Windows over an axis.
fn windows(analysis: &mut Analysis, dim: &Dim, windows: Windows) -> Result<Dim, String> {
    if windows.stride < 1 {
        return Err("a stride below 1".to_owned());
    }
    if windows == (Windows { extra: -1, stride: 1 }) {
        return Ok(dim.clone());
    }
    match dim.as_atom() {
        Some(atom) if atom != BATCH => Ok(Dim::atom(analysis.axes.windows(atom, windows))),
        _ => {
            let length = analysis.fixed(dim).ok_or("windows over an axis that is no one length")?;
            let count = windows.count(length).ok_or("windows wider than their axis")?;
            Ok(Dim::fixed(count))
        }
    }
}

/// Kernel, strides, dilations and pads of a window, for each spatial axis.
struct Spatial {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// First those before, then those after.
    pads: Vec<i64>,
}

impl Spatial {
    fn read(
        analysis: &Analysis,
        node: &Node,
        dims: &[Dim],
        kernel: Vec<i64>,
    ) -> Result<Self, String> {
        let axes = dims.len() - 2;
        if axes == 0 || axes > 2 || kernel.len() != axes {
            return Err(format!("windows over {axes} axes"));
        }
        let list = |name: &str, default: i64, count: usize| {
            let values = node.ints(name).map_or(vec![default; count], <[i64]>::to_vec);
            match values.len() == count {
                true => Ok(values),
                false => Err(format!("{name} of {} axes", values.len())),
            }
        };
        let (strides, dilations) = (list("strides", 1, axes)?, list("dilations", 1, axes)?);
        let mut pads = list("pads", 0, 2 * axes)?;
        let is_sane = |n: &i64| (0..=1 << 24).contains(n);
        let all = kernel.iter().chain(&strides).chain(&dilations).chain(&pads);
        if !all.clone().all(is_sane) || kernel.iter().chain(&strides).any(|&n| n == 0) {
            return Err("a kernel, stride, dilation or pad out of range".to_owned());
        }
        match node.string("auto_pad").unwrap_or("NOTSET") {
            "NOTSET" | "" => {}
            "VALID" => pads = vec![0; 2 * axes],
            same @ ("SAME_UPPER" | "SAME_LOWER") => {
                for axis in 0..axes {
                    let reach = dilations[axis] * (kernel[axis] - 1) + 1;
                    let all = match (strides[axis], analysis.fixed(&dims[2 + axis])) {
                        (1, _) => reach - 1,
                        (stride, Some(length)) => {
                            let length = length as i64;
                            (((length + stride - 1) / stride - 1) * stride + reach - length).max(0)
                        }
                        _ => return Err(format!("auto_pad {same} with a stride along steps")),
                    };
                    let less = all / 2;
                    let upper = same == "SAME_UPPER";
                    pads[axis] = if upper { less } else { all - less };
                    pads[axes + axis] = if upper { all - less } else { less };
                }
            }
            other => return Err(format!("auto_pad {other}")),
        }
        Ok(Self { kernel, strides, dilations, pads })
    }

    fn out(&self, analysis: &mut Analysis, dims: &[Dim], ceil: bool) -> Result<Vec<Dim>, String> {
        let axes = self.kernel.len();
        let length = |axis: usize| {
            let reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1;
            let more = if ceil { self.strides[axis] - 1 } else { 0 };
            let extra = self.pads[axis] + self.pads[axes + axis] - reach + more;
            windows(analysis, &dims[2 + axis], Windows { extra, stride: self.strides[axis] })
        };
        (0..axes).map(length).collect()
    }

    fn attributes(&self) -> Vec<AttributeProto> {
        vec![
            ints_attribute("kernel_shape", self.kernel.clone()),
            ints_attribute("strides", self.strides.clone()),
            ints_attribute("dilations", self.dilations.clone()),
            ints_attribute("pads", self.pads.clone()),
        ]
    }
}

fn convolution(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let weights = literal(inputs, 1, "W")?;
    let Some((&[outputs, of_group], kernel)) = weights.shape().split_first_chunk::<2>() else {
        return Err("its W has no kernel".to_owned());
    };
    if x.dims.len() != weights.shape().len() || x.element != ElementType::F32 {
        return Err(format!("its X has rank {}, its W {}", x.dims.len(), weights.shape().len()));
    }
    let group = node.int("group").unwrap_or(1);
    let channels = usize::try_from(group).ok().and_then(|group| group.checked_mul(of_group));
    let channels = channels.filter(|_| group > 0 && outputs % group as usize == 0);
    let channels = channels.ok_or("its groups do not fit its W")?;
    analysis.learn(&x.dims[1], channels);
    if analysis.fixed(&x.dims[1]) != Some(channels) {
        let shape = analysis.axes.show(&x.dims);
        return Err(format!("its X is {shape}, its W is for {channels} channels"));
    }
    let kernel = kernel.iter().map(|&n| n as i64).collect();
    let spatial = Spatial::read(analysis, node, &x.dims, kernel)?;
    let mut out = vec![x.dims[0].clone(), Dim::fixed(outputs)];
    out.extend(spatial.out(analysis, &x.dims, false)?);
    let mut operands = vec![whole(x), Operand::Constant(weights)];
    if inputs.get(2).is_some_and(Option::is_some) {
        let bias = literal(inputs, 2, "B")?;
        if bias.shape() != [outputs] {
            return Err(format!("its B is of {:?}", bias.shape()));
        }
        operands.push(Operand::Constant(bias));
    }
    let mut attributes = spatial.attributes();
    attributes.push(int_attribute("group", group));
    let is_independent = !has_batch(&x.dims[1..]);
    let outputs = vec![(ElementType::F32, out)];
    Ok(Whole {
        operator: "Conv".to_owned(),
        attributes,
        operands,
        outputs,
        is_independent,
        is_along_first: true,
    })
}

/// A convolution along one axis that rows hold, as a product of its windows with its weights, which is
/// one product for all rows. None: it is another convolution.
fn convolution_of_rows(
    analysis: &mut Analysis,
    node: &Node,
    attributes: &[AttributeProto],
    operands: &[Operand],
    out: &[Dim],
) -> Option<Val> {
    let (Operand::Rows { source, at, shape }, Operand::Constant(weights)) =
        (&operands[0], &operands[1])
    else {
        return None;
    };
    let weights = weights.as_f32()?;
    let (&[channels, length], &[features, of_group, kernel]) = (&shape[..], &weights.shape[..])
    else {
        return None;
    };
    if of_group != channels {
        return None;
    }
    let of = |name: &str| -> Option<Vec<usize>> {
        let attribute = attributes.iter().find(|a| a.name.as_deref() == Some(name))?;
        Some(attribute.ints.iter().map(|&n| n as usize).collect())
    };
    let (&[stride], &[dilation], &[before, after]) =
        (&of("strides")?[..], &of("dilations")?[..], &of("pads")?[..])
    else {
        return None;
    };
    let (lead, count) = (out[0].clone(), out[2].fixed_part());
    let dims = |rest: &[usize]| -> Vec<Dim> {
        [lead.clone()].into_iter().chain(rest.iter().map(|&n| Dim::fixed(n))).collect()
    };
    let element = ElementType::F32;
    let mut step = |view: View, operator, attributes, constants: Vec<Operand>, rest: &[usize]| {
        let operands = [vec![analysis.operand(&view)], constants].concat();
        let outputs = vec![(element, dims(rest))];
        match analysis.emit(node, operator, attributes, operands, outputs).pop() {
            Some(Val::View(view)) => view,
            _ => unreachable!("an operator on rows gives a view"),
        }
    };
    let order = || vec![ints_attribute("perm", vec![0, 2, 1])];
    let mut view = View { source: *source, at: *at, element, dims: dims(&[channels, length]) };
    let padded = before + length + after;
    if padded > length {
        let pads = ints([0, 0, before as i64, 0, 0, after as i64]);
        let mode = vec![string_attribute("mode", "constant")];
        view = step(view, "Pad", mode, vec![pads], &[channels, padded]);
    }
    view = match channels {
        1 => View { dims: dims(&[padded, 1]), ..view },
        _ => step(view, "Transpose", order(), vec![], &[padded, channels]),
    };
    let places = |window: usize| (0..kernel).map(move |tap| window * stride + tap * dilation);
    let places = (0..count).flat_map(places).map(|at| Int::number(at as i64)).collect();
    let places = Literal::Int(Array::new(vec![count, kernel], places), ElementType::I64);
    let (along, places) = (int_attribute("axis", 1), Operand::Constant(Rc::new(places)));
    view = step(view, "Gather", vec![along], vec![places], &[count, kernel, channels]);
    view.dims = dims(&[count, kernel * channels]);
    // From [features, channels, kernel] to [kernel * channels, features].
    let weights = weights.transposed(&[2, 1, 0]).reshaped(vec![kernel * channels, features]);
    let constant = |operand: &Operand| matches!(operand, Operand::Constant(_));
    let bias = operands.get(2).filter(|bias| constant(bias)).cloned();
    let product = Operand::Constant(Rc::new(Literal::F32(weights)));
    view = step(view, "MatMul", vec![], vec![product], &[count, features]);
    if let Some(bias) = bias {
        view = step(view, "Add", vec![], vec![bias], &[count, features]);
    }
    view = match count {
        1 => View { dims: dims(&[features, 1]), ..view },
        _ => step(view, "Transpose", order(), vec![], &[features, count]),
    };
    Some(Val::View(view))
}

fn pool(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let kernel = node.ints("kernel_shape").ok_or("it has no kernel_shape")?.to_vec();
    if x.dims.len() < 3 || node.output(1).is_some() || node.int("storage_order").unwrap_or(0) != 0 {
        return Err("its output Indices is not supported".to_owned());
    }
    let spatial = Spatial::read(analysis, node, &x.dims, kernel)?;
    if spatial.dilations.iter().any(|&n| n != 1) {
        return Err("dilations of a pool".to_owned());
    }
    if node.int("ceil_mode").unwrap_or(0) != 0 && spatial.strides.iter().any(|&n| n != 1) {
        return Err("ceil_mode=1".to_owned());
    }
    let mut out = x.dims[..2].to_vec();
    out.extend(spatial.out(analysis, &x.dims, false)?);
    let mut attributes = spatial.attributes();
    attributes.retain(|attribute| attribute.name.as_deref() != Some("dilations"));
    if node.operator == "AveragePool" {
        let include = node.int("count_include_pad").unwrap_or(0);
        attributes.push(int_attribute("count_include_pad", include));
    }
    let is_independent = !has_batch(&x.dims[2..]);
    let (operator, operands) = (node.operator.clone(), vec![whole(x)]);
    let outputs = vec![(x.element, out)];
    Ok(Whole { operator, attributes, operands, outputs, is_independent, is_along_first: true })
}

fn global_pool(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    if x.dims.len() < 3 {
        return Err(format!("its X has rank {}", x.dims.len()));
    }
    let mut out = x.dims[..2].to_vec();
    out.resize(x.dims.len(), Dim::fixed(1));
    let operator = match node.operator.as_str() {
        "GlobalMaxPool" => "ReduceMax",
        _ => "ReduceMean",
    };
    Ok(Whole {
        operator: operator.to_owned(),
        attributes: vec![int_attribute("keepdims", 1)],
        operands: vec![whole(x), ints(2..x.dims.len() as i64)],
        outputs: vec![(x.element, out)],
        is_independent: !has_batch(&x.dims[2..]),
        is_along_first: true,
    })
}

fn pad(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let given = numbers(node, "pads", inputs, 1)?.ok_or("it has no pads")?;
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 3)? {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if given.len() != 2 * axes.len() {
        return Err(format!("{} pads of {} axes", given.len(), axes.len()));
    }
    let mut pads = vec![0; 2 * rank];
    for (at, &axis) in axes.iter().enumerate() {
        (pads[axis], pads[rank + axis]) = (given[at], given[axes.len() + at]);
    }
    if !pads.iter().all(|pad| (0..=1 << 24).contains(pad)) {
        return Err("pads below 0, or beyond all reason".to_owned());
    }
    let mut out = Vec::new();
    let mut is_independent = true;
    for (axis, dim) in x.dims.iter().enumerate() {
        let more = pads[axis] + pads[rank + axis];
        is_independent &= more == 0 || !has_batch(std::slice::from_ref(dim));
        out.push(windows(analysis, dim, Windows { extra: more - 1, stride: 1 })?);
    }
    let is_along_first = pads[0] == 0 && pads[rank] == 0;
    let mode = node.string("mode").unwrap_or("constant");
    if !matches!(mode, "constant" | "reflect" | "edge") {
        return Err(format!("mode {mode}"));
    }
    let early = rank.saturating_sub(2);
    let is_early = (0..early).any(|axis| pads[axis] + pads[rank + axis] > 0);
    if mode != "constant" && is_early {
        return Err(format!("mode {mode} along other axes than the last two"));
    }
    let mut operands = vec![whole(x), ints(pads)];
    if mode == "constant" {
        operands.push(match (inputs.get(2), node.float("value")) {
            (Some(Some(_)), _) => {
                let value = super::layout::scalar(&*literal(inputs, 2, "value")?);
                Operand::Constant(Rc::new(value.ok_or("its value is not one number")?))
            }
            (_, Some(value)) => {
                let value = Array::scalar(value);
                Operand::Constant(Rc::new(Literal::F32(value)))
            }
            _ => Operand::Absent,
        });
    }
    let attributes = vec![string_attribute("mode", mode)];
    let outputs = vec![(x.element, out)];
    Ok(Whole {
        operator: "Pad".to_owned(),
        attributes,
        operands,
        outputs,
        is_independent,
        is_along_first,
    })
}

fn softmax(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let joint = analysis.opset < 13;
    let axis = axis_of(node.int("axis").unwrap_or(if joint { 1 } else { -1 }), rank)?;
    if joint && x.dims[axis + 1..].iter().any(|dim| !dim.is_one()) {
        return Err("it normalises over several axes (before opset 13)".to_owned());
    }
    Ok(Whole {
        operator: node.operator.clone(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: vec![whole(x)],
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    })
}

fn arg(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let axis = axis_of(node.int("axis").unwrap_or(0), x.dims.len())?;
    let keep = node.int("keepdims").unwrap_or(1);
    let out = reduced(&x.dims, &[axis], keep != 0);
    Ok(Whole {
        operator: node.operator.clone(),
        attributes: vec![
            int_attribute("axis", axis as i64),
            int_attribute("keepdims", keep),
            int_attribute("select_last_index", node.int("select_last_index").unwrap_or(0)),
        ],
        operands: vec![whole(x)],
        outputs: vec![(ElementType::I64, out)],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    })
}

fn reduced(dims: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let dims = dims.iter().enumerate();
    let kept = dims.filter_map(|(axis, dim)| match axes.contains(&axis) {
        true => keep.then(|| Dim::fixed(1)),
        false => Some(dim.clone()),
    });
    kept.collect()
}

fn reduce(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) if !axes.is_empty() => {
            axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?
        }
        _ => (0..rank).collect(),
    };
    if !super::reduce::OPERATORS.contains(&node.operator.as_str()) {
        return Err("not supported".to_owned());
    }
    let keep = node.int("keepdims").unwrap_or(1);
    let out = reduced(&x.dims, &axes, keep != 0);
    let mixes = axes.iter().any(|&axis| has_batch(&x.dims[axis..=axis]));
    Ok(Whole {
        operator: node.operator.clone(),
        attributes: vec![int_attribute("keepdims", keep)],
        operands: vec![whole(x), ints(axes.iter().map(|&axis| axis as i64))],
        outputs: vec![(x.element, out)],
        is_independent: !mixes,
        is_along_first: !axes.contains(&0),
    })
}

/// A value that depends on the request, or a constant tensor, as it is.
fn operand(val: &Val) -> Result<Operand, String> {
    match val {
        Val::View(view) => Ok(whole(view)),
        Val::Literal(literal) if literal.data().is_some() => Ok(Operand::Constant(literal.clone())),
        Val::Literal(literal) => match &**literal {
            Literal::Int(array, ElementType::I64) if array.shape.len() <= 1 => {
                Ok(Operand::Lengths(array.data.clone()))
            }
            _ => Err("an operand depends on the request's lengths".to_owned()),
        },
        Val::Fill(value, _) => Ok(Operand::Constant(Rc::new(value.reshaped(&[])))),
        // Where it stands beside a tensor that has these axes.
        Val::Repeat(literal, _) => Ok(Operand::Constant(literal.clone())),
        Val::Unknown => Err("an operand is unknown".to_owned()),
    }
}

fn matmul(analysis: &mut Analysis, inputs: &Inputs) -> Result<Whole, String> {
    let is_filled = |val: &Val| matches!(val, Val::Fill(..) | Val::Repeat(..));
    let (a, b) = (input(inputs, 0)?, input(inputs, 1)?);
    let (da, db) = (a.dims(), b.dims());
    if da.len() < 2 || db.len() < 2 || is_filled(a) || is_filled(b) {
        return Err("a product with a vector".to_owned());
    }
    let (ra, rb) = (da.len() - 2, db.len() - 2);
    let mut inner = da[ra + 1].clone();
    super::select::merge(analysis, &mut inner, &db[rb])?;
    let mut out = broadcast_dims(analysis, &[da[..ra].to_vec(), db[..rb].to_vec()])?;
    out.extend([da[ra].clone(), db[rb + 1].clone()]);
    let is_alone = |dim: &Dim, other: &Val| {
        !has_batch(std::slice::from_ref(dim)) || !matches!(other, Val::View(_))
    };
    let is_independent = !has_batch(std::slice::from_ref(&inner))
        && is_alone(&da[ra], b)
        && is_alone(&db[rb + 1], a);
    // Matrices along axis 0, or rows of one matrix times a constant one.
    let is_along_first = match (a, b) {
        (Val::View(_), Val::View(_)) => da.len() > 2 && da.len() == db.len(),
        (Val::View(_), _) => db.len() == 2,
        _ => false,
    };
    let operands = vec![operand(a)?, operand(b)?];
    let outputs = vec![(ElementType::F32, out)];
    let operator = "MatMul".to_owned();
    Ok(Whole { operator, attributes: vec![], operands, outputs, is_independent, is_along_first })
}

fn elementwise(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let operator = node.operator.as_str();
    let vals: Vec<&Val> = match operator {
        "Clip" => vec![input(inputs, 0)?],
        _ => (0..inputs.len()).map(|index| input(inputs, index)).collect::<Result<_, _>>()?,
    };
    check_types(operator, &vals)?;
    let all: Vec<Vec<Dim>> = vals.iter().map(|val| val.dims()).collect();
    let out = broadcast_dims(analysis, &all)?;
    let given: Vec<Vec<Dim>> = vals
        .iter()
        .filter(|val| !matches!(val, Val::Fill(..) | Val::Repeat(..)))
        .map(|val| val.dims())
        .collect();
    let is_given = broadcast_dims(analysis, &given)? == out;
    if !is_given && !analysis.draft {
        return Err("a constant is repeated along the axes of the request".to_owned());
    }
    let element = match operator {
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => ElementType::Bool,
        "Where" => vals.get(1).and_then(|val| val.element()).ok_or("it has no branches")?,
        _ => vals[0].element().unwrap_or(ElementType::F32),
    };
    let mut operands = vals.iter().map(|val| operand(val)).collect::<Result<Vec<_>, _>>()?;
    if operands.iter().any(|operand| matches!(operand, Operand::Lengths(_))) {
        return Err("an operand depends on the request's lengths".to_owned());
    }
    if operator == "Clip" {
        operands.extend(clip_bounds(node, inputs)?);
    }
    Ok(Whole {
        operator: operator.to_owned(),
        attributes: attributes(node)?,
        operands,
        outputs: vec![(element, out)],
        is_independent: true,
        is_along_first: false,
    })
}

fn transpose(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let order: Vec<usize> = match node.ints("perm") {
        Some(perm) => perm.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err("its perm is no permutation".to_owned());
    }
    Ok(Whole {
        operator: "Transpose".to_owned(),
        attributes: vec![ints_attribute("perm", order.iter().map(|&axis| axis as i64).collect())],
        operands: vec![whole(x)],
        outputs: vec![(x.element, order.iter().map(|&axis| x.dims[axis].clone()).collect())],
        is_independent: true,
        is_along_first: order[0] == 0,
    })
}

/// The dimensions that a target shape stands for.
fn reshaped(
    analysis: &Analysis,
    dims: &[Dim],
    target: Vec<Int>,
    keep_zero: bool,
) -> Result<Vec<Dim>, String> {
    let mut wanted = Vec::new();
    for (axis, int) in target.into_iter().enumerate() {
        wanted.push(match int.as_number() {
            Some(0) if !keep_zero => {
                let dim = dims.get(axis).ok_or("a 0 beyond its rank")?;
                analysis.axes.int(dim)
            }
            _ => int,
        });
    }
    let product = |ints: &mut dyn Iterator<Item = Int>| {
        ints.fold(Int::number(1), |product, int| product.times(&int))
    };
    let all = product(&mut dims.iter().map(|dim| analysis.axes.int(dim)));
    let is_open = |int: &Int| int.as_number() == Some(-1);
    let known = product(&mut wanted.iter().filter(|int| !is_open(int)).cloned());
    let open = wanted.iter().filter(|int| is_open(int)).count();
    match open {
        0 if all == known => {}
        1 => {
            let rest = all.over(&known).ok_or("its shape does not fit")?;
            wanted.iter_mut().filter(|int| is_open(int)).for_each(|int| *int = rest.clone());
        }
        _ => return Err("its shape does not fit".to_owned()),
    }
    // Where the old shape has a dimension of that length, it is that one, factor by factor.
    let dim = |int: &Int| match dims.iter().find(|dim| analysis.axes.int(dim) == *int) {
        Some(dim) if analysis.draft => Ok(dim.clone()),
        _ => dim_of(int),
    };
    wanted.iter().map(dim).collect()
}

/// The same elements under other dimensions.
fn relabelled(analysis: &Analysis, inputs: &Inputs, out: Vec<Dim>) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let target = Operand::Lengths(out.iter().map(|dim| analysis.axes.open_int(dim)).collect());
    let first = |dims: &[Dim]| dims.iter().position(|dim| has_batch(std::slice::from_ref(dim)));
    let is_independent = match (first(&x.dims), first(&out)) {
        (None, None) => true,
        (Some(from), Some(to)) => {
            let leads = |dim: &Dim| dim.0.first() == Some(&Factor::Atom(BATCH));
            from == to && x.dims[..from] == out[..to] && leads(&x.dims[from]) && leads(&out[to])
        }
        _ => false,
    };
    Ok(Whole {
        operator: "Reshape".to_owned(),
        attributes: vec![],
        operands: vec![whole(x), target],
        outputs: vec![(x.element, out)],
        is_independent,
        is_along_first: false,
    })
}

fn regrouped(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let dims = view(inputs, 0)?.dims.clone();
    let rank = dims.len();
    let out = match node.operator.as_str() {
        "Flatten" => {
            let axis = node.int("axis").unwrap_or(1);
            let axis = if axis == rank as i64 { rank } else { axis_of(axis, rank)? };
            let joined = |dims: &[Dim]| {
                let mut dim = Dim(Vec::new());
                dims.iter().flat_map(|dim| dim.0.iter().copied()).for_each(|f| dim.push(f));
                dim
            };
            vec![joined(&dims[..axis]), joined(&dims[axis..])]
        }
        "Squeeze" => {
            let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
                Some(axes) => axes.iter().map(|&a| axis_of(a, rank)).collect::<Result<_, _>>()?,
                None if dims.iter().any(|dim| dim.atoms().next().is_some()) && !analysis.draft => {
                    return Err("which axes it drops depends on the request".to_owned());
                }
                None => (0..rank).filter(|&axis| dims[axis].is_one()).collect(),
            };
            if axes.iter().any(|&axis| !dims[axis].is_one()) && !analysis.draft {
                return Err("it drops an axis that varies".to_owned());
            }
            reduced(&dims, &axes, false)
        }
        _ => {
            let axes = numbers(node, "axes", inputs, 1)?.ok_or("it has no axes")?;
            let rank = rank + axes.len();
            let axes: Vec<usize> =
                axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?;
            let mut rest = dims.into_iter();
            let dim = |axis| match axes.contains(&axis) {
                true => Some(Dim::fixed(1)),
                false => rest.next(),
            };
            (0..rank).map(dim).collect::<Option<_>>().ok_or("an axis twice")?
        }
    };
    relabelled(analysis, inputs, out)
}

fn expand(analysis: &mut Analysis, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
    let wanted = target.iter().map(dim_of).collect::<Result<Vec<_>, _>>()?;
    let out = broadcast_dims(analysis, &[x.dims.clone(), wanted])?;
    if has_batch(&out) && !has_batch(&x.dims) {
        return Err("it repeats along the batch".to_owned());
    }
    let shape = Operand::Lengths(out.iter().map(|dim| analysis.axes.open_int(dim)).collect());
    Ok(Whole {
        operator: "Expand".to_owned(),
        attributes: vec![],
        operands: vec![whole(x), shape],
        outputs: vec![(x.element, out)],
        is_independent: true,
        is_along_first: false,
    })
}

fn cast(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let data_type = DataType(node.int("to").unwrap_or(0) as i32);
    if data_type == DataType::BOOL {
        return Err("to BOOL".to_owned());
    }
    Ok(Whole {
        operator: "Cast".to_owned(),
        attributes: vec![int_attribute("to", data_type.0.into())],
        operands: vec![whole(x)],
        outputs: vec![(element_type(data_type)?, x.dims.clone())],
        is_independent: true,
        is_along_first: true,
    })
}

fn concat(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let vals: Vec<&Val> = inputs.iter().flatten().collect();
    let first = vals.first().ok_or("it has no inputs")?;
    let rank = first.dims().len();
    let axis = axis_of(node.int("axis").ok_or("it has no axis")?, rank)?;
    let mut out = first.dims();
    let (mut fixed, mut open) = (0, None);
    for val in &vals {
        let dims = val.dims();
        if dims.len() != rank || matches!(val, Val::Fill(..) | Val::Repeat(..)) {
            return Err("its inputs do not fit".to_owned());
        }
        for other in (0..rank).filter(|&other| other != axis) {
            super::select::merge(analysis, &mut out[other], &dims[other])?;
        }
        match analysis.fixed(&dims[axis]) {
            Some(length) => fixed += length,
            None if open.is_none() => open = Some(dims[axis].clone()),
            None => return Err("it joins several tensors along steps".to_owned()),
        }
    }
    out[axis] = match open {
        None => Dim::fixed(fixed),
        Some(dim) => windows(analysis, &dim, Windows { extra: fixed as i64 - 1, stride: 1 })?,
    };
    let element = first.element().ok_or("its inputs do not fit")?;
    let is_batched = vals.iter().all(|val| has_batch(&val.dims()));
    Ok(Whole {
        operator: "Concat".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: vals.iter().map(|val| operand(val)).collect::<Result<_, _>>()?,
        is_independent: is_batched && !has_batch(&out[axis..=axis]),
        is_along_first: axis != 0 && vals.iter().all(|val| matches!(val, Val::View(_))),
        outputs: vec![(element, out)],
    })
}

/// A part of one axis of steps whose length follows from that of all: what is left without the first
/// and the last so many, every so many of them, or all backwards.
fn slice(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let list = |name: &str, index: usize| -> Result<Option<Vec<Int>>, String> {
        if let Some(values) = node.ints(name) {
            return Ok(Some(values.iter().map(|&n| Int::number(n)).collect()));
        }
        if inputs.get(index).is_none_or(Option::is_none) {
            return Ok(None);
        }
        int_list(inputs, index).map(Some).ok_or_else(|| format!("its {name} are not constant"))
    };
    let starts = list("starts", 1)?.ok_or("it has no starts")?;
    let ends = list("ends", 2)?.ok_or("it has no ends")?;
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 3)? {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..starts.len()).collect(),
    };
    let by = numbers(node, "steps", inputs, 4)?.unwrap_or(vec![1; starts.len()]);
    if [ends.len(), axes.len(), by.len()] != [starts.len(); 3] {
        return Err("its starts, ends, axes and steps differ in number".to_owned());
    }
    let mut out = x.dims.clone();
    let mut is_independent = true;
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    for (at, &axis) in axes.iter().enumerate() {
        let (dim, by) = (&x.dims[axis], by[at]);
        let length = analysis.axes.int(dim);
        let start = starts[at].as_number().ok_or("its starts depend on the request")?;
        let is_to_end = ends[at] == length || ends[at].as_number().is_some_and(|n| n >= 1 << 30);
        let end = if is_to_end {
            i64::from(i32::MAX)
        } else {
            ends[at].as_number().ok_or("its ends depend on the request")?
        };
        firsts.push(start);
        lasts.push(end.clamp(i64::from(i32::MIN), i64::from(i32::MAX)));
        if is_to_end && start == 0 && by == 1 {
            continue;
        }
        is_independent &= !has_batch(std::slice::from_ref(dim));
        if let Some(length) = analysis.fixed(dim) {
            let positions = super::select::slice_positions(length as i64, start, end, by)?;
            if positions.is_empty() {
                return Err("it leaves nothing of an axis".to_owned());
            }
            out[axis] = Dim::fixed(positions.len());
            continue;
        }
        out[axis] = match (start, end, by) {
            (-1, ..=FAR_BELOW, -1) => dim.clone(),
            (0.., _, 1..) if is_to_end => {
                windows(analysis, dim, Windows { extra: -start - 1, stride: by })?
            }
            (0.., ..0, 1..) => {
                windows(analysis, dim, Windows { extra: end - start - 1, stride: by })?
            }
            _ => {
                let shape = analysis.axes.show(&x.dims);
                return Err(format!("it takes a part of axis {axis} of {shape}"));
            }
        };
    }
    Ok(Whole {
        operator: "Slice".to_owned(),
        attributes: vec![],
        operands: vec![
            whole(x),
            ints(firsts),
            ints(lasts),
            ints(axes.iter().map(|&axis| axis as i64)),
            ints(by),
        ],
        outputs: vec![(x.element, out)],
        is_independent,
        is_along_first: !axes.contains(&0),
    })
}

fn layer_normalization(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let axis = axis_of(node.int("axis").unwrap_or(-1), x.dims.len())?;
    for dim in &x.dims[axis..] {
        analysis.need_fixed(dim, "normalises over")?;
    }
    let mut operands = vec![whole(x)];
    for (index, name) in [(1, "scale"), (2, "bias")] {
        operands.push(match inputs.get(index) {
            Some(Some(_)) => Operand::Constant(literal(inputs, index, name)?),
            _ => Operand::Absent,
        });
    }
    if node.output(1).is_some() || node.output(2).is_some() {
        return Err("its outputs Mean and InvStdDev".to_owned());
    }
    let epsilon = float_attribute("epsilon", node.float("epsilon").unwrap_or(1e-5));
    Ok(Whole {
        operator: "LayerNormalization".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64), epsilon],
        operands,
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: true,
        is_along_first: axis != 0,
    })
}

fn trilu(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    if rank < 2 || has_batch(&x.dims[rank - 2..]) {
        let shape = analysis.axes.show(&x.dims);
        return Err(format!("triangles of {shape}"));
    }
    let mut operands = vec![whole(x)];
    if inputs.get(1).is_some_and(Option::is_some) {
        operands.push(Operand::Constant(literal(inputs, 1, "k")?));
    }
    Ok(Whole {
        operator: "Trilu".to_owned(),
        attributes: vec![int_attribute("upper", node.int("upper").unwrap_or(1))],
        operands,
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: true,
        is_along_first: rank > 2,
    })
}

fn cumulative_sum(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let axis = numbers(node, "axis", inputs, 1)?.and_then(|axes| axes.first().copied());
    let axis = axis_of(axis.ok_or("it has no axis")?, x.dims.len())?;
    let is_odd = |name| node.int(name).unwrap_or(0) != 0;
    if is_odd("exclusive") || is_odd("reverse") {
        return Err("exclusive or reverse".to_owned());
    }
    let axis_of_rows = Literal::Int(Array::scalar(Int::number(axis as i64)), ElementType::I64);
    Ok(Whole {
        operator: "CumSum".to_owned(),
        attributes: vec![],
        operands: vec![whole(x), Operand::Constant(Rc::new(axis_of_rows))],
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    })
}
