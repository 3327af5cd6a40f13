//! The kinds of unfolding that a `model.toml` can name, over cells of its own: each an [`Unfold`]
//! of public pieces alone, as any other unfolding function would be.
//!
//! [`Unfold`]: batchmaker_graph::Unfold

mod chain;
mod row_tensor;
mod tree;

pub use chain::{Chain, ChainOutput, Direction};
pub use row_tensor::RowTensor;
pub use tree::{Tree, TreeOutput};

use batchmaker_graph::{CellTypeId, InvalidRequest};

use crate::NamedCell;

/// A registered cell as an unfolding function uses it.
#[derive(Clone, Debug)]
pub struct UsedCell {
    /// For people: its name in the model.
    pub name: String,
    /// Its type.
    pub cell_type: CellTypeId,
    /// Its ports by name.
    pub cell: NamedCell,
}

/// Why cells and what is said of them do not make a model; the text says where.
pub type KindError = String;

impl UsedCell {
    /// What feeds each input port, in their order. `feeds` is asked for every input of the cell's
    /// file by its name.
    ///
    /// # Errors
    /// If an input is fed by nothing.
    fn feeds<F>(&self, feeds: impl Fn(&str) -> Option<F>) -> Result<Vec<F>, KindError> {
        let mut by_port: Vec<(usize, F)> = Vec::new();
        for input in &self.cell.inputs {
            let (cell, name) = (&self.name, &input.name);
            let feed = feeds(name);
            let feed =
                feed.ok_or_else(|| format!("cell `{cell}`: nothing feeds its input `{name}`"))?;
            by_port.extend(input.port.map(|port| (port, feed)));
        }
        by_port.sort_by_key(|(port, _)| *port);
        Ok(by_port.into_iter().map(|(_, feed)| feed).collect())
    }

    fn input(&self, name: &str) -> Result<&crate::CellInput, KindError> {
        let cell = &self.name;
        self.cell.input(name).ok_or_else(|| format!("cell `{cell}` has no input `{name}`"))
    }

    fn output(&self, name: &str) -> Result<&crate::CellOutput, KindError> {
        let cell = &self.name;
        self.cell.output(name).ok_or_else(|| format!("cell `{cell}` has no output `{name}`"))
    }
}

/// All rows of a request together.
fn check_length(name: &str, rows: usize, max_length: usize) -> Result<(), InvalidRequest> {
    match rows <= max_length {
        true => Ok(()),
        false => {
            let text = format!("tensor `{name}`: expected at most {max_length} rows, got {rows}");
            Err(InvalidRequest(text))
        }
    }
}
