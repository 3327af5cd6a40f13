//! Plans: the mapping of a cell's persistent kernels, as JSON: `{"mapping":"32x2_16x8"}`.

use batchmaker_device::{DeviceError, ExecutionPlan};
use serde::{Deserialize, Serialize};

use crate::mapping::{Limits, Mapping};

/// A plan in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    mapping: String,
}

/// A mapping as a plan.
pub(crate) fn write(mapping: Mapping) -> ExecutionPlan {
    let record = Record { mapping: mapping.to_string() };
    ExecutionPlan::new(serde_json::to_string(&record).expect("a record is JSON"))
}

/// Reads what [`write`] wrote for GPUs of these limits.
///
/// # Errors
/// [`DeviceError::Resources`] where it is no mapping, or one that they run for no cell.
pub(crate) fn read(plan: &ExecutionPlan, limits: Limits) -> Result<Mapping, DeviceError> {
    let record: Record =
        serde_json::from_str(plan.text()).map_err(|error| refused(plan, error.to_string()))?;
    let mapping: Mapping = record.mapping.parse().map_err(|error| refused(plan, error))?;
    match mapping.fills_warps(limits) {
        true => Ok(mapping),
        false => Err(refused(plan, "a mapping that does not fit the GPU")),
    }
}

/// The mapping of a cell by its plans, each with the number of rows that it was measured for: a cell has one mapping for all batches, which is the one for
/// the most rows. None where there are no plans.
///
/// # Errors
/// As for [`read`], and where mappings differ in lanes: the order of sums would depend on the batch.
pub(crate) fn of_cell(
    plans: &[(usize, ExecutionPlan)],
    limits: Limits,
) -> Result<Option<Mapping>, DeviceError> {
    let mut most: Option<(usize, Mapping)> = None;
    for (rows, plan) in plans {
        let mapping = read(plan, limits)?;
        if let Some((_, other)) = most.filter(|(_, other)| other.lanes != mapping.lanes) {
            let [lanes, others] = [mapping.lanes, other.lanes];
            let reason = format!("{lanes} lanes, where the plan of another batch has {others}");
            return Err(refused(plan, reason));
        }
        if most.is_none_or(|(of, _)| of <= *rows) {
            most = Some((*rows, mapping));
        }
    }
    Ok(most.map(|(_, mapping)| mapping))
}

/// A plan in words.
pub(crate) fn describe(mapping: Mapping) -> String {
    let Mapping { tile_width, tile_height, groups, lanes } = mapping;
    format!("{tile_width} units by {tile_height} rows, {groups} groups of {lanes}")
}

fn refused(plan: &ExecutionPlan, reason: impl ToString) -> DeviceError {
    let (text, reason) = (plan.text(), reason.to_string());
    DeviceError::Resources(format!("a plan that is none of these GPUs, {text}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> Limits = || Limits::of(132);

    fn mapping(tile_height: usize, lanes: usize) -> Mapping {
        Mapping { tile_width: 32, tile_height, groups: 16, lanes }
    }

    #[test]
    fn plans_read_back() {
        let plan = write(mapping(2, 8));
        assert_eq!(plan.text(), r#"{"mapping":"32x2_16x8"}"#);
        assert_eq!(read(&plan, LIMITS()), Ok(mapping(2, 8)));
        assert_eq!(describe(mapping(2, 8)), "32 units by 2 rows, 16 groups of 8");
    }

    #[test]
    fn the_plan_for_the_most_rows_is_the_cells() {
        let plan = |rows, height| (rows, write(mapping(height, 8)));
        let of = |plans: &[(usize, ExecutionPlan)]| of_cell(plans, LIMITS()).unwrap();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[plan(4, 2), plan(64, 4), plan(1, 1)]), Some(mapping(4, 8)));
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for text in [
            "",
            "{}",
            r#""32x2_16x8""#,
            r#"{"mapping":"32x2"}"#,
            r#"{"mapping":"32x2_16x8","blocks":3}"#,
            r#"{"split":"units","ahead":true}"#,
            // Half a warp, lanes that are no power of two, more threads than a block has, no rows.
            r#"{"mapping":"32x2_2x8"}"#,
            r#"{"mapping":"32x2_32x3"}"#,
            r#"{"mapping":"32x2_256x8"}"#,
            r#"{"mapping":"32x0_16x8"}"#,
        ] {
            let refused = read(&ExecutionPlan::new(text), LIMITS());
            let Err(DeviceError::Resources(reason)) = refused else {
                panic!("{text}: {refused:?}")
            };
            assert!(reason.starts_with("a plan that is none of these GPUs"), "{reason}");
        }
        let lanes = [(1, write(mapping(1, 8))), (4, write(mapping(1, 16)))];
        let refused = of_cell(&lanes, LIMITS()).unwrap_err().to_string();
        assert!(refused.ends_with("16 lanes, where the plan of another batch has 8"), "{refused}");
    }
}
