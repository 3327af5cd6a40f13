//! The padded policy as a trace: buckets, turns, padding, and how its batches end.

mod common;

use batchmaker_graph::{BatchedTask, CellTypeId, RequestId, Work, WorkerId};
use batchmaker_manager::{
    Config, Event, Failure, Manager, Outcome, PadTo, Padding, Policy, StatePlacement,
};
use expect_test::{Expect, expect};

use common::{arrive, config, request, stack};

const WORKER: WorkerId = WorkerId(0);

fn manager(limits: &[u32], to: PadTo) -> Manager {
    let policy = Policy::Padded(Padding { width: 10, to });
    Manager::new(Config { policy, ..config(limits, 2, 5) })
}

/// The tasks that `worker` is given now, a line each.
fn tasks(manager: &mut Manager, worker: WorkerId) -> (Vec<BatchedTask>, String) {
    let tasks: Vec<BatchedTask> = std::iter::from_fn(|| manager.next_task(worker)).collect();
    let line = |task: &BatchedTask| match &task.work {
        Work::Roster { leaves, joins, steps } => {
            let joins: Vec<u32> = joins.iter().map(|join| join.request.index).collect();
            format!("{} {steps} steps, {} leave, join {joins:?}\n", task.cell_type, leaves.len())
        }
        Work::Rows(items) => {
            let item = |item: &batchmaker_graph::Item| {
                (item.request.index, item.first..item.first + item.count)
            };
            let items: Vec<_> = items.iter().map(item).collect();
            format!("{} rows {items:?}\n", task.cell_type)
        }
    };
    let lines = tasks.iter().map(line).collect();
    (tasks, lines)
}

fn complete(manager: &mut Manager, worker: WorkerId, tasks: &[BatchedTask]) {
    for task in tasks {
        manager.handle(10, Event::Complete { worker, task: task.id });
    }
}

fn ended(manager: &mut Manager) -> Vec<(u32, Outcome)> {
    manager.drain_finished().map(|finished| (finished.request.index, finished.outcome)).collect()
}

fn check(manager: &mut Manager, expected: &Expect) -> Vec<BatchedTask> {
    let (given, lines) = tasks(manager, WORKER);
    expected.assert_eq(&lines);
    given
}

