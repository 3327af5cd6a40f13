//! A device with cells and workers, and the requests on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraph, CellType, CellTypeId, EndOfSequence, RequestId, RunIndex, SlotId,
    StatePlacement, Tensor, TensorData, WorkerId,
};

use crate::conformance::case::Check;
use crate::conformance::checked_worker::Worker;
use crate::conformance::graphs::Request;
use crate::conformance::oracle;
use crate::conformance::subject::{LoseWorker, Subject};
use crate::contract::{Device, Read};

/// The index of the third slot that is given out.
const FAR: u32 = 97;

/// A device with the cells and workers of a case, and the requests on it.
pub(super) struct Harness {
    pub(super) device: Arc<dyn Device>,
    pub(super) lose: Option<LoseWorker>,
    pub(super) workers: Vec<Worker>,
    pub(super) cells: Vec<Cell>,
    /// The chains on rosters, by worker and cell type.
    pub(super) rosters: BTreeMap<(usize, CellTypeId), Vec<Member>>,
    slots: BTreeMap<CellTypeId, Slots>,
    admitted: u32,
}

/// A chain on a roster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    pub(super) slot: SlotId,
    /// The step that it runs next.
    pub(super) step: u32,
    /// The first step that it does not run.
    pub(super) until: u32,
}

/// The slots of a cell type, as a manager assigns them: those that were freed last first.
#[derive(Default)]
struct Slots {
    free: Vec<SlotId>,
    given: u32,
}

pub(super) fn cell_type(name: &str, cell: &Cell) -> CellType {
    CellType {
        name: name.to_owned(),
        cell: Arc::new(cell.clone()),
        identity: cell.identity(),
        stage: 0,
        max_batch_size: 64,
        priorities: Vec::new(),
    }
}

impl Harness {
    /// A new device of the subject with these cells, whose ids are their positions, and all its
    /// workers.
    pub(super) fn new(subject: &dyn Subject, cells: Vec<Cell>) -> Check<Self> {
        Self::prepared(subject, cells, |_| Ok(()))
    }

    /// The same of a device that is prepared before it has the cells.
    pub(super) fn prepared(
        subject: &dyn Subject,
        cells: Vec<Cell>,
        prepare: impl FnOnce(&dyn Device) -> Check,
    ) -> Check<Self> {
        let instance = subject.make();
        prepare(&*instance.device)?;
        let mut harness = Self {
            device: instance.device,
            lose: instance.lose,
            workers: Vec::new(),
            cells,
            rosters: BTreeMap::new(),
            slots: BTreeMap::new(),
            admitted: 0,
        };
        for (id, cell) in (0..).map(CellTypeId).zip(&harness.cells) {
            harness.materialize(id, cell)?;
        }
        for worker in (0..subject.workers() as u32).map(WorkerId) {
            harness.workers.push(Worker::new(&harness.device, worker)?);
        }
        Ok(harness)
    }

    pub(super) fn materialize(&self, id: CellTypeId, cell: &Cell) -> Check {
        let cell_type = cell_type(&format!("{id}"), cell);
        let materialized = self.device.materialize(id, &cell_type);
        materialized.map(|_| ()).map_err(|error| format!("{id} is not materialised: {error}"))
    }

    /// The worker that a state moved from, as tasks name it: none where memory is shared.
    pub(super) fn moved_from(&self, worker: usize) -> Option<WorkerId> {
        match self.device.capabilities().placement {
            StatePlacement::Shared => None,
            StatePlacement::PerWorker => Some(WorkerId(worker as u32)),
        }
    }

    /// Takes a slot that nobody uses.
    pub(super) fn take_slot(&mut self, cell_type: CellTypeId) -> SlotId {
        let is_dense = self.device.capabilities().slots_max.is_some_and(|slots| slots <= FAR);
        let slots = self.slots.entry(cell_type).or_default();
        slots.free.pop().unwrap_or_else(|| {
            slots.given += 1;
            // One is far from the others, as memory may grow in blocks.
            let index = match slots.given - 1 {
                2 if !is_dense => FAR,
                FAR if !is_dense => 2,
                index => index,
            };
            SlotId { index, generation: 0 }
        })
    }

    /// Frees a slot, whose index is used again.
    pub(super) fn free_slot(&mut self, cell_type: CellTypeId, slot: SlotId) {
        let slot = SlotId { generation: slot.generation + 1, ..slot };
        self.slots.entry(cell_type).or_default().free.push(slot);
    }

    /// An id that no request had.
    pub(super) fn next_id(&mut self) -> RequestId {
        self.admitted += 1;
        RequestId { index: self.admitted - 1, generation: 3 }
    }

    pub(super) fn admit(&mut self, request: &Request) -> Check<RequestId> {
        let id = self.next_id();
        self.admit_as(id, &request.graph, request.inputs.clone())?;
        Ok(id)
    }

    pub(super) fn admit_all(&mut self, requests: &[Request]) -> Check<Vec<RequestId>> {
        requests.iter().map(|request| self.admit(request)).collect()
    }

    pub(super) fn admit_as(
        &self,
        id: RequestId,
        graph: &Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Check {
        let admitted = self.device.admit(id, graph.clone(), inputs);
        admitted.map_err(|error| format!("{id:?} is not admitted: {error}"))
    }

    /// The worker that runs a case's `index`th chain.
    pub(super) fn worker_of(&self, index: usize) -> usize {
        index % self.workers.len()
    }

    /// Reads the outputs of a request and retires it.
    pub(super) fn finish(&mut self, worker: usize, request: RequestId) -> Check<Vec<TensorData>> {
        let outputs = self.workers[worker].read(Read::Outputs { request })?;
        self.device.retire(request);
        Ok(outputs)
    }

    pub(super) fn finish_all(&mut self, requests: &[RequestId]) -> Check<Vec<Vec<TensorData>>> {
        let finish =
            |(index, &request): (usize, &RequestId)| self.finish(self.worker_of(index), request);
        requests.iter().enumerate().map(finish).collect()
    }

    /// Checks the outputs of a request against the reference.
    pub(super) fn check(&self, request: &Request, outputs: &[TensorData]) -> Check {
        oracle::evaluate(&self.cells, request)?.check(request, outputs)
    }
}

/// The ends of sequence that tasks reported of a request: the run, and the number of nodes that it ran.
pub(super) fn ends_of<'a>(
    request: RequestId,
    ends: impl IntoIterator<Item = &'a EndOfSequence>,
) -> Vec<(RunIndex, u32)> {
    let of_request = ends.into_iter().filter(|end| end.request == request);
    of_request.map(|end| (end.run, end.nodes)).collect()
}
