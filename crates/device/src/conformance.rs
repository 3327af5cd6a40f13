//! The suite that every device runs: cells against a plain f64 reference, both task
//! forms, joins and leaves, slots used again, padding.
//!
//! A device's own tests call [`run`] with a function that makes the device.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraph, CellGraphBuilder, CellRegistry, CellTypeId, ElementType, Item, Join, Lookup,
    ModelId, ModelPriority, RecurrentCell, RecurrentKind, RequestId, RowSpec, Rows, RunIndex, Sink,
    SinkTime, SlotId, Tensor, TensorData, Work,
};

use crate::{Device, LoneWorker};

const INPUT: usize = 5;
const HIDDEN: usize = 19;
const VOCABULARY: usize = 11;

/// |a - b| <= TOLERANCE * max(1, |b|), against f64.
const TOLERANCE: f64 = 1e-5;

/// Runs the suite.
///
/// # Panics
/// Where the device does not conform.
pub fn run<D: Device + 'static>(make: impl Fn() -> D) {
    let cells = Cells::new();
    let rosters = cells.play(make(), Form::Roster);
    let rows = cells.play(make(), Form::Rows);
    for (roster, explicit) in rosters.iter().zip(&rows) {
        assert_eq!(bits(roster), bits(explicit), "both task forms give the same bits");
    }
    cells.check(&rosters);
    let padded = cells.play_padded(make());
    for (padded, alone) in padded.iter().zip(&rosters) {
        assert_eq!(bits(padded), bits(alone), "padding changes no bit");
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Roster,
    Rows,
}

/// Two layers, the first over an embedding.
struct Cells {
    registry: CellRegistry,
    first: RecurrentCell,
    second: RecurrentCell,
}

/// A request of the suite: its ids, and the first layer's initial h and c, if given.
struct Sequence {
    ids: Vec<i64>,
    initial: Option<[Vec<f32>; 2]>,
}

fn numbers(seed: u32, count: usize, scale: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next() * scale).collect()
}

fn lstm(seed: u32, input_size: usize, lookup: Option<Lookup>) -> RecurrentCell {
    RecurrentCell {
        kind: RecurrentKind::Lstm { p: None },
        input_size,
        hidden_size: HIDDEN,
        w: numbers(seed, 4 * HIDDEN * input_size, 0.5).into(),
        r: numbers(seed + 1, 4 * HIDDEN * HIDDEN, 0.3).into(),
        b: Some(numbers(seed + 2, 8 * HIDDEN, 0.5).into()),
        lookup,
    }
}

fn sequences() -> Vec<Sequence> {
    let sequence = |seed: u32, length: usize, with_initial: bool| Sequence {
        ids: numbers(seed, length, 1.0)
            .iter()
            .map(|number| ((number + 1.0) * 0.5 * VOCABULARY as f32) as i64 % VOCABULARY as i64)
            .collect(),
        initial: with_initial
            .then(|| [numbers(seed + 7, HIDDEN, 1.0), numbers(seed + 8, HIDDEN, 1.0)]),
    };
    vec![sequence(1, 4, false), sequence(2, 1, true), sequence(3, 7, true), sequence(4, 3, false)]
}

impl Cells {
    fn new() -> Self {
        let table = numbers(90, VOCABULARY * INPUT, 1.0).into();
        let first = lstm(10, INPUT, Some(Lookup { table, width: INPUT }));
        let second = lstm(20, HIDDEN, None);
        let mut registry = CellRegistry::default();
        let rank = |priority| ModelPriority { model: ModelId(0), priority };
        registry.add("first", Cell::recurrent(first.clone()), 8, rank(0));
        registry.add("second", Cell::recurrent(second.clone()), 8, rank(1));
        Self { registry, first, second }
    }

    fn worker(&self, device: impl Device + 'static) -> LoneWorker {
        LoneWorker::with_cells(device, self.registry.cell_types()).expect("the cells fit")
    }

