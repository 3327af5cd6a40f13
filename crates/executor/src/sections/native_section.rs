//! The sections that run in kernels of this project, as operators are sorted into them.

use batchmaker_kernels::{Activation, Factors, Precision};
use rten_onnx::onnx::NodeProto;

use crate::operator::operator;
use crate::sections::attention::AttentionOf;
use crate::sections::convolution::UnpackedConvolution;
use crate::sections::element_chain::{ChainStep, ElementChain};
use crate::sections::guards::Guarded;
use crate::sections::joining::Join;
use crate::sections::layer_norm::LayerNorm;
use crate::sections::pooling::Pool;
use crate::sections::reducing::Reduce;
use crate::sections::scalars::Scalars;
use crate::sections::strided_view::ViewStep;
use crate::sections::taking::Take;

/// A native section of a program.
pub(super) struct NativeSection {
    pub(super) kind: NativeKind,
    /// The names of the tensors that it reads. The second tensor of a convolution is its residual.
    pub(super) reads: Vec<String>,
    /// The activation that a convolution or a product ends with.
    pub(super) activation: Activation,
    /// The name of the tensor that it produces. A section that produces several (see `outputs`) has the one that was added last.
    pub(super) output: String,
    pub(super) depth: usize,
}

/// The computation of a native section.
pub(super) enum NativeKind {
    Convolution(UnpackedConvolution),
    /// A product with weights `[inputs, outputs]`, the constant of that name.
    Product {
        shape: [usize; 2],
        weights: String,
        bias: Option<Vec<f32>>,
        factors: Factors,
    },
    Pool(Pool),
    /// The concatenation of all tensors along their channels.
    Concat,
    /// The means of all pixels.
    Mean,
    /// Images with each row and each pixel as often as these numbers say.
    Enlarge([usize; 2]),
    /// Images whose channels are taken from one of `groups` groups after the other.
    Shuffle {
        groups: usize,
    },
    /// The product of an image with a number for each of its channels, which is an image of one pixel.
    Gate,
    /// Elementwise operators, each of which reads the one before it.
    Elementwise(Vec<NodeProto>),
    /// The softmax of each row of the last axis.
    Softmax,
    Attention(AttentionOf),
    LayerNorm(LayerNorm),
    Join(Join),
    Take(Take, &'static str),
    /// Elementwise operators of the first tensor, with their names.
    Chain(Vec<ChainStep>, Vec<String>),
    /// As `Chain`, of tensors with their channels last, but those that its steps read as `Pixel`.
    PixelChain(ElementChain, Vec<String>),
    /// An element of those along axes.
    Reduce {
        reduce: Reduce,
        /// Whether it is of a tensor with its channels last.
        of_channels_last: bool,
    },
    /// Operators that only put elements in another place or shape, with their names.
    View {
        steps: Vec<ViewStep>,
        operators: Vec<String>,
        /// Whether the first step is of a tensor with its channels last, `[images, ...pixels, channels]`.
        of_channels_last: bool,
    },
    Scalars(ScalarGroup),
    /// An operator that rten may compute for one row otherwise than for several.
    Guard(Guarded, NodeProto),
}

/// Operators on scalars.
#[derive(Default)]
pub(super) struct ScalarGroup {
    pub(super) scalars: Scalars,
    /// The names of the results.
    pub(super) outputs: Vec<String>,
    /// The names of the operators.
    pub(super) operators: Vec<String>,
}

impl NativeSection {
    /// The names of the tensors that it produces.
    pub(super) fn outputs(&self) -> &[String] {
        match &self.kind {
            NativeKind::Scalars(group) => &group.outputs,
            _ => std::slice::from_ref(&self.output),
        }
    }

    /// Whether it produces the tensor of that name.
    pub(super) fn produces(&self, name: &str) -> bool {
        self.outputs().iter().any(|output| output == name)
    }

