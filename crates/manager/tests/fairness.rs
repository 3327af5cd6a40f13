//! Each rule of fairness on its own, as a trace beside the one without it.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, ModelPriority, RowSpec, Rows,
    Sink, SinkTime, TaskId, Work, WorkerId,
};
use batchmaker_manager::{
    CellTypeConfig, Config, Event, Fairness, Manager, Merging, PadTo, Padding, Policy,
};
use expect_test::expect;

use common::{Roster, config, request, stack};

const WORKER: WorkerId = WorkerId(0);

/// A manager with one worker, whose batches take a unit of time each.
struct Play {
    manager: Manager,
    rosters: BTreeMap<CellTypeId, Roster>,
    now_ns: u64,
    trace: String,
    /// The batches of each cell type.
    batches: BTreeMap<u32, u32>,
}

impl Play {
    fn new(config: Config, fairness: Fairness) -> Self {
        Self {
            manager: Manager::new(Config { fairness: Some(fairness), ..config }),
            rosters: BTreeMap::new(),
            now_ns: 0,
            trace: String::new(),
            batches: BTreeMap::new(),
        }
    }

    fn arrive(&mut self, index: u32, model: u32, priority: u32, graph: CellGraph) {
        let (request, model, graph) = (request(index), ModelId(model), Arc::new(graph));
        let (deadline_ns, session) = (None, None);
        let event = Event::Arrive { request, model, priority, deadline_ns, graph, session };
        self.manager.handle(self.now_ns, event);
    }

    /// One round: a line for each batch, with the time at which it begins and the rows of each
    /// request. False if there is none.
    fn round(&mut self) -> bool {
        let mut tasks: Vec<(TaskId, u64)> = Vec::new();
        while let Some(task) = self.manager.next_task(WORKER) {
            let roster = self.rosters.entry(task.cell_type).or_default();
            let batches = roster.batches(&task);
            tasks.push((task.id, batches.len() as u64));
            *self.batches.entry(task.cell_type.0).or_default() += batches.len() as u32;
            let begins =
                self.now_ns + tasks[..tasks.len() - 1].iter().map(|task| task.1).sum::<u64>();
            for (batch, at) in batches.iter().zip(begins..) {
                let mut rows = BTreeMap::new();
                batch.iter().for_each(|node| *rows.entry(node.0.index).or_insert(0) += 1);
                self.trace += &format!("{at} {} {rows:?}\n", task.cell_type);
            }
        }
        for &(task, batches) in &tasks {
            self.now_ns += batches;
            self.manager.handle(self.now_ns, Event::Complete { worker: WORKER, task });
        }
        !tasks.is_empty()
    }

    fn rounds(&mut self, rounds: u32) {
        (0..rounds).for_each(|_| assert!(self.round(), "nothing is left after\n{}", self.trace));
    }

    fn drain(&mut self) {
        while self.round() {}
        assert_eq!(self.manager.requests(), 0);
    }

    fn ended(&mut self) -> Vec<u32> {
        self.manager.drain_finished().map(|finished| finished.request.index).collect()
    }
}

/// Cell types with these limits, each of a model of its own.
fn a_model_each(limits: &[u32], max_tasks: u32) -> Config {
    let mut config = config(limits, 1, max_tasks);
    for (cell, model) in config.cell_types.iter_mut().zip(0..) {
        cell.priorities = vec![ModelPriority { model: ModelId(model), priority: 0 }];
    }
    config
}

/// A chain of `length` steps of one cell type.
fn chain(cell: u32, length: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), 1), graph.value(row(), 1));
    let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, 0) };
    graph.chain(CellTypeId(cell), length, vec![Rows::one(x, 0)], vec![None], vec![sink]);
    graph.finish().unwrap()
}

/// Rows of one cell type.
fn rows(cell: u32, rows: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), rows), graph.value(row(), rows));
    let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
    graph.rows(CellTypeId(cell), rows, vec![Rows::all(x)], vec![sink]);
    graph.finish().unwrap()
}

