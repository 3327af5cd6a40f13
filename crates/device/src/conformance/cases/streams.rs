//! Rows that are read while later tasks of their chain are in flight, and the steps that a queue
//! reports of a task that goes on.

use std::ops::Range;
use std::sync::Arc;

use batchmaker_graph::{Cell, Join, RowOrder, RunIndex, SinkTime, TensorData, ValueIndex, Work};

use crate::conformance::case::{Case, Check, Outcome, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cases::sessions::alone;
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::{Chain, Request};
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;
use crate::contract::{Completion, Read};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for cell in ChainCell::few() {
        let name = format!("streams/{}: rows of tasks that are over", cell.name);
        let case =
            Case::new(name, move |subject| stream(subject, &cell.cell(), &[4, 3, 5]).map(|_| ()));
        cases.push(if cell.has_programs { case.with_programs() } else { case });
    }
    let lstm = ChainCell::all()[0];
    cases.push(Case::skippable("streams/steps of a task that goes on", move |subject| {
        let reported = stream(subject, &lstm.cell(), &[12])?;
        if subject.reports_steps() {
            ensure!(reported > 0, "a task of 12 steps reports none of them");
        } else if reported == 0 {
            return Ok(Outcome::Skipped("reports no steps".to_owned()));
        }
        Ok(Outcome::Passed)
    }));
    cases
}

/// The values that a request's chain writes after every node, node by node from their first row on;
/// and their positions among the outputs.
fn streamed(request: &Request) -> (Arc<[ValueIndex]>, Vec<usize>) {
    let sinks = request.graph.runs()[0].sinks.iter();
    let in_order = RowOrder::Strided { first: 0, stride: 1 };
    let every = sinks.filter(|s| s.time == SinkTime::Every && s.rows.order == in_order);
    let values: Vec<ValueIndex> = every.map(|sink| sink.rows.value).collect();
    let position = |value: &ValueIndex| {
        let output = request.graph.outputs().iter().position(|output| output == value);
        output.expect("all values are outputs")
    };
    let positions = values.iter().map(position).collect();
    (values.into(), positions)
}

/// Runs a chain in tasks of `steps` steps, all in flight at once, and reads its rows as they are
/// reported. Returns the number of reports of steps of a task that goes on.
fn stream(subject: &dyn Subject, cell: &Cell, steps: &[u32]) -> Check<usize> {
    let length = steps.iter().sum();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let request = Chain::new(cell, CELL, length, 3).request(cell);
    let whole = alone(&mut harness, &request)?;
    let mut leaves = harness.leave(0, CELL);
    let id = harness.admit(&request)?;
    let slot = harness.take_slot(CELL);
    let join = Join { request: id, run: RunIndex(0), slot, step: 0, moved_from: None };
    let mut joins = vec![join];
    let works: Vec<_> = steps
        .iter()
        .map(|&steps| {
            let (leaves, joins) = (std::mem::take(&mut leaves), std::mem::take(&mut joins));
            (CELL, Work::Roster { leaves, joins, steps })
        })
        .collect();
    let (values, positions) = streamed(&request);
    let worker = &mut harness.workers[0];
    worker.submit(works)?;
    let read = |rows: Range<u32>| Read::Rows { request: id, values: values.clone(), rows };
    let (mut known, mut read_until, mut of_tasks, mut over, mut reported) = (0, 0, 0, 0, 0);
    while let Some(report) = worker.next()? {
        match report {
            Completion::Steps { steps, .. } => {
                known = of_tasks + steps;
                reported += 1;
            }
            Completion::Task(done) => {
                done.result.map_err(|reason| reason.to_string())?;
                of_tasks += steps[over];
                over += 1;
                known = of_tasks;
            }
            Completion::Values { read: Read::Rows { rows, .. }, data } => {
                let data = data.map_err(|reason| reason.to_string())?;
                check(cell, &data, &whole, &positions, rows)?;
            }
            other => return Err(format!("{other:?}")),
        }
        if known > read_until {
            worker.ask(read(read_until..known));
            // And some of the rows again, without waiting in between.
            worker.ask(read(known - 1..known));
            read_until = known;
        }
    }
    ensure!(read_until == length, "{read_until} rows of {length} were reported");
    same_bits("all of it", &harness.finish(0, id)?, &whole)?;
    Ok(reported)
}

/// Checks rows of streamed values, each of which belongs to a port of its own, in the order of ports.
fn check(
    cell: &Cell,
    rows_read: &[TensorData],
    whole: &[TensorData],
    positions: &[usize],
    rows: Range<u32>,
) -> Check {
    ensure!(rows_read.len() == cell.outputs.len(), "{} values were read", rows_read.len());
    for ((data, &position), row) in rows_read.iter().zip(positions).zip(&cell.outputs) {
        let elements = row.elements();
        let range = rows.start as usize * elements..rows.end as usize * elements;
        let expected = whole[position].slice(range);
        same_bits(&format!("rows {rows:?}"), std::slice::from_ref(data), &[expected])?;
    }
    Ok(())
}
