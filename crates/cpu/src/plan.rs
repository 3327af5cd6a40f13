//! What was found out of a cell before it runs here: how to run batches of some sizes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use batchmaker_graph::CellIdentity;
use batchmaker_kernels::{Tiling, Tilings};

use crate::tuner::{Split, Way};

/// The plans of cells, of those that are known when a device is made, and of those that are found
/// while it runs. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Plans(Arc<Mutex<HashMap<CellIdentity, FuturePlan>>>);

/// A cell's plan, once there is one.
pub(crate) type FuturePlan = Arc<OnceLock<CellPlan>>;

impl Plans {
    /// From now on, the cell is run by `plan`, unless it has one.
    pub fn add(&self, cell: CellIdentity, plan: CellPlan) {
        let _ = self.of(cell).set(plan);
    }

    /// The cell's plan, whenever it comes.
    pub(crate) fn of(&self, cell: CellIdentity) -> FuturePlan {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(cell).or_default().clone()
    }
}

impl FromIterator<(CellIdentity, CellPlan)> for Plans {
    fn from_iter<T: IntoIterator<Item = (CellIdentity, CellPlan)>>(known: T) -> Self {
        let plans = Self::default();
        known.into_iter().for_each(|(cell, plan)| plans.add(cell, plan));
        plans
    }
}

/// How to run batches of a recurrent cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellPlan {
    /// Sizes that were tried, ascending; between them, the smaller counts.
    pub batches: Vec<PlannedBatch>,
}

/// How to run a batch of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBatch {
    /// Rows of the batch.
    pub rows: usize,
    /// How threads divide it, and whether inputs are projected ahead.
    pub way: Way,
    /// How products run, where there is a choice.
    pub tiling: Option<Tiling>,
}

impl CellPlan {
    /// The way for a batch of so many rows.
    pub(crate) fn way(&self, rows: usize) -> Option<Way> {
        let before = self.batches.iter().rfind(|batch| batch.rows <= rows);
        before.or(self.batches.first()).map(|batch| batch.way)
    }

    /// The tilings of products, of a worker of so many threads.
    pub(crate) fn tilings(&self, threads: usize) -> Tilings {
        let known = self.batches.iter().filter_map(|batch| {
            let rows = match batch.way.split {
                Split::Rows => batch.rows.div_ceil(threads),
                Split::None | Split::Units => batch.rows,
            };
            Some((rows, batch.tiling?))
        });
        Tilings::from_rows(&known.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_between_take_the_smaller() {
        let planned = |rows, split| {
            let way = Way { split, ahead: false };
            PlannedBatch { rows, way, tiling: None }
        };
        let plan = CellPlan { batches: vec![planned(2, Split::Units), planned(16, Split::Rows)] };
        let split = |rows| plan.way(rows).map(|way| way.split);
        assert_eq!(split(1), Some(Split::Units));
        assert_eq!(split(15), Some(Split::Units));
        assert_eq!(split(100), Some(Split::Rows));
        assert_eq!(CellPlan::default().way(1), None);
    }
}