/// Sequences of one cell type: a chain of `length` steps each.
fn sequences(cell: u32, sequences: u32, length: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), 1), graph.value(row(), sequences));
    for sequence in 0..sequences {
        let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, sequence) };
        graph.chain(CellTypeId(cell), length, vec![Rows::one(x, 0)], vec![None], vec![sink]);
    }
    graph.finish().unwrap()
}

/// Sequences of one step of cell 1, whose inputs are rows of cell 0.
fn embedded_sequences(sequences: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), sequences);
    let [embedded, y] = [0, 1].map(|_| graph.value(row(), sequences));
    let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(embedded) };
    graph.rows(CellTypeId(0), sequences, vec![Rows::all(x)], vec![sink]);
    for sequence in 0..sequences {
        let input = Rows::strided(embedded, sequence, 1);
        let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, sequence) };
        graph.chain(CellTypeId(1), 1, vec![input], vec![None], vec![sink]);
    }
    graph.finish().unwrap()
}

fn shares(weights: &[u32]) -> Fairness {
    Fairness { shares: Some(weights.to_vec()), ..Fairness::default() }
}

/// Without shares the second model would wait for the end of the first, whose requests are older.
#[test]
fn models_get_worker_time_by_weight() {
    let mut play = Play::new(a_model_each(&[4, 4], 2), shares(&[3, 1]));
    (0..4).for_each(|index| play.arrive(index, 0, 0, chain(0, 12)));
    (4..8).for_each(|index| play.arrive(index, 1, 0, chain(1, 12)));
    play.rounds(8);
    assert_eq!(play.batches, BTreeMap::from([(0, 12), (1, 4)]));
    play.drain();
}

/// The first of two models comes back after it was idle, and starts where the last turn did: it gets that
/// turn, and then no more than its share.
#[test]
fn an_idle_model_saves_no_credit() {
    let mut play = Play::new(a_model_each(&[1, 1], 1), shares(&[1, 1]));
    play.arrive(0, 0, 0, chain(0, 1));
    play.arrive(1, 1, 0, chain(1, 12));
    play.rounds(7);
    play.arrive(2, 0, 0, chain(0, 4));
    play.trace.clear();
    play.rounds(6);
    expect![[r#"
        7 cell0 {2: 1}
        8 cell0 {2: 1}
        9 cell1 {1: 1}
        10 cell0 {2: 1}
        11 cell1 {1: 1}
        12 cell0 {2: 1}
    "#]]
    .assert_eq(&play.trace);
}

/// A request of the first model is always there, of one chain that one of four workers runs, and the second
/// model has the others. Then both have work for all workers, and share them: what the first model did not
/// ask for is not made up for.
#[test]
fn a_model_that_keeps_few_workers_busy_saves_no_credit() {
    for lookahead in [0, 1] {
        let config = Config { lookahead, workers: 4, ..a_model_each(&[2, 2], 1) };
        let mut manager = Manager::new(Config { fairness: Some(shares(&[1, 1])), ..config });
        let arrive = |manager: &mut Manager, now_ns, index, model: u32, length| {
            let (model, graph) = (ModelId(model), Arc::new(chain(model, length)));
            let (request, priority, deadline_ns, session) = (request(index), 0, None, None);
            let event = Event::Arrive { request, model, priority, deadline_ns, graph, session };
            manager.handle(now_ns, event);
        };
        let mut in_flight = [const { VecDeque::new() }; 4];
        let mut batches = [0, 0];
        arrive(&mut manager, 0, 0, 0, 1_100);
        (1..17).for_each(|index| arrive(&mut manager, 0, index, 1, 1_100));
        for now_ns in 0..1_100 {
            if now_ns == 1_000 {
                (17..33).for_each(|index| arrive(&mut manager, now_ns, index, 0, 1_000));
                batches = [0, 0];
            }
            for worker in (0..4).map(WorkerId) {
                while let Some(task) = manager.next_task(worker) {
                    batches[task.cell_type.index()] += 1;
                    in_flight[worker.index()].push_back(task.id);
                }
            }
            for worker in (0..4).map(WorkerId) {
                let task = in_flight[worker.index()].pop_front().expect("all workers are busy");
                manager.handle(now_ns + 1, Event::Complete { worker, task });
            }
        }
        assert!(batches.iter().all(|batches| (180..=220).contains(batches)), "{batches:?}");
    }
}

/// A batch of a shared cell type holds nodes of both models, and each pays for its rows: three
/// quarters of the time of cell 0 are the first model's, so the second has cell 1 for longer.
#[test]
fn a_shared_batch_is_paid_for_by_rows() {
    let mut config = config(&[4, 4], 1, 4);
    config.cell_types[0].priorities = vec![rank(0), rank(1)];
    config.cell_types[1].priorities = vec![rank(1)];
    let mut play = Play::new(config, shares(&[1, 1]));
    (0..3).for_each(|index| play.arrive(index, 0, 0, chain(0, 8)));
    play.arrive(3, 1, 0, chain(0, 8));
    play.arrive(4, 1, 0, chain(1, 8));
    play.rounds(4);
    expect![[r#"
        0 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        1 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        2 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        3 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        4 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        5 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        6 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        7 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        8 cell1 {4: 1}
        9 cell1 {4: 1}
        10 cell1 {4: 1}
        11 cell1 {4: 1}
        12 cell1 {4: 1}
        13 cell1 {4: 1}
        14 cell1 {4: 1}
        15 cell1 {4: 1}
    "#]]
    .assert_eq(&play.trace);
}

/// Sequences of `steps` rows each, of which each is one node of a sequence-level cell.
fn whole_sequences(cell: u32, sequences: u32, steps: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), sequences * steps), graph.value(row(), sequences * steps));
    for first in (0..sequences).map(|sequence| sequence * steps) {
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::spanning(y, first, steps) };
        graph.rows(CellTypeId(cell), 1, vec![Rows::spanning(x, first, steps)], vec![sink]);
    }
    graph.finish().unwrap()
}

