//! Rounds that overlap: what a worker is given while tasks of it are unfinished, and what that is to
//! other workers, to cell types and to priorities.

mod common;

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, TaskId, WorkerId};
use batchmaker_manager::{
    CellTypeConfig, Config, Event, Failure, Manager, Merging, Outcome, Policy, TaskForm,
};
use expect_test::expect;

use common::{Roster, arrive, config, request, stack};

const FIRST: WorkerId = WorkerId(0);
const SECOND: WorkerId = WorkerId(1);

/// A manager, and a trace of what its workers are given: a line a batch.
struct Play {
    manager: Manager,
    rosters: BTreeMap<(WorkerId, CellTypeId), Roster>,
    trace: String,
}

impl Play {
    fn new(config: Config) -> Self {
        Self { manager: Manager::new(config), rosters: BTreeMap::new(), trace: String::new() }
    }

    fn arrive(&mut self, index: u32, layers: u32, length: u32) {
        self.manager.handle(0, arrive(index, stack(layers, length, false)));
    }

    /// All that `worker` is given now.
    fn ask(&mut self, worker: WorkerId) {
        let before = self.trace.len();
        while let Some(task) = self.manager.next_task(worker) {
            let roster = self.rosters.entry((worker, task.cell_type)).or_default();
            for batch in roster.batches(&task) {
                let node = |node: &common::Node| format!(" r{}:{}", node.0.index, node.2);
                let nodes: String = batch.iter().map(node).collect();
                self.trace += &format!("{worker} {} {}{nodes}\n", task.id, task.cell_type);
            }
        }
        if self.trace.len() == before {
            self.trace += &format!("{worker} nothing\n");
        }
    }

    fn complete(&mut self, worker: WorkerId, task: u64) {
        self.trace += &format!("{worker} completes {task}\n");
        self.manager.handle(0, Event::Complete { worker, task: TaskId(task) });
    }

    fn progress(&mut self, worker: WorkerId, task: u64, steps: u32) {
        self.trace += &format!("{worker} completes {steps} steps of {task}\n");
        self.manager.handle(0, Event::Progress { worker, task: TaskId(task), steps });
    }

    fn ended(&mut self) -> Vec<(u32, Outcome)> {
        let finished = self.manager.drain_finished();
        finished.map(|finished| (finished.request.index, finished.outcome)).collect()
    }
}

fn with_lookahead(lookahead: u32, config: Config) -> Config {
    Config { lookahead, ..config }
}

