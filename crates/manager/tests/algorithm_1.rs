//! Both task forms run exactly the nodes that Algorithm 1 picks, batch for batch, against
//! the plain reference.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{CellGraph, CellTypeId, ModelId, ModelPriority, TaskId, WorkerId};
use batchmaker_manager::{Config, Event, Fairness, Manager, TaskForm};
use proptest::prelude::*;

use common::reference::Reference;
use common::{Node, Roster, config, joined_at_random, request, stack, tree};

#[derive(Clone, Debug)]
enum Move {
    Arrive {
        layers: u32,
        length: u32,
        with_head: bool,
        model: u32,
        priority: u32,
    },
    /// A tree; the numbers choose which nodes are joined.
    ArriveTree {
        leaves: u32,
        priority: u32,
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
    /// Time passes.
    Wait {
        ns: u64,
    },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let arrive = (1..=3u32, 1..=12u32, any::<bool>(), 0..=1u32, 0..=2u32).prop_map(
        |(layers, length, with_head, model, priority)| Move::Arrive {
            layers,
            length,
            with_head,
            model,
            priority,
        },
    );
    let tree = (1..=12u32, 0..=2u32, prop::collection::vec(any::<u32>(), 24))
        .prop_map(|(leaves, priority, choices)| Move::ArriveTree { leaves, priority, choices });
    let wait = (1..=20u64).prop_map(|ns| Move::Wait { ns });
    let complete = (0..3u32).prop_map(|worker| Move::Complete { worker });
    let progress = (0..3u32).prop_map(|worker| Move::Progress { worker });
    let ask = (0..3u32).prop_map(|worker| Move::Ask { worker });
    let one =
        prop_oneof![2 => arrive, 1 => tree, 4 => complete, 3 => progress, 5 => ask, 2 => wait];
    prop::collection::vec(one, 1..120)
}

/// The manager, a device that only unfolds rosters, and the reference beside them.
struct Pair {
    manager: Manager,
    rosters: BTreeMap<(WorkerId, CellTypeId), Roster>,
    reference: Reference,
    /// Per worker, oldest first.
    in_flight: Vec<VecDeque<InFlight>>,
    now_ns: u64,
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
    /// A unit of time passes.
    fn tick(&mut self) {
        self.now_ns += 1;
        self.reference.advance(self.now_ns);
    }

    fn arrive(&mut self, index: u32, model: ModelId, priority: u32, graph: CellGraph) {
        self.tick();
        self.reference.arrive(self.now_ns, request(index), model, priority, graph.clone());
        let (request, graph) = (request(index), Arc::new(graph));
        let event =
            Event::Arrive { request, model, priority, deadline_ns: None, graph, session: None };
        self.manager.handle(self.now_ns, event);
    }

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
                let first = batches.len();
                batches.extend(formed.into_iter().map(|batch| (task.cell_type, batch)));
                self.reference.submitted(worker, &batches[first..]);
            }
            assert_eq!(batches, expected);
            let batches = batches.into_iter().map(|(cell_type, nodes)| (worker, cell_type, nodes));
            self.trace.extend(batches);
        }
    }

    fn complete(&mut self, worker: WorkerId) {
        if let Some(InFlight { task, batches, done }) = self.in_flight[worker.index()].pop_front() {
            self.tick();
            self.manager.handle(self.now_ns, Event::Complete { worker, task });
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
        let event = Event::Progress { worker, task: *task, steps: *done };
        self.tick();
        self.manager.handle(self.now_ns, event);
        self.reference.complete(worker);
    }
}

/// The parameters of a play: workers, batch limit, `MaxTasksToSubmit`, lookahead, rounds of a turn, rules of fairness.
type Drawn = (u32, u32, u32, u32, u32, Option<Fairness>);

fn drawn() -> impl Strategy<Value = Drawn> {
    (1..=3u32, 1..=6u32, 1..=6u32, 0..=3u32, rounds_of_a_turn(), Just(None))
}

fn drawn_with_fairness() -> impl Strategy<Value = Drawn> {
    use prop::option::of;
    let weights = prop::collection::vec(1..=4u32, 1..=2);
    let shares = (of(weights), 0..=100u64);
    let patience = (of(0..=60u64), of(0..=30u64));
    let rules = (shares, of(0..=200u64), patience, of(1..=40u32));
    let fairness = rules.prop_map(|((shares, credit_ns), aging_ns, patience, large_rows)| {
        let (patience_ns, large_patience_ns) = patience;
        let rest = Fairness { aging_ns, patience_ns, large_patience_ns, ..Fairness::default() };
        Some(Fairness { shares, credit_ns, large_rows, ..rest })
    });
    (1..=3u32, 1..=6u32, 1..=6u32, 0..=3u32, rounds_of_a_turn(), fairness)
}

