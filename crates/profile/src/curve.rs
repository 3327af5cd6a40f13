//! The time of a batch over its size.

use batchmaker_device::{Device, ExecutionPlan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Difference;

/// The largest batch and the longest time that are taken for measured.
const BATCH_MAX: u32 = 1 << 20;
const US_MAX: f64 = 1e9;

/// Time over size of batch, in one precision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The steps of each sequence, of a cell that takes whole ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// The distance of the model's replies from those in f32 where this cell alone is in the precision;
    /// none where that was not measured.
    pub difference: Option<Difference>,
    /// Sizes ascending.
    pub points: Vec<Point>,
}

/// A size of batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Rows; of stages, requests.
    pub batch: u32,
    /// Microseconds a batch takes: a step, of a chain.
    pub us: f64,
    /// The device's [`ExecutionPlan`] for it; absent where the device chooses as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<Value>,
}

impl Curve {
    /// Checks that numbers can have been measured, and that the device can read its plans.
    pub(crate) fn check(&self, device: Option<&dyn Device>) -> Result<(), String> {
        check_points(&self.points)?;
        for point in &self.points {
            let batch = point.batch;
            if let Some((device, plan)) = device.zip(point.plan()) {
                let described = device.describe(&plan);
                described.map_err(|error| format!("a batch of {batch} rows by {error}"))?;
            }
        }
        Ok(())
    }

    /// The device's plans, each with the number of rows that it is for.
    pub fn plans(&self) -> Vec<(usize, ExecutionPlan)> {
        let plan = |point: &Point| Some((point.batch as usize, point.plan()?));
        self.points.iter().filter_map(plan).collect()
    }
}

impl Point {
    /// A size that a device measured.
    ///
    /// # Panics
    /// If the plan is no JSON.
    pub fn measured(batch: usize, us: f64, plan: Option<&ExecutionPlan>) -> Self {
        let value =
            |plan: &ExecutionPlan| serde_json::from_str(plan.text()).expect("plans are JSON");
        Self { batch: batch as u32, us, plan: plan.map(value) }
    }

    /// The device's plan for this size; none where the device chose while it ran.
    pub fn plan(&self) -> Option<ExecutionPlan> {
        self.plan.as_ref().map(|plan| ExecutionPlan::new(plan.to_string()))
    }

    /// Rows a second.
    pub fn rows_per_s(&self) -> f64 {
        f64::from(self.batch) / self.us * 1e6
    }
}

/// Checks that sizes rise, and that times can have been measured.
pub(crate) fn check_points(points: &[Point]) -> Result<(), String> {
    let mut before = 0;
    for Point { batch, us, .. } in points {
        if !(before + 1..=BATCH_MAX).contains(batch) {
            return Err(format!("a batch of {batch} rows after one of {before}"));
        }
        if !(0.0..=US_MAX).contains(us) || *us == 0.0 {
            return Err(format!("a batch of {batch} rows in {us} us"));
        }
        before = *batch;
    }
    Ok(())
}
