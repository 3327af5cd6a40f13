//! Models in stages beside models under the cellular policy, in one manager.

mod common;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, RequestId, RowSpec,
    Rows, Sink, SinkTime, WorkerId,
};
use batchmaker_manager::{
    Config, Event, Fairness, Manager, Outcome, StagedModel, Stages, Staging, TaskForm,
};

use common::{arrive, config, request, stack};

const RECURRENT: ModelId = ModelId(0);
const STAGED: ModelId = ModelId(1);
const WORKER: WorkerId = WorkerId(0);

/// The time of each task, in nanoseconds.
const TASK_NS: u64 = 10;

/// A manager of one worker for a model of one chain, of cell type 0, and for one of two stages, of cell types 1 and 2. A round has two
/// steps of chains.
fn manager(lookahead: u32, weights: [u32; 2]) -> Manager {
    Manager::new(config_of([64; 3], lookahead, weights))
}

/// The configuration of such a manager. `limits` are the most rows of a batch of each cell type.
fn config_of(limits: [u32; 3], lookahead: u32, weights: [u32; 2]) -> Config {
    let staged = StagedModel {
        model: STAGED,
        staging: Staging { batch_max: 4, ..Staging::default() },
        stages: Stages::new(vec![0, 0, 1], vec![Vec::new(); 2]),
    };
    let fairness = Some(Fairness { shares: Some(weights.into()), ..Fairness::default() });
    let task_form = TaskForm::Rows;
    let staged_models = vec![staged];
    Config { staged_models, lookahead, fairness, task_form, ..config(&limits, 1, 2) }
}

/// A row of the first stage's cell, then one of the second's.
fn in_stages() -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let mut x = graph.input(row(), 1);
    for cell in [CellTypeId(1), CellTypeId(2)] {
        let y = graph.value(row(), 1);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
        graph.rows(cell, 1, vec![Rows::all(x)], vec![sink]);
        x = y;
    }
    graph.finish().unwrap()
}

fn arrive_in_stages(index: u32) -> Event {
    let mut event = arrive(index, in_stages());
    if let Event::Arrive { model, .. } = &mut event {
        *model = STAGED;
    }
    event
}

/// The same arrival of a request with another id.
fn of_request(mut event: Event, id: RequestId) -> Event {
    if let Event::Arrive { request, .. } = &mut event {
        *request = id;
    }
    event
}

/// Runs everything. Returns the cell types of each round's tasks: of those that the worker is given at once.
fn run(manager: &mut Manager, now_ns: &mut u64) -> Vec<Vec<u32>> {
    let mut rounds = Vec::new();
    loop {
        let tasks: Vec<BatchedTask> =
            std::iter::from_fn(|| manager.next_task(WORKER)).take(100).collect();
        if tasks.is_empty() {
            return rounds;
        }
        assert!(manager.is_busy(WORKER) && !manager.has_work_for(WORKER));
        rounds.push(tasks.iter().map(|task| task.cell_type.0).collect());
        for BatchedTask { id, worker, .. } in tasks {
            *now_ns += TASK_NS;
            manager.handle(*now_ns, Event::Complete { worker, task: id });
        }
    }
}

#[test]
fn policies_take_turns_and_their_rounds_are_not_mixed() {
    let mut manager = manager(0, [1, 1]);
    manager.handle(0, arrive(0, stack(1, 6, false)));
    manager.handle(0, arrive_in_stages(1));
    manager.handle(0, arrive_in_stages(2));
    let rounds = run(&mut manager, &mut 0);
    // A round of the chain takes twice as long as a stage.
    assert_eq!(rounds, [vec![0, 0], vec![1], vec![2], vec![0, 0], vec![0, 0]]);
    let outcomes: Vec<_> =
        manager.drain_finished().map(|end| (end.request.index, end.outcome)).collect();
    assert_eq!(outcomes, [1, 2, 0].map(|index| (index, Outcome::Succeeded)));
    let tasks = [0, 1, 2].map(|cell| manager.statistics(CellTypeId(cell)).tasks);
    assert_eq!((tasks, manager.requests()), ([6, 1, 1], 0));
    assert_eq!(manager.batches_by_size(CellTypeId(2)), [0, 0, 1], "both had one batch");
    assert_eq!([RECURRENT, STAGED].map(|model| manager.worker_ns(model)), [Some(60), Some(20)]);
}

#[test]
fn turns_follow_the_weights_of_models_with_requests() {
    let mut manager = manager(0, [4, 1]);
    manager.handle(0, arrive(0, stack(1, 8, false)));
    manager.handle(0, arrive_in_stages(1));
    let rounds = run(&mut manager, &mut 0);
    // Two rounds of the chain, of 20 ns at weight 4, take as much of its share as a stage of 10 ns.
    assert_eq!(rounds, [[0, 0].as_slice(), &[1], &[0, 0], &[0, 0], &[2], &[0, 0]]);
}