/// A round of one batch at a time, two tasks ahead: the third is there before the first is over.
#[test]
fn a_worker_has_lookahead_tasks_and_one_more() {
    let mut play = Play::new(with_lookahead(2, config(&[4], 1, 1)));
    play.arrive(0, 1, 9);
    play.ask(FIRST);
    assert!(!play.manager.has_work_for(FIRST));
    play.complete(FIRST, 1);
    assert!(play.manager.has_work_for(FIRST));
    play.ask(FIRST);
    expect![[r#"
        w0 task1 cell0 r0:0
        w0 task2 cell0 r0:1
        w0 task3 cell0 r0:2
        w0 completes 1
        w0 task4 cell0 r0:3
    "#]]
    .assert_eq(&play.trace);
}

/// Line 27: while a task that holds a node of it is in flight, a member is its worker's. Here the
/// second worker gets what is not in the first one's batches, and the members once they are idle.
#[test]
fn members_are_released_when_their_last_task_completes() {
    let mut play = Play::new(with_lookahead(1, config(&[2], 2, 1)));
    (0..3).for_each(|index| play.arrive(index, 1, 4));
    play.ask(FIRST);
    play.ask(SECOND);
    // Older than all: it displaces r1, whose second step is in flight still.
    let mut urgent = arrive(3, stack(1, 2, false));
    if let Event::Arrive { priority, .. } = &mut urgent {
        *priority = 1;
    }
    play.manager.handle(0, urgent);
    play.complete(FIRST, 1);
    play.ask(FIRST);
    play.complete(SECOND, 1);
    play.ask(SECOND);
    play.complete(FIRST, 2);
    play.complete(SECOND, 2);
    play.ask(SECOND);
    expect![[r#"
        w0 task1 cell0 r0:0 r1:0
        w0 task2 cell0 r0:1 r1:1
        w1 task1 cell0 r2:0
        w1 task2 cell0 r2:1
        w0 completes 1
        w0 task3 cell0 r0:2 r3:0
        w1 completes 1
        w1 task3 cell0 r2:2
        w0 completes 2
        w1 completes 2
        w1 task4 cell0 r1:2 r2:3
    "#]]
    .assert_eq(&play.trace);
}

/// A worker whose rounds turned to another type keeps its members of the first type until their last
/// task completes, and no longer.
#[test]
fn a_roster_is_free_while_its_worker_is_at_another_type() {
    let mut play = Play::new(with_lookahead(1, config(&[1, 1], 2, 1)));
    play.arrive(0, 2, 3);
    play.ask(FIRST);
    play.ask(SECOND);
    play.complete(FIRST, 1);
    play.ask(SECOND);
    expect![[r#"
        w0 task1 cell0 r0:0
        w0 task2 cell1 r0:0
        w1 nothing
        w0 completes 1
        w1 task1 cell0 r0:1
        w1 task2 cell0 r0:2
    "#]]
    .assert_eq(&play.trace);
}

/// Line 7: a worker's own tasks do not count as running, since they will be over when its round
/// runs; those of others do. So both workers go from type to type as they do without lookahead.
#[test]
fn own_tasks_do_not_count_as_running() {
    for lookahead in [0, 1] {
        let mut config = with_lookahead(lookahead, config(&[4, 4], 2, 1));
        // The lower layer is preferred.
        config.cell_types[0].priorities[0].priority = 5;
        let mut play = Play::new(config);
        play.arrive(0, 2, 3);
        play.ask(FIRST);
        play.arrive(1, 2, 3);
        play.ask(SECOND);
        let expected = match lookahead {
            0 => {
                play.complete(SECOND, 1);
                play.ask(SECOND);
                play.complete(FIRST, 1);
                play.ask(FIRST);
                expect![[r#"
                    w0 task1 cell0 r0:0
                    w1 task1 cell0 r1:0
                    w1 completes 1
                    w1 task2 cell1 r1:0
                    w0 completes 1
                    w0 task2 cell0 r0:1 r1:1
                "#]]
            }
            _ => expect![[r#"
                w0 task1 cell0 r0:0
                w0 task2 cell0 r0:1
                w1 task1 cell0 r1:0
                w1 task2 cell1 r1:0
            "#]],
        };
        expected.assert_eq(&play.trace);
    }
}

/// A request of a higher priority waits for what was submitted, and for nothing else.
#[test]
fn priority_waits_for_what_was_submitted() {
    for lookahead in [0, 2] {
        let mut play = Play::new(with_lookahead(lookahead, config(&[2], 1, 2)));
        play.arrive(0, 1, 20);
        play.arrive(1, 1, 20);
        play.ask(FIRST);
        let mut urgent = arrive(2, stack(1, 2, false));
        if let Event::Arrive { priority, .. } = &mut urgent {
            *priority = 1;
        }
        play.manager.handle(0, urgent);
        play.trace += "r2 comes\n";
        play.complete(FIRST, 1);
        play.ask(FIRST);
        let expected = match lookahead {
            0 => expect![[r#"
                w0 task1 cell0 r0:0 r1:0
                w0 task1 cell0 r0:1 r1:1
                r2 comes
                w0 completes 1
                w0 task2 cell0 r0:2 r2:0
                w0 task2 cell0 r0:3 r2:1
            "#]],
            _ => expect![[r#"
                w0 task1 cell0 r0:0 r1:0
                w0 task1 cell0 r0:1 r1:1
                w0 task2 cell0 r0:2 r1:2
                w0 task2 cell0 r0:3 r1:3
                w0 task3 cell0 r0:4 r1:4
                w0 task3 cell0 r0:5 r1:5
                r2 comes
                w0 completes 1
                w0 task4 cell0 r0:6 r2:0
                w0 task4 cell0 r0:7 r2:1
            "#]],
        };
        expected.assert_eq(&play.trace);
    }
}

/// Steps that are complete release what depends on them elsewhere, and are counted as complete; a
/// task that fails after them fails those who have steps to go.
#[test]
fn completed_steps_release_nodes_though_the_task_fails_later() {
    let mut play = Play::new(config(&[2, 2], 2, 4));
    play.arrive(0, 2, 6);
    play.ask(FIRST);
    play.ask(SECOND);
    play.progress(FIRST, 1, 2);
    let completed =
        |play: &Play| play.manager.completed_nodes(request(0), batchmaker_graph::RunIndex(0));
    assert_eq!(completed(&play), 2);
    play.ask(SECOND);
    play.progress(FIRST, 1, 3);
    assert_eq!(completed(&play), 3);
    expect![[r#"
        w0 task1 cell0 r0:0
        w0 task1 cell0 r0:1
        w0 task1 cell0 r0:2
        w0 task1 cell0 r0:3
        w1 nothing
        w0 completes 2 steps of 1
        w1 task1 cell1 r0:0
        w1 task1 cell1 r0:1
        w0 completes 3 steps of 1
    "#]]
    .assert_eq(&play.trace);
    let reason = "an illegal address";
    let failed = Event::TaskFailed { worker: FIRST, task: TaskId(1), reason: reason.into() };
    play.manager.handle(0, failed);
    assert!(play.ended().is_empty(), "nodes of it are in flight on the second worker");
    play.complete(SECOND, 1);
    assert_eq!(play.ended(), [(0, Outcome::Failed(Failure::Task(reason.into())))]);
}

/// The first of two tasks in flight fails after progress; a request in the second alone goes on.
#[test]
fn a_failed_task_fails_those_in_it_alone() {
    let mut play = Play::new(with_lookahead(1, config(&[1], 1, 2)));
    play.arrive(0, 1, 2);
    play.arrive(1, 1, 3);
    play.ask(FIRST);
    play.progress(FIRST, 1, 1);
    let failed = Event::TaskFailed { worker: FIRST, task: TaskId(1), reason: "late".into() };
    play.manager.handle(0, failed);
    assert_eq!(play.ended(), [(0, Outcome::Failed(Failure::Task("late".into())))]);
    play.complete(FIRST, 2);
    play.ask(FIRST);
    play.complete(FIRST, 3);
    assert_eq!(play.ended(), [(1, Outcome::Succeeded)]);
    expect![[r#"
        w0 task1 cell0 r0:0
        w0 task1 cell0 r0:1
        w0 task2 cell0 r1:0
        w0 task2 cell0 r1:1
        w0 completes 1 steps of 1
        w0 completes 2
        w0 task3 cell0 r1:2
        w0 completes 3
    "#]]
    .assert_eq(&play.trace);
}

/// A worker that is lost fails whom it has in flight, with the reason; progress changes nothing.
#[test]
fn a_lost_worker_says_why() {
    let mut play = Play::new(with_lookahead(3, config(&[2], 2, 3)));
    play.arrive(0, 1, 5);
    play.ask(FIRST);
    play.progress(FIRST, 1, 2);
    let reason = "it fell off the bus";
    play.manager.handle(0, Event::WorkerDown { worker: FIRST, reason: reason.into() });
    assert_eq!(play.ended(), [(0, Outcome::Failed(Failure::WorkerLost(reason.into())))]);
    play.arrive(1, 1, 1);
    assert!(!play.manager.has_work_for(FIRST) && play.manager.has_work_for(SECOND));
    play.ask(FIRST);
    play.ask(SECOND);
    expect![[r#"
        w0 task1 cell0 r0:0
        w0 task1 cell0 r0:1
        w0 task1 cell0 r0:2
        w0 task2 cell0 r0:3
        w0 task2 cell0 r0:4
        w0 completes 2 steps of 1
        w0 nothing
        w1 task1 cell0 r1:0
    "#]]
    .assert_eq(&play.trace);
}

#[test]
#[should_panic(expected = "went from 0 to 3 of 3 steps")]
fn the_last_step_comes_with_the_task() {
    let mut play = Play::new(config(&[2], 1, 3));
    play.arrive(0, 1, 5);
    play.ask(FIRST);
    play.progress(FIRST, 1, 3);
}

/// The tasks of a closed batch are submitted together; the next batch while a few are unfinished.
#[test]
fn a_closed_batch_follows_before_the_one_before_ends() {
    let policy = Policy::Merged(Merging { graphs: 1 });
    let mut play = Play::new(Config { policy, ..with_lookahead(1, config(&[4], 1, 1)) });
    (0..3).for_each(|index| play.arrive(index, 1, 2));
    play.ask(FIRST);
    play.complete(FIRST, 1);
    assert!(play.manager.has_work_for(FIRST));
    play.ask(FIRST);
    play.complete(FIRST, 2);
    assert_eq!(play.ended(), [(0, Outcome::Succeeded)]);
    expect![[r#"
        w0 task1 cell0 r0:0
        w0 task2 cell0 r0:1
        w0 completes 1
        w0 task3 cell0 r1:0
        w0 task4 cell0 r1:1
        w0 completes 2
    "#]]
    .assert_eq(&play.trace);
}

/// The rows that the device prepared for bound later limits.
#[test]
fn limits_stay_below_what_was_prepared_for() {
    let mut config = config(&[2], 1, 1);
    config.cell_types[0].rows_max = Some(3);
    let mut play = Play::new(config);
    (0..6).for_each(|index| play.arrive(index, 1, 2));
    play.ask(FIRST);
    play.manager.handle(0, Event::Limits { batch_max: vec![5], submission_window_ns: None });
    play.complete(FIRST, 1);
    play.ask(FIRST);
    expect![[r#"
        w0 task1 cell0 r0:0 r1:0
        w0 completes 1
        w0 task2 cell0 r0:1 r1:1 r2:0
    "#]]
    .assert_eq(&play.trace);
}

/// The time of a step is known however tasks overlap: each is timed from the end of the one before. Here
/// one takes 100 µs, so that rounds of 250 µs have two steps.
#[test]
fn steps_are_timed_from_the_end_of_those_before() {
    let submission_window_ns = Some(250_000);
    let mut config = Config { submission_window_ns, ..with_lookahead(2, config(&[1], 1, 9)) };
    config.task_form = TaskForm::Roster;
    config.cell_types[0] = CellTypeConfig::up_to(1, config.cell_types[0].priorities.clone());
    let mut manager = Manager::new(config);
    // The worker is idle up to here.
    let mut now = 5_000_000;
    manager.handle(now, arrive(0, stack(1, 1_000, false)));
    let (mut roster, mut unfinished) = (Roster::default(), Vec::new());
    let mut steps = Vec::new();
    for _ in 0..8 {
        while let Some(task) = manager.next_task(FIRST) {
            steps.push(roster.batches(&task).len());
            unfinished.push((task.id, *steps.last().unwrap() as u64));
        }
        let (task, steps) = unfinished.remove(0);
        // It asks in the middle of a task.
        manager.handle(now + 70_000, Event::Cancel { request: request(9) });
        assert_eq!(manager.next_task(FIRST), None);
        now += 100_000 * steps;
        manager.handle(now, Event::Complete { worker: FIRST, task });
    }
    assert_eq!(steps, [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
}
