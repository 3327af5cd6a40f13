//! Steps of recurrent operators in primitive operators, for what the fused kernels do not do (see
//! [`StepRule`]).

use std::rc::Rc;

use batchmaker_graph::{ElementType, Program, RecurrentKind, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::recurrence::OperatorStep;
use crate::analysis::step_rule::{Activation, StepRule};
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::emit::writer::Writer;
use crate::file::attribute::float_attribute;

/// The step of `recurrent` as a program: from x and those of the states that are not zero (`given`)
/// to all states. `None`: a fused kernel does it.
pub(crate) fn step_program(recurrent: &OperatorStep, given: &[bool]) -> Option<Program> {
    let rule = recurrent.rule.as_ref()?;
    let mut step = Step { writer: Writer::default(), recurrent, rule };
    let x = step.input(recurrent.input_size);
    let states: Vec<String> =
        given.iter().map(|&is_given| step.state(is_given, recurrent.hidden_size)).collect();
    let after = match &recurrent.kind {
        RecurrentKind::Lstm { p, .. } => step.lstm(&x, &states[0], &states[1], p.as_deref()),
        RecurrentKind::Gru { linear_before_reset } => {
            vec![step.gru(&x, &states[0], *linear_before_reset)]
        }
        RecurrentKind::Rnn { .. } => {
            let sum = step.sum(&x, &states[0], 0..1);
            vec![step.activated(0, sum)]
        }
    };
    let row = RowSpec::flat(ElementType::F32, recurrent.hidden_size);
    for (port, name) in after.iter().enumerate() {
        // Not renamed: a state may be given back as it is.
        step.writer.node("Identity", vec![name.clone()], vec![format!("out{port}")], vec![]);
        step.writer.output(&format!("out{port}"), &row);
    }
    let summary = format!("{} ({})", recurrent.operator(), rule.show());
    Some(step.writer.finish(summary))
}

struct Step<'a> {
    writer: Writer,
    recurrent: &'a OperatorStep,
    rule: &'a StepRule,
}

