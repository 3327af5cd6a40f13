//! Convolutions, pools and padding: windows over axes.

use std::rc::Rc;

use batchmaker_graph::ElementType;
use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, constant_input, numbers, scalar, view};
use crate::analysis::operators::dispatch::{apply, is_whole};
use crate::analysis::operators::sequence_level::spatial::{Spatial, WindowEnds, windows};
use crate::analysis::operators::sequence_op::{SequenceOp, has_batch, ints, tensor};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source, Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, steps};
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::Windows;
use crate::file::attribute::{int_attribute, ints_attribute, string_attribute};
use crate::file::node::Node;

/// `Conv`.
pub(crate) fn convolution(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let weights = constant_input(inputs, 1, "W")?;
    let Some((&[outputs, of_group], kernel)) = weights.shape().split_first_chunk::<2>() else {
        return Err("its W has no kernel".to_owned());
    };
    if x.dims.len() != weights.shape().len() || !x.element.is_float() {
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
    if spatial.is_point() && group == 1 && x.dims.len() == 3 && steps(&x.dims).len() == 1 {
        return point_convolution(analysis, node, x, &weights, inputs.get(2));
    }
    let mut out = vec![x.dims[0].clone(), Dim::fixed(outputs)];
    out.extend(spatial.out(analysis, &x.dims, WindowEnds::None)?);
    let mut operands = vec![tensor(x), Operand::Constant(weights)];
    if inputs.get(2).is_some_and(Option::is_some) {
        let bias = constant_input(inputs, 2, "B")?;
        if bias.shape() != [outputs] {
            return Err(format!("its B is of {:?}", bias.shape()));
        }
        operands.push(Operand::Constant(bias));
    }
    let mut attributes = spatial.attributes();
    attributes.push(int_attribute("group", group));
    let is_independent = !has_batch(&x.dims[1..]);
    let outputs = vec![(ElementType::F32, out)];
    let op = SequenceOp {
        operator: "Conv".to_owned(),
        attributes,
        operands,
        outputs,
        is_independent,
        is_along_first: true,
    };
    op.add_as(analysis, node, Some(convolution_of_rows))
}

/// Writes a convolution of windows of one step each as a product of every step's channels with its weights, `[outputs,
/// channels, 1]`.
fn point_convolution(
    analysis: &mut Analysis,
    node: &Node,
    x: &View,
    weights: &Literal,
    bias: Option<&Option<Val>>,
) -> Result<Vec<Val>, String> {
    let &[outputs, channels, _] = weights.shape() else { return Err("its W has no kernel".into()) };
    let weights = Val::literal(weights.reshaped(&[outputs, channels]).transposed(&[1, 0]));
    let swap = || vec![ints_attribute("perm", vec![0, 2, 1])];
    let rows = apply(analysis, node, "Transpose", swap(), vec![Val::View(x.clone())])?;
    let mut sums = apply(analysis, node, "MatMul", vec![], vec![rows, weights])?;
    if let Some(Some(bias)) = bias {
        sums = apply(analysis, node, "Add", vec![], vec![sums, bias.clone()])?;
    }
    apply(analysis, node, "Transpose", swap(), vec![sums]).map(|val| vec![val])
}

/// Writes a convolution along one axis that lies within rows as a product of its windows with its weights,
/// which is one product for all rows. It gives none for any other convolution.
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
    let before_transposing = before_transposing(analysis, *source, shape).filter(|_| at.is_none());
    let mut step = |view: View,
                    operator: &str,
                    attributes: Vec<AttributeProto>,
                    constants: Vec<Operand>,
                    rest: &[usize]| {
        let operands = [vec![analysis.operand(&view)], constants].concat();
        let outputs = vec![(element, dims(rest))];
        match analysis.emit(node, operator, attributes, operands, outputs).pop() {
            Some(Val::View(view)) => view,
            _ => unreachable!("an operator on rows gives a view"),
        }
    };
    let order = || vec![ints_attribute("perm", vec![0, 2, 1])];
    let mut view = View { source: *source, at: *at, element, dims: dims(&[length, channels]) };
    match before_transposing {
        Some((untransposed, activation)) => {
            view.source = untransposed;
            if let Some((operator, attributes)) = activation {
                view = step(view, &operator, attributes, vec![], &[length, channels]);
            }
        }
        None if channels == 1 || length == 1 => {}
        None => {
            view.dims = dims(&[channels, length]);
            view = step(view, "Transpose", order(), vec![], &[length, channels]);
        }
    }
    let padded = before + length + after;
    if padded > length {
        let pads = ints([0, before as i64, 0, 0, after as i64, 0]);
        let mode = vec![string_attribute("mode", "constant")];
        view = step(view, "Pad", mode, vec![pads], &[padded, channels]);
    }
    let places = |window: usize| (0..kernel).map(move |tap| window * stride + tap * dilation);
    let places: Vec<usize> = (0..count).flat_map(places).collect();
    // Windows that follow each other are the rows as they stand.
    if !places.iter().copied().eq(0..padded) {
        let places = places.into_iter().map(|at| Int::number(at as i64)).collect();
        let places = Literal::Int(Array::new(vec![count, kernel], places), ElementType::I64);
        let (along, places) = (int_attribute("axis", 1), Operand::Constant(Rc::new(places)));
        view = step(view, "Gather", vec![along], vec![places], &[count, kernel, channels]);
    }
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

/// The source of rows of `shape` before their two axes were swapped (by a convolution before this one, which put
/// the features in front), and the activation after the swap.
#[expect(clippy::type_complexity, reason = "an operator and its attributes")]
fn before_transposing(
    analysis: &Analysis,
    source: Source,
    shape: &[usize],
) -> Option<(Source, Option<(String, Vec<AttributeProto>)>)> {
    let Source::Op(index, 0) = source else { return None };
    let op = &analysis.ops[index];
    let [Operand::Rows { source: from, at: None, shape: own }] = &op.operands[..] else {
        return None;
    };
    if op.outputs[0].shape != shape {
        return None;
    }
    let is_swap = |attribute: &AttributeProto| attribute.ints == [0, 2, 1];
    match op.operator.as_str() {
        "Transpose" if own.len() == 2 && op.attributes.iter().any(is_swap) => Some((*from, None)),
        operator if is_activation(analysis, operator) => {
            let (from, activation) = before_transposing(analysis, *from, own)?;
            activation.is_none().then(|| {
                let own = (op.operator.clone(), op.attributes.clone());
                (from, Some(own))
            })
        }
        _ => None,
    }
}

/// `ConvTranspose`.
pub(crate) fn transposed_convolution(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let weights = constant_input(inputs, 1, "W")?;
    let Some((&[channels, of_group], kernel)) = weights.shape().split_first_chunk::<2>() else {
        return Err("its W has no kernel".to_owned());
    };
    if x.dims.len() != weights.shape().len() || !x.element.is_float() {
        return Err(format!("its X has rank {}, its W {}", x.dims.len(), weights.shape().len()));
    }
    let group = node.int("group").unwrap_or(1);
    let groups = usize::try_from(group).ok().filter(|&n| n > 0 && channels % n == 0);
    let outputs = of_group * groups.ok_or("its groups do not fit its W")?;
    analysis.learn(&x.dims[1], channels);
    if analysis.fixed(&x.dims[1]) != Some(channels) {
        let shape = analysis.axes.show(&x.dims);
        return Err(format!("its X is {shape}, its W is for {channels} channels"));
    }
    let axes = kernel.len();
    let auto_pad = node.string("auto_pad").unwrap_or("NOTSET");
    if node.has("output_shape") || !matches!(auto_pad, "NOTSET" | "" | "VALID") {
        return Err("an output_shape, or auto_pad".to_owned());
    }
    let more = node.ints("output_padding").map_or(vec![0; axes], <[i64]>::to_vec);
    let kernel: Vec<i64> = kernel.iter().map(|&n| n as i64).collect();
    let spatial = Spatial::read(analysis, node, &x.dims, kernel)?;
    if more.len() != axes || more.iter().any(|n| !(0..=1 << 24).contains(n)) {
        return Err("output_padding out of range".to_owned());
    }
    if spatial.dilations.iter().any(|&n| n != 1) {
        return Err("dilations of a transposed convolution".to_owned());
    }
    let mut out = vec![x.dims[0].clone(), Dim::fixed(outputs)];
    for (axis, more) in more.iter().enumerate() {
        // stride * (length - 1) + kernel - pads + output_padding
        let multiple = spatial.strides[axis];
        let rest = spatial.kernel[axis] - multiple - spatial.pads[axis] - spatial.pads[axes + axis];
        let extra = rest + more - 1;
        let count = Windows { multiple, ..Windows::new(extra, 1) };
        out.push(windows(analysis, &x.dims[2 + axis], count)?);
    }
    let mut operands = vec![tensor(x), Operand::Constant(weights)];
    if inputs.get(2).is_some_and(Option::is_some) {
        operands.push(Operand::Constant(constant_input(inputs, 2, "B")?));
    }
    let mut attributes = spatial.attributes();
    attributes.push(int_attribute("group", group));
    attributes.push(ints_attribute("output_padding", more));
    let op = SequenceOp {
        operator: "ConvTranspose".to_owned(),
        attributes,
        operands,
        outputs: vec![(x.element, out)],
        is_independent: !has_batch(&x.dims[1..]),
        is_along_first: true,
    };
    op.add(analysis, node)
}

/// `MaxPool` and `AveragePool`.
pub(crate) fn pool(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let kernel = node.ints("kernel_shape").ok_or("it has no kernel_shape")?.to_vec();
    if x.dims.len() < 3 || node.output(1).is_some() || node.int("storage_order").unwrap_or(0) != 0 {
        return Err("its output Indices is not supported".to_owned());
    }
    let mut spatial = Spatial::read(analysis, node, &x.dims, kernel)?;
    if spatial.dilations.iter().any(|&n| n != 1) {
        return Err("dilations of a pool".to_owned());
    }
    let ceil = node.int("ceil_mode").unwrap_or(0);
    // An average that counts padding would be one of elements beyond it, too.
    let counts_padding =
        node.int("count_include_pad").unwrap_or(0) != 0 && spatial.pads.iter().any(|&pad| pad != 0);
    let ends = match (ceil, counts_padding) {
        (0, false) => WindowEnds::FirstMayPass,
        (0, true) => WindowEnds::None,
        _ => WindowEnds::MayPass,
    };
    if ends == WindowEnds::FirstMayPass {
        spatial.clip(analysis, &x.dims);
    }
    let mut out = x.dims[..2].to_vec();
    out.extend(spatial.out(analysis, &x.dims, ends)?);
    let mut attributes = spatial.attributes();
    attributes.push(int_attribute("ceil_mode", ceil));
    attributes.retain(|attribute| attribute.name.as_deref() != Some("dilations"));
    if node.operator == "AveragePool" {
        let include = node.int("count_include_pad").unwrap_or(0);
        attributes.push(int_attribute("count_include_pad", include));
    }
    let is_independent = !has_batch(&x.dims[2..]);
    let (operator, operands) = (node.operator.clone(), vec![tensor(x)]);
    let outputs = vec![(x.element, out)];
    let op = SequenceOp {
        operator,
        attributes,
        operands,
        outputs,
        is_independent,
        is_along_first: true,
    };
    op.add(analysis, node)
}

/// `GlobalMaxPool` and `GlobalAveragePool`.
pub(crate) fn global_pool(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
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
    let op = SequenceOp {
        operator: operator.to_owned(),
        attributes: vec![int_attribute("keepdims", 1)],
        operands: vec![tensor(x), ints(2..x.dims.len() as i64)],
        outputs: vec![(x.element, out)],
        is_independent: !has_batch(&x.dims[2..]),
        is_along_first: true,
    };
    op.add(analysis, node)
}

/// The padding of a tensor.
struct Padding<'a> {
    x: &'a View,
    /// Elements before each axis, then after each.
    pads: Vec<i64>,
    mode: &'a str,
    /// The number that the tensor is padded with; none: another mode than `constant`.
    value: Option<Operand>,
}