/// Both always have work: neither is ahead by more than a stage, which takes as long as two rounds.
#[test]
fn policies_have_equal_times() {
    let mut manager = Manager::new(config_of([1; 3], 0, [1, 1]));
    manager.handle(0, arrive(0, stack(1, 64, false)));
    (1..=32).for_each(|index| manager.handle(0, arrive_in_stages(index)));
    let rounds = run(&mut manager, &mut 0);
    let (mut chain, mut stages): (i64, i64) = (0, 0);
    for round in &rounds {
        let is_chain = round.iter().all(|&cell| cell == 0);
        *(if is_chain { &mut chain } else { &mut stages }) += round.len() as i64;
        assert_eq!(round.len(), if is_chain { 2 } else { 4 });
        assert!((chain - stages).abs() <= 4, "{chain} tasks of the chain, {stages} of stages");
        if chain == 64 || stages == 64 {
            break;
        }
    }
    assert!(chain.max(stages) == 64 && chain.min(stages) >= 60);
}

/// What arrives while a round runs waits for its end, to share the next one.
#[test]
fn a_round_is_over_when_nothing_is_left_of_it() {
    let mut manager = manager(0, [1, 1]);
    let row = || stack(0, 1, true);
    manager.handle(0, arrive(0, row()));
    let first = manager.next_task(WORKER).unwrap();
    assert!(manager.next_task(WORKER).is_none());
    (1..4).for_each(|index| manager.handle(1, arrive(index, row())));
    assert!(!manager.has_work_for(WORKER) && manager.next_task(WORKER).is_none());
    manager.handle(2, Event::Complete { worker: WORKER, task: first.id });
    assert_eq!(run(&mut manager, &mut 2), [[0]]);
    assert_eq!(manager.batches_by_size(CellTypeId(0)), [0, 1, 0, 1]);
}

#[test]
fn events_reach_the_policy_of_their_request() {
    let mut manager = manager(0, [1, 1]);
    manager.handle(0, arrive(0, stack(1, 4, false)));
    manager.handle(0, arrive_in_stages(1));
    manager.handle(0, arrive_in_stages(2));
    let first = manager.next_task(WORKER).unwrap();
    assert_eq!(first.cell_type, CellTypeId(0));
    manager.handle(1, Event::Cancel { request: request(1) });
    let reason = "out of order".into();
    manager.handle(2, Event::TaskFailed { worker: WORKER, task: first.id, reason });
    let ended: Vec<_> = manager.drain_finished().collect();
    assert_eq!(ended.iter().map(|end| end.request.index).collect::<Vec<_>>(), [1, 0]);
    assert!(matches!(ended[1].outcome, Outcome::Failed(_)));
    // The position of a request that was the other policy's, and one that never was.
    let reused = RequestId { generation: 1, ..request(0) };
    manager.handle(3, of_request(arrive_in_stages(0), reused));
    manager.handle(3, Event::Cancel { request: request(0) });
    manager.handle(3, Event::Cancel { request: request(9) });
    let rounds = run(&mut manager, &mut 3);
    assert_eq!(rounds, [[1], [2]]);
    let ended: Vec<_> = manager.drain_finished().map(|end| (end.request, end.outcome)).collect();
    assert_eq!(ended, [request(2), reused].map(|request| (request, Outcome::Succeeded)));
}

#[test]
fn a_lost_worker_is_lost_to_all_policies() {
    let mut manager = manager(0, [1, 1]);
    manager.handle(0, arrive(0, stack(1, 4, false)));
    manager.handle(0, arrive_in_stages(1));
    while manager.next_task(WORKER).is_some() {}
    let reason = "unplugged".into();
    manager.handle(1, Event::WorkerDown { worker: WORKER, reason });
    assert!(!manager.is_busy(WORKER) && manager.next_task(WORKER).is_none());
    manager.handle(2, Event::WorkerUp { worker: WORKER });
    assert_eq!(run(&mut manager, &mut 2), [[1], [2]]);
    let ended: Vec<_> = manager.drain_finished().collect();
    assert!(matches!(ended[0].outcome, Outcome::Failed(_)) && ended[0].request == request(0));
    assert_eq!((&ended[1].outcome, ended[1].request), (&Outcome::Succeeded, request(1)));
}

#[test]
fn with_lookahead_a_worker_has_the_next_round_before_the_end_of_one() {
    let mut manager = manager(1, [1, 1]);
    manager.handle(0, arrive(0, stack(1, 4, false)));
    manager.handle(0, arrive_in_stages(1));
    let [first, second] = [0; 2].map(|_| manager.next_task(WORKER).unwrap());
    assert_eq!((first.cell_type.0, second.cell_type.0), (0, 0));
    assert!(manager.next_task(WORKER).is_none(), "two are unfinished");
    manager.handle(10, Event::Complete { worker: WORKER, task: first.id });
    let third = manager.next_task(WORKER).unwrap();
    assert_eq!((third.cell_type.0, third.id.0), (1, 3), "one is unfinished");
}
