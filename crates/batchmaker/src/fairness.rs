//! How models and requests share the workers: the rules beside those of the BatchMaker paper.

use std::collections::BTreeMap;
use std::time::Duration;

use batchmaker_model::Model;

use crate::error::BuildError;

/// The rules by which models and requests share the workers. The paper, which has one model, one priority and
/// requests of like size, has none of them.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> Result<(), batchmaker::BuildError> {
/// # let tagger = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/vectors/tagger.onnx");
/// use batchmaker::{Engine, Fairness};
///
/// let rules = Fairness::default().share("tagger", 3).priority_aging(Some(Duration::from_secs(1)));
/// let engine = Engine::builder().model(tagger).fairness(rules).build()?;
/// # drop(engine);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fairness {
    /// The weights of models by name; none: the oldest request decides between models.
    shares: Option<BTreeMap<String, u32>>,
    priority_aging: Option<Duration>,
    /// None: the default, which follows from the number of models.
    patience: Option<Option<Duration>>,
    large_rows: Option<u32>,
}

impl Default for Fairness {
    /// Models share the workers' time equally; a request of any priority goes first once it is 10 s old; a request
    /// of 256 cells is large. Where there are several models, a cell type waits for fuller ones for up to 10 ms;
    /// while a large request fills batches, for up to 2 ms. With one model, batches are those of
    /// [`paper`](Self::paper) as long as requests set no priorities and none is large.
    fn default() -> Self {
        Self {
            shares: Some(BTreeMap::new()),
            priority_aging: Some(Duration::from_secs(10)),
            patience: None,
            large_rows: Some(256),
        }
    }
}

impl Fairness {
    /// The patience where there are several models.
    const PATIENCE: Duration = Duration::from_millis(10);
    /// The patience while a large request fills batches.
    const LARGE_PATIENCE: Duration = Duration::from_millis(2);
    /// The worker time that a model which had nothing to do may have before others.
    const CREDIT: Duration = Duration::from_millis(10);
    /// The longest round where models have shares in the workers' time: one whose turn comes waits for no more.
    const ROUND: Duration = Duration::from_millis(2);

    /// The rules of the paper alone.
    pub fn paper() -> Self {
        Self { shares: None, priority_aging: None, patience: Some(None), large_rows: None }
    }

    /// Sets the share of a model in the workers' time; other models have 1 each.
    #[must_use]
    pub fn share(mut self, model: &str, weight: u32) -> Self {
        self.shares.get_or_insert_default().insert(model.to_owned(), weight);
        self
    }

    /// Sets the age from which on a request goes before all others, whatever their priorities; none: priorities
    /// are strict. Of a large request, a part goes first each time that it has aged that long again.
    #[must_use]
    pub fn priority_aging(mut self, age: Option<Duration>) -> Self {
        self.priority_aging = age;
        self
    }

    /// Sets the time for which a cell type with a full batch may go before one without (line 5 of Algorithm 1 in the
    /// paper); none: any time. While a large request that can fill a batch by itself is in flight, it is 2 ms at most.
    #[must_use]
    pub fn patience(mut self, patience: Option<Duration>) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Sets the number of cells from which on a request is large: small ones pass what is left of it; none: requests
    /// are served in order of arrival, whatever their size.
    #[must_use]
    pub fn large_rows(mut self, cells: Option<u32>) -> Self {
        self.large_rows = cells;
        self
    }

    /// The rules for `models`, whose ids are their positions.
    ///
    /// # Errors
    /// A share is 0, or of no model.
    pub(crate) fn for_models(
        &self,
        models: &[Model],
    ) -> Result<Option<batchmaker_manager::Fairness>, BuildError> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let has_several = models.len() > 1;
        let shares = match &self.shares {
            Some(weights) => Some(shares(weights, models)?).filter(|_| has_several),
            None => None,
        };
        let patience = self.patience.unwrap_or(has_several.then_some(Self::PATIENCE));
        let large_rows = self.large_rows.filter(|&rows| rows > 0);
        // No patience is asked for: none beside large requests either.
        let has_large_patience = large_rows.is_some() && self.patience != Some(None);
        let rules = batchmaker_manager::Fairness {
            credit_ns: if shares.is_some() { ns(Self::CREDIT) } else { 0 },
            aging_ns: self.priority_aging.map(ns),
            patience_ns: patience.map(ns),
            large_patience_ns: has_large_patience.then_some(ns(Self::LARGE_PATIENCE)),
            round_ns: shares.is_some().then_some(ns(Self::ROUND)),
            large_rows,
            shares,
        };
        Ok((rules != batchmaker_manager::Fairness::default()).then_some(rules))
    }
}

/// The weights of `models`, by position.
fn shares(weights: &BTreeMap<String, u32>, models: &[Model]) -> Result<Vec<u32>, BuildError> {
    let names = || models.iter().map(|model| model.name.clone()).collect();
    for (model, &weight) in weights {
        let reason = match weight {
            0 => format!("the share of model '{model}' is 0: each has at least 1"),
            _ if models.iter().all(|known| known.name != *model) => {
                format!("a share is set for '{model}', which is no model")
            }
            _ => continue,
        };
        return Err(BuildError::Share { reason, models: names() });
    }
    Ok(models.iter().map(|model| weights.get(&model.name).copied().unwrap_or(1)).collect())
}