    /// Every step of the second layer, then the last h and c of both layers.
    fn graph(&self, sequence: &Sequence) -> (CellGraph, Vec<Tensor>) {
        let length = sequence.ids.len() as u32;
        let state = || RowSpec::new(ElementType::F32, [HIDDEN]);
        let mut graph = CellGraphBuilder::new();
        let ids = graph.input(RowSpec::new(ElementType::I64, []), length);
        let mut inputs =
            vec![Tensor::new(vec![sequence.ids.len()], TensorData::I64(sequence.ids.clone()))];
        let initial = match &sequence.initial {
            None => vec![None, None],
            Some(initial) => initial
                .iter()
                .map(|state_row| {
                    inputs.push(Tensor::new(vec![HIDDEN], TensorData::F32(state_row.clone())));
                    Some(Rows::one(graph.input(state(), 1), 0))
                })
                .collect(),
        };
        let values = [graph.value(state(), length), graph.value(state(), length)];
        let last = [graph.value(state(), 2), graph.value(state(), 2)];
        let sinks = |y, last| {
            let end =
                |port| Sink { port, time: SinkTime::Last, rows: Rows::one(last, port as u32) };
            vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) }, end(0), end(1)]
        };
        let first = sinks(values[0], last[0]);
        graph.chain(CellTypeId(0), length, vec![Rows::all(ids)], initial, first);
        let second = sinks(values[1], last[1]);
        let x = vec![Rows::all(values[0])];
        graph.chain(CellTypeId(1), length, x, vec![None, None], second);
        [values[1], last[0], last[1]].into_iter().for_each(|value| graph.output(value));
        (graph.finish(), inputs)
    }

    /// Runs the sequences such that they join at different times, and such that the last one
    /// takes the slot of one that ended. The outputs of each sequence.
    fn play(&self, device: impl Device + 'static, form: Form) -> Vec<Vec<TensorData>> {
        let worker = self.worker(device);
        let mut player = Player { worker, form, rosters: [Vec::new(), Vec::new()] };
        let slot = |index, generation| SlotId { index, generation };
        let slots = [slot(0, 0), slot(1, 0), slot(70, 0), slot(1, 1)];
        let sequences = sequences();
        for (sequence, index) in sequences.iter().zip(0..) {
            let (graph, inputs) = self.graph(sequence);
            admit(&player.worker, request(index), graph, inputs);
        }
        let length = |index: usize| sequences[index].ids.len() as u32;
        for layer in 0..2 {
            // 0 alone; 1 and 2 join; 1 ends and 3 takes its slot; the rest runs to its end.
            player.step(layer, &[(0, slots[0])], 1, &length);
            player.step(layer, &[(1, slots[1]), (2, slots[2])], 1, &length);
            player.step(layer, &[(3, slots[3])], 2, &length);
            while !player.rosters[layer as usize].is_empty() {
                player.step(layer, &[], 1, &length);
            }
        }
        let count = sequences.len() as u32;
        (0..count).map(|index| player.worker.finish(request(index))).collect()
    }

    /// Runs all sequences as one batch of nine steps, in two tasks a layer: longer than any.
    fn play_padded(&self, device: impl Device + 'static) -> Vec<Vec<TensorData>> {
        let mut worker = self.worker(device);
        let requests =
            || (0..).zip(sequences()).map(|(index, sequence)| (request(index), sequence));
        for (request, sequence) in requests() {
            let (graph, inputs) = self.graph(&sequence);
            admit(&worker, request, graph, inputs);
        }
        let slot = |request: RequestId| SlotId { index: request.index, generation: 0 };
        for layer in 0..2 {
            let join = |(request, _)| Join {
                request,
                run: RunIndex(layer),
                slot: slot(request),
                step: 0,
                moved_from: None,
            };
            for (joins, steps) in [(requests().map(join).collect(), 5), (Vec::new(), 4)] {
                let work = Work::Roster { leaves: Vec::new(), joins, steps };
                run_all(&mut worker, layer, [work]);
            }
        }
        requests().map(|(request, _)| worker.finish(request)).collect()
    }

    fn check(&self, outputs: &[Vec<TensorData>]) {
        for (sequence, outputs) in sequences().iter().zip(outputs) {
            let row = |&id: &i64| {
                let table = &self.first.lookup.as_ref().expect("an embedding").table;
                table[id as usize * INPUT..][..INPUT].iter().map(|&x| f64::from(x)).collect()
            };
            let initial = sequence.initial.clone();
            let initial = initial.unwrap_or_else(|| [vec![0.0; HIDDEN], vec![0.0; HIDDEN]]);
            let x: Vec<Vec<f64>> = sequence.ids.iter().map(row).collect();
            let (y, last_first) = reference(&self.first, &x, &initial);
            let zeros = [vec![0.0; HIDDEN], vec![0.0; HIDDEN]];
            let (y, last_second) = reference(&self.second, &y, &zeros);
            close(&outputs[0], &y.concat());
            close(&outputs[1], &last_first);
            close(&outputs[2], &last_second);
        }
    }
}

