//! Batches in stages: the cases of Figure 3 of the DVABatch paper, its Figure 8, and drawn loads.
//!
//! Figure 3 counts in units T of time. Operators A to D are a cell and a stage each.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, RequestId, RowSpec, Rows,
    RunIndex, Sink, SinkTime, TaskId, Work, WorkerId,
};
use batchmaker_manager::{
    Config, Event, Manager, Outcome, Policy, Stages, Staging, StatePlacement,
};
use expect_test::expect;
use proptest::prelude::*;

use common::{arrive, config, request};

const T: u64 = 1_000;

/// One cell after the other, each on all of `rows` rows.
fn cells_of(rows: u32, cells: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let mut x = graph.input(row(), rows);
    for cell in 0..cells {
        let y = graph.value(row(), rows);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
        graph.rows(CellTypeId(cell), rows, vec![Rows::all(x)], vec![sink]);
        x = y;
    }
    graph.finish().unwrap()
}

const STAGING: Staging = Staging {
    pairs: 2,
    pipelines: Some(1),
    batch_max: 4,
    active_max: u32::MAX,
    window_ns: 0,
    stretch_ns: 0,
    split_margin_percent: None,
};

/// A manager for four cells, of a stage each, whose times are `times`.
fn manager(staging: Staging, workers: u16, times: [Vec<(u32, u64)>; 4]) -> Manager {
    let stages = Stages::new(vec![0, 1, 2, 3], times.into());
    let policy = Policy::Staged(staging.into());
    Manager::new(Config { stages, policy, ..config(&[64; 4], workers, 1) })
}

/// The rows of a task, and the requests that they are of.
fn rows_of(task: &BatchedTask) -> (u32, Vec<RequestId>) {
    let Work::Rows(items) = &task.work else { panic!("a task in stages lists its rows") };
    let requests = items.iter().map(|item| item.request).collect();
    (items.iter().map(|item| item.count).sum(), requests)
}

/// Plays requests, which are numbered from 1, as they arrive at certain times; a task of `rows` rows of a cell takes `cost`. Returns the
/// tasks (when, which cell, whose rows), and when each request ended, in units of T.
fn play(
    manager: &mut Manager,
    workers: u32,
    arrivals: &[(u64, CellGraph)],
    cost: impl Fn(CellTypeId, u32) -> u64,
) -> (String, Vec<f64>) {
    let (mut now, mut arrived, mut trace) = (0, 0, String::new());
    let mut ends = vec![0.0; arrivals.len()];
    let mut running: BTreeMap<(u64, WorkerId), TaskId> = BTreeMap::new();
    loop {
        while let Some((at, graph)) = arrivals.get(arrived).filter(|(at, _)| *at <= now) {
            manager.handle(*at, arrive(arrived as u32 + 1, graph.clone()));
            arrived += 1;
        }
        while let Some((&(at, worker), &task)) =
            running.first_key_value().filter(|of| of.0.0 <= now)
        {
            running.remove(&(at, worker));
            manager.handle(at, Event::Complete { worker, task });
        }
        manager.advance(now);
        for worker in (0..workers).map(WorkerId) {
            if running.keys().any(|&(_, busy)| busy == worker) {
                continue;
            }
            if let Some(task) = manager.next_task(worker) {
                let (rows, requests) = rows_of(&task);
                let names: Vec<u32> = requests.iter().map(|request| request.index).collect();
                let cell = ["A", "B", "C", "D"][task.cell_type.index()];
                trace += &format!("{} {cell} {names:?}\n", now as f64 / T as f64);
                running.insert((now + cost(task.cell_type, rows), worker), task.id);
            }
        }
        for finished in manager.drain_finished() {
            ends[finished.request.index as usize - 1] = now as f64 / T as f64;
        }
        let next = running.keys().map(|&(at, _)| at).chain(manager.next_deadline());
        let next = next.chain(arrivals.get(arrived).map(|&(at, _)| at)).min();
        match next {
            Some(next) => now = next,
            None => break,
        }
    }
    assert_eq!(manager.requests(), 0);
    (trace, ends)
}

