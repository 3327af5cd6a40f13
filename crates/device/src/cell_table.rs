//! The cell types that a device has materialised: for devices to use.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use batchmaker_graph::{
    CellGraph, CellIdentity, CellPorts, CellType, CellTypeId, InvalidGraph, Tensor, check_request,
};

/// What a device keeps of each cell type that it has, and how often the type was taken.
#[derive(Debug)]
pub struct CellTable<C> {
    cells: RwLock<Vec<Option<Held<C>>>>,
}

#[derive(Debug)]
struct Held<C> {
    identity: CellIdentity,
    /// The number of times that it was materialised and not yet released.
    users: usize,
    ports: CellPorts,
    cell: Arc<C>,
}

impl<C> Default for CellTable<C> {
    fn default() -> Self {
        Self { cells: RwLock::default() }
    }
}

impl<C> CellTable<C> {
    /// Counts one more user of cell type `id`, and returns the cell; none if the device does not have it.
    ///
    /// # Panics
    /// If `id` stands for a cell of another identity.
    pub fn retain(&self, id: CellTypeId, identity: CellIdentity) -> Option<Arc<C>> {
        let mut cells = self.write();
        let held = cells.get_mut(id.index())?.as_mut()?;
        assert_eq!(held.identity, identity, "{id} stands for another cell");
        held.users += 1;
        Some(held.cell.clone())
    }

    /// Adds cell type `id`, which the device did not have and has now materialised.
    pub fn insert(&self, id: CellTypeId, cell_type: &CellType, cell: C) {
        let mut cells = self.write();
        if cells.len() <= id.index() {
            cells.resize_with(id.index() + 1, || None);
        }
        let (identity, ports) = (cell_type.identity, CellPorts::of(&cell_type.cell));
        cells[id.index()] = Some(Held { identity, users: 1, ports, cell: Arc::new(cell) });
    }

    /// Counts one user of cell type `id` less, and gives the cell away with its last user.
    ///
    /// # Panics
    /// If the device does not have it.
    pub fn release(&self, id: CellTypeId) -> Option<Arc<C>> {
        let mut cells = self.write();
        let held = cells[id.index()].as_mut();
        let held = held.expect("a cell type is released as often as it was materialised");
        held.users -= 1;
        let is_over = held.users == 0;
        is_over.then(|| cells[id.index()].take()).flatten().map(|held| held.cell)
    }

    /// The cell type of that id.
    ///
    /// # Panics
    /// If the device does not have it.
    pub fn get(&self, id: CellTypeId) -> Arc<C> {
        self.find(id).unwrap_or_else(|| panic!("a task names {id}, which is not here"))
    }

    /// The cell type of that id, if the device has it.
    pub fn find(&self, id: CellTypeId) -> Option<Arc<C>> {
        let cells = self.read();
        cells.get(id.index())?.as_ref().map(|held| held.cell.clone())
    }

    /// A cell type of that identity, if the device has one.
    pub fn of_identity(&self, identity: CellIdentity) -> Option<Arc<C>> {
        let cells = self.read();
        let held = cells.iter().flatten().find(|held| held.identity == identity)?;
        Some(held.cell.clone())
    }

    /// Whether a cell of the device has a property.
    pub fn any(&self, has: impl Fn(&C) -> bool) -> bool {
        self.read().iter().flatten().any(|held| has(&held.cell))
    }

    /// Checks a request against the cells: see [`check_request`].
    ///
    /// # Errors
    /// As for [`check_request`].
    pub fn check(&self, graph: &CellGraph, inputs: &[Tensor]) -> Result<(), InvalidGraph> {
        let cells = self.read();
        let ports = |id: CellTypeId| Some(&cells.get(id.index())?.as_ref()?.ports);
        check_request(graph, inputs, ports)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Option<Held<C>>>> {
        self.cells.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Option<Held<C>>>> {
        self.cells.write().unwrap_or_else(PoisonError::into_inner)
    }
}
