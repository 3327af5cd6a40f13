//! A cell under the names that its file has for its ports.

use batchmaker_graph::{Cell, RowSpec};

/// A cell and what its file calls its ports.
#[derive(Clone, Debug)]
pub struct NamedCell {
    /// The cell.
    pub cell: Cell,
    /// The file's inputs, in its order.
    pub inputs: Vec<CellInput>,
    /// The file's outputs, in its order.
    pub outputs: Vec<CellOutput>,
    /// Whether a fused kernel runs it, not the general executor.
    pub fused: bool,
    /// A description: its purpose and the operators that it is made of.
    pub description: String,
}

/// An input of a cell's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellInput {
    /// Its name.
    pub name: String,
    /// A row of it, as declared; the cell's own row is as long, and flat.
    pub row: RowSpec,
    /// Its elements must be at least 0 and less than this: they index a table.
    pub ids: Option<usize>,
    /// Whether its integers must fit 32 bits.
    pub narrow: bool,
    /// The cell's input port; none where it is a state, or the cell makes no use of it.
    pub port: Option<usize>,
    /// The index of the cell's state that it is, if it is a state.
    pub state: Option<usize>,
}

/// An output of a cell's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellOutput {
    /// Its name.
    pub name: String,
    /// A row of it, as computed; the cell's own row is as long, and flat.
    pub row: RowSpec,
    /// Its integers are at least 0 and less than this; none: they may be any.
    pub bound: Option<usize>,
    /// The cell's output port.
    pub port: usize,
}

impl NamedCell {
    /// The input of that name.
    pub fn input(&self, name: &str) -> Option<&CellInput> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&CellOutput> {
        self.outputs.iter().find(|output| output.name == name)
    }
}

impl CellOutput {
    /// Checks that every row of it may feed `input`.
    ///
    /// # Errors
    /// If the rows differ in type or shape, or hold integers that a table has no rows for.
    pub fn check_feeds(&self, input: &CellInput) -> Result<(), String> {
        let (from, to) = (&self.name, &input.name);
        let show = |row: &RowSpec| format!("{} {:?}", row.element, row.shape);
        if self.row != input.row {
            let (from_row, to_row) = (show(&self.row), show(&input.row));
            return Err(format!("output `{from}` is {from_row}, input `{to}` {to_row}"));
        }
        match (input.ids, self.bound) {
            (Some(ids), bound) if bound.is_none_or(|bound| bound > ids) => Err(format!(
                "output `{from}` may hold integers that input `{to}`, ids below {ids}, cannot take"
            )),
            _ => Ok(()),
        }
    }
}
