//! Pools whose first window reaches over the end of an axis that is shorter than it.
//!
//! The number of windows is a division that ONNX Runtime rounds to zero, so that an axis that lacks fewer elements than a
//! stride has one window, over what there is.

use std::rc::Rc;

use crate::analysis::value::RowOp;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::emit::writer::Writer;
use crate::file::attribute::int_attribute;

/// The axes of a pool's output along which the first window may reach over the end of an axis that lacks elements for it.
fn axes_of_clipped_windows(op: &RowOp) -> Vec<usize> {
    let ints = |name: &str| op.ints(name).unwrap_or_default();
    let is_set = |name: &str| op.int(name).unwrap_or(0) != 0;
    let (kernel, strides, pads) = (ints("kernel_shape"), ints("strides"), ints("pads"));
    let is_pool = ["AveragePool", "MaxPool"].contains(&op.operator.as_str());
    let counts_padding = is_set("count_include_pad") && pads.iter().any(|&pad| pad != 0);
    if !is_pool || is_set("ceil_mode") || counts_padding {
        return Vec::new();
    }
    let may_lack = |&axis: &usize| {
        let padded = 1 + pads[axis] + pads[kernel.len() + axis];
        let is_open = op.tensor_dims[0][2 + axis].as_symbol().is_some();
        is_open && strides[axis] > 1 && kernel[axis] > padded
    };
    (0..kernel.len()).filter(may_lack).map(|axis| 2 + axis).collect()
}

/// Writes a pool as the first of its windows along `axes` where the last one may reach over the end too. False: no axis of
/// it is that short.
pub(super) fn write_pool(writer: &mut Writer, op: &RowOp, inputs: &[String], output: &str) -> bool {
    let axes = axes_of_clipped_windows(op);
    if axes.is_empty() {
        return false;
    }
    let mut attributes = op.attributes.clone();
    attributes.retain(|attribute| attribute.name.as_deref() != Some("ceil_mode"));
    attributes.push(int_attribute("ceil_mode", 1));
    let all = writer.fresh();
    writer.op(&op.operator, inputs.to_vec(), vec![all.clone()], attributes);
    let geometry = |name: &str, at: usize| op.ints(name).unwrap_or_default()[at - 2];
    let spatial = op.ints("kernel_shape").map_or(0, <[i64]>::len);
    let room = |axis: usize| {
        geometry("pads", axis) + geometry("pads", axis + spatial) - geometry("kernel_shape", axis)
    };
    let mut numbers = |of: &dyn Fn(usize) -> i64| {
        let ints = axes.iter().map(|&axis| Int::number(of(axis))).collect();
        writer.constant(&Rc::new(Literal::ints(ints)))
    };
    let (starts, one) = (numbers(&|_| 0), numbers(&|_| 1));
    let (along, extra) = (numbers(&|axis| axis as i64), numbers(&room));
    let strides = numbers(&|axis| geometry("strides", axis));
    let mut op = |operator: &str, inputs: [&str; 2]| {
        let (name, inputs) = (writer.fresh(), inputs.map(str::to_owned));
        let inputs = inputs.into_iter().filter(|input| !input.is_empty()).collect();
        writer.node(operator, inputs, vec![name.clone()], vec![]);
        name
    };
    let shape = op("Shape", [&inputs[0], ""]);
    let length = op("Gather", [&shape, &along]);
    let room = op("Add", [&length, &extra]);
    let last = op("Div", [&room, &strides]);
    let counts = op("Add", [&last, &one]);
    writer.op("Slice", vec![all, starts, counts, along], vec![output.to_owned()], vec![]);
    true
}
