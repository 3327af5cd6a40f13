//! Programs over whole sequences: see [`WholeProgram`].

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{Item, PortAxes, RequestId, RowSpec, Rows, TensorData, WholeProgram};

use crate::program::{ProgramError, ProgramThread, RowProgram};
use crate::request_memory::{Gathered, RequestMemory, scatter};

/// A materialised [`WholeProgram`].
pub(crate) struct LoadedWhole {
    program: RowProgram,
    inputs: Vec<(PortAxes, RowSpec)>,
    outputs: Vec<(PortAxes, RowSpec)>,
}

/// A node and the rows that each input and output port has of it.
struct Node<'a> {
    memory: &'a RequestMemory,
    inputs: &'a [Rows],
    outputs: Vec<&'a Rows>,
}

impl LoadedWhole {
    pub(crate) fn new(
        whole: &WholeProgram,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<Self, ProgramError> {
        let ports = |axes: &[PortAxes], rows: &[RowSpec]| {
            axes.iter().copied().zip(rows.iter().cloned()).collect()
        };
        Ok(Self {
            program: RowProgram::new(&whole.program, inputs, outputs)?,
            inputs: ports(&whole.inputs, inputs),
            outputs: ports(&whole.outputs, outputs),
        })
    }

    /// Runs the nodes of `items`, those of equal shapes together where that is possible.
    ///
    /// # Safety
    /// The nodes' rows are there to be read, and theirs to write.
    pub(crate) unsafe fn run(
        &self,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        thread: &ProgramThread,
    ) -> Result<(), ProgramError> {
        let memories: Vec<_> = items.iter().map(|item| memory_of(item.request)).collect();
        let mut groups: BTreeMap<Vec<u32>, Vec<Node<'_>>> = BTreeMap::new();
        for (item, memory) in items.iter().zip(&memories) {
            let run = &memory.graph.runs()[item.run.index()];
            assert_eq!(run.length, 1, "a whole sequence is one node");
            // What is past the end of a run is padding.
            if item.first > 0 || item.count == 0 {
                continue;
            }
            let by_port = |port| run.sinks.iter().find(|sink| sink.port == port).map(|s| &s.rows);
            let outputs = (0..self.outputs.len()).map(|port| by_port(port).expect("a sink a port"));
            let node = Node { memory, inputs: &run.inputs, outputs: outputs.collect() };
            let spans =
                node.inputs.iter().chain(node.outputs.iter().copied()).map(|rows| rows.span);
            groups.entry(spans.collect()).or_default().push(node);
        }
        let stacks = self.inputs.iter().chain(&self.outputs).all(|(axes, _)| axes.batch);
        for nodes in groups.values() {
            for nodes in nodes.chunks(if stacks { nodes.len() } else { 1 }) {
                // SAFETY: as the caller promises.
                unsafe { self.run_equal(nodes, thread)? };
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Self::run`].
    unsafe fn run_equal(
        &self,
        nodes: &[Node<'_>],
        thread: &ProgramThread,
    ) -> Result<(), ProgramError> {
        let shape = |(axes, row): &(PortAxes, RowSpec), span: u32| {
            let mut shape = Vec::new();
            shape.extend(axes.batch.then_some(nodes.len()));
            shape.extend(axes.steps.then_some(span as usize));
            shape.extend(&row.shape);
            shape
        };
        let gather = |(index, port): (usize, &(PortAxes, RowSpec))| {
            let span = nodes[0].inputs[index].span;
            let mut gathered = Gathered::with_capacity(&port.1, nodes.len() * span as usize);
            for node in nodes {
                let from = node.memory.span(&node.inputs[index]);
                // SAFETY: the caller vouches for it.
                unsafe { gathered.append(&from, 0, span) };
            }
            (shape(port, span), gathered.finish())
        };
        let inputs: Vec<(Vec<usize>, TensorData)> =
            self.inputs.iter().enumerate().map(gather).collect();
        let expected = self.outputs.iter().zip(&nodes[0].outputs);
        let expected = expected.map(|(port, rows)| shape(port, rows.span));
        let mut outputs = self.program.run_shaped(inputs, expected, thread)?;
        for (port, output) in outputs.iter_mut().enumerate() {
            for (at, node) in nodes.iter().enumerate() {
                let rows = node.outputs[port];
                let to = node.memory.span(rows);
                // SAFETY: the caller vouches for it.
                unsafe { scatter(output, at * rows.span as usize, &to, 0, rows.span) };
            }
        }
        Ok(())
    }
}
