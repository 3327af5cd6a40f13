//! Programs over whole sequences: see [`SequenceProgram`].

use std::collections::BTreeMap;
use std::time::Duration;

use batchmaker_graph::{RowSpec, SequenceCell, TensorData};

use crate::error::ExecutorError;
use crate::executor_choice::{Executor, ProgramOptions};
use crate::loaded::Loaded;
use crate::port::Port;
use crate::threads::ExecutorThreads;

/// A program over whole sequences, loaded: a convolution over time, an attention over steps.
///
/// A node of its cell is one sequence, of which each port has a *span* of rows: its steps, or one row. Nodes
/// whose spans are equal at every port run as one batch, where the program keeps sequences apart. A single
/// sequence gives the same bits as in any batch.
pub struct SequenceProgram(Loaded);

/// Nodes that run together: see [`SequenceProgram::batches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceBatch {
    /// Rows that each port has of each node: the input ports, then the output ports.
    pub spans: Vec<u32>,
    /// Positions of the nodes in the list that was divided.
    pub nodes: Vec<usize>,
}

impl SequenceProgram {
    /// Loads the program of `cell`, an ONNX file with inputs `in0`, `in1`, … and outputs `out0`, `out1`, …. Each is
    /// `[sequences, steps, ...row]`, as far as its port has these axes, with the row that `inputs` or
    /// `outputs` has for it.
    ///
    /// # Errors
    /// [`ExecutorError::Load`] if the executor does not take it.
    pub fn new(
        cell: &SequenceCell,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<Self, ExecutorError> {
        Self::with(cell, inputs, outputs, &ProgramOptions::default())
    }

    /// As [`Self::new`], run as `options` say, as far as their executor takes it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(
        cell: &SequenceCell,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
        options: &ProgramOptions,
    ) -> Result<Self, ExecutorError> {
        let inputs = Port::of_sequences(inputs, &cell.inputs);
        let outputs = Port::of_sequences(outputs, &cell.outputs);
        Loaded::new(&cell.program, inputs, outputs, options).map(Self)
    }

    /// The executor that runs it.
    pub fn executor(&self) -> Executor {
        self.0.executor()
    }

    /// Whether it needs a stack of many MiB to run: it has thousands of operators, along which rten calls itself.
    pub fn is_deep(&self) -> bool {
        self.0.is_deep()
    }

    /// Why the executor that was wanted does not run it, if that is so.
    pub fn refusal(&self) -> Option<&str> {
        self.0.refusal()
    }

    /// Bounds a batch of several sequences by `bytes` instead of [`crate::BATCH_BYTES_MAX`].
    #[must_use]
    pub fn bound_batches(self, bytes: u64) -> Self {
        Self(self.0.bound_batches(bytes))
    }

    /// The rows of the input ports.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &RowSpec> {
        self.0.inputs.iter().map(|port| &port.row)
    }

    /// The rows of the output ports.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &RowSpec> {
        self.0.outputs.iter().map(|port| &port.row)
    }

    /// Whether a batch of one sequence computes it once, but for the products that need it twice; as
    /// [`crate::RowProgram::computes_single_row_once`]. A sequence of so few steps that other products need it is
    /// computed twice in any case.
    pub fn computes_single_sequence_once(&self) -> bool {
        self.0.computes_single_row_once()
    }

    /// An upper bound of the bytes that a run of one sequence allocates beside its inputs: intermediate values and
    /// outputs. `spans` gives the rows of its input ports, then of its output ports.
    pub fn working_bytes(&self, spans: &[u32]) -> u64 {
        self.0.working_bytes().of_one(spans)
    }

    /// Bytes of the inputs of one sequence with these spans.
    pub fn input_bytes(&self, spans: &[u32]) -> u64 {
        self.0.working_bytes().of_inputs(1, spans)
    }

    /// Takes the time of a run of `sequences` sequences of `steps` steps that hold any numbers, in as many parts as [`Self::batches`]
    /// would make of them. Without `steps`, they are those that the program is known to take. Returns the steps too.
    ///
    /// # Errors
    /// [`ExecutorError::Run`] if a run fails, perhaps because the program does not take that many steps.
    pub fn time(
        &self,
        sequences: usize,
        steps: Option<usize>,
        threads: &ExecutorThreads,
    ) -> Result<(Duration, usize), ExecutorError> {
        let size_max = self.0.batch_max(steps);
        let parts = sequences.div_ceil(size_max).max(1);
        let mut all = (Duration::ZERO, 0);
        for part in 0..parts {
            let count = (part + 1) * sequences / parts - part * sequences / parts;
            let (time, steps) = self.0.time(count, steps, threads)?;
            all = (all.0 + time, steps);
        }
        Ok(all)
    }

    /// Divides nodes into batches that [`Self::run`] takes: those of equal spans together, or, if the program
    /// has a port that is not by sequences, one by one. A batch of several takes at most
    /// as many bytes as bound a batch, its inputs with what its run allocates. `spans` gives for each node the rows
    /// of its input ports, then of its output ports.
    pub fn batches(&self, spans: impl Iterator<Item = Vec<u32>>) -> Vec<SequenceBatch> {
        let mut nodes_by_spans: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for (node, spans) in spans.enumerate() {
            nodes_by_spans.entry(spans).or_default().push(node);
        }
        let mut batches = Vec::new();
        for (spans, nodes) in nodes_by_spans {
            let size_max = self.0.working_bytes().batch_max(&spans) as usize;
            let parts = nodes.len().div_ceil(size_max);
            // Parts are as equal as they can be: a sequence alone may cost as much as two.
            batches.extend((0..parts).map(|part| {
                let range = part * nodes.len() / parts..(part + 1) * nodes.len() / parts;
                SequenceBatch { spans: spans.clone(), nodes: nodes[range].into() }
            }));
        }
        batches
    }

    /// Runs a batch that [`Self::batches`] made on `threads`. An input holds the rows of its port node by node,
    /// `[nodes, span, ...row]`; so does each tensor of the answer, one for each output port.
    ///
    /// # Errors
    /// [`ExecutorError::Input`] and [`ExecutorError::InputCount`] if inputs are not the ports';
    /// [`ExecutorError::Integer`], [`ExecutorError::Output`] and [`ExecutorError::Run`] if it fails.
    pub fn run(
        &self,
        batch: &SequenceBatch,
        inputs: Vec<TensorData>,
        threads: &ExecutorThreads,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        self.0.run(batch.nodes.len(), &batch.spans, inputs, threads)
    }
}
