//! Resizing along spatial axes.

use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, int_list, view};
use crate::analysis::operators::dispatch::apply;
use crate::analysis::operators::sequence_level::spatial::{length_of, windows};
use crate::analysis::operators::sequence_op::{SequenceOp, has_batch, lengths, tensor};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val, View};
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::Windows;
use crate::file::attribute::string_attribute;
use crate::file::node::Node;

/// The greatest denominator of a scale along steps.
const DENOMINATOR_MAX: i64 = 64;

/// The new lengths of some axes.
enum Target {
    Scales(Vec<f32>),
    Sizes(Vec<Int>),
}

/// The scale as a fraction.
fn fraction(scale: f32) -> Option<(i64, i64)> {
    let of = |denominator: i64| {
        let numerator = (f64::from(scale) * denominator as f64).round() as i64;
        let is_equal = (numerator as f64 / denominator as f64) as f32 == scale;
        (numerator > 0 && is_equal).then_some((numerator, denominator))
    };
    (1..=DENOMINATOR_MAX).find_map(of)
}

/// `Resize`.
pub(crate) fn resize(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let text = |name: &str, default: &'static str| node.string(name).unwrap_or(default).to_owned();
    let mode = text("mode", "nearest");
    // Before opset 11, there is no choice of coordinates.
    let is_first = analysis.opset < 11;
    let (coordinates, rounding) = match is_first {
        true => ("asymmetric".to_owned(), "floor".to_owned()),
        false => (
            text("coordinate_transformation_mode", "half_pixel"),
            text("nearest_mode", "round_prefer_floor"),
        ),
    };
    let known = ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"];
    if !known.contains(&&*coordinates) {
        return Err(format!("coordinate_transformation_mode {coordinates}"));
    }
    let policy = text("keep_aspect_ratio_policy", "stretch");
    if policy != "stretch" || node.int("antialias").unwrap_or(0) != 0 {
        return Err(format!("keep_aspect_ratio_policy {policy}, or antialias"));
    }
    let scales = floats(inputs, if is_first { 1 } else { 2 });
    let target = match (scales, int_list(inputs, 3)) {
        (Some(scales), _) => Target::Scales(scales),
        (None, Some(sizes)) => Target::Sizes(sizes),
        (None, None) => return Err("its scales and sizes are not constant".to_owned()),
    };
    let axes = match node.ints("axes") {
        Some(axes) => {
            axes.iter().map(|&a| axis_of(a, x.dims.len())).collect::<Result<Vec<_>, _>>()?
        }
        None => (0..x.dims.len()).collect(),
    };
    let attributes = vec![
        string_attribute("mode", &mode),
        string_attribute("coordinate_transformation_mode", &coordinates),
        string_attribute("nearest_mode", &rounding),
    ];
    resized(analysis, node, x, &axes, target, attributes)
}

/// `Upsample`.
pub(crate) fn upsample(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let scales = node.floats("scales").map(<[f32]>::to_vec).or_else(|| floats(inputs, 1));
    let scales = scales.ok_or("its scales are not constant")?;
    let attributes = vec![
        string_attribute("mode", node.string("mode").unwrap_or("nearest")),
        string_attribute("coordinate_transformation_mode", "asymmetric"),
        string_attribute("nearest_mode", "floor"),
    ];
    let axes: Vec<usize> = (0..x.dims.len()).collect();
    resized(analysis, node, x, &axes, Target::Scales(scales), attributes)
}

/// The numbers of a constant input that has any.
fn floats(inputs: &Inputs, index: usize) -> Option<Vec<f32>> {
    match inputs.get(index)?.as_ref()? {
        Val::Literal(literal) => {
            Some(literal.as_f32()?.data.clone()).filter(|data| !data.is_empty())
        }
        _ => None,
    }
}

