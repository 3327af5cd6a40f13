//! Cell types: the registry that makes equal cells of one stage, in different models too, one type.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Cell, CellBody, CellIdentity, CellTypeId, ModelId};

/// A cell's rank within one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelPriority {
    /// The model.
    pub model: ModelId,
    /// Higher is preferred; later in the computation is higher.
    pub priority: i32,
}

/// A cell with what the scheduler needs to know of it.
#[derive(Clone, Debug)]
pub struct CellType {
    /// For people: the name in the first model that brought it.
    pub name: String,
    /// The cell.
    pub cell: Arc<Cell>,
    /// See [`CellIdentity`].
    pub identity: CellIdentity,
    /// The stage of the models that use it, where these are cut into stages; else 0.
    pub stage: usize,
    /// The most rows in one batch: the smallest limit that any model set.
    pub max_batch_size: u32,
    /// The models that use it.
    pub priorities: Vec<ModelPriority>,
}

impl CellType {
    /// Whether requests go through it step by step: chains, and nodes of trees.
    pub fn is_stepped(&self) -> bool {
        !self.cell.states.is_empty() || matches!(self.cell.body, CellBody::Tree(_))
    }
}

/// The cell types of all loaded models.
#[derive(Clone, Debug, Default)]
pub struct CellRegistry {
    cell_types: Vec<CellType>,
    by_identity: HashMap<(CellIdentity, usize), CellTypeId>,
}

impl CellRegistry {
    /// Adds a model's cell, or finds the type that it equals.
    pub fn add(
        &mut self,
        name: &str,
        cell: Cell,
        max_batch_size: u32,
        rank: ModelPriority,
    ) -> CellTypeId {
        self.add_of_stage(name, cell, 0, max_batch_size, rank)
    }

    /// As [`Self::add`], a cell of a stage. Equal cells of two stages are two types, as a type is of one stage.
    pub fn add_of_stage(
        &mut self,
        name: &str,
        cell: Cell,
        stage: usize,
        max_batch_size: u32,
        rank: ModelPriority,
    ) -> CellTypeId {
        assert!(max_batch_size > 0, "a batch limit of 0 for cell {name}");
        let identity = cell.identity();
        if let Some(&id) = self.by_identity.get(&(identity, stage)) {
            let known = &mut self.cell_types[id.index()];
            known.max_batch_size = known.max_batch_size.min(max_batch_size);
            match known.priorities.iter_mut().find(|known| known.model == rank.model) {
                Some(known) => known.priority = known.priority.max(rank.priority),
                None => known.priorities.push(rank),
            }
            return id;
        }
        let id = CellTypeId(self.cell_types.len() as u32);
        self.by_identity.insert((identity, stage), id);
        self.cell_types.push(CellType {
            name: name.to_owned(),
            cell: Arc::new(cell),
            identity,
            stage,
            max_batch_size,
            priorities: vec![rank],
        });
        id
    }

    /// All types; the id of a type is its position.
    pub fn cell_types(&self) -> &[CellType] {
        &self.cell_types
    }

    /// One type.
    pub fn get(&self, id: CellTypeId) -> &CellType {
        &self.cell_types[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecurrentCell, RecurrentKind};

    fn lstm(weight: f32) -> Cell {
        Cell::recurrent(RecurrentCell {
            kind: RecurrentKind::Lstm { p: None, bytes: None },
            input_size: 1,
            hidden_size: 1,
            w: vec![weight; 4].into(),
            r: vec![0.5; 4].into(),
            b: None,
            lookup: None,
        })
    }

    #[test]
    fn equal_cells_of_two_models_are_one_type_with_the_smallest_limit() {
        let mut registry = CellRegistry::default();
        let rank = |model| ModelPriority { model: ModelId(model), priority: 0 };
        let a = registry.add("a", lstm(1.0), 64, rank(0));
        let b = registry.add("b", lstm(1.0), 32, rank(1));
        let c = registry.add("c", lstm(2.0), 64, rank(1));
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert_eq!(registry.get(a).max_batch_size, 32);
        assert_eq!(registry.get(a).priorities, [rank(0), rank(1)]);
        let later = registry.add_of_stage("a", lstm(1.0), 1, 16, rank(0));
        assert_ne!(a, later);
        assert_eq!((registry.get(later).stage, registry.get(a).max_batch_size), (1, 32));
    }
}
