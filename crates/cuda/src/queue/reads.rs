//! Reads of values and states, and states that are written.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use batchmaker_device::{Read, StatePlace};
use batchmaker_graph::{ElementType, TensorData, ValueIndex};

use super::submitter::{Submitter, TOGETHER_BYTES, TaskError};
use super::upload::Upload;
use crate::cells::{CudaCell, CudaCellBody, Stepwise};
use crate::memory::{RequestMemory, Staged, append_bytes, of_bytes};

/// Bytes on their way to the host, which are the elements of a tensor.
pub(super) struct Coming {
    element: ElementType,
    staged: Staged,
    bytes: usize,
}

impl Coming {
    /// The tensor, once the copy is over.
    pub(super) fn take(&self) -> TensorData {
        let (memory, offset) = self.staged.range();
        of_bytes(self.element, memory.read(offset, self.bytes))
    }
}

/// Why a read gives nothing.
pub(super) enum ReadError {
    /// A GPU that held the rows is lost.
    Lost,
    Task(TaskError),
}

impl<E: Into<TaskError>> From<E> for ReadError {
    fn from(error: E) -> Self {
        Self::Task(error.into())
    }
}

impl Submitter {
    /// Has what is read copied to the host: large values by copies of their own, small ones with `together`.
    pub(super) fn fetch(
        &mut self,
        read: &Read,
        together: &mut Upload,
    ) -> Result<Vec<Coming>, ReadError> {
        match read {
            Read::Rows { request, values, rows } => {
                let memory = self.state.requests.get(*request);
                let rows = rows.start as usize..rows.end as usize;
                let fetch =
                    |&value: &ValueIndex| self.fetch_rows((&memory, value, rows.clone()), together);
                values.iter().map(fetch).collect()
            }
            Read::Outputs { request } => {
                let memory = self.state.requests.get(*request);
                let graph = memory.graph.clone();
                let fetch = |&value: &ValueIndex| {
                    let rows = graph.values()[value.index()].rows as usize;
                    self.fetch_rows((&memory, value, 0..rows), together)
                };
                graph.outputs().iter().map(fetch).collect()
            }
            Read::State(place) => self.fetch_state(*place, together),
        }
    }

    fn fetch_rows(
        &mut self,
        (memory, value, rows): (&RequestMemory, ValueIndex, Range<usize>),
        together: &mut Upload,
    ) -> Result<Coming, ReadError> {
        let base = self.settle(memory)?;
        if !self.bring_range(memory, base, value, rows.clone())? {
            return Err(ReadError::Lost);
        }
        let element = memory.graph.values()[value.index()].row.element;
        let bytes = rows.len() * memory.row_bytes(value);
        self.download(element, (memory.row(base, value, rows.start), bytes), together)
    }

    fn fetch_state(
        &mut self,
        place: StatePlace,
        together: &mut Upload,
    ) -> Result<Vec<Coming>, ReadError> {
        let cell = self.state.cells.get(place.cell_type);
        let stepwise = with_states(&cell);
        let slots = self.worker.slots(place.cell_type, stepwise.half_bytes);
        let at = {
            let slots = self.reach(&slots, [place.slot])?;
            slots.address(place.slot, slots.half(place.slot))
        };
        let mut coming = Vec::new();
        for (state, offset) in stepwise.states.iter().zip(&stepwise.state_places) {
            let bytes = state.bytes().unwrap_or(0);
            coming.push(self.download(state.element, (at + *offset as u64, bytes), together)?);
        }
        Ok(coming)
    }

    fn download(
        &mut self,
        element: ElementType,
        (from, bytes): (u64, usize),
        together: &mut Upload,
    ) -> Result<Coming, ReadError> {
        let staged = self.stage(bytes)?;
        if bytes > TOGETHER_BYTES {
            self.bring_arriving()?;
            self.worker.stream.download(staged.range(), from, bytes)?;
        } else {
            self.worker.stream.copied().out.fetch_add(bytes as u64, Ordering::Relaxed);
            together.copy(staged.device_address(), Some(from), bytes);
        }
        Ok(Coming { element, staged, bytes })
    }

    /// Writes the states of a slot.
    pub(super) fn write_states(
        &mut self,
        place: StatePlace,
        states: &[TensorData],
    ) -> Result<(), TaskError> {
        let cell = self.state.cells.get(place.cell_type);
        let stepwise = with_states(&cell);
        let mut bytes = Vec::new();
        for (state, &offset) in states.iter().zip(&stepwise.state_places) {
            bytes.resize(offset, 0);
            append_bytes(&mut bytes, state);
        }
        let staged = self.stage(bytes.len())?;
        let (to, offset) = staged.range();
        to.write(offset, &bytes);
        let slots = self.worker.slots(place.cell_type, stepwise.half_bytes);
        let mut slots = self.reach(&slots, [place.slot])?;
        let stream = &self.worker.stream;
        stream.upload(slots.address(place.slot, 0), staged.range(), bytes.len())?;
        stream.clear(slots.ended_of(place.slot), 4)?;
        slots.set_half(place.slot, 0);
        Ok(())
    }
}

fn with_states(cell: &Arc<CudaCell>) -> &Stepwise {
    match &cell.body {
        CudaCellBody::Stepwise(stepwise) => stepwise,
        CudaCellBody::Sequences(_) => unreachable!("a cell over whole sequences has no states"),
    }
}
