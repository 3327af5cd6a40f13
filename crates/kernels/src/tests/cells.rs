//! Weights of every kind, as the ONNX operators have them.

use super::random::Random;
use crate::packing::target::Target;
use crate::{
    GruParameters, LinearParameters, LstmParameters, PackedGru, PackedLinear, PackedLstm,
    PackedRnn, PackedTreeInner, PackedTreeLeaf, Recurrence, Reset, RnnActivation, RnnParameters,
    TreeInnerParameters, TreeLeafParameters,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Lstm,
    PeepholeLstm,
    GruResetBefore,
    GruResetAfter,
    RnnTanh,
    RnnRelu,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Lstm,
        Self::PeepholeLstm,
        Self::GruResetBefore,
        Self::GruResetAfter,
        Self::RnnTanh,
        Self::RnnRelu,
    ];

    pub(super) fn gates(self) -> usize {
        match self {
            Self::Lstm | Self::PeepholeLstm => 4,
            Self::GruResetBefore | Self::GruResetAfter => 3,
            Self::RnnTanh | Self::RnnRelu => 1,
        }
    }

    /// Vectors of units in a panel of a phase.
    pub(super) fn groups(self, phase: usize) -> usize {
        match self {
            Self::Lstm | Self::PeepholeLstm | Self::GruResetAfter => 1,
            Self::GruResetBefore => [2, 4][phase],
            Self::RnnTanh | Self::RnnRelu => 4,
        }
    }

    /// Whether `c` is a state, and not a scratch buffer of the step.
    pub(super) fn has_c(self) -> bool {
        matches!(self, Self::Lstm | Self::PeepholeLstm)
    }
}

/// Larger than a trained cell's, so that gates open and close, but no larger sums for more inputs.
fn scale(inputs: usize) -> f32 {
    3.0 / (inputs.max(1) as f32).sqrt()
}

fn random_bias(random: &mut Random, len: usize) -> Option<Vec<f32>> {
    (random.below(4) > 0).then(|| random.vec(len, 1.0))
}

/// A recurrent cell.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) kind: Kind,
    pub(super) input_size: usize,
    pub(super) hidden_size: usize,
    pub(super) w: Vec<f32>,
    pub(super) r: Vec<f32>,
    pub(super) b: Option<Vec<f32>>,
    pub(super) p: Option<Vec<f32>>,
}

impl Cell {
    pub(super) fn random(
        random: &mut Random,
        kind: Kind,
        input_size: usize,
        hidden_size: usize,
    ) -> Self {
        let (columns, scale) = (kind.gates() * hidden_size, scale(input_size.max(hidden_size)));
        Self {
            kind,
            input_size,
            hidden_size,
            w: random.vec(columns * input_size, scale),
            r: random.vec(columns * hidden_size, scale),
            b: random_bias(random, 2 * columns),
            p: (kind == Kind::PeepholeLstm).then(|| random.vec(3 * hidden_size, 1.0)),
        }
    }

    /// One weight everywhere, no bias; peepholes of 0.
    pub(super) fn uniform(kind: Kind, size: usize, w: f32, r: f32) -> Self {
        let columns = kind.gates() * size;
        Self {
            kind,
            input_size: size,
            hidden_size: size,
            w: vec![w; columns * size],
            r: vec![r; columns * size],
            b: None,
            p: (kind == Kind::PeepholeLstm).then(|| vec![0.0; 3 * size]),
        }
    }

