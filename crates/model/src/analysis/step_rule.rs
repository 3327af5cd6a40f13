//! Steps of recurrent operators in primitive operators, for what the fused kernels do not do:
//! activations other than a kind's own, `clip`, `input_forget` (ONNX operators `LSTM`, `GRU`, `RNN`).

use std::rc::Rc;

use batchmaker_graph::{ElementType, Program, RecurrentKind, RnnActivation, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::recurrent::OperatorStep;
use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::data::symbolic::Int;
use crate::emit::row_program::Writer;
use crate::file::attribute::float_attribute;
use crate::file::node::Node;

/// How the step of one direction departs from the fused kernels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepRule {
    /// Of an LSTM f, g, h; of a GRU f, g; of an RNN f.
    activations: Vec<Activation>,
    /// What the sums are kept within, on both sides of zero.
    clip: Option<f32>,
    /// Whether an LSTM forgets what it does not take in.
    input_forget: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Activation {
    function: &'static Function,
    alpha: f32,
    beta: f32,
}

#[derive(Debug, PartialEq)]
struct Function {
    name: &'static str,
    /// The defaults of its parameters, where it has them.
    alpha: Option<f32>,
    beta: Option<f32>,
}

const fn function(name: &'static str, alpha: Option<f32>, beta: Option<f32>) -> Function {
    Function { name, alpha, beta }
}

const FUNCTIONS: &[Function] = &[
    function("Relu", None, None),
    function("Tanh", None, None),
    function("Sigmoid", None, None),
    function("Softsign", None, None),
    function("Softplus", None, None),
    function("Affine", Some(1.0), Some(0.0)),
    function("LeakyRelu", Some(0.01), None),
    function("ThresholdedRelu", Some(1.0), None),
    function("ScaledTanh", Some(1.0), Some(1.0)),
    function("HardSigmoid", Some(0.2), Some(0.5)),
    function("Elu", Some(1.0), None),
];

impl StepRule {
    /// The rules of a node's directions; an entry is none where the fused kernel of `kind` does that
    /// direction's step.
    ///
    /// # Errors
    /// Attributes that the operator cannot have.
    pub(crate) fn of(
        node: &Node,
        directions: usize,
        kind: &RecurrentKind,
    ) -> Result<Vec<Option<Self>>, String> {
        let standard: &[&str] = match kind {
            RecurrentKind::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
            RecurrentKind::Gru { .. } => &["Sigmoid", "Tanh"],
            RecurrentKind::Rnn { activation: RnnActivation::Tanh } => &["Tanh"],
            RecurrentKind::Rnn { activation: RnnActivation::Relu } => &["Relu"],
        };
        let clip = node.float("clip");
        if clip.is_some_and(|clip| clip.is_nan() || clip < 0.0) {
            return Err(format!("clip of {}", clip.unwrap_or_default()));
        }
        let clip = clip.filter(|clip| *clip > 0.0);
        let is_lstm = matches!(kind, RecurrentKind::Lstm { .. });
        let input_forget = is_lstm && node.int("input_forget").unwrap_or(0) != 0;
        let all = activations(node, directions, standard)?;
        let rule = |activations: &[Activation]| {
            let names = activations.iter().map(|activation| activation.function.name);
            let is_fused = names.eq(standard.iter().copied());
            let activations = activations.to_vec();
            (!is_fused || clip.is_some() || input_forget).then_some(Self {
                activations,
                clip,
                input_forget,
            })
        };
        Ok(all.chunks(standard.len()).map(rule).collect())
    }

    /// For people.
    pub(crate) fn show(&self) -> String {
        let names: Vec<&str> = self.activations.iter().map(|a| a.function.name).collect();
        let mut text = names.join(", ");
        if let Some(clip) = self.clip {
            text.push_str(&format!(", clipped to {clip}"));
        }
        if self.input_forget {
            text.push_str(", input and forget gate coupled");
        }
        text
    }
}

/// Whether the first direction's first activation is `Relu`: an RNN's other fused kernel.
pub(crate) fn is_relu(node: &Node) -> bool {
    node.strings("activations").first().is_some_and(|name| name.eq_ignore_ascii_case("relu"))
}

/// Those of all directions, one after the other. Parameters go in order to those that take any.
fn activations(
    node: &Node,
    directions: usize,
    standard: &[&str],
) -> Result<Vec<Activation>, String> {
    let given = node.strings("activations");
    let count = directions * standard.len();
    if !given.is_empty() && given.len() != count {
        return Err(format!("{} activations, not {count}", given.len()));
    }
    let mut alphas = node.floats("activation_alpha").unwrap_or(&[]).iter().copied();
    let mut betas = node.floats("activation_beta").unwrap_or(&[]).iter().copied();
    let mut activations = Vec::new();
    for index in 0..count {
        let name = given.get(index).map_or(standard[index % standard.len()], String::as_str);
        let mut functions = FUNCTIONS.iter();
        let function = functions.find(|function| function.name.eq_ignore_ascii_case(name));
        let function = function.ok_or_else(|| format!("there is no activation \"{name}\""))?;
        let next = |default: Option<f32>, given: &mut dyn Iterator<Item = f32>| match default {
            Some(default) => given.next().unwrap_or(default),
            None => 0.0,
        };
        let alpha = next(function.alpha, &mut alphas);
        let beta = next(function.beta, &mut betas);
        activations.push(Activation { function, alpha, beta });
    }
    Ok(activations)
}

/// The step of `recurrent` as a program: from x and those of the states that are not zero (`given`)
/// to all states. `None`: a fused kernel does it.
pub(crate) fn program(recurrent: &OperatorStep, given: &[bool]) -> Option<Program> {
    let rule = recurrent.rule.as_ref()?;
    let mut step = Step { writer: Writer::default(), recurrent, rule };
    let x = step.input(recurrent.input_size);
    let states: Vec<String> =
        given.iter().map(|&is_given| step.state(is_given, recurrent.hidden_size)).collect();
    let after = match &recurrent.kind {
        RecurrentKind::Lstm { p } => step.lstm(&x, &states[0], &states[1], p.as_deref()),
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
    Some(Program { bytes: step.writer.finish(), summary })
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
        let hidden = self.recurrent.hidden_size;
        let rows = gates.len() * hidden;
        let part = &matrix[gates.start * hidden * columns..gates.end * hidden * columns];
        let weights = Array::new(vec![rows, columns], part.to_vec()).transposed(&[1, 0]);
        let weights = self.writer.constant(&Rc::new(Literal::F32(weights)));
        self.op("MatMul", &[value, &weights])
    }

    /// Adds some gates' bias of W (`side` 0) or R (1).
    fn biased(&mut self, sum: String, side: usize, gates: std::ops::Range<usize>) -> String {
        let Some(b) = &self.recurrent.b else { return sum };
        let (hidden, all) = (self.recurrent.hidden_size, b.len() / 2);
        let part = &b[side * all + gates.start * hidden..side * all + gates.end * hidden];
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

    /// Gate `index` of the first of so many.
    fn gate(&mut self, sum: &str, index: usize) -> String {
        let hidden = self.recurrent.hidden_size as i64;
        let mut bound = |n: i64| {
            let numbers = vec![Int::number(n)];
            self.writer.constant(&Rc::new(Literal::ints(numbers)))
        };
        let start = bound(index as i64 * hidden);
        let (end, axis) = (bound((index as i64 + 1) * hidden), bound(1));
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
                // Without an overflow.
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
        let hidden = self.recurrent.hidden_size;
        let peep = |step: &mut Self, sum: String, gate: usize, c: &str| match p {
            Some(p) => {
                let weights = p[gate * hidden..(gate + 1) * hidden].to_vec();
                let weights = step.floats(vec![hidden], weights);
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
        let hidden = recurrent.hidden_size;
        let of_h = if linear_before_reset {
            let product = self.product(h, &recurrent.r, hidden, 2..3);
            let product = self.biased(product, 1, 2..3);
            self.op("Mul", &[&r, &product])
        } else {
            let reset = self.op("Mul", &[&r, h]);
            let product = self.product(&reset, &recurrent.r, hidden, 2..3);
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
