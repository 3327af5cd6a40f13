//! Runs a cell graph node by node in plain loops: the oracle of the tests.

use batchmaker_graph::{
    CellBody, CellRegistry, RecurrentCell, RunKind, SinkTime, TensorData, Unfolded,
};

use batchmaker_executor::{ExecutorThreads, RowProgram};

/// The elements of the graph's output values.
pub(crate) fn run(registry: &CellRegistry, unfolded: &Unfolded) -> Vec<TensorData> {
    let graph = &unfolded.graph;
    let mut values: Vec<TensorData> = graph
        .values()
        .iter()
        .map(|value| {
            TensorData::zeros(value.row.element, value.rows as usize * value.row.elements())
        })
        .collect();
    for (value, tensor) in graph.inputs().iter().zip(&unfolded.inputs) {
        let spec = &graph.values()[value.index()];
        assert_eq!(tensor.element(), spec.row.element);
        assert_eq!(tensor.data().len(), spec.rows as usize * spec.row.elements());
        values[value.index()] = tensor.data().clone();
    }
    let threads = ExecutorThreads::new();
    for run in graph.runs() {
        let cell = &registry.get(run.cell_type).cell;
        let width = |value: usize| graph.values()[value].row.elements();
        for (rows, port) in run.inputs.iter().zip(&cell.inputs) {
            assert_eq!(&graph.values()[rows.value.index()].row, port);
        }
        for sink in &run.sinks {
            assert_eq!(graph.values()[sink.rows.value.index()].row, cell.outputs[sink.port]);
        }
        match &cell.body {
            CellBody::Recurrent(lstm) => {
                assert_eq!(run.kind, RunKind::Chain);
                let mut state: Vec<Vec<f64>> = run
                    .initial
                    .iter()
                    .map(|initial| match initial {
                        None => vec![0.0; lstm.hidden_size],
                        Some(rows) => {
                            let value = rows.value.index();
                            let at = rows.row(0);
                            floats(&values[value])[at * width(value)..][..lstm.hidden_size]
                                .iter()
                                .map(|&x| f64::from(x))
                                .collect()
                        }
                    })
                    .collect();
                for node in 0..run.length {
                    let rows = &run.inputs[0];
                    let at = rows.row(node);
                    let value = rows.value.index();
                    let x: Vec<f32> = match (&lstm.lookup, &values[value]) {
                        (Some(lookup), TensorData::I64(ids)) => {
                            lookup.table[ids[at] as usize * lookup.width..][..lookup.width].to_vec()
                        }
                        (None, TensorData::F32(x)) => {
                            x[at * lstm.input_size..][..lstm.input_size].to_vec()
                        }
                        _ => panic!("an input of the wrong type"),
                    };
                    state = step(lstm, &x, &state);
                    for sink in &run.sinks {
                        if sink.time == SinkTime::Last && node + 1 < run.length {
                            continue;
                        }
                        let to = if sink.time == SinkTime::Last { 0 } else { node };
                        let at = sink.rows.row(to) * lstm.hidden_size;
                        let TensorData::F32(data) = &mut values[sink.rows.value.index()] else {
                            panic!("a state that is not f32")
                        };
                        for (slot, x) in data[at..].iter_mut().zip(&state[sink.port]) {
                            *slot = *x as f32;
                        }
                    }
                }
            }
            CellBody::Tree(_) | CellBody::Composite(_) | CellBody::Sequence(_) => {
                unreachable!("a whole file has no such cell")
            }
            CellBody::Program(program) => {
                assert_eq!(run.kind, RunKind::Rows);
                let program = RowProgram::new(program, &cell.inputs, &cell.outputs).unwrap();
                let inputs = run
                    .inputs
                    .iter()
                    .map(|rows| {
                        let value = rows.value.index();
                        let rows: Vec<usize> = (0..run.length).map(|node| rows.row(node)).collect();
                        gather(&values[value], width(value), &rows)
                    })
                    .collect();
                let outputs = program.run(run.length as usize, inputs, &threads).unwrap();
                for sink in &run.sinks {
                    let value = sink.rows.value.index();
                    let width = width(value);
                    for node in 0..run.length {
                        let row = gather(&outputs[sink.port], width, &[node as usize]);
                        put(&mut values[value], width, sink.rows.row(node), row);
                    }
                }
            }
        }
    }
    graph.outputs().iter().map(|value| values[value.index()].clone()).collect()
}

fn floats(data: &TensorData) -> &[f32] {
    match data {
        TensorData::F32(data) => data,
        _ => panic!("not f32"),
    }
}

fn gather(data: &TensorData, width: usize, rows: &[usize]) -> TensorData {
    fn pick<T: Clone>(data: &[T], width: usize, rows: &[usize]) -> Vec<T> {
        rows.iter().flat_map(|&row| data[row * width..][..width].to_vec()).collect()
    }
    match data {
        TensorData::F32(data) => TensorData::F32(pick(data, width, rows)),
        TensorData::I64(data) => TensorData::I64(pick(data, width, rows)),
        TensorData::I32(data) => TensorData::I32(pick(data, width, rows)),
        TensorData::Bool(data) => TensorData::Bool(pick(data, width, rows)),
        TensorData::Bytes(data) => TensorData::Bytes(pick(data, width, rows)),
    }
}

fn put(data: &mut TensorData, width: usize, row: usize, from: TensorData) {
    match (data, from) {
        (TensorData::F32(data), TensorData::F32(from)) => {
            data[row * width..][..width].copy_from_slice(&from);
        }
        (TensorData::I64(data), TensorData::I64(from)) => {
            data[row * width..][..width].copy_from_slice(&from);
        }
        (TensorData::I32(data), TensorData::I32(from)) => {
            data[row * width..][..width].copy_from_slice(&from);
        }
        (TensorData::Bool(data), TensorData::Bool(from)) => {
            data[row * width..][..width].copy_from_slice(&from);
        }
        _ => panic!("a row of another type"),
    }
}

/// One step of ONNX `LSTM`, gates i, o, f, c, in f64.
fn step(lstm: &RecurrentCell, x: &[f32], state: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let size = lstm.hidden_size;
    let dot = |row: &[f32], v: &mut dyn Iterator<Item = f64>| -> f64 {
        row.iter().zip(v).map(|(&a, b)| f64::from(a) * b).sum()
    };
    let gate = |gate: usize, unit: usize| {
        let row = gate * size + unit;
        let w = &lstm.w[row * lstm.input_size..][..lstm.input_size];
        let r = &lstm.r[row * size..][..size];
        let bias =
            lstm.b.as_ref().map_or(0.0, |b| f64::from(b[row]) + f64::from(b[4 * size + row]));
        bias + dot(w, &mut x.iter().map(|&x| f64::from(x))) + dot(r, &mut state[0].iter().copied())
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut next = vec![vec![0.0; size]; 2];
    for unit in 0..size {
        let [i, o, f] = [0, 1, 2].map(|g| sigmoid(gate(g, unit)));
        let c = f * state[1][unit] + i * gate(3, unit).tanh();
        next[0][unit] = o * c.tanh();
        next[1][unit] = c;
    }
    next
}