/// Case I: three short queries and one of twice their length. Padded, a batch of them takes 4T; the paper runs the short ones beside
/// the long one, and ends them after 2T on average 2.5T. Without padding, all four share each batch, and end after 2.5T.
#[test]
fn figure_3_case_1() {
    let mut manager = manager(STAGING, 1, Default::default());
    let arrivals: Vec<_> = [2, 2, 2, 4].map(|rows| (0, cells_of(rows, 4))).into();
    let (trace, ends) = play(&mut manager, 1, &arrivals, |_, rows| T * u64::from(rows) / 16);
    assert_eq!(ends, [2.5; 4]);
    expect![[r"
        0 A [1, 2, 3, 4]
        0.625 B [1, 2, 3, 4]
        1.25 C [1, 2, 3, 4]
        1.875 D [1, 2, 3, 4]
    "]]
    .assert_eq(&trace);
}

/// Case II: A takes as long for one query as for four, the others a quarter of the time for each.
#[test]
fn figure_3_case_2() {
    let steep = vec![(1, T / 4), (4, T)];
    let times = [vec![(1, T), (4, T)], steep.clone(), steep.clone(), steep];
    let mut manager =
        manager(Staging { split_margin_percent: Some(0), pairs: 1, ..STAGING }, 1, times);
    let arrivals: Vec<_> = [(); 4].map(|()| (0, cells_of(1, 4))).into();
    let cost = |cell: CellTypeId, rows| if cell.index() == 0 { T } else { T * u64::from(rows) / 4 };
    let (trace, ends) = play(&mut manager, 1, &arrivals, cost);
    assert_eq!(ends, [1.75, 2.5, 3.25, 4.0], "2.875T on average, as in the paper");
    expect![[r"
        0 A [1, 2, 3, 4]
        1 B [1]
        1.25 C [1]
        1.5 D [1]
        1.75 B [2]
        2 C [2]
        2.25 D [2]
        2.5 B [3]
        2.75 C [3]
        3 D [3]
        3.25 B [4]
        3.5 C [4]
        3.75 D [4]
    "]]
    .assert_eq(&trace);
}

/// Case III: a query runs alone when its window ends, and three more arrive as it has run A.
#[test]
fn figure_3_case_3() {
    let staging = Staging { window_ns: 4 * T, stretch_ns: 4 * T, ..STAGING };
    let mut manager = manager(staging, 1, Default::default());
    let arrivals: Vec<_> = [0, 5, 5, 5].map(|at| (at * T, cells_of(1, 4))).into();
    let (trace, ends) = play(&mut manager, 1, &arrivals, |_, _| T);
    assert_eq!(
        ends, [9.0; 4],
        "9T and three times 4T after arrival: 5.25T on average, as in the paper"
    );
    expect![[r"
        4 A [1]
        5 A [2, 3, 4]
        6 B [1, 2, 3, 4]
        7 C [1, 2, 3, 4]
        8 D [1, 2, 3, 4]
    "]]
    .assert_eq(&trace);
}

/// Figure 8: a batch of two is stretched by two while the second executor works on it, waits behind the second stage until they have
/// caught up, and is split before the fourth.
#[test]
fn figure_8() {
    let of_last = vec![(1, 3 * T / 2), (2, 2 * T), (4, 4 * T)];
    let flat = vec![(1, T), (4, T)];
    let times = [flat.clone(), flat.clone(), flat, of_last];
    let staging = Staging { split_margin_percent: Some(0), stretch_ns: 10 * T, ..STAGING };
    let mut manager = manager(staging, 2, times);
    let arrivals: Vec<_> = [0, 0, 3, 3].map(|at| (at * T / 2, cells_of(1, 4))).into();
    let (trace, ends) = play(&mut manager, 2, &arrivals, |_, _| T);
    expect![[r"
        0 A [1, 2]
        1 B [1, 2]
        1.5 A [3, 4]
        2.5 B [3, 4]
        3.5 C [1, 2, 3, 4]
        4.5 D [1, 2]
        5.5 D [3, 4]
    "]]
    .assert_eq(&trace);
    assert_eq!(ends, [5.5, 5.5, 6.5, 6.5]);
}

/// Two workers and four queries. A batch of all would leave a worker idle: where its time is in proportion to its members, a batch takes half
/// of those that wait, and where it is not, all. Without times, it takes all, and if they have waited to be a batch.
#[test]
fn half_of_those_that_wait_are_taken_where_that_is_faster() {
    let traces = |times: Vec<(u32, u64)>, window_ns| {
        let cost = |rows: u32| if times == FLAT { T } else { T * u64::from(rows) };
        let mut manager = manager(
            Staging { pipelines: None, window_ns, ..STAGING },
            2,
            [(); 4].map(|()| times.clone()),
        );
        let arrivals: Vec<_> = [(); 4].map(|()| (0, cells_of(1, 1))).into();
        play(&mut manager, 2, &arrivals, |_, rows| cost(rows))
    };
    const FLAT: [(u32, u64); 2] = [(1, T), (4, T)];
    const PROPORTIONAL: [(u32, u64); 2] = [(1, T), (4, 4 * T)];
    let (trace, ends) = traces(PROPORTIONAL.into(), 0);
    assert_eq!(ends, [2.0, 2.0, 1.0, 2.0]);
    expect![[r"
        0 A [1, 2]
        0 A [3]
        1 A [4]
    "]]
    .assert_eq(&trace);
    let (trace, _) = traces(FLAT.into(), 0);
    assert_eq!(trace, "0 A [1, 2, 3, 4]\n");
    let (trace, _) = traces(Vec::new(), 0);
    assert_eq!(trace, "0 A [1, 2, 3, 4]\n");
    let (trace, _) = traces(PROPORTIONAL.into(), 2 * T);
    assert_eq!(trace, "0 A [1, 2, 3, 4]\n");
}

/// An event of a drawn load.
#[derive(Clone, Debug)]
enum Step {
    Arrive { rows: u32, timeout: Option<u64> },
    Cancel(usize),
    Fail(u32),
    Lose(u32),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1u32..5, proptest::option::weighted(0.1, 1u64..40))
            .prop_map(|(rows, timeout)| Step::Arrive { rows, timeout }),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0u32..3).prop_map(Step::Fail),
        1 => (0u32..3).prop_map(Step::Lose),
        6 => (0u64..12).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..80)
}

fn stagings() -> impl Strategy<Value = Staging> {
    let numbers = (1u32..4, proptest::option::of(1u32..3), 1u32..7, 1u32..12);
    let times = (0u64..10, 0u64..30, proptest::option::of(0u32..50));
    (numbers, times).prop_map(
        |((pairs, pipelines, batch_max, active_max), (window_ns, stretch_ns, split))| Staging {
            pairs,
            pipelines,
            batch_max,
            active_max,
            window_ns,
            stretch_ns,
            split_margin_percent: split,
        },
    )
}

/// Plays a load and checks that every request ends once, that those that succeed ran each node once, after those that it reads, that no task
/// holds more rows than its limit, and that nothing hangs.
struct Checked {
    manager: Manager,
    now: u64,
    stages: Vec<usize>,
    limit: u32,
    running: BTreeMap<WorkerId, (u64, BatchedTask)>,
    graphs: BTreeMap<RequestId, u32>,
    /// The nodes that are complete.
    ran: BTreeSet<(RequestId, RunIndex, u32)>,
    outcomes: BTreeMap<RequestId, Outcome>,
    placement: StatePlacement,
}

impl Checked {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { rows, timeout } => {
                let index = self.graphs.len() as u32;
                let deadline = timeout.map(|timeout| self.now + timeout);
                let graph = cells_of(rows, self.stages.len() as u32);
                let event = match arrive(index, graph) {
                    Event::Arrive { request, model, priority, graph, session, .. } => {
                        let deadline_ns = deadline;
                        Event::Arrive { request, model, priority, deadline_ns, graph, session }
                    }
                    _ => unreachable!(),
                };
                self.graphs.insert(request(index), rows);
                self.manager.handle(self.now, event);
            }
            Step::Cancel(which) => {
                let known: Vec<RequestId> = self.graphs.keys().copied().collect();
                if let Some(&request) = known.get(which % known.len().max(1)) {
                    self.manager.handle(self.now, Event::Cancel { request });
                }
            }
            Step::Fail(worker) => {
                let worker = WorkerId(worker);
                if let Some((_, task)) = self.running.remove(&worker) {
                    let reason = Arc::from("it failed");
                    self.manager
                        .handle(self.now, Event::TaskFailed { worker, task: task.id, reason });
                }
            }
            Step::Lose(worker) => {
                let worker = WorkerId(worker);
                if self.running.remove(&worker).is_some() {
                    let reason = Arc::from("it is lost");
                    self.manager.handle(self.now, Event::WorkerDown { worker, reason });
                    self.manager.handle(self.now, Event::WorkerUp { worker });
                }
            }
            Step::Pass(time) => self.pass(self.now + time),
        }
        self.give_tasks();
    }

    /// Lets time pass, task by task.
    fn pass(&mut self, until: u64) {
        loop {
            let ends = self.running.values().map(|&(at, _)| at);
            let next = ends.chain(self.manager.next_deadline()).filter(|&at| at <= until).min();
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            let done = |(&worker, &(at, _)): (&WorkerId, &(u64, _))| (at <= next).then_some(worker);
            let done: Vec<WorkerId> = self.running.iter().filter_map(done).collect();
            for worker in done {
                let (_, task) = self.running.remove(&worker).unwrap();
                let Work::Rows(items) = &task.work else { panic!() };
                for item in items {
                    for node in item.first..item.first + item.count {
                        assert!(self.ran.insert((item.request, item.run, node)), "it ran twice");
                    }
                }
                self.manager.handle(self.now, Event::Complete { worker, task: task.id });
            }
            self.manager.advance(self.now);
            self.give_tasks();
        }
        self.now = until;
    }

    fn give_tasks(&mut self) {
        for worker in (0..3).map(WorkerId) {
            if self.running.contains_key(&worker) {
                continue;
            }
            let has_work = self.manager.has_work_for(worker);
            let task = self.manager.next_task(worker);
            assert_eq!(has_work, task.is_some(), "it does not know whether it has a task");
            let Some(task) = task else { continue };
            let Work::Rows(items) = &task.work else { panic!() };
            let (rows, _) = rows_of(&task);
            assert!(rows <= self.limit);
            for item in items {
                assert!(!self.outcomes.contains_key(&item.request), "a request that ended runs");
                if let Some(before) = item.run.0.checked_sub(1) {
                    let nodes = item.first..item.first + item.count;
                    let known = nodes.map(|node| (item.request, RunIndex(before), node));
                    assert!(known.into_iter().all(|node| self.ran.contains(&node)), "not ready");
                }
            }
            self.running.insert(worker, (self.now + 1 + u64::from(rows), task));
        }
        for finished in self.manager.drain_finished() {
            let before = self.outcomes.insert(finished.request, finished.outcome);
            assert!(before.is_none(), "{:?} ended twice", finished.request);
        }
    }

    fn end(mut self) {
        for _ in 0..10_000 {
            if self.manager.requests() == 0 {
                break;
            }
            self.pass(self.now + 1);
            self.give_tasks();
        }
        assert_eq!(self.manager.requests(), 0, "it hangs");
        for (request, rows) in &self.graphs {
            if self.outcomes[request] == Outcome::Succeeded {
                for run in 0..self.stages.len() as u32 {
                    let ran = |node| self.ran.contains(&(*request, RunIndex(run), node));
                    assert!((0..*rows).all(ran), "{request:?} is not complete");
                }
            }
        }
        assert!(
            self.placement == StatePlacement::PerWorker || self.outcomes.len() == self.graphs.len()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn every_request_ends_once(
        staging in stagings(),
        cuts in proptest::collection::vec(0usize..2, 1..6),
        limit in 1u32..9,
        is_shared in any::<bool>(),
        steps in steps(),
    ) {
        // A cell is of the stage of the one before it, or of the next stage.
        let of_cells: Vec<usize> = cuts.iter().scan(0, |stage, &cut| {
            let of_cell = *stage;
            *stage += cut;
            Some(of_cell)
        }).collect();
        let count = of_cells.last().unwrap() + 1;
        let times = (0..count).map(|stage| match stage % 3 {
            0 => vec![(1, 10), (4, 10), (8, 20)],
            1 => vec![(1, 10), (2, 20), (8, 80)],
            _ => Vec::new(),
        });
        let policy = Policy::Staged(staging.into());
        let placement = if is_shared { StatePlacement::Shared } else { StatePlacement::PerWorker };
        let limits = vec![limit; of_cells.len()];
        let stages = Stages::new(of_cells.clone(), times.collect());
        let config = Config { stages, policy, state_placement: placement, ..config(&limits, 3, 1) };
        let mut checked = Checked {
            manager: Manager::new(config),
            now: 0,
            stages: of_cells,
            limit,
            running: BTreeMap::new(),
            graphs: BTreeMap::new(),
            ran: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            placement,
        };
        for step in &steps {
            checked.step(step);
        }
        checked.end();
    }
}
