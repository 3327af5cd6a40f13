//! The device notices what a manager must not do.

use batchmaker_graph::{
    CellGraphBuilder, Chunk, ElementType, Item, RowSpec, Rows, RunIndex, Sink, SinkTime,
};

use super::*;
use crate::hashes::{Hashes, cell_output};

const CHAIN: CellTypeId = CellTypeId(0);
const REQUEST: RequestId = RequestId { index: 0, generation: 0 };
const SLOT: SlotId = SlotId { index: 0, generation: 0 };

/// A device of two workers with one request: a chain of 3 steps, another one over it.
fn device(memory: StatePlacement) -> VirtualDevice<Hashes> {
    let costs = vec![CellCost { fixed_ns: 100, row_ns: 1 }];
    let config =
        VirtualConfig { workers: 2, memory, costs, copy_ns: 1000, slots_max: None, rows_max: None };
    let mut device = VirtualDevice::new(config, Hashes);
    device.admit(REQUEST, graph(Chunk::Whole), [vec![7, 8, 9]]);
    device
}

/// The same device, on which the lower chain of a first chunk ran, and the chunk after it came.
fn device_between_chunks(memory: StatePlacement) -> VirtualDevice<Hashes> {
    let mut device = device(memory);
    device.retire(REQUEST).unwrap();
    device.admit(REQUEST, graph(Chunk::First), [vec![7, 8, 9]]);
    start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3))).unwrap();
    device.finish(WorkerId(0));
    device.retire(REQUEST).unwrap();
    device.admit(REQUEST, graph(Chunk::Next), [vec![10, 11, 12]]);
    device
}

fn graph(chunk: Chunk) -> Arc<CellGraph> {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::of_chunk(chunk);
    let x = graph.input(row(), 3);
    let (y, z) = (graph.value(row(), 3), graph.value(row(), 3));
    let every = |value| Sink { port: 0, time: SinkTime::Every, rows: Rows::all(value) };
    graph.chain(CHAIN, 3, vec![Rows::all(x)], vec![None], vec![every(y)]);
    graph.chain(CHAIN, 3, vec![Rows::all(y)], vec![None], vec![every(z)]);
    graph.output(y);
    Arc::new(graph.finish().unwrap())
}

fn task(id: u64, worker: u32, work: Work) -> BatchedTask {
    BatchedTask { id: TaskId(id), worker: WorkerId(worker), cell_type: CHAIN, work }
}

fn join(run: u32, slot: SlotId, step: u32, moved_from: Option<WorkerId>) -> Join {
    Join { request: REQUEST, run: RunIndex(run), slot, step, moved_from }
}

fn steps(joins: Vec<Join>, steps: u32) -> Work {
    Work::Roster { leaves: Vec::new(), joins, steps }
}

fn start(device: &mut VirtualDevice<Hashes>, task: BatchedTask) -> Result<u64, Misuse> {
    let worker = task.worker;
    device.submit(task)?;
    device.start(worker, Fate::Runs).map(|started| started.expect("the worker is idle").cost_ns)
}

#[test]
fn both_task_forms_compute_the_same() {
    let mut outputs = Vec::new();
    for is_roster in [true, false] {
        let mut device = device(StatePlacement::Shared);
        if is_roster {
            let all = task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3));
            assert_eq!(start(&mut device, all), Ok(303));
            device.finish(WorkerId(0));
        } else {
            for step in 0..3 {
                let slot = Some(SLOT);
                let (request, run) = (REQUEST, RunIndex(0));
                let item = Item { request, run, first: step, count: 1, slot, moved_from: None };
                let one = task(u64::from(step) + 1, 0, Work::Rows(vec![item]));
                start(&mut device, one).unwrap();
                device.finish(WorkerId(0));
            }
        }
        outputs.push(device.retire(REQUEST).unwrap());
    }
    assert_eq!(outputs[0], outputs[1]);
    let first = cell_output(CHAIN, [Some(7)], [Some(0)], 0);
    let second = cell_output(CHAIN, [Some(8)], [first], 0);
    assert_eq!(outputs[0][0][..2], [first, second]);
}

