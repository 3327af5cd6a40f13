//! Handles of the cells of a custom model.

use std::sync::{Arc, OnceLock};

use batchmaker_graph::{Cell, CellTypeId};

/// A cell of a [`CustomModel`](crate::CustomModel), which hands it out: unfolding functions name the cell
/// by its handle, so that a wrong id cannot be written.
#[derive(Clone, Debug)]
pub struct CellHandle(Arc<CustomCell>);

#[derive(Debug)]
struct CustomCell {
    name: String,
    cell: Cell,
    fused: bool,
    description: String,
    /// The cell's type, once an engine was built.
    id: OnceLock<CellTypeId>,
}

impl CellHandle {
    pub(crate) fn new(name: &str, cell: Cell, fused: bool, description: String) -> Self {
        let (name, id) = (name.to_owned(), OnceLock::new());
        Self(Arc::new(CustomCell { name, cell, fused, description, id }))
    }

    /// The cell.
    pub fn cell(&self) -> &Cell {
        &self.0.cell
    }

    /// The cell's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn is_fused(&self) -> bool {
        self.0.fused
    }

    pub(crate) fn description(&self) -> &str {
        &self.0.description
    }

    /// Whether both handles are of one cell.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The cell's type, once an engine was built.
    pub(crate) fn id(&self) -> Option<CellTypeId> {
        self.0.id.get().copied()
    }

    /// Sets the cell's type. A model is consumed when it is registered, so that this happens once.
    pub(crate) fn set_id(&self, id: CellTypeId) {
        self.0.id.set(id).expect("a custom model is registered once");
    }
}
