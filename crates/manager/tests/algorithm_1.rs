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
    let ask = (0..3u32).prop_map(|worker| Move::Ask { worker });
    prop::collection::vec(prop_oneof![2 => arrive, 1 => tree, 5 => complete, 5 => ask], 1..120)
}

/// The manager, a device that only unfolds rosters, and the reference beside them.
struct Pair {
    manager: Manager,
    rosters: BTreeMap<(WorkerId, CellTypeId), Roster>,
    reference: Reference,
    /// Per worker: the tasks in flight, and how many batches each is.
    in_flight: Vec<VecDeque<(TaskId, usize)>>,
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
                self.in_flight[worker.index()].push_back((task.id, formed.len()));
                batches.extend(formed.into_iter().map(|batch| (task.cell_type, batch)));
            }
            assert_eq!(batches, expected);
        }
    }

    fn complete(&mut self, worker: WorkerId) {
        if let Some((task, batches)) = self.in_flight[worker.index()].pop_front() {
            self.manager.handle(0, Event::Complete { worker, task });
            (0..batches).for_each(|_| self.reference.complete(worker));
        }
    }
}

/// What a play is drawn from: workers, batch limit, `MaxTasksToSubmit`, lookahead.
type Drawn = (u32, u32, u32, u32);

fn drawn() -> impl Strategy<Value = Drawn> {
    (1..=3u32, 1..=6u32, 1..=6u32, 0..=3u32)
}

fn play(form: TaskForm, (workers, limit, max_tasks, lookahead): Drawn, moves: &[Move]) {
    // Three layers and a head; leaves and inner nodes. The last three's limits count rows.
    let limits = [limit, limit, limit + 1, limit, limit + 2, limit];
    let mut config = config(&limits, workers as u16, max_tasks);
    (config.task_form, config.lookahead) = (form, lookahead);
    let mut pair = Pair {
        manager: Manager::new(config.clone()),
        rosters: BTreeMap::new(),
        reference: Reference::new(config),
        in_flight: vec![VecDeque::new(); workers as usize],
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
            Move::Complete { worker } => pair.complete(WorkerId(worker % workers)),
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
            pair.complete(worker);
        }
    }
    finished += pair.manager.drain_finished().count();
    assert_eq!(finished, arrived as usize, "every request ends");
    for cell_type in (0..limits.len() as u32).map(CellTypeId) {
        assert_eq!(pair.manager.statistics(cell_type).slots_in_use, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn rosters(drawn in drawn(), moves in moves()) {
        play(TaskForm::Roster, drawn, &moves);
    }

    #[test]
    fn explicit_rows(drawn in drawn(), moves in moves()) {
        // A step a task: a multi-step task completes as a whole, its batches do not.
        play(TaskForm::Rows, drawn, &moves);
    }
}