/// Long sequences of the first model would be one batch of any time. With a bound on rounds, a batch has as
/// many as fit it by the time of their rows, which is 1 ns here, one as long as nothing is known.
#[test]
fn a_batch_of_whole_sequences_has_a_bounded_time() {
    let batches = |round_ns| {
        let fairness = Fairness { round_ns, ..shares(&[1, 1]) };
        let config = a_model_each(&[16, 4], 1);
        let mut manager = Manager::new(Config { fairness: Some(fairness), ..config });
        let (model, graph) = (ModelId(0), Arc::new(whole_sequences(0, 40, 100)));
        let (request, priority, deadline_ns, session) = (request(0), 0, None, None);
        let event = Event::Arrive { request, model, priority, deadline_ns, graph, session };
        manager.handle(0, event);
        let (mut now_ns, mut batches) = (0, Vec::new());
        while let Some(task) = manager.next_task(WORKER) {
            let Work::Rows(items) = &task.work else { panic!("a roster of sequences") };
            batches.push(items.len());
            now_ns += 100 * items.len() as u64;
            manager.handle(now_ns, Event::Complete { worker: WORKER, task: task.id });
        }
        batches
    };
    assert_eq!(batches(None), [16, 16, 8]);
    assert_eq!(batches(Some(1_000)), [1, 10, 10, 10, 9]);
    assert_eq!(batches(Some(50)), [1; 40]);
}

