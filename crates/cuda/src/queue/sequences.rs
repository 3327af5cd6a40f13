//! Cells over whole sequences: the host runs their programs, on rows that the GPU copies to it and takes from it.

use std::sync::Arc;

use batchmaker_executor::SequenceProgram;
use batchmaker_graph::{Item, RowSpec, Rows};

use super::listed::Listed;
use super::programs::{HostRows, HostRun};
use super::submitter::{Submitter, TaskError};
use super::upload::Upload;

impl Submitter {
    /// Runs nodes of a cell over whole sequences, those of equal spans together.
    pub(super) fn run_sequences(
        &mut self,
        program: &Arc<SequenceProgram>,
        items: &[Item],
    ) -> Result<(), TaskError> {
        let mut nodes = Vec::new();
        // A run has one node: others are padding.
        for item in items.iter().filter(|item| item.first == 0 && item.count > 0) {
            let listed = self.list(item.request, item.run)?;
            self.bring_inputs(&listed, 0..1)?;
            self.note_writes(&listed, 0..1);
            nodes.push(listed);
        }
        let outputs = program.outputs().len();
        let spans = |node: &Listed| -> Vec<u32> {
            let inputs = node.of().inputs.iter();
            inputs.chain((0..outputs).map(|port| sink(node, port))).map(|rows| rows.span).collect()
        };
        for batch in program.batches(nodes.iter().map(spans)) {
            let nodes: Vec<&Listed> = batch.nodes.iter().map(|&node| &nodes[node]).collect();
            let (in_spans, out_spans) = batch.spans.split_at(program.inputs().len());
            let mut inputs = Vec::new();
            let (mut to_host, mut from_host) = (Upload::default(), Upload::default());
            for (port, (row, &span)) in program.inputs().zip(in_spans).enumerate() {
                let rows = |node: &Listed| node.of().inputs[port].clone();
                inputs.push(self.host_rows(&nodes, row, span, rows, |from, to, bytes| {
                    to_host.copy(to, from, bytes);
                })?);
            }
            let mut outputs = Vec::new();
            for (port, (row, &span)) in program.outputs().zip(out_spans).enumerate() {
                let rows = |node: &Listed| sink(node, port).clone();
                outputs.push(self.host_rows(&nodes, row, span, rows, |to, from, bytes| {
                    from_host.copy(to, from, bytes);
                })?);
            }
            self.bring(to_host)?;
            let (threads, failure) = (self.threads.clone(), self.failure.clone());
            let (host_run, program) =
                (HostRun { inputs, outputs, threads, failure }, program.clone());
            self.worker.stream.run_on_host(move || {
                host_run.run(|inputs, threads| program.run(&batch, inputs, threads));
            })?;
            self.bring(from_host)?;
        }
        Ok(())
    }

    /// Memory of the host for the spans of a port, node by node. `copies` is given the addresses of each span, in the values and
    /// there, and its bytes.
    fn host_rows(
        &mut self,
        nodes: &[&Listed],
        row: &RowSpec,
        span: u32,
        rows_of: impl Fn(&Listed) -> Rows,
        mut copies: impl FnMut(u64, u64, usize),
    ) -> Result<HostRows, TaskError> {
        let rows = nodes.len() * span as usize;
        let row_bytes = row.bytes().unwrap_or(0);
        let staged = self.stage(rows * row_bytes)?;
        let bytes = span as usize * row_bytes;
        for (at, node) in nodes.iter().enumerate() {
            let rows = rows_of(node);
            let of_value = node.memory.row(node.base, rows.value, rows.row(0));
            copies(of_value, staged.device_address() + (at * bytes) as u64, bytes);
        }
        Ok(HostRows { row: row.clone(), rows, staged })
    }
}

/// The rows that a node writes of an output port.
fn sink(node: &Listed, port: usize) -> &Rows {
    let sink = node.of().sinks.iter().find(|sink| sink.port == port);
    &sink.expect("a sequence has a sink a port").rows
}
