//! The state of a device that its queues share: the cell types that it has, and the requests in
//! flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use batchmaker_device::{CellTable, DeviceError, RequestTable, working_bytes};
use batchmaker_graph::{CellGraph, CellIdentity, CellType, CellTypeId, RequestId, Tensor};

use crate::cells::materialized::MaterializedCell;
use crate::memory::request_memory::RequestMemory;

/// The cell types and requests of a device.
#[derive(Default)]
pub(crate) struct DeviceState {
    cells: CellTable<MaterializedCell>,
    /// The number of token ids of all cells whose output depends on one token id alone.
    token_ids: AtomicUsize,
    /// Whether there is or was a cell of which a node may take more bytes than a worker always may.
    has_large_nodes: AtomicBool,
    requests: RequestTable<RequestMemory>,
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
        self.cells.retain(id, identity)
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
        self.has_large_nodes.fetch_or(cell.node_bytes_max() > standing, Ordering::Relaxed);
        self.token_ids.fetch_add(cell.token_ids(), Ordering::Relaxed);
        self.cells.insert(id, cell_type, cell);
    }

    /// Whether the programs of a cell need a large stack to run.
    pub(crate) fn has_deep_cells(&self) -> bool {
        self.cells.any(MaterializedCell::is_deep)
    }

    /// Counts one user of cell type `id` less, and drops the cell with its last user.
    pub(crate) fn release(&self, id: CellTypeId) {
        drop(self.cells.release(id));
    }

    /// The cell type of that id.
    ///
    /// # Panics
    /// If the device does not have it.
    pub(crate) fn cell(&self, id: CellTypeId) -> Arc<MaterializedCell> {
        self.cells.get(id)
    }

    /// The number of token ids of all cells whose output depends on one token id alone. Each cell numbers
    /// its own after those of the cells before it.
    pub(crate) fn token_ids(&self) -> usize {
        self.token_ids.load(Ordering::Relaxed)
    }

    /// See [`batchmaker_device::Device::working_bytes`]; `standing` are the bytes that a worker may always take.
    pub(crate) fn working_bytes(&self, graph: &CellGraph, standing: u64, workers: usize) -> u64 {
        if !self.has_large_nodes.load(Ordering::Relaxed) {
            return 0;
        }
        working_bytes(graph, standing, workers, |cell_type, spans| {
            self.cells.find(cell_type).map_or(0, |cell| cell.node_bytes(spans))
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
        self.cells.check(&graph, &inputs)?;
        let has_token_ids = |cell_type: CellTypeId| self.cells.get(cell_type).token_ids() > 0;
        self.requests.admit(request, RequestMemory::new(graph, inputs, has_token_ids));
        Ok(())
    }

    /// Ends a request, and returns its memory.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(crate) fn retire(&self, request: RequestId) -> Arc<RequestMemory> {
        self.requests.retire(request)
    }

    /// The memory of a request in flight.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(crate) fn memory(&self, request: RequestId) -> Arc<RequestMemory> {
        self.requests.get(request)
    }
}