fn resized(
    analysis: &mut Analysis,
    node: &Node,
    x: &View,
    axes: &[usize],
    target: Target,
    attributes: Vec<AttributeProto>,
) -> Result<Vec<Val>, String> {
    let is_linear = attributes.iter().any(|a| matches!(a.s.as_deref(), Some("linear")));
    let is_aligned = attributes.iter().any(|a| matches!(a.s.as_deref(), Some("align_corners")));
    let is_nearest = attributes.iter().any(|a| matches!(a.s.as_deref(), Some("nearest")));
    if !is_linear && !is_nearest {
        return Err("a mode other than nearest and linear".to_owned());
    }
    let rank = x.dims.len();
    if rank == 3 {
        return as_image(analysis, node, x, axes, target, attributes);
    }
    if rank != 4 || !x.element.is_float() {
        return Err(format!("a tensor of {rank} axes, or of integers"));
    }
    let count = match &target {
        Target::Scales(scales) => scales.len(),
        Target::Sizes(sizes) => sizes.len(),
    };
    if count != axes.len() {
        return Err(format!("{count} scales or sizes of {} axes", axes.len()));
    }
    let mut out = x.dims.clone();
    let mut scales = vec![1.0; rank];
    for (at, &axis) in axes.iter().enumerate() {
        let dim = &x.dims[axis];
        out[axis] = match &target {
            Target::Scales(of) if of[at] == 1.0 => continue,
            Target::Scales(of) => {
                let is_whole = of[at].fract() == 0.0;
                if is_aligned && !is_whole && analysis.has_roles() {
                    return Err(format!("align_corners with a scale of {}", of[at]));
                }
                scales[axis] = of[at];
                scaled(analysis, dim, of[at])?
            }
            Target::Sizes(of) if of[at] == analysis.axes.int(dim) => continue,
            Target::Sizes(of) => length_of(analysis, &of[at])?,
        };
        if axis < 2 && analysis.has_roles() {
            return Err(format!("it resizes axis {axis}"));
        }
    }
    let operand = match target {
        Target::Scales(_) => {
            let scales = Literal::F32(Array::vector(scales));
            vec![Operand::Constant(scales.into()), Operand::Absent]
        }
        Target::Sizes(_) => {
            let sizes = out.iter().map(|dim| analysis.axes.open_int(dim)).collect();
            [vec![Operand::Absent], lengths(sizes)].concat()
        }
    };
    let op = SequenceOp {
        operator: "Resize".to_owned(),
        attributes,
        operands: [vec![tensor(x), Operand::Absent], operand].concat(),
        is_independent: !has_batch(&x.dims[1..]),
        is_along_first: true,
        outputs: vec![(x.element, out)],
    };
    op.add(analysis, node)
}

/// The dimension that a scale makes of another: its length times the scale, rounded down.
fn scaled(analysis: &mut Analysis, dim: &Dim, scale: f32) -> Result<Dim, String> {
    if let Some(length) = analysis.fixed(dim) {
        return Ok(Dim::fixed((length as f64 * f64::from(scale)).floor() as usize));
    }
    let (numerator, denominator) =
        fraction(scale).ok_or_else(|| format!("a scale of {scale} along steps"))?;
    let (multiple, stride) = (numerator, denominator);
    windows(analysis, dim, Windows { multiple, ..Windows::new(-stride, stride) })
}

/// Resizes `[batch, channels, length]` as an image of height 1.
fn as_image(
    analysis: &mut Analysis,
    node: &Node,
    x: &View,
    axes: &[usize],
    target: Target,
    attributes: Vec<AttributeProto>,
) -> Result<Vec<Val>, String> {
    let axis = || Val::literal(Literal::ints(vec![Int::number(2)]));
    let image = apply(analysis, node, "Unsqueeze", vec![], vec![Val::View(x.clone()), axis()])?;
    let Val::View(image) = image else { return Ok(vec![image]) };
    let moved: Vec<usize> = axes.iter().map(|&axis| if axis == 2 { 3 } else { axis }).collect();
    let result = resized(analysis, node, &image, &moved, target, attributes)?.remove(0);
    apply(analysis, node, "Squeeze", vec![], vec![result, axis()]).map(|val| vec![val])
}
