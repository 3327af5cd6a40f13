//! The building blocks of all templates: registered cells by the names of their ports, and the reply's tensors.

use batchmaker_graph::{CellTypeId, RowSpec};

use crate::data::named_cell::{CellInput, CellOutput, NamedCell};
use crate::unfold::unfolding::{ReplyTensor, TensorInfo};

/// A tensor of the reply.
#[derive(Clone, Debug)]
pub struct StepOutput {
    /// Its name.
    pub name: String,
    /// The output of the cells that it is.
    pub from: String,
    /// Whether it is that of every step in the order of the sequence's rows, or of all nodes in the
    /// order of their ids, and not the last step's or the root's alone.
    pub every_step: bool,
}

impl StepOutput {
    /// Describes it as part of a model's interface, where a row of it is `row`.
    pub(super) fn described(&self, row: &RowSpec) -> ReplyTensor {
        let all = self.every_step.then_some(-1);
        let shape = all.into_iter().chain(row.shape.iter().map(|&n| n as i64)).collect();
        let (name, element) = (self.name.clone(), row.element);
        ReplyTensor { info: TensorInfo { name, element, shape }, batch_axis: None }
    }
}

/// A registered cell as an unfolding function uses it.
#[derive(Clone, Debug)]
pub struct TemplateCell {
    /// Its name in the model.
    pub name: String,
    /// Its type.
    pub cell_type: CellTypeId,
    /// Its ports by name.
    pub cell: NamedCell,
}

/// The reason that cells and the tables about them do not make a model; the text names the place.
pub type TemplateError = String;

impl TemplateCell {
    /// The feed of each input port, in the order of ports. `feeds` gives the feed of an input of the cell's file
    /// that is no state, by its name.
    ///
    /// # Errors
    /// If an input is fed by nothing.
    pub fn feeds<F>(&self, feeds: impl Fn(&str) -> Option<F>) -> Result<Vec<F>, TemplateError> {
        let mut by_port: Vec<(usize, F)> = Vec::new();
        for input in self.cell.inputs.iter().filter(|input| input.state.is_none()) {
            let (cell, name) = (&self.name, &input.name);
            let feed = feeds(name);
            let feed =
                feed.ok_or_else(|| format!("cell `{cell}`: nothing feeds its input `{name}`"))?;
            by_port.extend(input.port.map(|port| (port, feed)));
        }
        by_port.sort_by_key(|(port, _)| *port);
        Ok(by_port.into_iter().map(|(_, feed)| feed).collect())
    }

    /// The input of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn input(&self, name: &str) -> Result<&CellInput, TemplateError> {
        let cell = &self.name;
        self.cell.input(name).ok_or_else(|| format!("cell `{cell}` has no input `{name}`"))
    }

    /// The output of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn output(&self, name: &str) -> Result<&CellOutput, TemplateError> {
        let cell = &self.name;
        self.cell.output(name).ok_or_else(|| format!("cell `{cell}` has no output `{name}`"))
    }
}