impl<'a> Padding<'a> {
    fn read(node: &'a Node, inputs: &'a Inputs) -> Result<Self, String> {
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
        let mode = node.string("mode").unwrap_or("constant");
        if !matches!(mode, "constant" | "reflect" | "edge") {
            return Err(format!("mode {mode}"));
        }
        let value = match (inputs.get(2), node.float("value")) {
            _ if mode != "constant" => None,
            (Some(Some(_)), _) => {
                let value = scalar(&*constant_input(inputs, 2, "value")?);
                Some(Operand::Constant(Rc::new(value.ok_or("its value is not one number")?)))
            }
            (_, Some(value)) => {
                Some(Operand::Constant(Rc::new(Literal::F32(Array::scalar(value)))))
            }
            _ => Some(Operand::Absent),
        };
        Ok(Self { x, pads, mode, value })
    }

    /// Refuses modes other than `constant` along other axes than the last two of `pads`, those of the operator that is emitted.
    fn check_mode(&self, pads: &[i64]) -> Result<(), String> {
        let rank = pads.len() / 2;
        let mut early = 0..rank.saturating_sub(2);
        match self.mode != "constant" && early.any(|axis| pads[axis] + pads[rank + axis] > 0) {
            true => Err(format!("mode {} along other axes than the last two", self.mode)),
            false => Ok(()),
        }
    }

