//! Both task forms run exactly the nodes that Algorithm 1 picks, batch for batch, against
//! the plain reference.

mod common;

use std::collections::{BTreeMap, VecDeque};

use batchmaker_graph::{CellTypeId, TaskId, WorkerId};
use batchmaker_manager::{Event, Manager, TaskForm};
use proptest::prelude::*;

use common::reference::Reference;
use common::{Node, Roster, arrive, config, joined_at_random, request, stack, tree};

#[derive(Clone, Debug)]
enum Move {
    Arrive {
        layers: u32,
        length: u32,
        with_head: bool,
    },
    /// A tree; the numbers choose which nodes are joined.
    ArriveTree {
        leaves: u32,
        choices: Vec<u32>,
    },
    Complete {
        worker: u32,
    },
    /// The next batch of the oldest task is complete: a step of a roster.
    Progress {
        worker: u32,
    },
    Ask {
        worker: u32,
    },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let arrive = (1..=3u32, 1..=12u32, any::<bool>())
        .prop_map(|(layers, length, with_head)| Move::Arrive { layers, length, with_head });
    let tree = (1..=12u32, prop::collection::vec(any::<u32>(), 24))
        .prop_map(|(leaves, choices)| Move::ArriveTree { leaves, choices });
    let complete = (0..3u32).prop_map(|worker| Move::Complete { worker });
    let progress = (0..3u32).prop_map(|worker| Move::Progress { worker });
    let ask = (0..3u32).prop_map(|worker| Move::Ask { worker });
    let one = prop_oneof![2 => arrive, 1 => tree, 4 => complete, 3 => progress, 5 => ask];
    prop::collection::vec(one, 1..120)
}

/// The manager, a device that only unfolds rosters, and the reference beside them.
struct Pair {
    manager: Manager,
    rosters: BTreeMap<(WorkerId, CellTypeId), Roster>,
    reference: Reference,
    /// Per worker, oldest first.
    in_flight: Vec<VecDeque<InFlight>>,
    /// Every batch so far.
    trace: Vec<(WorkerId, CellTypeId, Vec<Node>)>,
}

#[derive(Clone)]
struct InFlight {
    task: TaskId,
    batches: u32,
    /// The number of them that are complete.
    done: u32,
}

impl Pair {
    /// Gives `worker` all the rounds that it may have now.
    fn ask(&mut self, worker: WorkerId) {
        loop {
            let unfinished = self.in_flight[worker.index()].len();
            let mut expected = self.reference.schedule(worker, unfinished);
            assert_eq!(self.manager.has_work_for(worker), !expected.is_empty());
            if expected.is_empty() {
                assert_eq!(self.manager.next_task(worker), None);
                return;
            }
            for (_, nodes) in &mut expected {
                nodes.sort_unstable();
            }
            let mut batches: Vec<(CellTypeId, Vec<Node>)> = Vec::new();
            while batches.len() < expected.len() {
                assert!(self.manager.has_work_for(worker));
                let task = self.manager.next_task(worker).expect("the round goes on");
                let roster = self.rosters.entry((worker, task.cell_type)).or_default();
                let formed = roster.batches(&task);
                let batches_of_task = formed.len() as u32;
                let in_flight = InFlight { task: task.id, batches: batches_of_task, done: 0 };
                self.in_flight[worker.index()].push_back(in_flight);
                batches.extend(formed.into_iter().map(|batch| (task.cell_type, batch)));
            }
            assert_eq!(batches, expected);
            let batches = batches.into_iter().map(|(cell_type, nodes)| (worker, cell_type, nodes));
            self.trace.extend(batches);
        }
    }

    fn complete(&mut self, worker: WorkerId) {
        if let Some(InFlight { task, batches, done }) = self.in_flight[worker.index()].pop_front() {
            self.manager.handle(0, Event::Complete { worker, task });
            (done..batches).for_each(|_| self.reference.complete(worker));
        }
    }

