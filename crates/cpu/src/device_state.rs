//! The state of a device that its queues share: the cell types that it has, and the requests in
//! flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use batchmaker_device::{DeviceError, working_bytes};
use batchmaker_graph::{
    CellGraph, CellIdentity, CellPorts, CellType, CellTypeId, RequestId, Tensor, check_request,
};

use crate::cells::materialized::MaterializedCell;
use crate::memory::request_memory::RequestMemory;

/// The cell types and requests of a device.
#[derive(Default)]
pub(crate) struct DeviceState {
    cells: RwLock<Vec<Option<HeldCell>>>,
    /// The number of token ids of all cells whose output depends on one token id alone.
    token_ids: AtomicUsize,
    /// The requests in flight, by position of their ids.
    requests: Mutex<Vec<Option<Admitted>>>,
}

type Admitted = (RequestId, Arc<RequestMemory>);

/// A materialised cell type, and the number of its users.
struct HeldCell {
    identity: CellIdentity,
    /// The number of times that it was materialised and not yet released.
    users: usize,
    ports: CellPorts,
    /// Whether a node may take more bytes than a worker always may.
    has_large_nodes: bool,
    cell: Arc<MaterializedCell>,
}

impl DeviceState {
    /// Counts one more user of cell type `id`, and returns the cell; none if the device does not have it.
    ///
    /// # Panics
    /// If `id` stands for a cell of another identity.
    pub(crate) fn retain(
        &self,
        id: CellTypeId,
        identity: CellIdentity,
    ) -> Option<Arc<MaterializedCell>> {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let held = cells.get_mut(id.index())?.as_mut()?;
        assert_eq!(held.identity, identity, "{id} stands for another cell");
        held.users += 1;
        Some(held.cell.clone())
    }

    /// Adds cell type `id`, which the device did not have and has now materialised. A worker may always take `standing`
    /// bytes.
    pub(crate) fn insert(
        &self,
        id: CellTypeId,
        cell_type: &CellType,
        cell: MaterializedCell,
        standing: u64,
    ) {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        if cells.len() <= id.index() {
            cells.resize_with(id.index() + 1, || None);
        }
        self.token_ids.fetch_add(cell.token_ids(), Ordering::Relaxed);
        let (identity, ports) = (cell_type.identity, CellPorts::of(&cell_type.cell));
        let has_large_nodes = cell.node_bytes_max() > standing;
        let cell = Arc::new(cell);
        cells[id.index()] = Some(HeldCell { identity, users: 1, ports, has_large_nodes, cell });
    }

    /// Whether the programs of a cell need a large stack to run.
    pub(crate) fn has_deep_cells(&self) -> bool {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        cells.iter().flatten().any(|held| held.cell.is_deep())
    }

    /// Counts one user of cell type `id` less, and drops the cell with its last user.
    pub(crate) fn release(&self, id: CellTypeId) {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let held = cells[id.index()].as_mut();
        let held = held.expect("a cell type is released as often as it was materialised");
        held.users -= 1;
        if held.users == 0 {
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
            Some(Some(held)) => held.cell.clone(),
            _ => panic!("a task names {id}, which is not here"),
        }
    }

    /// The number of token ids of all cells whose output depends on one token id alone. Each cell numbers
    /// its own after those of the cells before it.
    pub(crate) fn token_ids(&self) -> usize {
        self.token_ids.load(Ordering::Relaxed)
    }

    /// See [`batchmaker_device::Device::working_bytes`]; `standing` are the bytes that a worker may always take.
    pub(crate) fn working_bytes(&self, graph: &CellGraph, standing: u64, workers: usize) -> u64 {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        if !cells.iter().flatten().any(|held| held.has_large_nodes) {
            return 0;
        }
        working_bytes(graph, standing, workers, |cell_type, spans| {
            let held = cells.get(cell_type.index()).and_then(Option::as_ref);
            held.map_or(0, |held| held.cell.node_bytes(spans))
        })
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
            cells.get(cell_type.index())?.as_ref().map(|held| &held.ports)
        })?;
        let has_token_ids = |cell_type: CellTypeId| {
            cells[cell_type.index()].as_ref().is_some_and(|held| held.cell.token_ids() > 0)
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