impl Step<'_> {
    fn input(&mut self, elements: usize) -> String {
        let row = RowSpec::flat(ElementType::F32, elements);
        self.writer.input(&row)
    }

    /// A state's rows; zero, one for all rows, where it is not given.
    fn state(&mut self, is_given: bool, elements: usize) -> String {
        match is_given {
            true => self.input(elements),
            false => self.floats(vec![1, elements], vec![0.0; elements]),
        }
    }

    fn floats(&mut self, shape: Vec<usize>, data: Vec<f32>) -> String {
        self.writer.constant(&Rc::new(Literal::F32(Array::new(shape, data))))
    }

    fn scalar(&mut self, x: f32) -> String {
        self.floats(Vec::new(), vec![x])
    }

    fn op(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.op_with(operator, inputs, Vec::new())
    }

    fn op_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let name = self.writer.fresh();
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.writer.node(operator, inputs, vec![name.clone()], attributes);
        name
    }

    /// Some gates' rows of a matrix `[gates * hidden_size, columns]`, times `value`.
    fn product(
        &mut self,
        value: &str,
        matrix: &[f32],
        columns: usize,
        gates: std::ops::Range<usize>,
    ) -> String {
        let hidden_size = self.recurrent.hidden_size;
        let rows = gates.len() * hidden_size;
        let part = &matrix[gates.start * hidden_size * columns..gates.end * hidden_size * columns];
        let weights = Array::new(vec![rows, columns], part.to_vec()).transposed(&[1, 0]);
        let weights = self.writer.constant(&Rc::new(Literal::F32(weights)));
        self.op("MatMul", &[value, &weights])
    }

    /// Adds some gates' bias of W (`side` 0) or R (1).
    fn biased(&mut self, sum: String, side: usize, gates: std::ops::Range<usize>) -> String {
        let Some(b) = &self.recurrent.b else { return sum };
        let (hidden_size, all) = (self.recurrent.hidden_size, b.len() / 2);
        let part = &b[side * all + gates.start * hidden_size..side * all + gates.end * hidden_size];
        let bias = self.floats(vec![part.len()], part.to_vec());
        self.op("Add", &[&sum, &bias])
    }

    /// `W x + R h + b` of some gates.
    fn sum(&mut self, x: &str, h: &str, gates: std::ops::Range<usize>) -> String {
        let recurrent = self.recurrent;
        let of_x = self.product(x, &recurrent.w, recurrent.input_size, gates.clone());
        let of_h = self.product(h, &recurrent.r, recurrent.hidden_size, gates.clone());
        let sum = self.op("Add", &[&of_x, &of_h]);
        let sum = self.biased(sum, 0, gates.clone());
        self.biased(sum, 1, gates)
    }

    /// Gate `index` of a sum of several gates, `[rows, gates * hidden_size]`.
    fn gate(&mut self, sum: &str, index: usize) -> String {
        let hidden_size = self.recurrent.hidden_size as i64;
        let mut bound = |n: i64| {
            let numbers = vec![Int::number(n)];
            self.writer.constant(&Rc::new(Literal::ints(numbers)))
        };
        let start = bound(index as i64 * hidden_size);
        let (end, axis) = (bound((index as i64 + 1) * hidden_size), bound(1));
        self.op("Slice", &[sum, &start, &end, &axis])
    }

    fn clipped(&mut self, sum: String) -> String {
        match self.rule.clip {
            Some(clip) => {
                let (low, high) = (self.scalar(-clip), self.scalar(clip));
                self.op("Clip", &[&sum, &low, &high])
            }
            None => sum,
        }
    }

    /// Activation `index` of the clipped sum.
    fn activated(&mut self, index: usize, sum: String) -> String {
        let sum = self.clipped(sum);
        self.activation(index, sum)
    }

    fn activation(&mut self, index: usize, sum: String) -> String {
        let Activation { function, alpha, beta } = self.rule.activations[index];
        let parameter = |name, x| vec![float_attribute(name, x)];
        match function.name {
            "Affine" => {
                let (alpha, beta) = (self.scalar(alpha), self.scalar(beta));
                let scaled = self.op("Mul", &[&sum, &alpha]);
                self.op("Add", &[&scaled, &beta])
            }
            "ThresholdedRelu" => {
                let (alpha, zero) = (self.scalar(alpha), self.scalar(0.0));
                let above = self.op("Greater", &[&sum, &alpha]);
                self.op("Where", &[&above, &sum, &zero])
            }
            "ScaledTanh" => {
                let (alpha, beta) = (self.scalar(alpha), self.scalar(beta));
                let scaled = self.op("Mul", &[&sum, &beta]);
                let tanh = self.op("Tanh", &[&scaled]);
                self.op("Mul", &[&tanh, &alpha])
            }
            "Softsign" => {
                let one = self.scalar(1.0);
                let size = self.op("Abs", &[&sum]);
                let below = self.op("Add", &[&size, &one]);
                self.op("Div", &[&sum, &below])
            }
            "Softplus" => {
                // This form does not overflow.
                let one = self.scalar(1.0);
                let above = self.op("Relu", &[&sum]);
                let size = self.op("Abs", &[&sum]);
                let negative = self.op("Neg", &[&size]);
                let power = self.op("Exp", &[&negative]);
                let below = self.op("Add", &[&power, &one]);
                let rest = self.op("Log", &[&below]);
                self.op("Add", &[&above, &rest])
            }
            "HardSigmoid" => {
                let mut attributes = parameter("alpha", alpha);
                attributes.extend(parameter("beta", beta));
                self.op_with("HardSigmoid", &[&sum], attributes)
            }
            name @ ("LeakyRelu" | "Elu") => self.op_with(name, &[&sum], parameter("alpha", alpha)),
            name => self.op(name, &[&sum]),
        }
    }

    fn lstm(&mut self, x: &str, h: &str, c: &str, p: Option<&[f32]>) -> Vec<String> {
        let hidden_size = self.recurrent.hidden_size;
        let peep = |step: &mut Self, sum: String, gate: usize, c: &str| match p {
            Some(p) => {
                let weights = p[gate * hidden_size..(gate + 1) * hidden_size].to_vec();
                let weights = step.floats(vec![hidden_size], weights);
                let part = step.op("Mul", &[&weights, c]);
                step.op("Add", &[&sum, &part])
            }
            None => sum,
        };
        let sum = self.sum(x, h, 0..4);
        let i = self.gate(&sum, 0);
        let i = peep(self, i, 0, c);
        let i = self.activated(0, i);
        let f = if self.rule.input_forget {
            let one = self.scalar(1.0);
            self.op("Sub", &[&one, &i])
        } else {
            let f = self.gate(&sum, 2);
            let f = peep(self, f, 2, c);
            self.activated(0, f)
        };
        let g = self.gate(&sum, 3);
        let g = self.activated(1, g);
        let kept = self.op("Mul", &[&f, c]);
        let taken = self.op("Mul", &[&i, &g]);
        let next_c = self.op("Add", &[&kept, &taken]);
        let o = self.gate(&sum, 1);
        let o = peep(self, o, 1, &next_c);
        let o = self.activated(0, o);
        // Sums are clipped, c is not: as ONNX Runtime reads the specification.
        let shown = self.activation(2, next_c.clone());
        let next_h = self.op("Mul", &[&o, &shown]);
        vec![next_h, next_c]
    }

    fn gru(&mut self, x: &str, h: &str, linear_before_reset: bool) -> String {
        let recurrent = self.recurrent;
        let sum = self.sum(x, h, 0..2);
        let z = self.gate(&sum, 0);
        let z = self.activated(0, z);
        let r = self.gate(&sum, 1);
        let r = self.activated(0, r);
        let of_x = self.product(x, &recurrent.w, recurrent.input_size, 2..3);
        let of_x = self.biased(of_x, 0, 2..3);
        let hidden_size = recurrent.hidden_size;
        let of_h = if linear_before_reset {
            let product = self.product(h, &recurrent.r, hidden_size, 2..3);
            let product = self.biased(product, 1, 2..3);
            self.op("Mul", &[&r, &product])
        } else {
            let reset = self.op("Mul", &[&r, h]);
            let product = self.product(&reset, &recurrent.r, hidden_size, 2..3);
            self.biased(product, 1, 2..3)
        };
        let sum = self.op("Add", &[&of_x, &of_h]);
        let new = self.activated(1, sum);
        let one = self.scalar(1.0);
        let rest = self.op("Sub", &[&one, &z]);
        let taken = self.op("Mul", &[&rest, &new]);
        let kept = self.op("Mul", &[&z, h]);
        self.op("Add", &[&taken, &kept])
    }
}
