//! How many bytes a run needs: simulates rten's buffers, operator by operator.

use batchmaker_graph::ElementType;
use batchmaker_kernels::{Attention, AttentionSizes};

use crate::buffer_pool::BufferPool;
use crate::memory_plan::{ITERATIONS, InPlace, Loops, MemoryPlan, PlannedValue, Scratch, Step};
use crate::port::Port;
use crate::probe::ShapeGrowth;

/// Bytes of an iteration's output, beside its elements.
const ITERATION_BYTES: u64 = 512;

/// The most rows, depth and columns of the blocks of a product's factors (rten-gemm, `gemm_impl`), rounded up.
const BLOCK: [f64; 3] = [80.0, 256.0, 1056.0];

/// Bytes of an element: rten has no narrower ones in programs.
const ELEMENT: f64 = 4.0;

/// What is added to a sum of buffers, as a share: rten may run operators in an order that fits them less well.
const MARGIN: f64 = 0.125;

/// Bytes that are added for each operator: its tensors that are too small for the pool, shapes, and rten's own lists.
const STEP_BYTES: u64 = 512;

/// Bytes that are added for each run.
const RUN_BYTES: u64 = 16 << 10;

impl MemoryPlan {
    /// The most bytes that a run of `count` rows or sequences of these lengths allocates beside its inputs.
    pub(crate) fn bytes(
        &self,
        count: u64,
        lengths: &[f64],
        inputs: &[Port],
        outputs: &[Port],
    ) -> u64 {
        let elements = |value: &PlannedValue| value.elements(count as f64, lengths);
        let known = self.values.iter().map(elements);
        let largest = known.clone().flatten().fold(0.0, f64::max);
        let elements: Vec<f64> = known.map(|elements| elements.unwrap_or(largest)).collect();
        let mut run = Run {
            pool: BufferPool::default(),
            readers: self.values.iter().map(|value| value.readers).collect(),
            buffers: vec![None; self.values.len()],
            bytes: elements.iter().map(|elements| (elements * ELEMENT).ceil() as u64).collect(),
            is_part: vec![false; self.values.len()],
            iterations: Vec::new(),
            blocks: 0,
        };
        for (&value, port) in self.inputs.iter().zip(inputs) {
            let Some(value) = value else { continue };
            if port.row.element != ElementType::F32 {
                run.pool.take(run.bytes[value]);
            }
            run.buffers[value] = Some(run.bytes[value]);
        }
        for step in &self.steps {
            self.run(step, &mut run, &elements, lengths);
        }
        // Integers are converted when the run is over.
        let given = |(value, port): (&Option<usize>, &Port)| -> u64 {
            let elements = value.map_or(0, |value| elements[value].ceil() as u64);
            let converted = match port.row.element {
                ElementType::F32 => 0,
                element => element.bytes() as u64,
            };
            elements.saturating_mul(ELEMENT as u64 + converted)
        };
        let is_converted = outputs.iter().any(|port| port.row.element != ElementType::F32);
        let given = self.outputs.iter().zip(outputs).filter(|_| is_converted).map(given);
        let given = given.fold(0, u64::saturating_add);
        let peak = run.pool.peak().max(given);
        let fixed =
            run.blocks + self.scratch_bytes + RUN_BYTES + STEP_BYTES * self.steps.len() as u64;
        peak.saturating_add((peak as f64 * MARGIN) as u64).saturating_add(fixed)
    }

