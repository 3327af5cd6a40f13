//! TreeLSTM nodes: leaves over ids or rows, inner nodes by listed rows, batched level by level with
//! those of other trees.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraphBuilder, CellTypeId, ElementType, Item, RowSpec, Rows, RunIndex, Sink, SinkTime,
    Tensor, TensorData, Work,
};

use crate::conformance::case::{Case, Check};
use crate::conformance::cells::{IDS, TREE_SIZES, tree};
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::Request;
use crate::conformance::harness::Harness;
use crate::conformance::numbers::Numbers;
use crate::conformance::subject::Subject;

const LEAF: CellTypeId = CellTypeId(0);
const INNER: CellTypeId = CellTypeId(1);

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (size, name) in TREE_SIZES.into_iter().zip(["", ", wide"]) {
        for (is_over_embedding, leaves) in [(false, "rows"), (true, "ids")] {
            cases.push(Case::new(format!("trees/leaves with {leaves}{name}"), move |subject| {
                trees(subject, &tree(is_over_embedding, size))
            }));
        }
    }
    cases
}

/// A request of a random tree. Outputs: h and c of all nodes, leaves first, and those of the last
/// leaf again.
pub(super) fn request(cells: &[Cell], leaves: u32, seed: u32) -> Request {
    let mut numbers = Numbers::new(seed);
    let mut graph = CellGraphBuilder::new();
    let data = numbers.rows(&cells[0].inputs[0], leaves, IDS);
    let x = graph.input(cells[0].inputs[0].clone(), leaves);
    let inner = leaves - 1;
    let row = RowSpec::new(ElementType::F32, [cells[0].outputs[0].elements()]);
    let states = [(); 2].map(|()| graph.value(row.clone(), leaves + inner));
    let again = graph.value(row, 2);
    let sinks = |first: u32| {
        let rows = |port: usize| Rows::strided(states[port], first, 1);
        [0, 1].map(|port| Sink { port, time: SinkTime::Every, rows: rows(port) })
    };
    let last =
        [0, 1].map(|port| Sink { port, time: SinkTime::Last, rows: Rows::one(again, port as u32) });
    graph.rows(LEAF, leaves, vec![Rows::all(x)], [sinks(0), last].concat());
    let mut roots: Vec<u32> = (0..leaves).collect();
    let mut children = [Vec::new(), Vec::new()];
    for node in leaves..leaves + inner {
        let at = numbers.below(roots.len() as u32 - 1) as usize;
        let right = roots.remove(at + 1);
        children[0].push(std::mem::replace(&mut roots[at], node));
        children[1].push(right);
    }
    if inner > 0 {
        let reads = [(0, 0), (0, 1), (1, 0), (1, 1)]
            .map(|(side, state)| Rows::listed(states[state], &*children[side]));
        graph.nodes(INNER, inner, reads.into(), sinks(leaves).into());
    }
    [states[0], states[1], again].into_iter().for_each(|value| graph.output(value));
    Request {
        graph: Arc::new(graph.finish().unwrap()),
        inputs: vec![Tensor::new(vec![data.len()], data)],
    }
}

/// Trees of several sizes, one of them a leaf alone.
pub(super) fn requests(cells: &[Cell]) -> Vec<Request> {
    [5, 1, 9, 2, 14].iter().zip(70..).map(|(&leaves, seed)| request(cells, leaves, seed)).collect()
}

/// Runs trees together, level by level, on workers in turn. Returns the outputs of each.
pub(super) fn play(harness: &mut Harness, requests: &[Request]) -> Check<Vec<Vec<TensorData>>> {
    let ids = harness.admit_all(requests)?;
    let item = |at: usize, run: u32, nodes: std::ops::Range<u32>| Item {
        request: ids[at],
        run: RunIndex(run),
        first: nodes.start,
        count: nodes.end - nodes.start,
        slot: None,
        moved_from: None,
    };
    // Leaves of each tree in two items, of which the second comes with the next task.
    let halves = |half: u32| {
        let of_tree = |(at, request): (usize, &Request)| {
            let length = request.graph.runs()[0].length;
            let nodes = [0..length / 2, length / 2..length][half as usize].clone();
            (!nodes.is_empty()).then(|| item(at, 0, nodes))
        };
        requests.iter().enumerate().filter_map(of_tree).collect::<Vec<Item>>()
    };
    let mut tasks = vec![(LEAF, halves(0)), (LEAF, halves(1))];
    for level in 0.. {
        let of_tree = |(at, request): (usize, &Request)| {
            let nodes = request.graph.runs().get(1)?.waves().nth(level)?;
            Some(item(at, 1, nodes))
        };
        let items: Vec<Item> = requests.iter().enumerate().filter_map(of_tree).collect();
        if items.is_empty() {
            break;
        }
        tasks.push((INNER, items));
    }
    for (at, (cell_type, items)) in tasks.into_iter().enumerate() {
        if !items.is_empty() {
            let worker = harness.worker_of(at);
            harness.workers[worker].run([(cell_type, Work::Rows(items))])?;
        }
    }
    harness.finish_all(&ids)
}

fn trees(subject: &dyn Subject, cells: &[Cell]) -> Check {
    let mut harness = Harness::new(subject, cells.to_vec())?;
    let requests = requests(cells);
    let together = play(&mut harness, &requests)?;
    for (request, outputs) in requests.iter().zip(&together) {
        harness.check(request, outputs)?;
    }
    for (at, request) in requests.iter().enumerate() {
        let alone = play(&mut harness, std::slice::from_ref(request))?;
        same_bits(&format!("tree {at} alone"), &alone[0], &together[at])?;
    }
    // On a new device, whose caches hold nothing of the batches before.
    let mut harness = Harness::new(subject, cells.to_vec())?;
    let many: Vec<Request> = (0..4).flat_map(|_| requests.clone()).collect();
    for (at, outputs) in play(&mut harness, &many)?.iter().enumerate() {
        same_bits(&format!("tree {at} of many"), outputs, &together[at % together.len()])?;
    }
    Ok(())
}