#[test]
fn a_state_moves_only_from_where_it_is() {
    for moved_from in [None, Some(WorkerId(0))] {
        let mut device = device(StatePlacement::PerWorker);
        start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 1))).unwrap();
        device.finish(WorkerId(0));
        let moved = task(1, 1, steps(vec![join(0, SLOT, 1, moved_from)], 1));
        let is_named = moved_from.is_some();
        assert_eq!(start(&mut device, moved).ok(), is_named.then_some(1101));
        assert_eq!(device.copies(), u64::from(is_named));
    }
}

#[test]
fn a_stale_generation_is_refused() {
    let mut device = device(StatePlacement::Shared);
    start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 1))).unwrap();
    device.finish(WorkerId(0));
    let next = SlotId { index: 0, generation: 1 };
    let stale = Work::Roster { leaves: vec![SLOT], joins: vec![join(0, next, 1, None)], steps: 1 };
    assert!(start(&mut device, task(2, 0, stale)).unwrap_err().0.contains("generation 0"));
}

#[test]
fn a_chunk_begins_with_what_the_one_before_left() {
    for memory in [StatePlacement::Shared, StatePlacement::PerWorker] {
        let moved_from = (memory == StatePlacement::PerWorker).then_some(WorkerId(0));
        for (worker, moved_from) in [(0, None), (1, moved_from)] {
            let mut device = device_between_chunks(memory);
            let leaves = if worker == 0 { vec![SLOT] } else { Vec::new() };
            let joins = vec![join(0, SLOT, 0, moved_from)];
            start(&mut device, task(2, worker, Work::Roster { leaves, joins, steps: 1 })).unwrap();
            assert_eq!(device.copies(), u64::from(moved_from.is_some()));
            let step = |state, input| cell_output(CHAIN, [Some(input)], [state], 0);
            let left = [7, 8, 9].into_iter().fold(Some(0), step);
            assert_eq!(device.retire(REQUEST).unwrap()[0][0], step(left, 10));
        }
    }
}

#[test]
fn a_chunk_begins_with_nothing_else() {
    let first_step = |slot, moved_from| task(1, 1, steps(vec![join(0, slot, 0, moved_from)], 1));
    // The slot of another chain, one that was freed since, and one in another memory.
    let others = [SlotId { index: 1, generation: 0 }, SlotId { index: 0, generation: 1 }];
    for slot in others {
        let mut device = device_between_chunks(StatePlacement::Shared);
        assert!(start(&mut device, first_step(slot, None)).is_err());
    }
    let mut device_ = device_between_chunks(StatePlacement::PerWorker);
    assert!(start(&mut device_, first_step(SLOT, None)).unwrap_err().0.contains("no state"));
    // The state of a whole sequence that ended, and of a chunk that did not.
    for (chunk, ran) in [(Chunk::Whole, 3), (Chunk::First, 2)] {
        let mut device = device(StatePlacement::Shared);
        device.retire(REQUEST).unwrap();
        device.admit(REQUEST, graph(chunk), [vec![7, 8, 9]]);
        start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], ran))).unwrap();
        device.finish(WorkerId(0));
        device.retire(REQUEST).unwrap();
        device.admit(REQUEST, graph(Chunk::Next), [vec![10, 11, 12]]);
        let refused = start(&mut device, first_step(SLOT, None)).unwrap_err();
        assert!(refused.0.contains(&format!("step {ran}")), "{refused}");
    }
}

#[test]
fn unfinished_and_unwritten_rows_are_refused() {
    let other = SlotId { index: 1, generation: 0 };
    let reader = |worker| task(2, worker, steps(vec![join(1, other, 0, None)], 1));
    let mut device_ = device(StatePlacement::Shared);
    assert!(start(&mut device_, reader(0)).unwrap_err().0.contains("not written"));
    let mut device_ = device(StatePlacement::Shared);
    start(&mut device_, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 1))).unwrap();
    assert!(start(&mut device_, reader(1)).unwrap_err().0.contains("unfinished"));
    let mut device_ = device(StatePlacement::Shared);
    let both = vec![join(0, SLOT, 0, None), join(1, other, 0, None)];
    assert!(start(&mut device_, task(1, 0, steps(both, 1))).is_err(), "in one batch");
}

