//! Recognises the layer norms and the GELU of transformers among the operators of a program.

use batchmaker_kernels::Activation;
use rten_onnx::onnx::NodeProto;

use crate::operator::operator;
use crate::sections::constants::{float, int};
use crate::sections::layer_norm::LayerNorm;
use crate::sections::native_section::NativeKind;
use crate::sections::sorter::Sorter;

/// The greatest difference from the root of 1/2 that a file's factor may have: files write some digits of it, or divide by some of the root of 2.
const NEAR: f32 = 1e-5;

impl Sorter<'_> {
    /// The layer norm of rows that `node` is, and the tensor that it reads; two, if it alone reads their sum.
    pub(super) fn layer_norm(&self, node: &NodeProto) -> Option<(LayerNorm, Vec<String>)> {
        let [x, scale, bias @ ..] = &node.input[..] else { return None };
        let shapes = self.probe.shapes(x)?;
        let rank = shapes[0].len() as i64;
        let axis = int(node, "axis", -1);
        let is_of_rows = node.output.len() == 1 && (axis == -1 || axis == rank - 1);
        let (dims, scale) = self.constants.floats(scale)?;
        let bias = match bias.first().filter(|name| !name.is_empty()) {
            Some(name) => Some(self.constants.floats(name)?.1),
            None => None,
        };
        let is_alike = bias.as_ref().is_none_or(|bias| bias.len() == scale.len());
        let is_row = |shape: &Vec<usize>| shape.last() == Some(&scale.len());
        let is_fixed = self.probe.growth(x)?.dims.last()?.is_fixed();
        let are_rows = is_of_rows && is_fixed && shapes.iter().all(is_row) && scale.len() > 1;
        if !are_rows || !is_alike || dims.len() != 1 || self.constants.has(x) {
            return None;
        }
        let epsilon = float(node, "epsilon", 1e-5);
        let reads = self.summands(x, 1).unwrap_or_else(|| vec![x.clone()]);
        Some((LayerNorm { epsilon, scale, bias }, reads))
    }

    /// The layer norm whose operators a file writes one by one, of which `node` multiplies by the scale, and the tensor that it
    /// reads; two, if it alone reads their sum: `(x - mean) / sqrt(mean of squares + epsilon) * scale`.
    pub(super) fn layer_norm_by_operators(
        &self,
        node: &NodeProto,
    ) -> Option<(LayerNorm, Vec<String>)> {
        let [a, b] = &node.input[..] else { return None };
        let (normal, scale) = if self.constants.has(b) { (a, b) } else { (b, a) };
        let (dims, scale) = self.constants.floats(scale).filter(|(_, scale)| scale.len() > 1)?;
        let (difference, root) = self.quotient(self.read_once(normal)?)?;
        let root = self.read_once(root).filter(|of| operator(of) == "Sqrt")?;
        let sum = self.read_once(root.input.first()?).filter(|of| operator(of) == "Add")?;
        let [a, b] = &sum.input[..] else { return None };
        let (variance, epsilon) = if self.constants.has(b) { (a, b) } else { (b, a) };
        let epsilon = self.constants.number(epsilon)?;
        let square = self.read_once(self.mean_of_rows(self.read_once(variance)?)?)?;
        let is_square = match (operator(square), &square.input[..]) {
            ("Mul", [a, b]) => a == difference && b == difference,
            ("Pow", [a, two]) => a == difference && self.constants.number(two) == Some(2.0),
            _ => false,
        };
        let reads_of_difference = if operator(square) == "Mul" { 3 } else { 2 };
        let of = self.producers.get(difference.as_str()).filter(|of| operator(of) == "Sub")?;
        let [x, mean] = &of.input[..] else { return None };
        let is_difference = self.mean_of_rows(self.read_once(mean)?)? == x
            && self.readers.get(difference.as_str()) == Some(&reads_of_difference);
        let is_fixed = self.probe.growth(x)?.dims.last()?.is_fixed();
        let is_row = |shape: &Vec<usize>| shape.last() == Some(&scale.len());
        let are_rows = is_fixed && self.probe.shapes(x)?.iter().all(is_row);
        let is_layer_norm = is_square
            && is_difference
            && are_rows
            && dims.last() == Some(&scale.len())
            && self.probe.shapes(node.output.first()?) == self.probe.shapes(x);
        let reads = self.summands(x, 2).or_else(|| self.is_there(x).then(|| vec![x.clone()]))?;
        is_layer_norm.then_some((LayerNorm { epsilon, scale, bias: None }, reads))
    }

    /// The dividend and the divisor of a division, which may be a product with a reciprocal.
    fn quotient<'b>(&'b self, node: &'b NodeProto) -> Option<(&'b String, &'b String)> {
        let [a, b] = &node.input[..] else { return None };
        let divisor = |name: &String| {
            self.read_once(name).filter(|of| operator(of) == "Reciprocal")?.input.first()
        };
        match operator(node) {
            "Div" => Some((a, b)),
            "Mul" => divisor(b).map(|of| (a, of)).or_else(|| divisor(a).map(|of| (b, of))),
            _ => None,
        }
    }

    /// The tensor whose rows `node` computes the means of, as a last axis of one element.
    fn mean_of_rows<'b>(&self, node: &'b NodeProto) -> Option<&'b String> {
        let x = node.input.first().filter(|_| operator(node) == "ReduceMean")?;
        let rank = self.probe.shapes(x)?[0].len() as i64;
        let axes = self.constants.ints(node.input.get(1)?)?;
        let is_last = axes[..] == [-1] || axes[..] == [rank - 1];
        (is_last && int(node, "keepdims", 1) == 1).then_some(x)
    }

    /// The two tensors of one shape that `x` is the sum of, if it is read `reads` times and rten would add them.
    fn summands(&self, x: &str, reads: usize) -> Option<Vec<String>> {
        let sum = self.producers.get(x).filter(|_| self.readers.get(x) == Some(&reads))?;
        let sum = Some(sum).filter(|of| operator(of) == "Add" && self.is_by_itself(of))?;
        let is_summand = |name: &String| {
            !self.constants.has(name) && self.are_alike(name, x) && self.is_there(name)
        };
        let are_two = sum.input.len() == 2 && sum.input[0] != sum.input[1];
        (are_two && sum.input.iter().all(is_summand)).then(|| sum.input.clone())
    }

    /// Ends a product or a convolution with the GELU that `node` is the last operator of. Returns the position of the section.
    pub(super) fn add_gelu(&mut self, node: &NodeProto, output: &str) -> Option<usize> {
        let (x, readers) = self.gelu(node)?;
        let at = self.native.iter().position(|section| &section.output == x)?;
        let is_ended = self.readers.get(x.as_str()) == Some(&readers)
            && self.probe.shapes(x).is_some()
            && self.probe.shapes(x) == self.probe.shapes(output);
        let section = &mut self.native[at];
        let is_open = is_ended
            && section.activation == Activation::Identity
            && matches!(section.kind, NativeKind::Convolution(_) | NativeKind::Product { .. });
        if !is_open {
            return None;
        }
        section.activation = Activation::Gelu;
        output.clone_into(&mut section.output);
        Some(at)
    }

    /// The tensor that `node` is the GELU of, and how often the operators of that read it.
    fn gelu<'b>(&'b self, node: &'b NodeProto) -> Option<(&'b String, usize)> {
        match (operator(node), &node.input[..]) {
            ("Gelu", [x]) => {
                let is_approximate = node.attribute.iter().any(|attribute| {
                    attribute.name.as_deref() == Some("approximate")
                        && attribute.s.as_deref() != Some("none")
                });
                (!is_approximate).then_some((x, 1))
            }
            ("Mul", [_, _]) => {
                // A half may be a factor of the whole, of x or of the sum.
                let (halved, rest) = self
                    .factor(node)
                    .map_or((false, None), |(factor, rest)| (factor == 0.5, self.read_once(rest)));
                let product = if halved { rest? } else { node };
                let [a, b] = &product.input[..] else { return None };
                let is_product = operator(product) == "Mul";
                [(a, b), (b, a)].into_iter().filter(|_| is_product).find_map(|(x, sum)| {
                    let (mut x, mut sum, mut halves) = (x, sum, u32::from(halved));
                    for side in [&mut x, &mut sum] {
                        if let Some((factor, of)) =
                            self.read_once(side).and_then(|half| self.factor(half))
                            && factor == 0.5
                        {
                            halves += 1;
                            *side = of;
                        }
                    }
                    let of_erf = self.one_more_than_erf(sum)?;
                    (halves == 1 && of_erf == x).then_some((x, 2))
                })
            }
            _ => None,
        }
    }

    /// The x of `1 + erf(x / sqrt(2))`.
    fn one_more_than_erf(&self, sum: &str) -> Option<&String> {
        let sum = self.read_once(sum).filter(|of| operator(of) == "Add")?;
        let [a, b] = &sum.input[..] else { return None };
        let (erf, one) = if self.constants.has(b) { (a, b) } else { (b, a) };
        let erf = self.read_once(erf).filter(|of| operator(of) == "Erf")?;
        let is_one = self.constants.number(one) == Some(1.0);
        let (factor, x) = self.factor(self.read_once(erf.input.first()?)?)?;
        (is_one && (factor - std::f32::consts::FRAC_1_SQRT_2).abs() < NEAR).then_some(x)
    }

    /// The number that an operator multiplies a tensor with, and the tensor.
    pub(super) fn factor<'b>(&self, node: &'b NodeProto) -> Option<(f32, &'b String)> {
        let [a, b] = &node.input[..] else { return None };
        let number = |name: &String| self.constants.number(name);
        match (operator(node), number(a), number(b)) {
            ("Mul", Some(factor), None) => Some((factor, b)),
            ("Mul", None, Some(factor)) => Some((factor, a)),
            ("Div", None, Some(divisor)) => Some((1.0 / divisor, a)),
            _ => None,
        }
    }
}
