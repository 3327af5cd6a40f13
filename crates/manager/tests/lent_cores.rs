//! Workers lend their cores to a request that is alone: it runs on one worker at a time.

mod common;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, RowSpec, Rows, TaskId, Work,
    WorkerId,
};
use batchmaker_manager::{Config, Event, Manager};

use common::{arrive, config, stack};

const FIRST: WorkerId = WorkerId(0);
const SECOND: WorkerId = WorkerId(1);

/// Two workers, a batch a round or four of a request that is alone, cells of which a batch takes the cores of both.
fn borrowing(cell_types: usize) -> Config {
    let mut config = config(&vec![8; cell_types], 2, 1);
    config.cell_types.iter_mut().for_each(|cell| cell.workers_of_a_row = 2);
    config
}

/// All that `worker` is given now: a cell type for each task.
fn ask(manager: &mut Manager, worker: WorkerId) -> Vec<u32> {
    tasks(manager, worker).iter().map(|task| task.cell_type.0).collect()
}

fn tasks(manager: &mut Manager, worker: WorkerId) -> Vec<BatchedTask> {
    let has_work = manager.has_work_for(worker);
    let tasks: Vec<BatchedTask> = std::iter::from_fn(|| manager.next_task(worker)).collect();
    assert_eq!(has_work, !tasks.is_empty(), "{worker} is promised what it is given");
    tasks
}

fn steps(task: &BatchedTask) -> u32 {
    match task.work {
        Work::Roster { steps, .. } => steps,
        _ => panic!("{task:?} has no roster"),
    }
}

fn complete(manager: &mut Manager, worker: WorkerId, task: u64) {
    manager.handle(0, Event::Complete { worker, task: TaskId(task) });
}

#[test]
fn a_request_that_is_alone_runs_on_one_worker() {
    for workers_of_a_row in [1, 2] {
        let mut config = borrowing(2);
        config.cell_types.iter_mut().for_each(|cell| cell.workers_of_a_row = workers_of_a_row);
        let mut manager = Manager::new(config);
        manager.handle(0, arrive(0, stack(2, 9, false)));
        assert_eq!(ask(&mut manager, FIRST), [0]);
        complete(&mut manager, FIRST, 1);
        assert_eq!(ask(&mut manager, FIRST), [1], "the second layer's first steps");
        let next_of_first_layer: &[u32] = if workers_of_a_row > 1 { &[] } else { &[0] };
        assert_eq!(ask(&mut manager, SECOND), next_of_first_layer);
    }
}

#[test]
fn rounds_of_a_request_that_is_alone_are_longer() {
    let mut manager = Manager::new(borrowing(1));
    manager.handle(0, arrive(0, stack(1, 9, false)));
    assert_eq!(tasks(&mut manager, FIRST).iter().map(steps).collect::<Vec<_>>(), [4]);
    manager.handle(0, arrive(1, stack(1, 9, false)));
    assert_eq!(tasks(&mut manager, SECOND).iter().map(steps).collect::<Vec<_>>(), [1]);
    complete(&mut manager, FIRST, 1);
    assert_eq!(tasks(&mut manager, FIRST).iter().map(steps).collect::<Vec<_>>(), [1]);
}

#[test]
fn the_other_worker_takes_over_where_the_first_has_nothing_in_flight() {
    let mut manager = Manager::new(borrowing(1));
    manager.handle(0, arrive(0, stack(1, 9, false)));
    assert_eq!(ask(&mut manager, FIRST), [0]);
    assert_eq!(ask(&mut manager, SECOND), [0; 0]);
    complete(&mut manager, FIRST, 1);
    assert_eq!(ask(&mut manager, SECOND), [0]);
    assert_eq!(ask(&mut manager, FIRST), [0; 0]);
}

#[test]
fn a_second_request_finds_the_other_worker() {
    let mut manager = Manager::new(borrowing(2));
    manager.handle(0, arrive(0, stack(2, 9, false)));
    assert_eq!(ask(&mut manager, FIRST), [0]);
    manager.handle(0, arrive(1, stack(2, 2, false)));
    assert_eq!(ask(&mut manager, SECOND), [0]);
    complete(&mut manager, FIRST, 1);
    assert_eq!(ask(&mut manager, FIRST), [1], "the first request's second layer");
    // The one that is left was not alone when it arrived: its layers run on both workers.
    manager.handle(0, Event::Cancel { request: common::request(0) });
    complete(&mut manager, FIRST, 2);
    complete(&mut manager, SECOND, 1);
    assert_eq!(manager.requests(), 1);
    assert_eq!(ask(&mut manager, FIRST), [1]);
    assert_eq!(ask(&mut manager, SECOND), [0]);
}

#[test]
fn more_chains_than_a_row_takes_workers_run_side_by_side() {
    let mut config = borrowing(4);
    config.workers = 3;
    let mut manager = Manager::new(config);
    manager.handle(0, arrive(0, stack(4, 9, false)));
    assert_eq!(ask(&mut manager, FIRST), [0]);
    complete(&mut manager, FIRST, 1);
    assert_eq!(ask(&mut manager, FIRST), [1]);
    assert_eq!(ask(&mut manager, SECOND), [0]);
}

#[test]
fn chains_that_can_run_beside_each_other_do() {
    let mut manager = Manager::new(borrowing(2));
    manager.handle(0, arrive(0, two_directions(4)));
    let [first, second] = [FIRST, SECOND].map(|worker| ask(&mut manager, worker));
    assert_eq!([first, second].concat(), [1, 0]);
}

/// Two chains over one input, as of both directions of a bidirectional layer.
fn two_directions(length: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), length);
    for cell in 0..2 {
        graph.chain(CellTypeId(cell), length, vec![Rows::all(x)], vec![None, None], Vec::new());
    }
    graph.finish().unwrap()
}