fn request(index: u32) -> RequestId {
    RequestId { index, generation: 3 }
}

/// Plays the manager: keeps rosters and forms tasks.
struct Player {
    worker: LoneWorker,
    form: Form,
    /// Per layer: sequence, slot, next step.
    rosters: [Vec<(u32, SlotId, u32)>; 2],
}

impl Player {
    /// Lets `joining` in, runs `steps`, and lets out those who are through.
    fn step(
        &mut self,
        layer: u32,
        joining: &[(u32, SlotId)],
        steps: u32,
        length: &dyn Fn(usize) -> u32,
    ) {
        let roster = &mut self.rosters[layer as usize];
        // Those who were through last time leave now, when the device is told of it.
        let through = |member: &(u32, SlotId, u32)| member.2 == length(member.0 as usize);
        let leaves: Vec<SlotId> =
            roster.iter().filter(|member| through(member)).map(|member| member.1).collect();
        roster.retain(|member| !through(member));
        roster.extend(joining.iter().map(|&(sequence, slot)| (sequence, slot, 0)));
        let run = RunIndex(layer);
        let join = |&(sequence, slot): &(u32, SlotId)| Join {
            request: request(sequence),
            run,
            slot,
            step: 0,
            moved_from: None,
        };
        let joins: Vec<Join> = joining.iter().map(join).collect();
        if roster.is_empty() {
            return;
        }
        let works: Vec<Work> = match self.form {
            Form::Roster => vec![Work::Roster { leaves, joins, steps }],
            Form::Rows => (0..steps)
                .map(|ahead| {
                    let item = |&(sequence, slot, step): &(u32, SlotId, u32)| Item {
                        request: request(sequence),
                        run,
                        first: step + ahead,
                        count: 1,
                        slot: Some(slot),
                        moved_from: None,
                    };
                    Work::Rows(roster.iter().map(item).collect())
                })
                .collect(),
        };
        roster.iter_mut().for_each(|member| member.2 += steps);
        run_all(&mut self.worker, layer, works);
    }
}

fn admit(worker: &LoneWorker, request: RequestId, graph: CellGraph, inputs: Vec<Tensor>) {
    worker.device().admit(request, Arc::new(graph), inputs).expect("there is room");
}

/// Runs a round of tasks, which all succeed.
fn run_all(worker: &mut LoneWorker, cell_type: u32, works: impl IntoIterator<Item = Work>) {
    for work in works {
        assert_eq!(worker.run(CellTypeId(cell_type), work).result, Ok(()));
    }
}

/// Every h, then the last h and c. ONNX operator LSTM, opset 14, defaults.
fn reference(
    cell: &RecurrentCell,
    x: &[Vec<f64>],
    initial: &[Vec<f32>; 2],
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let widen = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let (mut h, mut c) = (widen(&initial[0]), widen(&initial[1]));
    let b = widen(cell.b.as_deref().expect("a bias"));
    let dot = |weights: &[f32], row: &[f64]| -> f64 {
        weights.iter().zip(row).map(|(&w, x)| f64::from(w) * x).sum()
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut y = Vec::new();
    for x in x {
        let gate = |gate: usize, unit: usize| {
            let row = gate * HIDDEN + unit;
            b[row]
                + b[4 * HIDDEN + row]
                + dot(&cell.w[row * x.len()..][..x.len()], x)
                + dot(&cell.r[row * HIDDEN..][..HIDDEN], &h)
        };
        let step = |unit: usize| {
            let [i, o, f] = [0, 1, 2].map(|g| sigmoid(gate(g, unit)));
            let c = f * c[unit] + i * gate(3, unit).tanh();
            (o * c.tanh(), c)
        };
        (h, c) = (0..HIDDEN).map(step).unzip();
        y.push(h.clone());
    }
    (y, [h, c].concat())
}

fn close(data: &TensorData, expected: &[f64]) {
    let TensorData::F32(values) = data else { panic!("a state is F32") };
    assert_eq!(values.len(), expected.len());
    for (&value, &expected) in values.iter().zip(expected) {
        let error = (f64::from(value) - expected).abs();
        assert!(error <= TOLERANCE * expected.abs().max(1.0), "{value} for {expected}");
    }
}

fn bits(rows: &[TensorData]) -> Vec<u32> {
    let floats = |data: &TensorData| match data {
        TensorData::F32(values) => values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
        other => panic!("a state is F32, not {}", other.element()),
    };
    rows.iter().flat_map(floats).collect()
}
