//! Steps of recurrent operators in primitive operators, for what the fused kernels do not do:
//! activations other than a kind's own, `clip`, `input_forget` (ONNX operators `LSTM`, `GRU`, `RNN`).

use batchmaker_graph::{RecurrentKind, RnnActivation};

use crate::file::node::Node;

/// The departures of the step of one direction from the fused kernels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepRule {
    /// The activations: f, g, h for an LSTM; f, g for a GRU; f for an RNN.
    pub(crate) activations: Vec<Activation>,
    /// The bound of the sums before activations, on both sides of zero.
    pub(crate) clip: Option<f32>,
    /// Whether the forget gate of an LSTM is 1 less its input gate.
    pub(crate) input_forget: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Activation {
    pub(crate) function: &'static Function,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
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

    /// The rule in words.
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

/// The activations of all directions, one after the other. Parameters go in order to the functions that take
/// any.
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
