//! A sequence that comes in chunks: a chunk's chain leaves its state in its slot, and the next begins
//! with it. The bits are those of the whole sequence.

use batchmaker_graph::{Cell, Chunk, Item, Join, RunIndex, SlotId, TensorData, Work};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::{Chain, Request, concat};
use crate::conformance::harness::Harness;
use crate::conformance::oracle::evaluate_chunk;
use crate::conformance::schedule::{Entry, Form, Schedule};
use crate::conformance::subject::Subject;

pub(super) fn cases() -> Vec<Case> {
    let of_cell = |cell: ChainCell| {
        let case = |what: &str, form: Form| {
            let name = format!("sessions/{}: {what}", cell.name);
            let case = Case::new(name, move |subject| chunks(subject, &cell.cell(), form));
            if cell.has_programs { case.with_programs() } else { case }
        };
        [case("chunks on a roster", Form::Roster), case("chunks as explicit rows", Form::Rows)]
    };
    ChainCell::all().into_iter().flat_map(of_cell).collect()
}

/// The positions of a port's outputs, after every node and at the end, among those of
/// [`Sinks::All`](crate::conformance::graphs::Sinks::All).
pub(super) fn outputs_of(port: usize) -> [usize; 2] {
    if port == 0 { [0, 2] } else { [1 + 2 * port, 2 + 2 * port] }
}

/// The lengths of the chunks in nodes: odd and even ones, and 1.
pub(super) const CHUNKS: [u32; 5] = [3, 4, 1, 2, 5];

/// The whole sequence, and its chunks.
pub(super) fn chunked(cell: &Cell, seed: u32) -> (Request, Vec<Request>) {
    let length = CHUNKS.iter().sum();
    let whole = Chain::new(cell, CELL, length, seed);
    let mut first = 0;
    let chunk = |(at, length): (usize, u32)| {
        let nodes = first..first + length;
        first += length;
        let chunk = if at == 0 { Chunk::First } else { Chunk::Next };
        whole.chunk(cell, chunk, nodes).request(cell)
    };
    let chunks = CHUNKS.into_iter().enumerate().map(chunk).collect();
    (whole.request(cell), chunks)
}

/// Runs a request alone, on the first worker.
pub(super) fn alone(harness: &mut Harness, request: &Request) -> Check<Vec<TensorData>> {
    let id = harness.admit(request)?;
    let length = request.graph.runs()[0].length;
    let entry = Entry { request: id, run: RunIndex(0), length, at: 0 };
    harness.play(0, CELL, &[entry], Schedule::of(Form::Roster))?;
    harness.finish(0, id)
}

/// Checks that chunks' outputs, one after the other, are those of the whole.
pub(super) fn check_chunks(cell: &Cell, chunks: &[Vec<TensorData>], whole: &[TensorData]) -> Check {
    for port in 0..cell.outputs.len() {
        let [every, last] = outputs_of(port);
        let rows = concat(chunks.iter().map(|outputs| outputs[every].clone()));
        same_bits(&format!("port {port} of all chunks"), &[rows], &whole[every..=every])?;
        let end = &chunks.last().expect("chunks")[last..=last];
        same_bits(&format!("port {port} of the last"), end, &whole[last..=last])?;
    }
    Ok(())
}

fn chunks(subject: &dyn Subject, cell: &Cell, form: Form) -> Check {
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let (whole, chunks) = chunked(cell, 5);
    let expected = alone(&mut harness, &whole)?;
    // Another chain is in the batch from the first chunk to the last.
    let beside = Chain::new(cell, CELL, 15, 6).request(cell);
    let beside_alone = alone(&mut harness, &beside)?;
    let leaves = harness.leave(0, CELL);
    let beside_id = harness.admit(&beside)?;
    let [slot, beside_slot] = [(); 2].map(|()| harness.take_slot(CELL));
    let join = |request, slot| Join { request, run: RunIndex(0), slot, step: 0, moved_from: None };

    let mut leaves: Vec<SlotId> = leaves;
    let (mut step, mut outputs, mut states) = (0, Vec::new(), Vec::new());
    for (at, chunk) in chunks.iter().enumerate() {
        let id = harness.admit(chunk)?;
        let length = chunk.graph.runs()[0].length;
        let works: Vec<Work> = match form {
            Form::Roster => {
                let mut joins = vec![join(id, slot)];
                joins.extend((at == 0).then(|| join(beside_id, beside_slot)));
                // In one task, or in two.
                let first = if length > 2 { 2 } else { length };
                let leaves = std::mem::replace(&mut leaves, vec![slot]);
                let mut works = vec![Work::Roster { leaves, joins, steps: first }];
                works.extend((length > first).then(|| Work::Roster {
                    leaves: Vec::new(),
                    joins: Vec::new(),
                    steps: length - first,
                }));
                works
            }
            Form::Rows => {
                let item = |request, first, slot| {
                    let (run, slot) = (RunIndex(0), Some(slot));
                    Item { request, run, first, count: 1, slot, moved_from: None }
                };
                let items =
                    |node| vec![item(beside_id, step + node, beside_slot), item(id, node, slot)];
                (0..length).map(|node| Work::Rows(items(node))).collect()
            }
        };
        step += length;
        harness.workers[0].run(works.into_iter().map(|work| (CELL, work)))?;
        // The chunk is over, though its chain may still be on the roster.
        let of_chunk = harness.finish(0, id)?;
        let evaluation = evaluate_chunk(&harness.cells, chunk, &states)?;
        let checked = evaluation.check(chunk, &of_chunk);
        checked.map_err(|reason| format!("chunk {at}: {reason}"))?;
        states = evaluation.states;
        outputs.push(of_chunk);
    }
    check_chunks(cell, &outputs, &expected)?;
    ensure!(step == 15, "the chain beside has as many nodes as all chunks");
    same_bits("the chain beside", &harness.finish(0, beside_id)?, &beside_alone)
}