    /// Whether the two are reductions of one tensor to opposite extremes along the same axes.
    pub(super) fn is_other_extreme(&self, other: &Self) -> bool {
        let are_extremes = match (&self.kind, &other.kind) {
            (
                NativeKind::Reduce { reduce: one, of_channels_last },
                NativeKind::Reduce { reduce: two, of_channels_last: is_of_two },
            ) => one.is_other_extreme(two) && of_channels_last == is_of_two,
            _ => false,
        };
        are_extremes && self.reads == other.reads
    }
}

impl NativeKind {
    /// Whether the tensor that it reads at this position has its channels last.
    pub(super) fn reads_channels_last(&self, at: usize) -> bool {
        match self {
            Self::View { of_channels_last, .. } | Self::Reduce { of_channels_last, .. } => {
                *of_channels_last
            }
            Self::PixelChain(chain, _) => !chain.reads_pixel(at),
            _ => self.has_channels_last(),
        }
    }

    /// Whether the tensor that it produces has its channels last.
    pub(super) fn has_channels_last(&self) -> bool {
        use NativeKind::{
            Attention, Chain, Guard, Join, LayerNorm, Product, Reduce, Scalars, Softmax, Take, View,
        };
        let is_of_rows = matches!(self, Product { .. } | Softmax | Attention(_) | LayerNorm(_));
        let keeps_order = matches!(self, Join(_) | Take(..) | Guard(..) | View { .. } | Chain(..));
        !is_of_rows && !keeps_order && !matches!(self, Reduce { .. } | Scalars(_))
    }

    /// Its operators, for people. `precision` is that of constant matrices, `reads` the number of tensors that it reads.
    pub(super) fn describe(
        &self,
        precision: Precision,
        activation: &Activation,
        reads: usize,
    ) -> String {
        let mut text = match self {
            Self::Convolution(convolution) => {
                let residual = if reads > 1 { ", Add" } else { "" };
                format!("{convolution}{residual}")
            }
            Self::Product { shape: [inputs, outputs], bias, factors, .. } => {
                let bias = if bias.is_some() { ", Add" } else { "" };
                let numbers = match (factors, precision) {
                    (Factors::Bytes, _) => " of bytes",
                    (Factors::Any, Precision::F32) => "",
                    (Factors::Any, Precision::Bf16) => " in bf16",
                    (Factors::Any, Precision::Int8) => " in int8",
                };
                format!("MatMul{numbers} {inputs} to {outputs}{bias}")
            }
            Self::Pool(_) => "Pool".to_owned(),
            Self::Concat | Self::Join(_) => "Concat".to_owned(),
            Self::Mean => "ReduceMean".to_owned(),
            Self::Enlarge([down, along]) => format!("Resize {down}x{along}"),
            Self::Shuffle { groups } => format!("shuffle of {groups} groups"),
            Self::Gate => "Mul".to_owned(),
            Self::Softmax => "Softmax".to_owned(),
            Self::Attention(attention) => {
                let of_views = attention.operators.iter().map(String::as_str);
                of_views.chain(["MatMul", "Softmax", "MatMul"]).collect::<Vec<&str>>().join(", ")
            }
            Self::Take(_, operator) => (*operator).to_owned(),
            Self::View { operators, .. }
            | Self::Chain(_, operators)
            | Self::PixelChain(_, operators) => operators.join(", "),
            Self::Reduce { reduce: Reduce { reduction, .. }, .. } => format!("Reduce{reduction:?}"),
            Self::Scalars(group) => group.operators.join(", "),
            Self::LayerNorm(_) if reads > 1 => "Add, LayerNormalization".to_owned(),
            Self::LayerNorm(_) => "LayerNormalization".to_owned(),
            Self::Guard(_, node) => operator(node).to_owned(),
            Self::Elementwise(nodes) => {
                nodes.iter().map(operator).collect::<Vec<&str>>().join(", ")
            }
        };
        let activation = match activation {
            Activation::Identity => "",
            Activation::Clip { high: f32::INFINITY, .. } => ", Relu",
            Activation::Clip { .. } => ", Clip",
            Activation::Leaky { .. } => ", LeakyRelu",
            Activation::HardSwish { .. } => ", HardSwish",
            Activation::HardSigmoid { .. } => ", HardSigmoid",
            Activation::Sigmoid => ", Sigmoid",
            Activation::Swish => ", Swish",
            Activation::Tanh => ", Tanh",
            Activation::Gelu => ", Gelu",
        };
        text.push_str(activation);
        text
    }
}
