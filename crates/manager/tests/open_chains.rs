//! Chains that say stop before their bound: they end with what was submitted, their slots come
//! free once, and nothing is submitted for them after the manager knows.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, EndOfSequence, RequestId,
    RowSpec, Rows, RunIndex, Sink, SinkTime, SlotId, Stop, Work, WorkerId,
};
use batchmaker_manager::{Config, Event, Manager, Outcome};

use common::{arrive, config};

const ENCODER: CellTypeId = CellTypeId(0);
const DECODER: CellTypeId = CellTypeId(1);

/// A chain over `source` rows, and an open one of at most `bound` that begins where it ends.
fn graph(source: u32, bound: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::I64, []);
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), source);
    let [last, tokens] = [graph.value(row(), 1), graph.value(row(), bound)];
    let sink = |time, rows| vec![Sink { port: 0, time, rows }];
    let handed_on = sink(SinkTime::Last, Rows::one(last, 0));
    graph.chain(ENCODER, source, vec![Rows::all(x)], vec![None], handed_on);
    let (initial, sinks) =
        (vec![Some(Rows::one(last, 0))], sink(SinkTime::Every, Rows::all(tokens)));
    let stop = Stop { port: 0, value: 2 };
    graph.chain_until(DECODER, bound, Vec::new(), initial, sinks, stop);
    graph.output(tokens);
    graph.finish().unwrap()
}

/// A generator of numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct Plan {
    bound: u32,
    /// The decoder's node that ends the sequence, if any does.
    ends_at: Option<u32>,
    cancelled: bool,
}

/// The rosters of a worker's device: their members by cell type and slot.
#[derive(Default)]
struct Played {
    rosters: BTreeMap<(CellTypeId, SlotId), (RequestId, RunIndex, u32)>,
    tasks: Vec<BatchedTask>,
}

fn play(seed: u64, workers: u16, tasks_to_submit: u32, step_ns: u64, lookahead: u32) -> u64 {
    let mut random = Random(seed);
    let config = Config { lookahead, ..config(&[4, 3], workers, tasks_to_submit) };
    let mut manager = Manager::new(config);
    let mut plans: Vec<Plan> = Vec::new();
    let (mut ran, mut known): (BTreeMap<RequestId, u32>, BTreeSet<RequestId>) = Default::default();
    let mut after_stop = 0;
    let mut played: Vec<Played> = (0..workers).map(|_| Played::default()).collect();
    let (mut now, mut ended) = (0, 0);
    while ended < 40 {
        now += 1 + random.below(step_ns);
        if plans.len() < 40 && random.below(3) == 0 {
            let bound = 1 + random.below(12) as u32;
            let ends_at = (random.below(3) > 0).then(|| random.below(u64::from(bound)) as u32);
            let source = 1 + random.below(5) as u32;
            manager.handle(now, arrive(plans.len() as u32, graph(source, bound)));
            plans.push(Plan { bound, ends_at, cancelled: false });
        }
        if !plans.is_empty() && random.below(40) == 0 {
            let index = random.below(plans.len() as u64) as usize;
            plans[index].cancelled = true;
            let request = RequestId { index: index as u32, generation: 0 };
            manager.handle(now, Event::Cancel { request });
        }
        let worker = WorkerId(random.below(u64::from(workers)) as u32);
        let state = &mut played[worker.index()];
        while let Some(task) = manager.next_task(worker) {
            state.tasks.push(task);
        }
        if !state.tasks.is_empty() {
            let task = state.tasks.remove(0);
            let Work::Roster { leaves, joins, steps } = &task.work else { unreachable!() };
            for slot in leaves {
                let left = state.rosters.remove(&(task.cell_type, *slot));
                assert!(left.is_some(), "{slot:?} left a roster that it was not in");
            }
            for join in joins {
                let key = (task.cell_type, join.slot);
                let known = state.rosters.insert(key, (join.request, join.run, join.step));
                assert!(known.is_none(), "{:?} joined twice", join.slot);
            }
            let mut ends = Vec::new();
            for (key, (request, run, step)) in &mut state.rosters {
                if key.0 != task.cell_type {
                    continue;
                }
                let first = *step;
                *step += steps;
                if task.cell_type != DECODER {
                    continue;
                }
                let plan = &plans[request.index as usize];
                assert!(*step <= plan.bound, "{request:?} ran past its bound");
                ran.insert(*request, *step);
                match plan.ends_at {
                    Some(at) if (first..*step).contains(&at) => {
                        ends.push(EndOfSequence { request: *request, run: *run, nodes: at + 1 });
                    }
                    Some(at) if first > at => after_stop += 1,
                    _ => {}
                }
            }
            for chain in ends {
                known.insert(chain.request);
                manager.handle(now, Event::EndOfSequence { chain });
            }
            manager.handle(now, Event::Complete { worker, task: task.id });
        }
        for finished in manager.drain_finished() {
            ended += 1;
            let plan = &plans[finished.request.index as usize];
            let steps = ran.get(&finished.request).copied().unwrap_or(0);
            match finished.outcome {
                Outcome::Succeeded => match plan.ends_at {
                    Some(at) => assert!(steps > at && known.contains(&finished.request)),
                    None => assert_eq!(steps, plan.bound),
                },
                outcome => assert!(plan.cancelled, "{outcome:?}"),
            }
        }
    }
    for cell_type in [ENCODER, DECODER] {
        assert_eq!(manager.statistics(cell_type).slots_in_use, 0);
    }
    assert_eq!(manager.statistics(ENCODER).past_end_of_sequence, 0);
    let past_end = manager.statistics(DECODER).past_end_of_sequence;
    assert!(past_end >= after_stop, "{past_end} steps past the end, {after_stop} seen");
    past_end
}

#[test]
fn chains_that_reach_their_end_free_their_slots() {
    for seed in 0..300 {
        for workers in [1, 2] {
            for lookahead in [0, 2] {
                play(seed, workers, 1 + (seed % 5) as u32, 1_000, lookahead);
            }
        }
    }
}

/// Steps that take longer than a millisecond are submitted one at a time where chains may stop.
#[test]
fn few_steps_run_past_the_end_where_steps_are_long() {
    let past_end = |step_ns| (0..50).map(|seed| play(seed, 1, 5, step_ns, 0)).sum::<u64>();
    let (short, long) = (past_end(1_000), past_end(20_000_000));
    assert!(long * 5 < short, "{long} of long steps, {short} of short ones");
}
