//! Tasks that fail: the reason is reported, rosters change as the task says, what follows runs. Cells
//! that cannot be run are refused.

use batchmaker_graph::{
    Cell, CellBody, CellTypeId, Join, Program, RequestId, RunIndex, SlotId, Tensor, TensorData,
    Work,
};

use crate::conformance::case::{Case, Check, Outcome, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cases::row_wise;
use crate::conformance::cells::{self, counter};
use crate::conformance::graphs::{Chain, Request};
use crate::conformance::harness::{Harness, cell_type};
use crate::conformance::programs::SuiteProgram;
use crate::conformance::subject::Subject;
use crate::contract::{DeviceError, TaskDone};

pub(super) fn cases() -> Vec<Case> {
    let with_failing_input = |name: &str, body: fn(&dyn Subject, i64) -> Check| {
        let body = move |subject: &dyn Subject| match subject.failing_input() {
            None => Ok(Outcome::Skipped("no task can be made to fail".to_owned())),
            Some(failing) => body(subject, failing).map(|()| Outcome::Passed),
        };
        Case::skippable(format!("failures/{name}"), body).with_programs()
    };
    vec![
        with_failing_input("a roster holds", |subject, failing| roster(subject, failing, false)),
        with_failing_input("a roster holds within a round", |subject, failing| {
            roster(subject, failing, true)
        }),
        with_failing_input("chains go on behind a task that failed", go_on),
        with_failing_input("a batch of rows", rows),
        Case::new("failures/a cell that no device can run", refused),
    ]
}

/// Checks that the second of three tasks failed, with a reason.
pub(super) fn check_second_failed(done: &[TaskDone]) -> Check {
    let [first, second, third] = done else { return Err(format!("{done:?}")) };
    let of = |done: &TaskDone| done.result.clone().map_err(|reason| reason.to_string());
    of(first).map_err(|reason| format!("the task before failed: {reason}"))?;
    let reason = of(second).err().ok_or("the task did not fail")?;
    ensure!(!reason.is_empty(), "a task fails for no reason");
    of(third).map_err(|reason| format!("the task after failed: {reason}"))
}

/// A request for each of `lengths`, with one chain of the counter. The second step of the second chain
/// has the input `failing`, so that it fails.
fn with_failing_step(cell: &Cell, lengths: [u32; 3], failing: i64) -> Vec<Request> {
    let mut chains = lengths.map(|length| Chain::new(cell, CELL, length, length + 1));
    let TensorData::I64(inputs) = &mut chains[1].inputs[0] else { unreachable!("ids") };
    inputs[1] = failing;
    chains.iter().map(|chain| chain.request(cell)).collect()
}

/// Chain 0 runs to its end. The second task, in which it leaves and the failing chain joins, fails
/// in its second step. In the third task the failing chain leaves, and another joins in the slot of
/// chain 0.
fn roster(subject: &dyn Subject, failing: i64, is_one_round: bool) -> Check {
    let cell = counter();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests = with_failing_step(&cell, [2, 4, 3], failing);
    let ids = harness.admit_all(&requests)?;
    let slots = [harness.take_slot(CELL), harness.take_slot(CELL)];
    let again = SlotId { generation: slots[0].generation + 1, ..slots[0] };
    let join = |request: RequestId, slot| {
        vec![Join { request, run: RunIndex(0), slot, step: 0, moved_from: None }]
    };
    let works = [
        (Vec::new(), join(ids[0], slots[0]), 2),
        (vec![slots[0]], join(ids[1], slots[1]), 3),
        (vec![slots[1]], join(ids[2], again), 3),
    ];
    let works = works.map(|(leaves, joins, steps)| (CELL, Work::Roster { leaves, joins, steps }));
    let worker = &mut harness.workers[0];
    let mut done = Vec::new();
    if is_one_round {
        worker.submit(works)?;
        done = worker.drain()?;
    } else {
        for work in works {
            worker.submit([work])?;
            done.extend(worker.drain()?);
        }
    }
    check_second_failed(&done)?;
    for at in [0, 2] {
        let outputs = harness.finish(0, ids[at])?;
        harness.check(&requests[at], &outputs).map_err(|reason| format!("chain {at}: {reason}"))?;
    }
    // Its values are undefined, and are retired like others.
    harness.device.retire(ids[1]);
    Ok(())
}

/// A chain that failed in the second of four steps stays in the next task, which was submitted before
/// the failure was reported, and in which another chain joins. That chain succeeds.
fn go_on(subject: &dyn Subject, failing: i64) -> Check {
    let cell = counter();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests = with_failing_step(&cell, [2, 6, 3], failing);
    let ids = harness.admit_all(&requests)?;
    let slots: Vec<SlotId> = ids.iter().map(|_| harness.take_slot(CELL)).collect();
    let join = |at: usize| {
        let (request, slot) = (ids[at], slots[at]);
        vec![Join { request, run: RunIndex(0), slot, step: 0, moved_from: None }]
    };
    let works = [
        (Vec::new(), join(0), 2),
        (vec![slots[0]], join(1), 4),
        (Vec::new(), join(2), 2),
        (vec![slots[1]], Vec::new(), 1),
    ];
    let works = works.map(|(leaves, joins, steps)| (CELL, Work::Roster { leaves, joins, steps }));
    harness.workers[0].submit(works)?;
    let done = harness.workers[0].drain()?;
    check_second_failed(&done[..3])?;
    for at in [0, 2] {
        let outputs = harness.finish(0, ids[at])?;
        harness.check(&requests[at], &outputs).map_err(|reason| format!("chain {at}: {reason}"))?;
    }
    harness.device.retire(ids[1]);
    Ok(())
}

/// Rows of two requests fail together; those of the requests before and after them do not.
fn rows(subject: &dyn Subject, failing: i64) -> Check {
    let cell = cells::program(SuiteProgram::Add);
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let good = row_wise::request(&cell, CELL, 3, 1);
    let mut bad = row_wise::request(&cell, CELL, 3, 2);
    let TensorData::I64(mut ids) = bad.inputs[0].data().clone() else { unreachable!("ids") };
    ids[1] = failing;
    bad.inputs[0] = Tensor::new(vec![3], TensorData::I64(ids));
    let requests = [good.clone(), bad, good.clone(), good];
    let ids = harness.admit_all(&requests)?;
    let item = |at: usize, first, count| row_wise::item(ids[at], first, count);
    let tasks = [vec![item(0, 0, 3)], vec![item(1, 0, 3), item(2, 0, 1)], vec![item(3, 0, 3)]];
    let worker = &mut harness.workers[0];
    worker.submit(tasks.map(|items| (CELL, Work::Rows(items))))?;
    let done = worker.drain()?;
    check_second_failed(&done)?;
    for at in [0, 3] {
        let outputs = harness.finish(0, ids[at])?;
        harness
            .check(&requests[at], &outputs)
            .map_err(|reason| format!("request {at}: {reason}"))?;
    }
    // Their values are undefined, and are retired like others.
    [ids[1], ids[2]].into_iter().for_each(|id| harness.device.retire(id));
    Ok(())
}

/// A cell whose program is no ONNX file is refused. Its id may stand for a cell that can be run later.
fn refused(subject: &dyn Subject) -> Check {
    let mut harness = Harness::new(subject, Vec::new())?;
    let program = Program {
        bytes: b"no ONNX file".to_vec().into(),
        summary: "no program".to_owned(),
        has_products: false,
    };
    let bad = Cell { body: CellBody::Program(program), ..cells::program(SuiteProgram::Add) };
    let id = CellTypeId(0);
    match harness.device.materialize(id, &cell_type("bad", &bad)) {
        Err(DeviceError::Cell { cell, reason }) => {
            ensure!(cell == "bad" && !reason.is_empty(), "cell {cell}, reason '{reason}'");
        }
        other => return Err(format!("{other:?}")),
    }
    let good = cells::arg_max(cells::random_linear());
    harness.materialize(id, &good)?;
    harness.cells = vec![good.clone()];
    let requests = row_wise::requests(&good);
    for (request, outputs) in requests.iter().zip(row_wise::play(&mut harness, &requests)?) {
        harness.check(request, &outputs)?;
    }
    Ok(())
}