    fn along(&self, axis: usize) -> i64 {
        self.pads[axis] + self.pads[self.x.dims.len() + axis]
    }

    fn attributes(&self) -> Vec<AttributeProto> {
        vec![string_attribute("mode", self.mode)]
    }

    /// The dimensions of the padded tensor.
    fn out(&self, analysis: &mut Analysis) -> Result<Vec<Dim>, String> {
        let axes = self.x.dims.iter().enumerate();
        axes.map(|(axis, dim)| windows(analysis, dim, Windows::new(self.along(axis) - 1, 1)))
            .collect()
    }
}

/// `Pad`.
pub(crate) fn pad(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let padding = Padding::read(node, inputs)?;
    padding.check_mode(&padding.pads)?;
    let x = padding.x;
    let is_independent =
        (0..x.dims.len()).all(|axis| padding.along(axis) == 0 || !has_batch(&x.dims[axis..=axis]));
    let is_along_first = padding.along(0) == 0;
    let outputs = vec![(x.element, padding.out(analysis)?)];
    let mut operands = vec![tensor(x), ints(padding.pads.iter().copied())];
    let attributes = padding.attributes();
    operands.extend(padding.value);
    let operator = "Pad".to_owned();
    let op = SequenceOp { operator, attributes, operands, outputs, is_independent, is_along_first };
    op.add(analysis, node)
}

