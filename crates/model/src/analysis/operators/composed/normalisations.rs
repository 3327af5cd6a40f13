//! Normalisations by means, variances and norms.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input};
use crate::analysis::operators::composed::composer::{Composer, ints, number};
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::int::Int;
use crate::file::attribute::string_attribute;
use crate::file::node::Node;

impl Composer<'_> {
    /// The mean over some axes, which stay as axes of 1.
    fn mean(&mut self, x: &Val, axes: &[usize]) -> Result<Val, String> {
        self.op("ReduceMean", &[x, &ints(axes.iter().map(|&axis| axis as i64))])
    }

    /// sqrt(mean(x²) + epsilon) over some axes.
    fn root_mean_square(&mut self, x: &Val, axes: &[usize], epsilon: f32) -> Result<Val, String> {
        let square = self.op("Mul", &[x, x])?;
        let mean = self.mean(&square, axes)?;
        let mean = self.op("Add", &[&mean, &number(epsilon)])?;
        self.op("Sqrt", &[&mean])
    }

    /// (x - mean) / sqrt(variance + epsilon) over some axes, the mean, and the square root.
    fn standardised(&mut self, x: &Val, axes: &[usize], epsilon: f32) -> Result<[Val; 3], String> {
        let mean = self.mean(x, axes)?;
        let centred = self.op("Sub", &[x, &mean])?;
        let root = self.root_mean_square(&centred, axes, epsilon)?;
        Ok([self.op("Div", &[&centred, &root])?, mean, root])
    }

    /// x * scale + bias, where both have one number for each channel (axis 1).
    fn by_channel(&mut self, x: &Val, scale: &Val, bias: &Val) -> Result<Val, String> {
        let channels = self.lengths(scale).pop().ok_or("a scale without an axis")?;
        let after_batch = x.dims().len().saturating_sub(1);
        let mut shape = vec![Int::number(1); after_batch];
        *shape.first_mut().ok_or("an input without an axis of channels")? = channels;
        let (scale, bias) = (self.reshaped(scale, shape.clone())?, self.reshaped(bias, shape)?);
        let scaled = self.op("Mul", &[x, &scale])?;
        self.op("Add", &[&scaled, &bias])
    }
}

fn epsilon(node: &Node) -> f32 {
    node.float("epsilon").unwrap_or(1e-5)
}

/// The axes of a tensor from the node's `axis` on.
fn axes_from(node: &Node, x: &Val) -> Result<Vec<usize>, String> {
    let rank = x.dims().len();
    Ok((axis_of(node.int("axis").unwrap_or(-1), rank)?..rank).collect())
}

/// `RMSNormalization`: x / sqrt(mean(x²) + epsilon) * scale.
pub(crate) fn rms_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, scale) = (input(inputs, 0)?, input(inputs, 1)?);
    let axes = axes_from(node, x)?;
    let mut to = Composer { analysis, node };
    let root = to.root_mean_square(x, &axes, epsilon(node))?;
    let unit = to.op("Div", &[x, &root])?;
    to.op("Mul", &[&unit, scale]).map(|val| vec![val])
}

/// `LayerNormalization` with its statistics: Y, Mean and InvStdDev.
pub(crate) fn layer_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, scale) = (input(inputs, 0)?, input(inputs, 1)?);
    let axes = axes_from(node, x)?;
    let mut to = Composer { analysis, node };
    let [unit, mean, root] = to.standardised(x, &axes, epsilon(node))?;
    let mut y = to.op("Mul", &[&unit, scale])?;
    if let Some(Some(bias)) = inputs.get(2) {
        y = to.op("Add", &[&y, bias])?;
    }
    Ok(vec![y, mean, to.op("Reciprocal", &[&root])?])
}

/// `InstanceNormalization`: every channel of every sequence over its spatial axes.
pub(crate) fn instance_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, scale, bias) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
    let axes: Vec<usize> = (2..x.dims().len()).collect();
    let mut to = Composer { analysis, node };
    let [unit, ..] = to.standardised(x, &axes, epsilon(node))?;
    to.by_channel(&unit, scale, bias).map(|val| vec![val])
}

/// `GroupNormalization`: channels in groups, over their spatial axes together.
pub(crate) fn group_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, scale, bias) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
    let dims = x.dims();
    let channels = analysis.need_fixed(dims.get(1).ok_or("it has no channels")?, "groups")?;
    let groups = node.int("num_groups").and_then(|n| usize::try_from(n).ok());
    let groups = groups.filter(|&n| n > 0 && channels % n == 0).ok_or("its groups do not fit")?;
    let mut to = Composer { analysis, node };
    let whole = to.lengths(x);
    let mut grouped = whole.clone();
    let in_groups = [groups, channels / groups].map(|n| Int::number(n as i64));
    grouped.splice(1..2, in_groups);
    let axes: Vec<usize> = (2..grouped.len()).collect();
    let x = to.reshaped(x, grouped)?;
    let [mut unit, ..] = to.standardised(&x, &axes, epsilon(node))?;
    // Before opset 21, a scale and a bias for each group.
    let of_group = scale.dims().first().is_some_and(|dim| dim.fixed_part() == groups);
    if of_group && groups != channels {
        unit = to.by_channel(&unit, scale, bias)?;
        return to.reshaped(&unit, whole).map(|val| vec![val]);
    }
    unit = to.reshaped(&unit, whole)?;
    to.by_channel(&unit, scale, bias).map(|val| vec![val])
}

/// `MeanVarianceNormalization`, over axes 0, 2 and 3 unless others are given.
pub(crate) fn mean_variance_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let rank = x.dims().len();
    let axes = node.ints("axes").unwrap_or(&[0, 2, 3]);
    let axes = axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut to = Composer { analysis, node };
    let [unit, ..] = to.standardised(x, &axes, 1e-9)?;
    Ok(vec![unit])
}

/// `LRN`: x / (bias + alpha / size * sum(x²))^beta, the sum over `size` channels around each.
pub(crate) fn local_response_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let dims = x.dims();
    let size = node.int("size").filter(|size| (1..=64).contains(size)).ok_or("its size")?;
    let channels = analysis.need_fixed(dims.get(1).ok_or("it has no channels")?, "sums over")?;
    let (before, after) = ((size - 1) / 2, size - 1 - (size - 1) / 2);
    let mut pads = vec![0; 2 * dims.len()];
    (pads[1], pads[dims.len() + 1]) = (before, after);
    let mut to = Composer { analysis, node };
    let square = to.op("Mul", &[x, x])?;
    let constant = vec![string_attribute("mode", "constant")];
    let padded = to.op_with("Pad", constant, &[&square, &ints(pads)])?;
    let mut sum = None;
    for first in 0..size {
        let bounds = [ints([first]), ints([first + channels as i64]), ints([1])];
        let part = to.op("Slice", &[&padded, &bounds[0], &bounds[1], &bounds[2]])?;
        sum = Some(match sum {
            None => part,
            Some(sum) => to.op("Add", &[&sum, &part])?,
        });
    }
    let sum = sum.ok_or("a sum of nothing")?;
    let alpha = node.float("alpha").unwrap_or(1e-4) / size as f32;
    let scaled = to.op("Mul", &[&sum, &number(alpha)])?;
    let base = to.op("Add", &[&scaled, &number(node.float("bias").unwrap_or(1.0))])?;
    let power = to.op("Pow", &[&base, &number(node.float("beta").unwrap_or(0.75))])?;
    to.op("Div", &[x, &power]).map(|val| vec![val])
}