    fn progress(&mut self, worker: WorkerId) {
        let oldest = self.in_flight[worker.index()].front_mut();
        let Some(InFlight { task, batches, done }) = oldest else { return };
        if *done + 1 == *batches {
            return self.complete(worker);
        }
        *done += 1;
        self.manager.handle(0, Event::Progress { worker, task: *task, steps: *done });
        self.reference.complete(worker);
    }
}

/// The parameters of a play: workers, batch limit, `MaxTasksToSubmit`, lookahead.
type Drawn = (u32, u32, u32, u32);

fn drawn() -> impl Strategy<Value = Drawn> {
    (1..=3u32, 1..=6u32, 1..=6u32, 0..=3u32)
}

/// The completion that a move stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completing {
    /// A task, or a batch if it says so.
    AsAsked,
    /// A batch.
    ByBatch,
}

/// Plays the moves and then all that is left; the batches, in order.
fn play(
    form: TaskForm,
    completing: Completing,
    (workers, limit, max_tasks, lookahead): Drawn,
    moves: &[Move],
) -> Vec<(WorkerId, CellTypeId, Vec<Node>)> {
    // Three layers and a head; leaves and inner nodes. The last three's limits count rows.
    let limits = [limit, limit, limit + 1, limit, limit + 2, limit];
    let mut config = config(&limits, workers as u16, max_tasks);
    (config.task_form, config.lookahead) = (form, lookahead);
    let mut pair = Pair {
        manager: Manager::new(config.clone()),
        rosters: BTreeMap::new(),
        reference: Reference::new(config),
        in_flight: vec![VecDeque::new(); workers as usize],
        trace: Vec::new(),
    };
    let mut arrived = 0;
    for step in moves {
        match step {
            &Move::Arrive { layers, length, with_head } => {
                // Every request has the head in the same type, after three layers.
                let graph = stack(if with_head { 3 } else { layers }, length, with_head);
                pair.manager.handle(0, arrive(arrived, graph.clone()));
                pair.reference.arrive(request(arrived), graph);
                arrived += 1;
            }
            Move::ArriveTree { leaves, choices } => {
                let children = joined_at_random(*leaves, choices);
                let graph = tree([CellTypeId(4), CellTypeId(5)], *leaves, &children);
                pair.manager.handle(0, arrive(arrived, graph.clone()));
                pair.reference.arrive(request(arrived), graph);
                arrived += 1;
            }
            Move::Progress { worker } => pair.progress(WorkerId(worker % workers)),
            Move::Complete { worker } if completing == Completing::AsAsked => {
                pair.complete(WorkerId(worker % workers));
            }
            Move::Complete { worker } => pair.progress(WorkerId(worker % workers)),
            Move::Ask { worker } => pair.ask(WorkerId(worker % workers)),
        }
    }
    let mut finished = pair.manager.drain_finished().count();
    for _ in 0..100_000 {
        if pair.manager.requests() == 0 {
            break;
        }
        for worker in (0..workers).map(WorkerId) {
            pair.ask(worker);
            match completing {
                Completing::AsAsked => pair.complete(worker),
                Completing::ByBatch => pair.progress(worker),
            }
        }
    }
    finished += pair.manager.drain_finished().count();
    assert_eq!(finished, arrived as usize, "every request ends");
    for cell_type in (0..limits.len() as u32).map(CellTypeId) {
        assert_eq!(pair.manager.statistics(cell_type).slots_in_use, 0);
    }
    pair.trace
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn rosters(drawn in drawn(), moves in moves()) {
        play(TaskForm::Roster, Completing::AsAsked, drawn, &moves);
    }

    /// A roster whose steps are reported one by one is the same as explicit rows, across workers too.
    #[test]
    fn steps_reported_one_by_one((workers, limit, max_tasks, _) in drawn(), moves in moves()) {
        let [rosters, rows] = [TaskForm::Roster, TaskForm::Rows]
            .map(|form| play(form, Completing::ByBatch, (workers, limit, max_tasks, 0), &moves));
        prop_assert_eq!(rosters, rows);
    }

    #[test]
    fn explicit_rows(drawn in drawn(), moves in moves()) {
        play(TaskForm::Rows, Completing::AsAsked, drawn, &moves);
    }
}