    fn run(&self, step: &Step, run: &mut Run, elements: &[f64], lengths: &[f64]) {
        match step.loops {
            Loops::None => {}
            Loops::Iteration => run.iterations.push(run.pool.allocated()),
            Loops::End(counts) => {
                let before = run.iterations.split_off(run.iterations.len() - ITERATIONS);
                let a_iteration = run.pool.allocated() - before[ITERATIONS - 1];
                let iterations = counts
                    .map_or(0.0, |[one, all]| (elements[all] / elements[one].max(1.0)).ceil());
                let a_iteration = a_iteration.saturating_add(ITERATION_BYTES);
                run.pool.keep((a_iteration as f64 * iterations) as u64);
            }
        }
        let taken = self.taken(step, run);
        let dim = |shape: &Option<ShapeGrowth>, back: usize| {
            let dims = shape.as_ref().map_or(&[][..], |shape| &shape.dims);
            let at = dims.len().checked_sub(back);
            at.map_or(f64::INFINITY, |at| dims[at].at(lengths))
        };
        match &step.scratch {
            Scratch::None => {}
            Scratch::Copy => run.scratch(step.first.map_or(0, |read| run.bytes[read])),
            Scratch::Lane => {
                let from = step.first.map_or(0.0, |read| elements[read]);
                let to = step.writes.first().map_or(1.0, |&write| elements[write]);
                run.scratch((ELEMENT * from / to.max(1.0)) as u64);
            }
            Scratch::Attention(k, v) => {
                let [of_key, keys, of_value] = [dim(k, 2), dim(k, 1), dim(v, 1)];
                let sizes = [usize::MAX as f64, keys, of_key, of_value].map(|n| n as usize);
                let [queries, keys, of_key, of_value] = sizes;
                let sizes = AttentionSizes { queries, keys, of_key, of_value };
                run.pool.pass(Attention::bytes(sizes) as u64);
            }
            Scratch::Product(a, b) => {
                run.blocks = run.blocks.max(blocks([dim(a, 2), dim(a, 1), dim(b, 1)]));
            }
            Scratch::Convolution { weights, channels } => {
                let outputs = step.writes.first().map_or(0.0, |&write| elements[write]);
                let positions = outputs / channels.max(1.0);
                let depth = weights / channels.max(1.0);
                let tables = 8.0 * positions + 12.0 * depth + 4096.0;
                run.scratch((ELEMENT * weights) as u64);
                run.pool.pass(tables as u64);
                run.blocks = run.blocks.max(blocks([*channels, depth, positions]));
            }
        }
        // What reads a part of a buffer may copy it first.
        let parts = step.reads.iter().filter(|&&read| run.is_part[read]);
        let parts = parts.map(|&read| run.bytes[read]).fold(0, u64::saturating_add);
        let copies = run.pool.take(parts);
        for (at, &write) in step.writes.iter().enumerate() {
            let own = match taken.filter(|_| at == 0) {
                Some(buffer) => buffer,
                None => run.pool.take(run.bytes[write]),
            };
            run.buffers[write] = Some(own);
        }
        run.pool.give(copies);
        if step.in_place == InPlace::Part && taken.is_some() {
            run.is_part[step.writes[0]] = true;
        }
        step.reads.iter().for_each(|&read| run.readers[read] -= 1);
        for &value in step.reads.iter().chain(&step.writes) {
            if run.readers[value] == 0
                && let Some(buffer) = run.buffers[value].take()
            {
                run.pool.give(buffer);
            }
        }
    }

    /// The buffer that the output of a step is written over, taken from the input that has it.
    fn taken(&self, step: &Step, run: &mut Run) -> Option<u64> {
        let write = *step.writes.first()?;
        let read = *step.candidates.iter().max_by_key(|&&read| run.bytes[read])?;
        let fits = match step.in_place {
            InPlace::Never => false,
            InPlace::Whole => run.bytes[read] == run.bytes[write] && !run.is_part[read],
            InPlace::Part => run.bytes[read] >= run.bytes[write],
        };
        if fits && run.readers[read] == 1 { run.buffers[read].take() } else { None }
    }
}

/// The state of a simulated run.
struct Run {
    pool: BufferPool,
    /// For each value, the operators that still read it.
    readers: Vec<usize>,
    /// For each value, the size of its buffer while it has one.
    buffers: Vec<Option<u64>>,
    /// For each value, its bytes.
    bytes: Vec<u64>,
    /// For each value, whether it lies in a part of a larger buffer, with gaps.
    is_part: Vec<bool>,
    /// Bytes that were allocated at the beginning of each iteration of loops that did not end.
    iterations: Vec<u64>,
    /// Bytes of the largest blocks of a product's factors, which the thread keeps.
    blocks: u64,
}

impl Run {
    /// A buffer that is used while an operator runs.
    fn scratch(&mut self, bytes: u64) {
        let buffer = self.pool.take(bytes);
        self.pool.give(buffer);
    }
}

impl PlannedValue {
    fn elements(&self, count: f64, lengths: &[f64]) -> Option<f64> {
        let ShapeGrowth { dims, is_batched } = self.shape.as_ref()?;
        let one: f64 = dims.iter().map(|dim| dim.at(lengths)).product();
        let count = if *is_batched { count } else { 1.0 };
        Some(one * if self.is_double { 2.0 * count } else { count })
    }
}

/// Bytes of the blocks of two factors `[m, k]` and `[k, n]`.
fn blocks([m, k, n]: [f64; 3]) -> u64 {
    let [m, k, n] = [m.min(BLOCK[0]), k.min(BLOCK[1]), n.min(BLOCK[2])];
    (ELEMENT * (m + n) * k) as u64
}
