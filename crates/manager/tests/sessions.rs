//! Two sessions of two chunks each, one of which is cancelled, goes on, ends and is computed in every
//! order that there is: states stay each other's own, slots come free once, all are answered once.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, Chunk, ElementType, ModelId, RequestId,
    RowSpec, Rows, SessionId, Sink, SinkTime, SlotId, Work, WorkerId,
};
use batchmaker_manager::{Config, Event, Failure, Manager, Outcome, TaskForm};

use common::{config, request};

const CELL: CellTypeId = CellTypeId(0);

/// Rows of each session's chunks, and requests of the session before it.
const PIECES: [[u32; 2]; 2] = [[3, 2], [2, 2]];

fn graph(chunk: Chunk, length: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::of_chunk(chunk);
    let x = graph.input(row(), length);
    let y = graph.value(row(), length);
    let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
    graph.chain(CELL, length, vec![Rows::all(x)], vec![None], vec![sink]);
    graph.finish().unwrap()
}

/// Something that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A chunk of a session arrives.
    Chunk(usize, usize),
    /// A chunk is cancelled.
    Cancel(usize, usize),
    /// No chunk of the session comes any more: its client ends it, or it is reaped.
    End(usize),
    /// A worker runs its oldest task.
    Run,
}

use Step::{Cancel, End, Run};

impl Step {
    /// Whether it may come after what has been.
    fn fits(self, before: &[Self]) -> bool {
        let was = |step: Self| before.contains(&step);
        match self {
            Self::Chunk(_, 0) | Run => true,
            Self::Chunk(session, chunk) => was(Self::Chunk(session, chunk - 1)),
            Cancel(session, chunk) => was(Self::Chunk(session, chunk)),
            End(session) => was(Self::Chunk(session, 1)),
        }
    }
}

/// The manager and what a device makes of its tasks: whose state lies in a slot, after how many rows.
struct World {
    manager: Manager,
    workers: u32,
    tasks: Vec<Vec<BatchedTask>>,
    slots: BTreeMap<u32, (SlotId, usize, u32)>,
    outcomes: BTreeMap<RequestId, Outcome>,
    ended: Vec<SessionId>,
    turn: u32,
}

impl World {
    fn new(config: Config) -> Self {
        let workers = u32::from(config.workers);
        Self {
            manager: Manager::new(config),
            workers,
            tasks: (0..workers).map(|_| Vec::new()).collect(),
            slots: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            ended: Vec::new(),
            turn: 0,
        }
    }

    fn step(&mut self, step: Step) {
        let id = |session: usize| SessionId { index: session as u32, generation: 0 };
        let event = match step {
            Step::Chunk(session, chunk) => Event::Arrive {
                request: request((2 * session + chunk) as u32),
                model: ModelId(0),
                priority: 0,
                deadline_ns: None,
                graph: Arc::new(graph(
                    if chunk == 0 { Chunk::First } else { Chunk::Next },
                    PIECES[session][chunk],
                )),
                session: Some(id(session)),
            },
            Cancel(session, chunk) => {
                Event::Cancel { request: request((2 * session + chunk) as u32) }
            }
            End(session) => Event::EndSession { session: id(session) },
            Run => {
                self.run();
                return;
            }
        };
        self.manager.handle(0, event);
        self.after();
    }

    /// Runs a task of any worker. Returns whether there was one.
    fn run(&mut self) -> bool {
        for _ in 0..self.workers {
            self.turn = (self.turn + 1) % self.workers;
            let worker = WorkerId(self.turn);
            if self.tasks[worker.index()].is_empty() {
                continue;
            }
            let task = self.tasks[worker.index()].remove(0);
            self.compute(&task);
            self.manager.handle(0, Event::Complete { worker, task: task.id });
            self.after();
            return true;
        }
        false
    }

