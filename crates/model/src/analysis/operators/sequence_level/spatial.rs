//! The geometry of windows: their numbers along the axes of a tensor.

use rten_onnx::onnx::AttributeProto;

use crate::analysis::state::Analysis;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::symbol::{BATCH, Windows};
use crate::file::attribute::ints_attribute;
use crate::file::node::Node;

/// The dimension that counts windows over an axis of dimension `dim`.
pub(super) fn windows(analysis: &mut Analysis, dim: &Dim, windows: Windows) -> Result<Dim, String> {
    if windows.stride < 1 {
        return Err("a stride below 1".to_owned());
    }
    if windows == (Windows::new(-1, 1)) {
        return Ok(dim.clone());
    }
    match dim.as_symbol() {
        Some(symbol) if symbol != BATCH => {
            let count = analysis.axes.windows(symbol, windows);
            match analysis.bound_windows(count) {
                Some(length) => {
                    analysis.axes.fix(count, length);
                    Ok(Dim::fixed(length))
                }
                None => Ok(Dim::symbol(count)),
            }
        }
        _ => {
            let length = analysis.fixed(dim).ok_or("windows over an axis that is no one length")?;
            let count = windows.count(length).ok_or("windows wider than their axis")?;
            Ok(Dim::fixed(count))
        }
    }
}

/// A length of the request as a dimension: of an axis, a multiple of it, or a few more or less.
pub(in crate::analysis::operators) fn length_of(
    analysis: &mut Analysis,
    int: &Int,
) -> Result<Dim, String> {
    if let Some(number) = int.as_number() {
        return usize::try_from(number).map(Dim::fixed).map_err(|_| "a length below 0".into());
    }
    let symbols: Vec<_> = int.symbols().collect();
    let &[symbol] = &symbols[..] else {
        return Err("a sum or a product of lengths".to_owned());
    };
    let multiple = int.terms().find(|(_, of)| !of.is_empty()).map_or(1, |(number, _)| number);
    let product = Int::symbol(symbol).times(&Int::number(multiple));
    let rest = int.minus(&product).and_then(|rest| rest.as_number()).ok_or("a sum of lengths")?;
    if multiple < 1 {
        return Err("a length that falls as another grows".to_owned());
    }
    let count = Windows { multiple, ..Windows::new(rest - 1, 1) };
    windows(analysis, &Dim::symbol(symbol), count)
}

/// Which windows may reach over the end of their axis and its padding. All begin before that of the axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowEnds {
    None,
    /// The first, which is the only one then: the count of windows is a division that rounds to zero.
    FirstMayPass,
    /// The last: `ceil_mode`.
    MayPass,
}

/// Kernel, strides, dilations and pads of a window, for each spatial axis.
pub(super) struct Spatial {
    pub(super) kernel: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) dilations: Vec<i64>,
    /// The pads before each axis, then those after each.
    pub(super) pads: Vec<i64>,
}

impl Spatial {
    pub(super) fn read(
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

    /// The dimensions of its outputs along the spatial axes of `dims`.
    pub(super) fn out(
        &self,
        analysis: &mut Analysis,
        dims: &[Dim],
        ends: WindowEnds,
    ) -> Result<Vec<Dim>, String> {
        let axes = self.kernel.len();
        let ceil = ends == WindowEnds::MayPass;
        let length = |axis: usize| {
            let dim = &dims[2 + axis];
            let (stride, before, after) =
                (self.strides[axis], self.pads[axis], self.pads[axes + axis]);
            let reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1;
            let more = if ceil { stride - 1 } else { 0 };
            // A window that begins behind the end is left out; where none can, the count is one of windows.
            let in_padding = ceil && reach < stride + after;
            let extra = before + after - reach + more;
            match analysis.fixed(dim).filter(|_| in_padding) {
                Some(length) => {
                    let length = length as i64;
                    let count = (length + extra).div_euclid(stride) + 1;
                    let begins_behind = (count - 1) * stride >= length + before;
                    let count = count - i64::from(begins_behind);
                    let count = usize::try_from(count).ok().filter(|&count| count > 0);
                    Ok(Dim::fixed(count.ok_or("windows wider than their axis")?))
                }
                None if in_padding && analysis.has_roles() => {
                    Err("ceil_mode=1 along steps, with windows narrower than their stride".into())
                }
                None => {
                    let lacking = match ends {
                        // An axis of one element lacks `-(1 + extra)`.
                        WindowEnds::FirstMayPass => (stride - 1).min(-1 - extra).max(0),
                        _ => 0,
                    };
                    windows(analysis, dim, Windows { lacking, ..Windows::new(extra, stride) })
                }
            }
        };
        (0..axes).map(length).collect()
    }

    /// Makes the one window of an axis of a fixed length that lacks elements for it as wide as that axis.
    pub(super) fn clip(&mut self, analysis: &Analysis, dims: &[Dim]) {
        let axes = self.kernel.len();
        for axis in 0..axes {
            let Some(length) = analysis.fixed(&dims[2 + axis]) else { continue };
            let length = length as i64 + self.pads[axis] + self.pads[axes + axis];
            if (length - self.kernel[axis]) > -self.strides[axis] {
                self.kernel[axis] = self.kernel[axis].min(length);
            }
        }
    }

    /// Whether every window is one element, and every element a window.
    pub(super) fn is_point(&self) -> bool {
        let are = |values: &[i64], n: i64| values.iter().all(|&value| value == n);
        are(&self.kernel, 1) && are(&self.strides, 1) && are(&self.pads, 0)
    }

    pub(super) fn attributes(&self) -> Vec<AttributeProto> {
        vec![
            ints_attribute("kernel_shape", self.kernel.clone()),
            ints_attribute("strides", self.strides.clone()),
            ints_attribute("dilations", self.dilations.clone()),
            ints_attribute("pads", self.pads.clone()),
        ]
    }
}