/// `Pad` of rows along axes of their own, wherever the axis of the rows is.
pub(crate) fn pad_rows(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let padding = Padding::read(node, inputs)?;
    let x = padding.x;
    if is_whole(analysis, x) {
        return Err("it is computed with the operators on whole tensors that it reads".to_owned());
    }
    let of_row: Vec<usize> = (0..x.dims.len()).filter(|&axis| x.dims[axis].in_row()).collect();
    if (0..x.dims.len()).any(|axis| padding.along(axis) != 0 && !of_row.contains(&axis)) {
        return Err("it pads along steps or the batch".to_owned());
    }
    if of_row.iter().any(|&axis| x.dims[axis].symbols().next().is_some()) {
        return Err("an axis of its rows has no one length".to_owned());
    }
    let ends = [0, x.dims.len()].map(|end| of_row.iter().map(move |&axis| end + axis));
    let pads = ends.into_iter().flat_map(|of| [0].into_iter().chain(of.map(|at| padding.pads[at])));
    let pads: Vec<i64> = pads.collect();
    padding.check_mode(&pads)?;
    let mut operands = vec![analysis.operand(x), ints(pads)];
    operands.extend(padding.value.clone());
    let outputs = vec![(x.element, padding.out(analysis)?)];
    Ok(analysis.emit(node, "Pad", padding.attributes(), operands, outputs))
}

fn is_activation(analysis: &Analysis, operator: &str) -> bool {
    let elementwise = analysis.operators.find(operator).and_then(|operator| operator.elementwise);
    elementwise.is_some_and(|elementwise| elementwise.is_activation)
}
