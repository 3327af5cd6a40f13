//! Pools whose first window reaches over the end of an axis that is shorter than it.
//!
//! The number of windows is a division that ONNX Runtime rounds to zero, so that an axis that lacks fewer elements than a
//! stride has one window, over what there is.

use crate::analysis::value::RowOp;
use crate::emit::builder::Builder;
use crate::file::attribute::int_attribute;

fn ints<'a>(op: &'a RowOp, name: &str) -> &'a [i64] {
    let attribute = op.attributes.iter().find(|a| a.name.as_deref() == Some(name));
    attribute.map_or(&[], |attribute| &attribute.ints)
}

/// The axes of a pool's output along which the first window may reach over the end of an axis that lacks elements for it.
pub(super) fn axes_of_clipped_windows(op: &RowOp) -> Vec<usize> {
    let is_set = |name: &str| {
        op.attributes.iter().any(|a| a.name.as_deref() == Some(name) && a.i.unwrap_or(0) != 0)
    };
    let (kernel, strides, pads) = (ints(op, "kernel_shape"), ints(op, "strides"), ints(op, "pads"));
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

impl Builder<'_> {
    /// Writes a pool as the first of its windows along `axes` where the last one may reach over the end too.
    pub(super) fn clipped_pool(
        &mut self,
        op: &RowOp,
        axes: &[usize],
        inputs: Vec<String>,
        output: &str,
    ) {
        let mut attributes = op.attributes.clone();
        attributes.retain(|attribute| attribute.name.as_deref() != Some("ceil_mode"));
        attributes.push(int_attribute("ceil_mode", 1));
        let (all, input) = (self.writer.fresh(), inputs[0].clone());
        self.writer.op(&op.operator, inputs, vec![all.clone()], attributes);
        let axes_count = ints(op, "kernel_shape").len();
        let geometry = |name: &str, axis: usize| ints(op, name)[axis - 2];
        let numbers = |f: &dyn Fn(usize) -> i64| axes.iter().map(|&axis| f(axis)).collect();
        let padding = |axis: usize| geometry("pads", axis) + geometry("pads", axis + axes_count);
        let axes_of_steps = self.constant(numbers(&|axis| axis as i64));
        let extra = self.constant(numbers(&|axis| padding(axis) - geometry("kernel_shape", axis)));
        let strides = self.constant(numbers(&|axis| geometry("strides", axis)));
        let (starts, one) = (self.constant(vec![0; axes.len()]), self.constant(vec![1]));
        let shape = self.op("Shape", &[&input], vec![]);
        let length = self.op("Gather", &[&shape, &axes_of_steps], vec![("axis", vec![0])]);
        let room = self.op("Add", &[&length, &extra], vec![]);
        let last = self.op("Div", &[&room, &strides], vec![]);
        let counts = self.op("Add", &[&last, &one], vec![]);
        let operands = vec![all, starts, counts, axes_of_steps];
        self.writer.op("Slice", operands, vec![output.to_owned()], vec![]);
    }
}