    fn compute(&mut self, task: &BatchedTask) {
        let Work::Rows(items) = &task.work else { unreachable!() };
        for item in items {
            let (session, chunk) =
                (item.request.index as usize / 2, item.request.index as usize % 2);
            let slot = item.slot.expect("a chain has a slot");
            let before = PIECES[session][..chunk].iter().sum::<u32>() + item.first;
            if before == 0 {
                self.slots.insert(slot.index, (slot, session, 0));
            }
            let held = self.slots.get_mut(&slot.index).expect("a state is there");
            assert_eq!(*held, (slot, session, before), "the state that {item:?} begins with");
            held.2 += 1;
        }
    }

    /// Does what the engine does after every event.
    fn after(&mut self) {
        for finished in self.manager.drain_finished() {
            let again = self.outcomes.insert(finished.request, finished.outcome);
            assert_eq!(again, None, "{:?} is answered twice", finished.request);
        }
        self.ended.extend(self.manager.take_ended_sessions());
        for worker in (0..self.workers).map(WorkerId) {
            while let Some(task) = self.manager.next_task(worker) {
                self.tasks[worker.index()].push(task);
            }
        }
    }

    fn check(mut self, steps: &[Step]) {
        while self.run() {}
        let outcome = |index| self.outcomes.get(&request(index)).cloned();
        let [Some(first), Some(second), Some(third), Some(fourth)] = [0, 1, 2, 3].map(outcome)
        else {
            panic!("{:?} after {steps:?}", self.outcomes)
        };
        let lost = Outcome::Failed(Failure::SessionLost);
        let fits = match (&first, &second) {
            (Outcome::Succeeded, Outcome::Succeeded | Outcome::Cancelled) => true,
            (Outcome::Cancelled, second) => *second == lost || *second == Outcome::Cancelled,
            _ => false,
        };
        assert!(fits, "{first:?}, then {second:?} after {steps:?}");
        let uncancelled = (third, fourth);
        assert_eq!(uncancelled, (Outcome::Succeeded, Outcome::Succeeded), "{steps:?}");
        assert_eq!((self.manager.requests(), self.ended.len()), (0, 2), "{steps:?}");
        assert_eq!(self.manager.statistics(CELL).slots_in_use, 0, "{steps:?}");
    }
}

/// Goes through all orders of `left` that fit after `done`; how many there are.
fn all_orders(left: &mut Vec<Step>, done: &mut Vec<Step>, config: &Config) -> usize {
    if left.is_empty() {
        let mut world = World::new(config.clone());
        done.iter().for_each(|&step| world.step(step));
        world.check(done);
        return 1;
    }
    let mut count = 0;
    for position in 0..left.len() {
        let step = left[position];
        // Of equal steps only the first: they are the same order.
        if left[..position].contains(&step) || !step.fits(done) {
            continue;
        }
        left.remove(position);
        done.push(step);
        count += all_orders(left, done, config);
        done.pop();
        left.insert(position, step);
    }
    count
}

#[test]
fn every_order_of_cancelling_ending_and_running() {
    let of = |cancelled: &[Step]| {
        let mut steps = vec![
            Step::Chunk(0, 0),
            Step::Chunk(0, 1),
            End(0),
            Step::Chunk(1, 0),
            Step::Chunk(1, 1),
            End(1),
            Run,
            Run,
        ];
        steps.extend_from_slice(cancelled);
        steps
    };
    // Workers, batches of a round, lookahead, slots.
    for (workers, tasks_to_submit, lookahead, slots_max) in [
        (1, 1, 0, None),
        (1, 3, 0, None),
        (2, 2, 0, None),
        (2, 1, 2, Some(2)),
        // A session after the other.
        (1, 2, 1, Some(1)),
    ] {
        let mut config =
            Config { task_form: TaskForm::Rows, ..config(&[2], workers, tasks_to_submit) };
        config.lookahead = lookahead;
        config.cell_types[0].slots_max = slots_max;
        for cancelled in [&[][..], &[Cancel(0, 0)], &[Cancel(0, 1)], &[Cancel(0, 0), Cancel(0, 1)]]
        {
            let count = all_orders(&mut of(cancelled), &mut Vec::new(), &config);
            assert!(count >= 500, "{count} orders");
        }
    }
}
