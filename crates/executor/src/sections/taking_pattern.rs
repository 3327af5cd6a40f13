//! Recognises operators that take elements of an axis in a constant order.

use rten_onnx::onnx::NodeProto;

use crate::operator::operator;
use crate::sections::constants::int;
use crate::sections::sorter::Sorter;
use crate::sections::taking::Take;

impl Sorter<'_> {
    /// The elements that `node` takes of its first input, if that axis has the same length in every run.
    pub(super) fn take(&self, node: &NodeProto) -> Option<Take> {
        let x = node.input.first()?;
        let [one, two] = self.probe.shapes(x)?;
        let is_fixed = self.probe.lengths().count() == 0 && !self.is_channels_last(x);
        let axis_of = |axis: i64| {
            let axis =
                usize::try_from(if axis < 0 { axis + one.len() as i64 } else { axis }).ok()?;
            let is_inner = axis > 0 && axis < one.len() && one[axis] == two[axis];
            (is_inner && is_fixed).then_some((axis, one[axis]))
        };
        match operator(node) {
            "Gather" => {
                let (axis, length) = axis_of(int(node, "axis", 0))?;
                let indices = node.input.get(1)?;
                let (dims, indices) =
                    (self.constants.dims(indices)?, self.constants.ints(indices)?);
                let position = |&index: &i64| {
                    usize::try_from(if index < 0 { index + length as i64 } else { index }).ok()
                };
                Take::new((axis, length), dims, indices.iter().map(position))
            }
            "Pad" => {
                let mode = node.attribute.iter().find(|a| a.name.as_deref() == Some("mode"))?;
                let pads = self.constants.ints(node.input.get(1)?)?;
                let has_axes = node.input.get(3).is_some_and(|name| !name.is_empty());
                if has_axes || pads.len() != 2 * one.len() {
                    return None;
                }
                let (before, after) = pads.split_at(one.len());
                let mut padded = (0..one.len()).filter(|&at| (before[at], after[at]) != (0, 0));
                let (axis, length) = axis_of(padded.next()? as i64)?;
                let is_one_axis = padded.next().is_none() && before[axis] >= 0 && after[axis] >= 0;
                let last = length as i64 - 1;
                let reflected = |at: i64| if at < 0 { -at } else { last - (at - last).abs() };
                let position = |at: i64| match mode.s.as_deref() {
                    Some("reflect") => usize::try_from(reflected(at)).ok(),
                    Some("edge") => usize::try_from(at.clamp(0, last)).ok(),
                    _ => None,
                };
                let positions = -before[axis]..length as i64 + after[axis];
                let dims = vec![positions.clone().count()];
                let take = Take::new((axis, length), dims, positions.map(position));
                take.filter(|_| is_one_axis)
            }
            _ => None,
        }
    }
}
