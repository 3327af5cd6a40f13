//! The names of a file's cells: after nodes, and each the name of one cell.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use batchmaker_graph::{Cell, CellIdentity, Precision};

/// The names that cells of a file have so far.
#[derive(Default)]
pub(crate) struct CellNames {
    /// The cells that have names, by the labels that these come from.
    by_label: HashMap<String, Vec<OfLabel>>,
    taken: HashSet<String>,
}

/// A cell and its name.
struct OfLabel {
    name: String,
    cell: Cell,
    /// The cell's identity in f32. It is a hash of all weights, so that it is made only where labels are equal.
    identity: OnceCell<CellIdentity>,
}

impl OfLabel {
    fn identity(&self) -> CellIdentity {
        let in_f32 = || self.cell.clone().in_precision(Precision::F32);
        *self.identity.get_or_init(|| in_f32().identity())
    }
}

impl CellNames {
    /// The name of a cell after the node `label`: the label, or `label_2`, `label_3`, … where other cells have those before it.
    /// Equal cells of one label have one name.
    pub(crate) fn name(&mut self, label: &str, cell: &Cell) -> String {
        let mut new =
            OfLabel { name: label.to_owned(), cell: cell.clone(), identity: OnceCell::new() };
        let known = self.by_label.entry(label.to_owned()).or_default();
        if let Some(equal) = known.iter().find(|known| known.identity() == new.identity()) {
            return equal.name.clone();
        }
        let mut number = 1;
        while !self.taken.insert(new.name.clone()) {
            number += 1;
            new.name = format!("{label}_{number}");
        }
        let name = new.name.clone();
        known.push(new);
        name
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{RecurrentCell, RecurrentKind};

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
        let mut names = CellNames::default();
        let bf16 = lstm(1.0).in_precision(Precision::Bf16);
        let cells = [lstm(1.0), lstm(2.0), bf16, lstm(2.0), lstm(3.0)];
        assert_eq!(
            cells.map(|cell| names.name("encoder", &cell)),
            ["encoder", "encoder_2", "encoder", "encoder_2", "encoder_3"]
        );
    }
}
