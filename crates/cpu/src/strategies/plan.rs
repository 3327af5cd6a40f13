//! Plans: the execution strategies and tilings that a measurement found for batches of a cell.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use batchmaker_device::{DeviceError, ExecutionPlan};
use batchmaker_graph::CellIdentity;
use batchmaker_kernels::{Tiling, Tilings};
use serde::{Deserialize, Serialize};

use crate::strategies::execution_strategy::{ExecutionStrategy, Split};

/// The plans of cells: of those that the device has and of those that may come.
#[derive(Default)]
pub(crate) struct Plans(Mutex<HashMap<CellIdentity, Arc<LivePlan>>>);

impl Plans {
    /// The cell's plan, which is empty until one comes.
    pub(crate) fn of(&self, cell: CellIdentity) -> Arc<LivePlan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(cell).or_default().clone()
    }
}

/// A cell's plan, which may change while batches run.
#[derive(Default)]
pub(crate) struct LivePlan {
    plan: Mutex<Arc<CellPlan>>,
    /// The number of changes of `plan`, which is empty at first.
    changes: AtomicU32,
}

/// The plan of a cell that a worker has seen last.
#[derive(Default)]
pub(crate) struct SeenPlan {
    pub(crate) plan: Arc<CellPlan>,
    changes: u32,
}

impl LivePlan {
    /// Batches of the cell run by `plan` from now on.
    pub(crate) fn set(&self, plan: CellPlan) {
        let mut known = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if **known != plan {
            *known = Arc::new(plan);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Brings `seen` up to date, and returns whether it was not.
    pub(crate) fn refresh(&self, seen: &mut SeenPlan) -> bool {
        if self.changes.load(Ordering::Acquire) == seen.changes {
            return false;
        }
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = SeenPlan { plan: plan.clone(), changes: self.changes.load(Ordering::Acquire) };
        true
    }
}

/// The plan for batches of a recurrent cell. An empty one says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellPlan {
    /// The plans by the rows of the batches that were measured, ascending; between two, the smaller holds.
    batches: Vec<(usize, BatchPlan)>,
}

impl CellPlan {
    /// Reads what [`BatchPlan::write`] wrote, for batches of these numbers of rows.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where it did not write that.
    pub(crate) fn read(plans: &[(usize, ExecutionPlan)]) -> Result<Self, DeviceError> {
        let read = |(rows, plan): &(usize, ExecutionPlan)| Ok((*rows, BatchPlan::read(plan)?));
        let mut batches: Vec<_> = plans.iter().map(read).collect::<Result<_, DeviceError>>()?;
        batches.sort_by_key(|&(rows, _)| rows);
        Ok(Self { batches })
    }

    /// The strategy for a batch of `rows` rows.
    pub(crate) fn strategy(&self, rows: usize) -> Option<ExecutionStrategy> {
        let before = self.batches.iter().rfind(|batch| batch.0 <= rows);
        before.or(self.batches.first()).map(|(_, plan)| plan.strategy)
    }

    /// The tilings of products on a worker of `threads` threads.
    pub(crate) fn tilings(&self, threads: usize) -> Tilings {
        let known = self.batches.iter().filter_map(|&(rows, plan)| {
            let rows = match plan.strategy.split {
                Split::Rows => rows.div_ceil(threads),
                Split::None | Split::Units => rows,
            };
            Some((rows, plan.tiling?))
        });
        Tilings::from_rows(&known.collect::<Vec<_>>())
    }
}

/// The plan for a batch of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchPlan {
    /// The execution strategy.
    pub(crate) strategy: ExecutionStrategy,
    /// The tiling of products, where there is a choice.
    pub(crate) tiling: Option<Tiling>,
}

/// A [`BatchPlan`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    split: Split,
    #[serde(rename = "ahead")]
    pre_projection: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tiling: Option<TilingRecord>,
}

/// A [`Tiling`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TilingRecord {
    rows: u8,
    by_two: bool,
    block_kib: u16,
}

impl BatchPlan {
    /// The plan as one JSON object.
    pub(crate) fn write(&self) -> ExecutionPlan {
        let record = |Tiling { rows, by_two, block_kib }| TilingRecord { rows, by_two, block_kib };
        let ExecutionStrategy { split, pre_projection } = self.strategy;
        let record = Record { split, pre_projection, tiling: self.tiling.map(record) };
        ExecutionPlan::new(serde_json::to_string(&record).expect("a record is JSON"))
    }

