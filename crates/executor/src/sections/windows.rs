//! The windows of convolutions and pools, as a program's file has them.

use batchmaker_kernels::Window;
use rten_onnx::onnx::NodeProto;

use crate::sections::constants::ints;

/// The windows of `kernel` along height and width; none if they are over more than two axes, of no size, or padded by a rule.
pub(super) fn windows(node: &NodeProto, kernel: &[usize]) -> Option<[Window; 2]> {
    let axes = kernel.len();
    let list = |name: &str| ints(node, name, 1, axes);
    let (strides, dilations) = (list("strides")?, list("dilations")?);
    let pads = ints(node, "pads", 0, 2 * axes)?;
    let window = |axis: usize| Window {
        kernel: kernel[axis],
        stride: strides[axis],
        dilation: dilations[axis],
        before: pads[axis],
        after: pads[axes + axis],
    };
    let windows = match axes {
        1 => [Window::POINT, window(0)],
        2 => [window(0), window(1)],
        _ => return None,
    };
    let is_sane = |of: &Window| of.kernel > 0 && of.stride > 0 && of.dilation > 0;
    (windows.iter().all(is_sane) && !is_padded_by_rule(node)).then_some(windows)
}

fn is_padded_by_rule(node: &NodeProto) -> bool {
    let attribute = node.attribute.iter().find(|a| a.name.as_deref() == Some("auto_pad"));
    let auto_pad = attribute.and_then(|attribute| attribute.s.as_deref());
    auto_pad.is_some_and(|auto_pad| auto_pad != "NOTSET" && auto_pad != "VALID")
}

/// Height and width of a tensor of this shape; none if it has not one or two such axes.
pub(super) fn size(shape: &[usize]) -> Option<[usize; 2]> {
    match *shape.get(2..)? {
        [width] => Some([1, width]),
        [height, width] => Some([height, width]),
        _ => None,
    }
}

/// The shape of as many images of another number of channels and another size.
pub(super) fn resized(shape: &[usize], channels: usize, [height, width]: [usize; 2]) -> Vec<usize> {
    match shape.len() {
        3 => vec![shape[0], channels, width],
        _ => vec![shape[0], channels, height, width],
    }
}
