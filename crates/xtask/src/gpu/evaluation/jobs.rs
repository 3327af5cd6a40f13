//! What the evaluation runs: recurrent layers over whole sequences, in the sizes of the GRNN paper.

use std::fmt;

use batchmaker_graph::RecurrentKind;
use serde_json::{Value, json};

use crate::grnn;

/// A recurrent operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Lstm,
    /// The GRU of PyTorch and cuDNN, whose reset gate comes after the product.
    GruResetAfter,
    /// The canonical GRU, whose reset gate comes before the product: the paper's.
    GruResetBefore,
}

impl Operator {
    pub(super) const ALL: [Self; 3] = [Self::Lstm, Self::GruResetAfter, Self::GruResetBefore];

    /// The name in files, and of the scripts of peers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lstm => "lstm",
            Self::GruResetAfter => "gru",
            Self::GruResetBefore => "gru0",
        }
    }

    /// The name in tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Lstm => "LSTM",
            Self::GruResetAfter => "GRU, reset after the product",
            Self::GruResetBefore => "GRU, reset before the product",
        }
    }

    pub(super) fn kind(self) -> RecurrentKind {
        match self {
            Self::Lstm => RecurrentKind::Lstm { p: None, bytes: None },
            Self::GruResetAfter => RecurrentKind::Gru { linear_before_reset: true },
            Self::GruResetBefore => RecurrentKind::Gru { linear_before_reset: false },
        }
    }
}

/// Layers of one operator over a batch of whole sequences. Inputs are as wide as hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) operator: Operator,
    /// Units of the hidden state.
    pub(super) hidden: usize,
    /// Rows of the batch.
    pub(super) batch: usize,
    pub(super) steps: u32,
    pub(super) layers: usize,
}

impl Job {
    /// Floating-point operations of all products of x and h, of which a multiply-add is two. With these, the paper's Table 1 gives the shares of its Figure 13.
    pub(super) fn flops(&self) -> f64 {
        let Self { operator, hidden, batch, steps, layers } = *self;
        let weights = operator.kind().gates() * hidden * 2 * hidden;
        2.0 * (weights * batch * layers) as f64 * f64::from(steps)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "cell": self.operator.name(),
            "hidden": self.hidden,
            "batch": self.batch,
            "steps": self.steps,
            "layers": self.layers,
        })
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, hidden, batch, layers, .. } = self;
        write!(f, "{} {hidden} x {batch}", operator.name())?;
        if *layers > 1 { write!(f, ", {layers} layers") } else { Ok(()) }
    }
}

/// The job of an operator in a size of Table 1.
pub(super) fn of_table_1(operator: Operator, row: &grnn::Table1) -> Job {
    let (hidden, batch, steps) = (row.hidden, row.batch, grnn::STEPS);
    Job { operator, hidden, batch, steps, layers: 1 }
}

/// A model of Figure 15 (section 8.5): layers of LSTM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) layers: usize,
    pub(super) hidden: usize,
    pub(super) steps: u32,
}

/// The models of Figure 15.
pub(super) const MODELS: [Model; 2] = [
    Model { name: "text classification", layers: 2, hidden: 256, steps: 20 },
    Model { name: "CharRNN", layers: 3, hidden: 128, steps: 100 },
];

/// The batches of Figure 15.
pub(super) const BATCHES: [usize; 5] = [1, 2, 5, 10, 20];

impl Model {
    /// The model with a batch.
    pub(super) fn job(&self, batch: usize) -> Job {
        let Self { layers, hidden, steps, .. } = *self;
        Job { operator: Operator::Lstm, hidden, batch, steps, layers }
    }
}

/// All jobs: those of Table 1 by operator, then those of Figure 15.
pub(super) fn all() -> Vec<Job> {
    let of_table_1 = Operator::ALL
        .into_iter()
        .flat_map(|of| grnn::TABLE_1.iter().map(move |row| of_table_1(of, row)));
    let of_models = MODELS.iter().flat_map(|model| BATCHES.map(|batch| model.job(batch)));
    of_table_1.chain(of_models).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_once_among_all() {
        let all = all();
        assert_eq!(all.len(), 3 * 9 + 2 * 5);
        for job in &all {
            assert_eq!(all.iter().filter(|other| *other == job).count(), 1, "{job}");
        }
        assert_eq!(all.last().unwrap().to_string(), "lstm 128 x 20, 3 layers");
    }

    #[test]
    fn operations_are_those_of_products() {
        let job =
            Job { operator: Operator::GruResetAfter, hidden: 4, batch: 3, steps: 5, layers: 2 };
        assert_eq!(job.flops(), f64::from(2 * 3 * (4 * 4 + 4 * 4) * 3 * 5 * 2));
    }
}