    /// Reads what [`Self::write`] wrote.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where it did not write that.
    pub(crate) fn read(plan: &ExecutionPlan) -> Result<Self, DeviceError> {
        let refused = |reason: String| {
            DeviceError::Resources(format!("a plan that is none of the CPU device: {reason}"))
        };
        let record: Record =
            serde_json::from_str(plan.text()).map_err(|error| refused(error.to_string()))?;
        let Record { split, pre_projection, tiling } = record;
        let of_record = |TilingRecord { rows, by_two, block_kib }| {
            let is_one = (1..=Tiling::ROWS_MAX).contains(&rows) && block_kib > 0;
            let reason = || refused(format!("tiles of {rows} rows, blocks of {block_kib} KiB"));
            is_one.then_some(Tiling { rows, by_two, block_kib }).ok_or_else(reason)
        };
        Ok(Self {
            strategy: ExecutionStrategy { split, pre_projection },
            tiling: tiling.map(of_record).transpose()?,
        })
    }
}

impl fmt::Display for BatchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.strategy.split {
            Split::None => "one thread",
            Split::Units => "by units",
            Split::Rows => "by rows",
        })?;
        f.write_str(if self.strategy.pre_projection { ", x pre-projected" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_plan(split: Split) -> BatchPlan {
        BatchPlan { strategy: ExecutionStrategy { split, pre_projection: false }, tiling: None }
    }

    #[test]
    fn sizes_between_take_the_smaller() {
        let plans = [(16, batch_plan(Split::Rows)), (2, batch_plan(Split::Units))];
        let plan = CellPlan::read(&plans.map(|(rows, plan)| (rows, plan.write()))).unwrap();
        let split = |rows| plan.strategy(rows).map(|strategy| strategy.split);
        assert_eq!(split(1), Some(Split::Units));
        assert_eq!(split(15), Some(Split::Units));
        assert_eq!(split(100), Some(Split::Rows));
        assert_eq!(CellPlan::default().strategy(1), None);
    }

    #[test]
    fn plans_read_back() {
        let tiling = Some(Tiling { rows: 6, by_two: true, block_kib: u16::MAX });
        let plan = BatchPlan {
            strategy: ExecutionStrategy { split: Split::Units, pre_projection: true },
            tiling,
        };
        let text =
            r#"{"split":"units","ahead":true,"tiling":{"rows":6,"by_two":true,"block_kib":65535}}"#;
        assert_eq!(plan.write(), ExecutionPlan::new(text));
        assert_eq!(BatchPlan::read(&plan.write()), Ok(plan));
        assert_eq!(plan.to_string(), "by units, x pre-projected");
        let plain = batch_plan(Split::None);
        assert_eq!(plain.write(), ExecutionPlan::new(r#"{"split":"none","ahead":false}"#));
        assert_eq!(BatchPlan::read(&plain.write()), Ok(plain));
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"split":"panels","ahead":true}"#,
            r#"{"split":"units"}"#,
            r#"{"split":"units","ahead":1}"#,
            r#"{"split":"units","ahead":true,"blocks":3}"#,
            r#"{"split":"units","ahead":true,"tiling":{"rows":0,"by_two":true,"block_kib":8}}"#,
            r#"{"split":"units","ahead":true,"tiling":{"rows":9,"by_two":true,"block_kib":8}}"#,
            r#"{"split":"units","ahead":true,"tiling":{"rows":6,"by_two":true,"block_kib":0}}"#,
            r#"{"split":"units","ahead":true,"tiling":{"rows":6,"by_two":true}}"#,
        ] {
            let refused = BatchPlan::read(&ExecutionPlan::new(text));
            assert!(matches!(refused, Err(DeviceError::Resources(_))), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_plan_that_changes_is_seen_once() {
        let (live, mut seen) = (LivePlan::default(), SeenPlan::default());
        let of = |split| CellPlan { batches: vec![(1, batch_plan(split))] };
        live.set(CellPlan::default());
        assert!(!live.refresh(&mut seen), "nothing is known, as before");
        for split in [Split::Units, Split::Rows] {
            live.set(of(split));
            assert!(live.refresh(&mut seen) && *seen.plan == of(split));
            live.set(of(split));
            assert!(!live.refresh(&mut seen), "the same again");
        }
    }
}