    pub(super) fn lstm(&self) -> LstmParameters<'_> {
        let &Self { input_size, hidden_size, ref w, ref r, ref b, ref p, .. } = self;
        let (b, p) = (b.as_deref(), p.as_deref());
        LstmParameters { input_size, hidden_size, w, r, b, p, bytes: None }
    }

    pub(super) fn gru(&self) -> GruParameters<'_> {
        let &Self { kind, input_size, hidden_size, ref w, ref r, ref b, .. } = self;
        let reset = match kind {
            Kind::GruResetAfter => Reset::AfterProduct,
            _ => Reset::BeforeProduct,
        };
        GruParameters { input_size, hidden_size, w, r, b: b.as_deref(), reset }
    }

    pub(super) fn rnn(&self) -> RnnParameters<'_> {
        let &Self { kind, input_size, hidden_size, ref w, ref r, ref b, .. } = self;
        let activation = match kind {
            Kind::RnnRelu => RnnActivation::Relu,
            _ => RnnActivation::Tanh,
        };
        RnnParameters { input_size, hidden_size, w, r, b: b.as_deref(), activation }
    }

    pub(super) fn pack(&self, target: impl Into<Target>) -> Box<dyn Recurrence> {
        const CONSISTENT: &str = "consistent sizes";
        match self.kind {
            Kind::Lstm | Kind::PeepholeLstm => {
                Box::new(PackedLstm::for_target(target.into(), self.lstm()).expect(CONSISTENT))
            }
            Kind::GruResetBefore | Kind::GruResetAfter => {
                Box::new(PackedGru::for_target(target.into(), self.gru()).expect(CONSISTENT))
            }
            Kind::RnnTanh | Kind::RnnRelu => {
                Box::new(PackedRnn::for_target(target.into(), self.rnn()).expect(CONSISTENT))
            }
        }
    }
}

/// A leaf of a TreeLSTM.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) input_size: usize,
    pub(super) hidden_size: usize,
    pub(super) w: Vec<f32>,
    pub(super) b: Option<Vec<f32>>,
}

impl Leaf {
    pub(super) fn random(random: &mut Random, input_size: usize, hidden_size: usize) -> Self {
        let w = random.vec(3 * hidden_size * input_size, scale(input_size));
        Self { input_size, hidden_size, w, b: random_bias(random, 3 * hidden_size) }
    }

    pub(super) fn parameters(&self) -> TreeLeafParameters<'_> {
        let &Self { input_size, hidden_size, ref w, ref b } = self;
        TreeLeafParameters { input_size, hidden_size, w, b: b.as_deref() }
    }

    pub(super) fn pack(&self, target: impl Into<Target>) -> PackedTreeLeaf {
        PackedTreeLeaf::for_target(target.into(), self.parameters()).expect("consistent sizes")
    }
}

/// An inner node of a TreeLSTM.
#[derive(Debug, Clone)]
pub(super) struct Inner {
    pub(super) hidden_size: usize,
    pub(super) l: Vec<f32>,
    pub(super) r: Vec<f32>,
    pub(super) b: Option<Vec<f32>>,
}

impl Inner {
    pub(super) fn random(random: &mut Random, hidden_size: usize) -> Self {
        let mut weights = || random.vec(5 * hidden_size * hidden_size, scale(2 * hidden_size));
        let (l, r) = (weights(), weights());
        Self { hidden_size, l, r, b: random_bias(random, 5 * hidden_size) }
    }

    pub(super) fn parameters(&self) -> TreeInnerParameters<'_> {
        let &Self { hidden_size, ref l, ref r, ref b } = self;
        TreeInnerParameters { hidden_size, l, r, b: b.as_deref() }
    }

    pub(super) fn pack(&self, target: impl Into<Target>) -> PackedTreeInner {
        PackedTreeInner::for_target(target.into(), self.parameters()).expect("consistent sizes")
    }
}

/// A linear layer.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    pub(super) input_size: usize,
    pub(super) output_size: usize,
    pub(super) w: Vec<f32>,
    pub(super) b: Option<Vec<f32>>,
}

impl Linear {
    pub(super) fn random(random: &mut Random, input_size: usize, output_size: usize) -> Self {
        let w = random.vec(output_size * input_size, scale(input_size));
        Self { input_size, output_size, w, b: random_bias(random, output_size) }
    }

    pub(super) fn parameters(&self) -> LinearParameters<'_> {
        let &Self { input_size, output_size, ref w, ref b } = self;
        LinearParameters { input_size, output_size, w, b: b.as_deref() }
    }

    pub(super) fn pack(&self, target: impl Into<Target>) -> PackedLinear {
        PackedLinear::for_target(target.into(), self.parameters()).expect("consistent sizes")
    }
}
