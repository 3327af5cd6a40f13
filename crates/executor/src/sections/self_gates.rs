//! Activations that a file writes as a product of a tensor with a function of it: SiLU, and hard swish in several forms.

use batchmaker_kernels::Activation;
use rten_onnx::onnx::NodeProto;

use crate::operator::operator;
use crate::sections::constants::{Constants, float};
use crate::sections::native_section::{NativeKind, NativeSection};
use crate::sections::sorter::Sorter;

impl Sorter<'_> {
    /// Ends a convolution, or elementwise operators of pixels, with the activation that elementwise operators and `node`, the last of
    /// them, are of its output. They are no section any longer.
    pub(super) fn add_self_gate(&mut self, node: &NodeProto, output: &str) -> Option<usize> {
        let is_gate = |&gate: &usize| {
            let NativeSection { kind, output, .. } = &self.native[gate];
            matches!(kind, NativeKind::Elementwise(_)) && reads(node, output) > 0
        };
        let gates: Vec<usize> = (0..self.native.len()).filter(is_gate).collect();
        gates.into_iter().find_map(|gate| self.add_gate(gate, node, output))
    }

    /// As [`Self::add_self_gate`], with the operators of the section at `gate`.
    fn add_gate(&mut self, gate: usize, node: &NodeProto, output: &str) -> Option<usize> {
        let section = &self.native[gate];
        let (NativeKind::Elementwise(before), [x]) = (&section.kind, &section.reads[..]) else {
            return None;
        };
        let nodes: Vec<&NodeProto> = before.iter().chain([node]).collect();
        let of_x: usize = nodes.iter().map(|node| reads(node, x)).sum();
        let is_read_here = self.readers.get(x.as_str()) == Some(&of_x)
            && self.readers.get(section.output.as_str()) == Some(&reads(node, &section.output));
        let activation = self_gate(&nodes, x, self.constants).filter(|_| is_read_here)?;
        let x = x.clone();
        let at = self.native.iter().position(|section| section.output == x)?;
        let section = &self.native[at];
        match &section.kind {
            NativeKind::Convolution(_) if section.activation == Activation::Identity => {
                self.native[at].activation = activation;
            }
            NativeKind::Elementwise(nodes)
                if activation == Activation::Swish
                    && self.pixel_chain(nodes, &section.reads).is_some() =>
            {
                let swish = NodeProto {
                    op_type: Some("Swish".to_owned()),
                    input: vec![x],
                    output: vec![output.to_owned()],
                    ..NodeProto::default()
                };
                if let NativeKind::Elementwise(nodes) = &mut self.native[at].kind {
                    nodes.push(swish);
                }
            }
            _ => return None,
        }
        output.clone_into(&mut self.native[at].output);
        self.native.remove(gate);
        Some(if at > gate { at - 1 } else { at })
    }
}

/// The number of times that an operator reads a tensor.
fn reads(node: &NodeProto, name: &String) -> usize {
    node.input.iter().filter(|input| *input == name).count()
}

/// The activation that operators, each of which reads the one before it, are of `x`.
fn self_gate(nodes: &[&NodeProto], x: &String, constants: &Constants<'_>) -> Option<Activation> {
    let names: Vec<&str> = nodes.iter().map(|node| operator(node)).collect();
    let output = |at: usize| nodes[at].output.first();
    let is_of = |at: usize, inputs: [Option<&String>; 2]| {
        let [a, b] = [nodes[at].input.first(), nodes[at].input.get(1)];
        [a, b] == inputs || [b, a] == inputs
    };
    let number = |at: usize, input: usize| constants.number(nodes[at].input.get(input)?);
    // clip(x + c, 0, k) / k, with the division before or after the product.
    let hard_swish = |clip: usize, divide: usize, divided: usize, multiply: usize, gate: usize| {
        let (c, k) = (number(0, 1).or_else(|| number(0, 0))?, number(divide, 1)?);
        let bounds = [number(clip, 1), number(clip, 2)];
        let is_chain = nodes[0].input.contains(x)
            && nodes[clip].input.first() == output(0)
            && nodes[divide].input.first() == output(divided)
            && is_of(multiply, [Some(x), output(gate)]);
        let is_hard_swish = is_chain && bounds == [Some(0.0), Some(k)] && k > 0.0;
        is_hard_swish.then_some(Activation::HardSwish { slope: 1.0 / k, shift: c / k })
    };
    match names[..] {
        ["Sigmoid" | "HardSigmoid", "Mul"] => {
            let is_product = nodes[0].input.first() == Some(x) && is_of(1, [Some(x), output(0)]);
            let (slope, shift) = (float(nodes[0], "alpha", 0.2), float(nodes[0], "beta", 0.5));
            is_product.then_some(match names[0] {
                "Sigmoid" => Activation::Swish,
                _ => Activation::HardSwish { slope, shift },
            })
        }
        ["Add", "Clip", "Mul", "Div"] => hard_swish(1, 3, 2, 2, 1),
        ["Add", "Clip", "Div", "Mul"] => hard_swish(1, 2, 1, 3, 2),
        _ => None,
    }
}
