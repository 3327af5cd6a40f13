//! A cell that runs by the plans of a measurement gives the same bits.

use crate::conformance::case::{Case, Check, Outcome, ensure};
use crate::conformance::cases::chains::{chains, play};
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::{Request, Sinks};
use crate::conformance::harness::{Harness, cell_type};
use crate::conformance::schedule::{Form, Schedule};
use crate::conformance::subject::Subject;
use crate::contract::{Device, DeviceError};
use crate::plan::{BatchSize, ExecutionPlan};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::skippable("plans/batches run as measured have the same bits", planned),
        Case::new("plans/a plan of no device is refused", refused),
    ]
}

fn planned(subject: &dyn Subject) -> Check<Outcome> {
    let cell = ChainCell::all()[4].cell();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let measured = cell_type("measured", &cell);
    let mut plans = Vec::new();
    for rows in [1, 4] {
        match harness.device.measure(&measured, BatchSize::rows(rows)) {
            Ok(measurement) => {
                let ns = measurement.ns;
                ensure!(ns.is_finite() && ns > 0.0, "a batch of {rows} rows takes {ns} ns");
                plans.extend(measurement.plan.map(|plan| (rows, plan)));
            }
            Err(DeviceError::Cell { reason, .. }) => {
                return Ok(Outcome::Skipped(format!("measures nothing: {reason}")));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    if plans.is_empty() {
        return Ok(Outcome::Skipped("has no plans".to_owned()));
    }
    let requests: Vec<Request> =
        chains(&cell, Sinks::First).iter().map(|chain| chain.request(&cell)).collect();
    let (before, _) = play(&mut harness, &requests, Schedule::of(Form::Roster))?;
    harness.device.plan(measured.identity, &plans).map_err(|error| error.to_string())?;
    let (after, _) = play(&mut harness, &requests, Schedule::of(Form::Roster))?;
    let prepare = |device: &dyn Device| {
        device.plan(measured.identity, &plans).map_err(|error| error.to_string())
    };
    let mut harness = Harness::prepared(subject, vec![cell.clone()], prepare)?;
    let (anew, _) = play(&mut harness, &requests, Schedule::of(Form::Roster))?;
    for (at, before) in before.iter().enumerate() {
        same_bits(&format!("chain {at}, planned"), &after[at], before)?;
        same_bits(&format!("chain {at}, planned before it has the cell"), &anew[at], before)?;
    }
    Ok(Outcome::Passed)
}

fn refused(subject: &dyn Subject) -> Check {
    let cell = ChainCell::all()[0].cell();
    let harness = Harness::new(subject, vec![cell.clone()])?;
    let plan = ExecutionPlan::new("{\"of\": \"no device\"}");
    let planned = harness.device.plan(cell.identity(), &[(1, plan)]);
    ensure!(matches!(planned, Err(DeviceError::Resources(_))), "{planned:?}");
    Ok(())
}
