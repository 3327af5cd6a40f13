//! Decisions: a request whose own data says which of its nodes it needs.

mod common;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, DecisionIndex, ElementType, Guard,
    RowSpec, Rows, Sink, SinkTime, Work, WorkerId,
};
use batchmaker_manager::{
    Config, Event, Failure, Manager, Outcome, PadTo, Padding, Policy, Stages, Staging,
};

use common::{arrive, config, request};

const W: WorkerId = WorkerId(0);

/// Cells 0, 1 and 2, each of which reads what the one before wrote. Cell 0 decides whether 1 is needed, cell 1 whether 2 is: two early
/// exits.
fn two_exits() -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let mut x = graph.input(row(), 1);
    let mut guard = None;
    for cell in 0..3 {
        let (y, truth) =
            (graph.value(row(), 1), graph.value(RowSpec::new(ElementType::Bool, []), 1));
        let every = |port, value| Sink { port, time: SinkTime::Every, rows: Rows::all(value) };
        let run =
            graph.rows(CellTypeId(cell), 1, vec![Rows::all(x)], vec![every(0, y), every(1, truth)]);
        if let Some(decision) = guard {
            graph.guard(run, Guard { decision, when: false });
        }
        guard = (cell < 2).then(|| graph.decision(truth, 0));
        x = y;
    }
    graph.finish().unwrap()
}

fn staged() -> Policy {
    let staging = Staging {
        pairs: 2,
        pipelines: Some(1),
        batch_max: 4,
        active_max: 2,
        window_ns: 0,
        stretch_ns: 0,
        split_margin_percent: None,
    };
    Policy::Staged(staging.into())
}

fn manager(policy: Policy) -> Manager {
    let stages = Stages::new(vec![0, 1, 2], vec![Vec::new(); 3]);
    Manager::new(Config { policy, stages, ..config(&[64; 3], 1, 5) })
}

/// The requests of the next task, and its cell; none if there is no task.
fn next(manager: &mut Manager) -> Option<(u32, Vec<u32>)> {
    let BatchedTask { cell_type, work: Work::Rows(items), .. } = manager.next_task(W)? else {
        panic!("rows")
    };
    Some((cell_type.0, items.iter().map(|item| item.request.index).collect()))
}

fn complete(manager: &mut Manager, task: u64) {
    manager.handle(0, Event::Complete { worker: W, task: batchmaker_graph::TaskId(task) });
}

fn decide(manager: &mut Manager, of: u32, decision: u32, is_true: bool) {
    let (request, decision, outcome) = (request(of), DecisionIndex(decision), Ok(is_true));
    manager.handle(0, Event::Decided { request, decision, outcome });
}

/// The requests that ended, all of which succeeded.
fn ended(manager: &mut Manager) -> Vec<u32> {
    let ended = manager.drain_finished().map(|finished| {
        assert_eq!(finished.outcome, Outcome::Succeeded);
        finished.request.index
    });
    ended.collect()
}

/// The requests whose decisions are asked for, and which decisions.
fn undecided(manager: &mut Manager) -> Vec<(u32, u32)> {
    let undecided = manager.take_undecided().into_iter();
    undecided.map(|of| (of.request.index, of.index.0)).collect()
}

/// Requests 0 and 1 begin together. 0 leaves by the first exit, 1 by the second.
#[test]
fn a_request_leaves_when_its_decision_falls() {
    for policy in [Policy::Cellular, staged()] {
        let mut manager = manager(policy);
        (0..2).for_each(|at| manager.handle(0, arrive(at, two_exits())));
        assert_eq!(next(&mut manager), Some((0, vec![0, 1])));
        assert_eq!(undecided(&mut manager), [], "nothing is written");
        complete(&mut manager, 1);
        assert_eq!(undecided(&mut manager), [(0, 0), (1, 0)]);
        assert_eq!(undecided(&mut manager), [], "each is asked for once");
        assert_eq!(next(&mut manager), None, "nothing is decided");
        decide(&mut manager, 0, 0, true);
        assert_eq!(ended(&mut manager), [0], "the decision of a run that is left out is moot");
        decide(&mut manager, 1, 0, false);
        assert_eq!(next(&mut manager), Some((1, vec![1])));
        complete(&mut manager, 2);
        assert_eq!(undecided(&mut manager), [(1, 1)]);
        decide(&mut manager, 1, 1, true);
        assert_eq!((next(&mut manager), ended(&mut manager)), (None, vec![1]));
        assert_eq!(manager.requests(), 0);
    }
}

/// At most two requests are active. The third comes in when one has left, whose batch is still there.
#[test]
fn the_place_of_a_request_that_left_is_free() {
    let mut manager = manager(staged());
    (0..3).for_each(|at| manager.handle(0, arrive(at, two_exits())));
    assert_eq!(next(&mut manager), Some((0, vec![0, 1])));
    complete(&mut manager, 1);
    decide(&mut manager, 1, 0, false);
    assert_eq!(next(&mut manager), None, "0 may need the next stage, and has its place");
    decide(&mut manager, 0, 0, true);
    assert_eq!(next(&mut manager), Some((1, vec![1])), "the later stage goes first");
    complete(&mut manager, 2);
    decide(&mut manager, 1, 1, false);
    assert_eq!(next(&mut manager), Some((2, vec![1])));
    complete(&mut manager, 3);
    assert_eq!(next(&mut manager), Some((0, vec![2])));
}

/// A decision of a request that has ended is ignored, and one that cannot be read fails its request.
#[test]
fn requests_end_though_decisions_do_not_come() {
    for policy in [Policy::Cellular, staged()] {
        let mut manager = manager(policy);
        (0..2).for_each(|at| manager.handle(0, arrive(at, two_exits())));
        next(&mut manager);
        complete(&mut manager, 1);
        manager.handle(0, Event::Cancel { request: request(0) });
        decide(&mut manager, 0, 0, false);
        let (request, decision, outcome) = (request(1), DecisionIndex(0), Err("gone".into()));
        manager.handle(0, Event::Decided { request, decision, outcome });
        let outcomes: Vec<Outcome> = manager.drain_finished().map(|of| of.outcome).collect();
        let lost = Outcome::Failed(Failure::WorkerLost("gone".into()));
        assert_eq!((outcomes, manager.requests()), (vec![Outcome::Cancelled, lost], 0));
    }
}

/// A guard permits: batches that run as a whole run all of it, and ask for nothing.
#[test]
fn closed_batches_run_everything() {
    let mut manager = manager(Policy::Padded(Padding { width: 1, to: PadTo::Longest }));
    manager.handle(0, arrive(0, two_exits()));
    for cell in 0..3 {
        assert_eq!(next(&mut manager), Some((cell, vec![0])));
        complete(&mut manager, u64::from(cell) + 1);
    }
    assert_eq!((undecided(&mut manager), ended(&mut manager)), (vec![], vec![0]));
}