/// The rows of complete batches may be read by other workers, and by a peek.
#[test]
fn batches_complete_one_by_one() {
    let other = SlotId { index: 1, generation: 0 };
    let mut device = device(StatePlacement::Shared);
    start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3))).unwrap();
    let y = ValueIndex(1);
    assert!(device.peek(REQUEST, y, 0).unwrap_err().0.contains("unfinished"));
    assert!(device.peek(REQUEST, ValueIndex(2), 0).unwrap_err().0.contains("not written"));
    device.advance(WorkerId(0), 2);
    let first = cell_output(CHAIN, [Some(7)], [Some(0)], 0);
    assert_eq!(device.peek(REQUEST, y, 0), Ok(first));
    assert!(device.peek(REQUEST, y, 2).is_err());
    start(&mut device, task(1, 1, steps(vec![join(1, other, 0, None)], 2))).unwrap();
    device.finish(WorkerId(1));
    let third = task(2, 1, steps(Vec::new(), 1));
    assert!(start(&mut device, third).unwrap_err().0.contains("unfinished"));
}

#[test]
fn a_failed_task_is_right_up_to_the_batch_that_fails() {
    let mut device = device(StatePlacement::Shared);
    device.submit(task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3))).unwrap();
    device.start(WorkerId(0), Fate::FailsFrom(1)).unwrap();
    device.finish(WorkerId(0));
    let first = cell_output(CHAIN, [Some(7)], [Some(0)], 0);
    assert_eq!(device.retire(REQUEST).unwrap()[0], [first, None, None]);
}

#[test]
fn a_lost_worker_takes_no_task() {
    let mut device = device(StatePlacement::Shared);
    device.lose(WorkerId(0));
    let one = || task(1, 0, steps(vec![join(0, SLOT, 0, None)], 1));
    assert!(device.submit(one()).unwrap_err().0.contains("is lost"));
    device.restore(WorkerId(0));
    device.submit(one()).unwrap();
}

#[test]
fn a_lost_worker_takes_its_memory_with_it() {
    for (memory, is_lost) in [(StatePlacement::Shared, false), (StatePlacement::PerWorker, true)] {
        let mut device = device(memory);
        start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3))).unwrap();
        device.finish(WorkerId(0));
        device.lose(WorkerId(0));
        let rows = device.retire(REQUEST).unwrap();
        assert!(rows[0].iter().all(|row| row.is_none() == is_lost));
    }
}

#[test]
fn steps_that_were_reported_stay_complete_when_the_worker_is_lost() {
    let mut device = device(StatePlacement::Shared);
    start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3))).unwrap();
    device.advance(WorkerId(0), 2);
    device.lose(WorkerId(0));
    let y = ValueIndex(1);
    let is_complete = [0, 1, 2].map(|row| device.peek(REQUEST, y, row).is_ok());
    assert_eq!(is_complete, [true, true, false]);
}

#[test]
fn a_restored_worker_does_not_read_what_its_lost_task_wrote() {
    let mut device = device(StatePlacement::Shared);
    start(&mut device, task(1, 0, steps(vec![join(0, SLOT, 0, None)], 3))).unwrap();
    device.lose(WorkerId(0));
    device.restore(WorkerId(0));
    let other = SlotId { index: 1, generation: 0 };
    let above = task(2, 0, steps(vec![join(1, other, 0, None)], 1));
    assert!(start(&mut device, above).unwrap_err().0.contains("is unfinished"));
}

#[test]
fn a_slot_or_a_batch_beyond_the_bounds_is_refused() {
    let mut device = device(StatePlacement::Shared);
    device.config.slots_max = Some(1);
    device.config.rows_max = Some(1);
    let far = SlotId { index: 1, generation: 0 };
    let beyond = task(1, 0, steps(vec![join(0, far, 0, None)], 1));
    assert!(start(&mut device, beyond).unwrap_err().0.contains("has 1 slots"));
    device.give_up(WorkerId(0));
    let item = |run| Item {
        request: REQUEST,
        run: RunIndex(run),
        first: 0,
        count: 1,
        slot: Some(SLOT),
        moved_from: None,
    };
    let wide = task(2, 0, Work::Rows(vec![item(0), item(0)]));
    assert!(start(&mut device, wide).unwrap_err().0.contains("a batch of 2 rows; the most is 1"));
}