fn rounds_of_a_turn() -> impl Strategy<Value = u32> {
    prop_oneof![2 => Just(1u32), 1 => 2..=3u32]
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
    (workers, limit, max_tasks, lookahead, rounds_of_a_turn, fairness): Drawn,
    moves: &[Move],
) -> Vec<(WorkerId, CellTypeId, Vec<Node>)> {
    // Three layers and a head; leaves and inner nodes. The last three's limits count rows.
    let limits = [limit, limit, limit + 1, limit, limit + 2, limit];
    let mut config = config(&limits, workers as u16, max_tasks);
    config = Config { task_form: form, lookahead, rounds_of_a_turn, fairness, ..config };
    for (cell, ct) in config.cell_types.iter_mut().zip(0..) {
        // The second model prefers earlier cells, and alone has trees.
        let second = ModelPriority { model: ModelId(1), priority: 5 - ct };
        cell.priorities.push(second);
        if ct >= 4 {
            cell.priorities.remove(0);
        }
    }
    let mut pair = Pair {
        manager: Manager::new(config.clone()),
        rosters: BTreeMap::new(),
        reference: Reference::new(config),
        in_flight: vec![VecDeque::new(); workers as usize],
        now_ns: 0,
        trace: Vec::new(),
    };
    let mut arrived = 0;
    for step in moves {
        match step {
            &Move::Arrive { layers, length, with_head, model, priority } => {
                // Every request has the head in the same type, after three layers.
                let graph = stack(if with_head { 3 } else { layers }, length, with_head);
                pair.arrive(arrived, ModelId(model), priority, graph);
                arrived += 1;
            }
            Move::ArriveTree { leaves, priority, choices } => {
                let children = joined_at_random(*leaves, choices);
                let graph = tree([CellTypeId(4), CellTypeId(5)], *leaves, &children);
                pair.arrive(arrived, ModelId(1), *priority, graph);
                arrived += 1;
            }
            Move::Wait { ns } => pair.now_ns += ns,
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
    fn steps_reported_one_by_one(drawn in drawn(), moves in moves()) {
        let (workers, limit, max_tasks, _, rounds_of_a_turn, _) = drawn;
        let [rosters, rows] = [TaskForm::Roster, TaskForm::Rows].map(|form| {
            let drawn = (workers, limit, max_tasks, 0, rounds_of_a_turn, None);
            play(form, Completing::ByBatch, drawn, &moves)
        });
        prop_assert_eq!(rosters, rows);
    }

    #[test]
    fn explicit_rows(drawn in drawn(), moves in moves()) {
        play(TaskForm::Rows, Completing::AsAsked, drawn, &moves);
    }

    /// The rules that are on with one model change no batch while requests are small and set no priorities.
    #[test]
    fn small_requests_of_one_model((drawn, mut moves) in (drawn(), moves())) {
        for step in &mut moves {
            if let Move::Arrive { priority, .. } | Move::ArriveTree { priority, .. } = step {
                *priority = 0;
            }
        }
        let rules = Fairness {
            aging_ns: Some(20),
            large_patience_ns: Some(5),
            large_rows: Some(1_000),
            ..Fairness::default()
        };
        let (workers, limit, max_tasks, lookahead, rounds_of_a_turn, paper) = drawn;
        let [with_rules, of_paper] = [Some(rules), paper].map(|fairness| {
            let drawn = (workers, limit, max_tasks, lookahead, rounds_of_a_turn, fairness);
            play(TaskForm::Roster, Completing::AsAsked, drawn, &moves)
        });
        prop_assert_eq!(with_rules, of_paper);
    }

    #[test]
    fn rosters_with_fairness(drawn in drawn_with_fairness(), moves in moves()) {
        play(TaskForm::Roster, Completing::AsAsked, drawn, &moves);
    }

    #[test]
    fn steps_with_fairness(drawn in drawn_with_fairness(), moves in moves()) {
        play(TaskForm::Roster, Completing::ByBatch, drawn, &moves);
    }

    #[test]
    fn explicit_rows_with_fairness(drawn in drawn_with_fairness(), moves in moves()) {
        play(TaskForm::Rows, Completing::AsAsked, drawn, &moves);
    }
}