/// Chains of two models that share a cell type: a later one of the model with three times the weight
/// displaces those of the other.
#[test]
fn seats_of_a_shared_batch_are_dealt_by_weight() {
    let mut config = config(&[4], 1, 1);
    config.cell_types[0].priorities = vec![rank(0), rank(1)];
    let mut play = Play::new(config, shares(&[1, 3]));
    (0..6).for_each(|index| play.arrive(index, 0, 0, chain(0, 3)));
    play.rounds(1);
    (6..12).for_each(|index| play.arrive(index, 1, 0, chain(0, 2)));
    play.drain();
    expect![[r#"
        0 cell0 {0: 1, 1: 1, 2: 1, 3: 1}
        1 cell0 {0: 1, 6: 1, 7: 1, 8: 1}
        2 cell0 {0: 1, 6: 1, 7: 1, 8: 1}
        3 cell0 {1: 1, 9: 1, 10: 1, 11: 1}
        4 cell0 {1: 1, 9: 1, 10: 1, 11: 1}
        5 cell0 {2: 1, 3: 1, 4: 1, 5: 1}
        6 cell0 {2: 1, 3: 1, 4: 1, 5: 1}
        7 cell0 {4: 1, 5: 1}
    "#]]
    .assert_eq(&play.trace);
}

/// Closed batches: the model is chosen by its share, then its buckets take turns.
#[test]
fn closed_batches_keep_to_shares() {
    let policies = [
        Policy::Padded(Padding { width: 10, to: PadTo::Longest }),
        Policy::Merged(Merging { graphs: 2 }),
    ];
    for policy in policies {
        let config = Config { policy, ..a_model_each(&[2, 2], 1) };
        let mut play = Play::new(config, shares(&[3, 1]));
        (0..24).for_each(|index| play.arrive(index, 0, 0, chain(0, 4)));
        (24..48).for_each(|index| play.arrive(index, 1, 0, chain(1, 4)));
        play.rounds(12);
        assert_eq!(play.batches, BTreeMap::from([(0, 36), (1, 12)]), "{policy}");
        play.drain();
    }
}

/// A stream of urgent requests, one a batch: the one without a priority waits for 5 ns, and then goes
/// first.
#[test]
fn an_old_request_goes_before_priorities() {
    let aging = Fairness { aging_ns: Some(5), ..Fairness::default() };
    let mut play = Play::new(config(&[1], 1, 1), aging);
    play.arrive(0, 0, 0, chain(0, 2));
    for index in 1..9 {
        play.arrive(index, 0, 1, chain(0, 1));
        play.rounds(1);
    }
    expect![[r#"
        0 cell0 {1: 1}
        1 cell0 {2: 1}
        2 cell0 {3: 1}
        3 cell0 {4: 1}
        4 cell0 {5: 1}
        5 cell0 {6: 1}
        6 cell0 {0: 1}
        7 cell0 {0: 1}
    "#]]
    .assert_eq(&play.trace);
}

/// The same where batches are closed.
#[test]
fn an_old_request_goes_before_priorities_of_closed_batches() {
    let policies = [
        Policy::Padded(Padding { width: 10, to: PadTo::Longest }),
        Policy::Merged(Merging { graphs: 1 }),
    ];
    for policy in policies {
        let ended_after = |aging_ns| {
            let fairness = Fairness { aging_ns, ..Fairness::default() };
            let mut play = Play::new(Config { policy, ..config(&[1], 1, 1) }, fairness);
            play.arrive(0, 0, 0, chain(0, 1));
            (1..30).find(|&index| {
                play.arrive(index, 0, 1, chain(0, 1));
                play.rounds(1);
                play.ended().contains(&0)
            })
        };
        assert_eq!([Some(5), None].map(ended_after), [Some(7), None], "{policy}");
    }
}

/// Promoted requests go in the order of their arrival, whatever their priorities were. One that waits
/// for a slot is promoted as well.
#[test]
fn old_requests_go_in_the_order_of_arrival() {
    let aging = Fairness { aging_ns: Some(3), ..Fairness::default() };
    for slots_max in [None, Some(1)] {
        let mut config = config(&[1], 1, 1);
        config.cell_types[0].slots_max = slots_max;
        let mut play = Play::new(config, aging.clone());
        for (index, priority) in [(0, 3), (1, 0), (2, 2), (3, 1)] {
            play.arrive(index, 0, priority, chain(0, 2));
        }
        play.drain();
        let expected: &[u32] = if slots_max.is_none() { &[3, 2, 0, 1] } else { &[0, 3, 1, 2] };
        assert_eq!(play.ended(), expected);
    }
}

/// Large requests that take longer than the age are promoted a slice at a time, and a small one that comes
/// then waits for one slice of each.
#[test]
fn an_old_large_request_does_not_keep_small_ones_waiting() {
    let graphs: [fn(u32) -> CellGraph; 2] =
        [|nodes| rows(0, nodes), |nodes| sequences(0, nodes, 1)];
    for graph in graphs {
        let fairness = Fairness { aging_ns: Some(100), ..large(8) };
        let mut play = Play::new(config(&[4], 1, 1), fairness);
        (0..12).for_each(|index| play.arrive(index, 0, 0, graph(200)));
        play.rounds(110);
        play.arrive(12, 0, 0, graph(2));
        play.rounds(12 * 2 + 1);
        assert!(play.ended().contains(&12), "{}", play.trace);
        play.drain();
    }
}

/// Under an endless stream of urgent requests, a large one is served a slice at each age.
#[test]
fn a_large_request_goes_before_priorities_by_slices() {
    let fairness = Fairness { aging_ns: Some(10), ..large(8) };
    let mut play = Play::new(config(&[4], 1, 1), fairness);
    play.arrive(0, 0, 0, rows(0, 16));
    let mut served_at = Vec::new();
    for index in 1..40 {
        play.arrive(index, 0, 1, rows(0, 4));
        play.trace.clear();
        play.rounds(1);
        if play.trace.contains("{0: 4}") {
            served_at.push(play.now_ns - 1);
        }
    }
    assert_eq!(served_at, [11, 12, 22, 23]);
}

/// Line 5 prefers the chains, of which there is always a full batch, to the head of the request that
/// ended, which has two rows. After 4 ns its patience ends.
#[test]
fn a_cell_type_that_fills_slowly_has_patience() {
    let trace = |patience_ns| {
        let fairness = Fairness { patience_ns, ..Fairness::default() };
        let mut play = Play::new(config(&[2, 8], 1, 1), fairness);
        (0..2).for_each(|index| play.arrive(index, 0, 0, chain(0, 20)));
        play.arrive(2, 0, 0, rows(1, 2));
        play.rounds(7);
        play.trace
    };
    expect![[r#"
        0 cell0 {0: 1, 1: 1}
        1 cell0 {0: 1, 1: 1}
        2 cell0 {0: 1, 1: 1}
        3 cell0 {0: 1, 1: 1}
        4 cell0 {0: 1, 1: 1}
        5 cell1 {2: 2}
        6 cell0 {0: 1, 1: 1}
    "#]]
    .assert_eq(&trace(Some(4)));
    assert!(!trace(None).contains("cell1"));
}

/// The cell type that has waited longest goes first, and one of another model waits for its turn.
#[test]
fn the_most_overdue_cell_type_goes_first() {
    let fairness = Fairness { patience_ns: Some(2), ..Fairness::default() };
    let mut play = Play::new(config(&[1, 9, 9], 1, 1), fairness);
    play.arrive(0, 0, 0, chain(0, 20));
    play.arrive(1, 0, 0, rows(2, 2));
    play.rounds(1);
    play.arrive(2, 0, 0, rows(1, 2));
    play.rounds(5);
    expect![[r#"
        0 cell0 {0: 1}
        1 cell0 {0: 1}
        2 cell0 {0: 1}
        3 cell2 {1: 2}
        4 cell1 {2: 2}
        5 cell0 {0: 1}
    "#]]
    .assert_eq(&play.trace);
}

fn rank(model: u32) -> ModelPriority {
    ModelPriority { model: ModelId(model), priority: 0 }
}

fn large(rows: u32) -> Fairness {
    Fairness { large_rows: Some(rows), ..Fairness::default() }
}

/// One long row-wise run goes back by what it was served, so that later requests pass it.
#[test]
fn small_requests_pass_a_large_run_of_rows() {
    let mut play = Play::new(config(&[4], 1, 1), large(4));
    play.arrive(0, 0, 0, rows(0, 24));
    play.rounds(2);
    (1..4).for_each(|index| play.arrive(index, 0, 0, rows(0, 2)));
    play.drain();
    expect![[r#"
        0 cell0 {0: 4}
        1 cell0 {0: 4}
        2 cell0 {1: 2, 2: 2}
        3 cell0 {0: 2, 3: 2}
        4 cell0 {0: 4}
        5 cell0 {0: 4}
        6 cell0 {0: 4}
        7 cell0 {0: 2}
    "#]]
    .assert_eq(&play.trace);
}

/// A small request passes a large one of its own model, whatever another model, which has its own share, is
/// served meanwhile.
#[test]
fn places_do_not_depend_on_other_models() {
    let fairness = Fairness { large_rows: Some(4), ..shares(&[1, 1]) };
    let mut play = Play::new(a_model_each(&[4, 64], 1), fairness);
    play.arrive(0, 0, 0, rows(0, 200));
    (1..4).for_each(|index| play.arrive(index, 1, 0, rows(1, 6_400)));
    play.rounds(20);
    play.arrive(4, 0, 0, rows(0, 2));
    play.rounds(4);
    assert_eq!(play.ended(), [4]);
}

/// The chains of a large request: small ones that come later displace those whose turn is later.
#[test]
fn small_requests_pass_the_sequences_of_a_large_one() {
    let mut play = Play::new(config(&[4], 1, 1), large(4));
    play.arrive(0, 0, 0, sequences(0, 12, 2));
    play.rounds(1);
    (1..3).for_each(|index| play.arrive(index, 0, 0, sequences(0, 1, 3)));
    play.drain();
    expect![[r#"
        0 cell0 {0: 4}
        1 cell0 {0: 2, 1: 1, 2: 1}
        2 cell0 {0: 2, 1: 1, 2: 1}
        3 cell0 {0: 2, 1: 1, 2: 1}
        4 cell0 {0: 4}
        5 cell0 {0: 4}
        6 cell0 {0: 4}
        7 cell0 {0: 2}
    "#]]
    .assert_eq(&play.trace);
}

/// A large request, whose rows feed chains that go before them, is served a few of each at a time; a small
/// one that comes meanwhile passes its rows and then its chains.
#[test]
fn small_requests_pass_each_stage_of_a_large_one() {
    let mut config = config(&[4, 4], 1, 1);
    config.cell_types[1].priorities = vec![ModelPriority { model: ModelId(0), priority: 1 }];
    let mut play = Play::new(config, large(8));
    play.arrive(0, 0, 0, embedded_sequences(40));
    play.rounds(8);
    play.trace.clear();
    play.arrive(1, 0, 0, embedded_sequences(1));
    play.rounds(4);
    expect![[r#"
        8 cell0 {0: 3, 1: 1}
        9 cell1 {0: 3, 1: 1}
        10 cell0 {0: 4}
        11 cell1 {0: 4}
    "#]]
    .assert_eq(&play.trace);
}

/// While a large request fills the chains' batches, the head of a small one, which never fills one, has a
/// patience of its own. A request that is small, or large and narrower than a batch, changes nothing.
#[test]
fn cell_types_have_less_patience_beside_a_large_request() {
    let trace = |large_rows, arrivals: &[CellGraph]| {
        let large_patience_ns = Some(2);
        let fairness = Fairness { large_patience_ns, large_rows, ..Fairness::default() };
        let mut play = Play::new(config(&[2, 8], 1, 1), fairness);
        for (index, graph) in (0..).zip(arrivals) {
            play.arrive(index, 0, 0, graph.clone());
        }
        play.arrive(9, 0, 0, rows(1, 2));
        play.rounds(5);
        play.trace
    };
    let wide = [sequences(0, 10, 8)];
    expect![[r#"
        0 cell0 {0: 2}
        1 cell0 {0: 2}
        2 cell0 {0: 2}
        3 cell1 {9: 2}
        4 cell0 {0: 2}
    "#]]
    .assert_eq(&trace(Some(80), &wide));
    assert!(!trace(Some(81), &wide).contains("cell1"), "80 nodes are not large");
    let narrow = [chain(0, 80), chain(0, 80)];
    assert!(!trace(Some(80), &narrow).contains("cell1"), "two requests fill a batch");
}

/// Long chains take turns in slices of four steps; a short one that comes later has a seat at once, and
/// one of them waits for it.
#[test]
fn short_chains_displace_long_ones() {
    let mut play = Play::new(config(&[2], 1, 1), large(4));
    (0..3).for_each(|index| play.arrive(index, 0, 0, chain(0, 8)));
    play.rounds(2);
    play.arrive(3, 0, 0, chain(0, 2));
    play.drain();
    expect![[r#"
        0 cell0 {0: 1, 1: 1}
        1 cell0 {0: 1, 1: 1}
        2 cell0 {0: 1, 3: 1}
        3 cell0 {0: 1, 3: 1}
        4 cell0 {1: 1, 2: 1}
        5 cell0 {1: 1, 2: 1}
        6 cell0 {0: 1, 2: 1}
        7 cell0 {0: 1, 2: 1}
        8 cell0 {0: 1, 1: 1}
        9 cell0 {0: 1, 1: 1}
        10 cell0 {1: 1, 2: 1}
        11 cell0 {1: 1, 2: 1}
        12 cell0 {2: 1}
        13 cell0 {2: 1}
    "#]]
    .assert_eq(&play.trace);
}

/// However many small requests come, a large one ends: each batch has room for one small request and
/// three come while it runs, so a few more wait each time, but the large one is served.
#[test]
fn a_large_request_ends_under_an_endless_stream_of_small_ones() {
    let mut play = Play::new(config(&[4], 1, 1), large(8));
    play.arrive(0, 0, 0, rows(0, 400));
    let (mut next, mut free) = (1, Vec::new());
    for round in 0..20_000 {
        // As an engine with a bound on requests in flight would admit them.
        while play.manager.requests() < 64 {
            let index = free.pop().unwrap_or(next);
            next = next.max(index + 1);
            play.arrive(index, 0, 0, rows(0, 4));
        }
        play.rounds(1);
        let ended = play.ended();
        if ended.contains(&0) {
            // 400 rows, at a share of one in 64 of four rows a batch.
            assert!((5_000..7_000).contains(&round), "{round}");
            return;
        }
        // The ids of those that ended are free, under the next generation.
        next += ended.len() as u32;
        play.trace.clear();
    }
    panic!("the large request is left");
}

/// Urgent requests of three layers keep coming, 40 in flight, whose cells always fill batches. One
/// without a priority, with a head that no other has, ends within a bounded time, if old requests are
/// promoted and cell types have patience; without either it does not.
#[test]
fn nobody_waits_for_ever_under_an_endless_stream_of_urgent_requests() {
    let ends_at = |aging_ns, patience_ns, large_rows| {
        let fairness = Fairness { aging_ns, patience_ns, large_rows, ..Fairness::default() };
        let mut play = Play::new(config(&[4, 4, 4, 16], 1, 5), fairness);
        play.arrive(0, 0, 0, stack(3, 8, true));
        let mut next = 1;
        while play.now_ns < 20_000 {
            while play.manager.requests() < 40 {
                play.arrive(next, 0, 1, stack(3, 1 + next % 7, false));
                next += 1;
            }
            play.rounds(1);
            play.trace.clear();
            if play.ended().contains(&0) {
                return Some(play.now_ns);
            }
        }
        None
    };
    for large_rows in [None, Some(10)] {
        let ended_ns = ends_at(Some(200), Some(50), large_rows);
        // It is 32 nodes in four cell types, and waits for patience before each of a few rounds.
        assert!(ended_ns.is_some_and(|ns| (200..200 + 40 * 50).contains(&ns)), "{ended_ns:?}");
        assert_eq!(ends_at(None, Some(50), large_rows), None);
        assert_eq!(ends_at(Some(200), None, large_rows), None);
    }
}

/// A cell type that does not list a model cannot be shared out.
#[test]
#[should_panic(expected = "has no priority for")]
fn a_model_that_its_cell_types_do_not_list_is_found() {
    let cell = CellTypeConfig::up_to(1, Vec::new());
    let config = Config { cell_types: vec![cell], ..config(&[], 1, 1) };
    Play::new(config, shares(&[1])).arrive(0, 0, 0, stack(1, 1, false));
}
