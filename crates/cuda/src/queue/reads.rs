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

/// A value of a request, and rows of it.
type RowsOfValue = (ValueIndex, Range<usize>);

impl Coming {
    /// Rows that are in memory of the host, if these are.
    fn on_host(memory: &RequestMemory, value: ValueIndex, rows: &Range<usize>) -> Option<Self> {
        let element = memory.graph.values()[value.index()].row.element;
        let bytes = rows.len() * memory.row_bytes(value);
        memory.on_host(value, rows.start).map(|staged| Self { element, staged, bytes })
    }

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
    /// What is read, if all of it is in memory of the host.
    pub(super) fn read_on_host(&self, read: &Read) -> Option<Vec<TensorData>> {
        let (request, some) = match read {
            Read::Rows { request, values, rows } => {
                (*request, Some((values, rows.start as usize..rows.end as usize)))
            }
            Read::Outputs { request } => (*request, None),
            Read::State(_) => return None,
        };
        let memory = self.state.requests.get(request);
        let values = some.as_ref().map_or(memory.graph.outputs(), |(values, _)| values);
        if !values.iter().all(|&value| memory.is_on_host(value)) {
            return None;
        }
        let mut bytes = 0;
        let take = |&value: &ValueIndex| {
            let rows = some.as_ref().map_or(0..memory.rows(value), |(_, rows)| rows.clone());
            bytes += rows.len() * memory.row_bytes(value);
            memory.read(value, rows)
        };
        let data = values.iter().map(take).collect();
        self.worker.stream.copied().out.fetch_add(bytes as u64, Ordering::Relaxed);
        data
    }

    /// Has what is read copied to the host: large values by copies of their own, small ones with `together`.
    pub(super) fn fetch(
        &mut self,
        read: &Read,
        together: &mut Upload,
    ) -> Result<Vec<Coming>, ReadError> {
        if let Read::State(place) = read {
            return self.fetch_state(*place, together);
        }
        let (memory, all) = self.rows_of(read).expect("all other reads are of rows");
        let fetch = |(value, rows)| self.fetch_rows((&memory, value, rows), together);
        all.into_iter().map(fetch).collect()
    }

    /// The rows that are read, and the request that they are of; none where a state is read.
    fn rows_of(&self, read: &Read) -> Option<(Arc<RequestMemory>, Vec<RowsOfValue>)> {
        match read {
            Read::Rows { request, values, rows } => {
                let rows = rows.start as usize..rows.end as usize;
                let all = values.iter().map(|&value| (value, rows.clone())).collect();
                Some((self.state.requests.get(*request), all))
            }
            Read::Outputs { request } => {
                let memory = self.state.requests.get(*request);
                let outputs = memory.graph.outputs().iter();
                let all = outputs.map(|&value| (value, 0..memory.rows(value))).collect();
                Some((memory, all))
            }
            Read::State(_) => None,
        }
    }

    fn fetch_rows(
        &mut self,
        (memory, value, rows): (&RequestMemory, ValueIndex, Range<usize>),
        together: &mut Upload,
    ) -> Result<Coming, ReadError> {
        if let Some(coming) = Coming::on_host(memory, value, &rows) {
            return Ok(coming);
        }
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
            together.copy(staged.device_address(), from, bytes);
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