#[test]
fn buckets_take_turns_and_batches_are_closed() {
    let mut manager = manager(&[3], PadTo::Bucket);
    for (index, length) in [(0, 4), (1, 25), (2, 9), (3, 1), (4, 10)] {
        manager.handle(0, arrive(index, stack(1, length, false)));
    }
    let first = check(
        &mut manager,
        &expect![[r"
        cell0 10 steps, 0 leave, join [0, 2, 3]
    "]],
    );
    manager.handle(5, arrive(5, stack(1, 5, false)));
    assert_eq!(manager.next_task(WORKER), None, "nobody joins a batch");
    assert!(ended(&mut manager).is_empty());
    complete(&mut manager, WORKER, &first);
    let all = [0, 2, 3].map(|index| (index, Outcome::Succeeded));
    assert_eq!(ended(&mut manager), all, "all end together");
    let second = check(
        &mut manager,
        &expect![[r"
        cell0 30 steps, 3 leave, join [1]
    "]],
    );
    complete(&mut manager, WORKER, &second);
    check(
        &mut manager,
        &expect![[r"
        cell0 10 steps, 1 leave, join [4, 5]
    "]],
    );
    let statistics = manager.statistics(CellTypeId(0));
    let nodes = 4 + 9 + 1 + 25 + 10 + 5;
    assert_eq!((statistics.tasks, statistics.nodes), (50, nodes));
    assert_eq!(statistics.padding, 30 + 30 + 20 - nodes);
    assert_eq!(manager.batches_by_size(CellTypeId(0)), [0, 30, 10, 10]);
}

#[test]
fn layers_and_heads_run_level_by_level() {
    let mut manager = manager(&[4, 4, 6], PadTo::Longest);
    manager.handle(0, arrive(0, stack(2, 3, true)));
    manager.handle(0, arrive(1, stack(2, 4, true)));
    check(
        &mut manager,
        &expect![[r"
        cell0 4 steps, 0 leave, join [0, 1]
        cell1 4 steps, 0 leave, join [0, 1]
        cell2 rows [(0, 0..4), (1, 0..2)]
        cell2 rows [(1, 2..4)]
    "]],
    );
    assert_eq!(manager.statistics(CellTypeId(2)).padding, 1);
}

#[test]
fn other_limits_hold_for_the_next_batch() {
    let mut manager = manager(&[3], PadTo::Bucket);
    for index in 0..5 {
        manager.handle(0, arrive(index, stack(1, 5, false)));
    }
    let first = manager.next_task(WORKER).unwrap();
    manager.handle(5, Event::Limits { batch_max: vec![1], submission_window_ns: None });
    complete(&mut manager, WORKER, &[first]);
    let all = [0, 1, 2].map(|index| (index, Outcome::Succeeded));
    assert_eq!(ended(&mut manager), all, "a batch ends as it began");
    check(
        &mut manager,
        &expect![[r"
        cell0 10 steps, 3 leave, join [3]
    "]],
    );
}

#[test]
fn workers_have_batches_of_their_own() {
    let mut manager = manager(&[2], PadTo::Bucket);
    for index in 0..3 {
        manager.handle(0, arrive(index, stack(1, 5, false)));
    }
    let (first, _) = tasks(&mut manager, WORKER);
    let other = WorkerId(1);
    assert!(manager.has_work_for(other) && !manager.has_work_for(WORKER));
    let (second, lines) = tasks(&mut manager, other);
    assert_eq!(lines, "cell0 10 steps, 0 leave, join [2]\n");
    complete(&mut manager, other, &second);
    assert_eq!(ended(&mut manager), [(2, Outcome::Succeeded)]);
    complete(&mut manager, WORKER, &first);
    assert_eq!(manager.statistics(CellTypeId(0)).slots_in_use, 0);
}

#[test]
fn who_waits_leaves_at_once_and_who_runs_at_the_end() {
    let mut manager = manager(&[1], PadTo::Bucket);
    for index in 0..3 {
        manager.handle(0, arrive(index, stack(1, 5, false)));
    }
    let (running, _) = tasks(&mut manager, WORKER);
    for index in [0, 2] {
        manager.handle(1, Event::Cancel { request: request(index) });
    }
    let unknown = RequestId { index: 1, generation: 9 };
    manager.handle(1, Event::Cancel { request: unknown });
    assert_eq!(ended(&mut manager), [(2, Outcome::Cancelled)]);
    complete(&mut manager, WORKER, &running);
    assert_eq!(ended(&mut manager), [(0, Outcome::Cancelled)]);
    assert_eq!((manager.requests(), manager.statistics(CellTypeId(0)).waiting), (1, 1));
}

#[test]
fn a_failed_task_fails_those_in_it() {
    let mut manager = manager(&[2, 4], PadTo::Bucket);
    manager.handle(0, arrive(0, stack(1, 4, true)));
    manager.handle(0, arrive(1, stack(1, 4, true)));
    let (given, _) = tasks(&mut manager, WORKER);
    // Chains, then rows 0-3, 4-7, 8-9 of the first and 0-1 of the second, 2-5, 6-9 of it.
    assert_eq!(given.len(), 6);
    let mut end = |fails: &[usize]| {
        for (index, task) in given.iter().enumerate() {
            let (worker, task) = (WORKER, task.id);
            manager.handle(
                9,
                match fails.contains(&index) {
                    true => Event::TaskFailed { worker, task, reason: "no memory".into() },
                    false => Event::Complete { worker, task },
                },
            );
        }
        ended(&mut manager)
    };
    let failed = Outcome::Failed(Failure::Task("no memory".into()));
    // Of these, the first and the last hold padding alone.
    assert_eq!(end(&[2, 4, 5]), [(0, Outcome::Succeeded), (1, failed)]);
}

#[test]
fn a_lost_worker_loses_its_batch() {
    for placement in [StatePlacement::Shared, StatePlacement::PerWorker] {
        let policy = Policy::Padded(Padding { width: 10, to: PadTo::Bucket });
        let config = Config { policy, state_placement: placement, ..config(&[2], 1, 5) };
        let mut manager = Manager::new(config);
        for index in 0..3 {
            manager.handle(0, arrive(index, stack(1, 5, false)));
        }
        tasks(&mut manager, WORKER);
        manager.handle(1, Event::WorkerDown { worker: WORKER, reason: "unplugged".into() });
        let lost = Outcome::Failed(Failure::WorkerLost("unplugged".into()));
        assert_eq!(ended(&mut manager), [(0, lost.clone()), (1, lost)]);
        assert_eq!(manager.next_task(WORKER), None);
        manager.handle(2, Event::WorkerUp { worker: WORKER });
        let (_, lines) = tasks(&mut manager, WORKER);
        assert_eq!(lines, "cell0 10 steps, 0 leave, join [2]\n", "its roster is empty");
    }
}
