//! The names of a file's cells: after nodes, and each the name of one cell.

use std::collections::HashMap;

use batchmaker_graph::{Cell, CellRegistry, CellTypeId, Precision};

/// The names that cells of a file have so far.
#[derive(Default)]
pub(crate) struct CellNames(HashMap<String, CellTypeId>);

impl CellNames {
    /// The name of a cell after the node `label`: the label, or `label_2`, `label_3`, … where other cells have those before it.
    /// Equal cells have one name.
    pub(crate) fn of(&self, label: &str, cell: &Cell, registry: &CellRegistry) -> String {
        let identity = |cell: &Cell| cell.clone().in_precision(Precision::F32).identity();
        let is_free = |name: &String| {
            self.0.get(name).is_none_or(|&of| identity(&registry.get(of).cell) == identity(cell))
        };
        let numbered = (2..).map(|number| format!("{label}_{number}"));
        let mut names = std::iter::once(label.to_owned()).chain(numbered);
        names.find(is_free).expect("there are more names than cells")
    }

    /// Notes that a cell has this name.
    pub(crate) fn take(&mut self, name: &str, cell: CellTypeId) {
        self.0.insert(name.to_owned(), cell);
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{ModelId, ModelPriority, RecurrentCell, RecurrentKind};

    use super::*;

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
    fn cells_of_one_label_have_names_of_their_own() {
        let (mut registry, mut names) = (CellRegistry::default(), CellNames::default());
        let rank = ModelPriority { model: ModelId(0), priority: 0 };
        let mut add = |cell: Cell| {
            let name = names.of("encoder", &cell, &registry);
            names.take(&name, registry.add(&name, cell, 1, rank));
            name
        };
        let bf16 = lstm(1.0).in_precision(Precision::Bf16);
        let cells = [lstm(1.0), lstm(2.0), bf16, lstm(2.0), lstm(3.0)];
        assert_eq!(
            cells.map(&mut add),
            ["encoder", "encoder_2", "encoder", "encoder_2", "encoder_3"]
        );
    }
}
