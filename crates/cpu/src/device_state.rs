//! The state of a device that its queues share: the cell types that it was given, and the requests in
//! flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use batchmaker_device::DeviceError;
use batchmaker_graph::{
    CellGraph, CellIdentity, CellPorts, CellType, CellTypeId, RequestId, Tensor, check_request,
};

use crate::cells::materialized::MaterializedCell;
use crate::memory::request_memory::RequestMemory;

/// The cell types and requests of a device.
#[derive(Default)]
pub(crate) struct DeviceState {
    cells: RwLock<Vec<Option<GivenCell>>>,
    /// The number of token ids of all cells whose output depends on one token id alone.
    token_ids: AtomicUsize,
    /// The requests in flight, by position of their ids.
    requests: Mutex<Vec<Option<Admitted>>>,
}

type Admitted = (RequestId, Arc<RequestMemory>);

/// A cell type that the device was given.
struct GivenCell {
    identity: CellIdentity,
    /// The number of times that it was given and not yet given back.
    count: usize,
    ports: CellPorts,
    cell: Arc<MaterializedCell>,
}

impl DeviceState {
    /// Counts cell type `id` as given once more, and returns true; false if the device does not have it.
    ///
    /// # Panics
    /// If `id` stands for a cell of another identity.
    pub(crate) fn give_again(&self, id: CellTypeId, identity: CellIdentity) -> bool {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(given)) = cells.get_mut(id.index()) else { return false };
        assert_eq!(given.identity, identity, "{id} stands for another cell");
        given.count += 1;
        true
    }

    /// Adds cell type `id`, which the device did not have and has now materialised.
    pub(crate) fn give(&self, id: CellTypeId, given: &CellType, cell: MaterializedCell) {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        if cells.len() <= id.index() {
            cells.resize_with(id.index() + 1, || None);
        }
        self.token_ids.fetch_add(cell.token_ids(), Ordering::Relaxed);
        let (identity, ports) = (given.identity, CellPorts::of(&given.cell));
        cells[id.index()] = Some(GivenCell { identity, count: 1, ports, cell: Arc::new(cell) });
    }

    /// Takes cell type `id` back once; drops it when it was given no more often.
    pub(crate) fn take_back(&self, id: CellTypeId) {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let given = cells[id.index()].as_mut().expect("a cell type is released once it was taken");
        given.count -= 1;
        if given.count == 0 {
            cells[id.index()] = None;
        }
    }

    /// The cell type of that id.
    ///
    /// # Panics
    /// If the device does not have it.
    pub(crate) fn cell(&self, id: CellTypeId) -> Arc<MaterializedCell> {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        match cells.get(id.index()) {
            Some(Some(given)) => given.cell.clone(),
            _ => panic!("a task names {id}, which is not here"),
        }
    }

    /// The number of token ids of all cells whose output depends on one token id alone. Each cell numbers
    /// its own after those of the cells before it.
    pub(crate) fn token_ids(&self) -> usize {
        self.token_ids.load(Ordering::Relaxed)
    }

    /// Makes the memory of a request, with its inputs.
    ///
    /// # Errors
    /// [`DeviceError::Graph`] where the graph does not fit its cells.
    ///
    /// # Panics
    /// If another request is in flight at the position of its id.
    pub(crate) fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        check_request(&graph, &inputs, |cell_type| {
            cells.get(cell_type.index())?.as_ref().map(|given| &given.ports)
        })?;
        let has_token_ids = |cell_type: CellTypeId| {
            cells[cell_type.index()].as_ref().is_some_and(|given| given.cell.token_ids() > 0)
        };
        let memory = Arc::new(RequestMemory::new(graph, inputs, has_token_ids));
        drop(cells);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let index = request.index as usize;
        if requests.len() <= index {
            requests.resize_with(index + 1, || None);
        }
        let before = requests[index].replace((request, memory));
        assert!(before.is_none(), "{request:?} was admitted to a position in use");
        Ok(())
    }

    /// Ends a request, and returns its memory.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(crate) fn retire(&self, request: RequestId) -> Arc<RequestMemory> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = requests[request.index as usize].take_if(|(known, _)| *known == request);
        memory.expect("a request is retired once, after it was admitted").1
    }

    /// The memory of a request in flight.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(crate) fn memory(&self, request: RequestId) -> Arc<RequestMemory> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        match &requests[request.index as usize] {
            Some((known, memory)) if *known == request => memory.clone(),
            _ => panic!("a task names {request:?}, which is not here"),
        }
    }
}
