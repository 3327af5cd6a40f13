//! Request tensors that feed cells, and their checks.

use batchmaker_graph::{
    CellGraphBuilder, InvalidRequest, NamedTensor, RowSpec, Tensor, ValueIndex,
};

use crate::data::layout::{Axis, Content, InputLayout};
use crate::data::named_cell::CellInput;
use crate::unfold::integers::check_integers;
use crate::unfold::unfolding::{RequestTensor, TensorInfo};

/// A request tensor of rows that feed a cell's input: `[...row]`, or `[rows, ...row]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowTensor {
    /// The tensor's name: that of the cell's input.
    pub name: String,
    /// A row, as the cell's file declares it.
    pub row: RowSpec,
    /// Its elements must be at least 0 and less than this.
    pub ids: Option<usize>,
    /// Whether its integers must fit 32 bits.
    pub narrow: bool,
}

impl RowTensor {
    /// The tensor that feeds an input.
    pub fn of(input: &CellInput) -> Self {
        let CellInput { name, row, ids, narrow, .. } = input.clone();
        Self { name, row, ids, narrow }
    }

    /// Describes it as part of a model's interface: with a row for each of `rows`, or one row alone.
    pub fn described(&self, rows: Option<Axis>, optional: bool) -> RequestTensor {
        let own = self.row.shape.iter();
        let axes = rows.into_iter().chain(own.clone().map(|&n| Axis::Fixed(n))).collect();
        let shape = rows.iter().map(|_| -1).chain(own.map(|&n| n as i64)).collect();
        let content = self.ids.map_or(Content::Numbers, |ids| Content::Ids(ids as u64));
        let is_one_a_step = rows == Some(Axis::Time) && self.row.elements() == 1;
        RequestTensor {
            info: TensorInfo { name: self.name.clone(), element: self.row.element, shape },
            layout: InputLayout { axes, content, optional },
            step_axis: is_one_a_step.then_some(0),
        }
    }

    /// Checks `[rows, ...row]`: how many rows there are, at least 1.
    ///
    /// # Errors
    /// A wrong shape, an empty sequence, an integer out of range.
    pub fn check_rows(&self, tensor: &Tensor) -> Result<usize, InvalidRequest> {
        let rows = match tensor.shape() {
            [rows, row @ ..] if *row == self.row.shape => *rows,
            found => return Err(self.wrong_shape("time, ", found, "")),
        };
        if rows == 0 {
            return Err(self.wrong_shape("time, ", tensor.shape(), ": an empty sequence"));
        }
        check_integers(&self.name, (self.ids, self.narrow.then_some(32)), tensor.data())?;
        Ok(rows)
    }

    /// Checks `[...row]`.
    ///
    /// # Errors
    /// A wrong shape, an integer out of range.
    pub fn check_row(&self, tensor: &Tensor) -> Result<(), InvalidRequest> {
        if tensor.shape() != self.row.shape {
            return Err(self.wrong_shape("", tensor.shape(), ""));
        }
        check_integers(&self.name, (self.ids, self.narrow.then_some(32)), tensor.data())
    }

    /// Adds the rows to a graph as they stand; `inputs` takes the tensor.
    pub fn add_to(
        &self,
        graph: &mut CellGraphBuilder,
        inputs: &mut Vec<Tensor>,
        tensor: Tensor,
    ) -> ValueIndex {
        let row = self.flat_row();
        let elements = row.elements().max(1);
        let rows = tensor.data().len() / elements;
        let mut shape = vec![rows];
        shape.extend(&row.shape);
        inputs.push(tensor.reshaped(shape));
        graph.input(row, rows as u32)
    }

    /// A row as it stands between cells.
    pub fn flat_row(&self) -> RowSpec {
        RowSpec::flat(self.row.element, self.row.elements())
    }

    fn wrong_shape(&self, leading: &str, found: &[usize], why: &str) -> InvalidRequest {
        let axes: Vec<String> = self.row.shape.iter().map(usize::to_string).collect();
        let expected = format!("[{leading}{}]", axes.join(", ")).replace(", ]", "]");
        let name = &self.name;
        InvalidRequest(format!("tensor `{name}`: expected shape {expected}, got {found:?}{why}"))
    }
}

/// The number of rows that all sequences of a request have, and the name of the last of them; none if there are
/// no sequences.
pub(super) fn common_rows<'a>(
    sequences: &'a [RowTensor],
    tensors: &[NamedTensor],
) -> Result<Option<(usize, &'a str)>, InvalidRequest> {
    let mut common: Option<(usize, &str)> = None;
    for (row, tensor) in sequences.iter().zip(tensors) {
        let (name, count) = (&row.name, row.check_rows(&tensor.tensor)?);
        if let Some((known, by)) = common.filter(|&(known, _)| known != count) {
            let shape = tensor.tensor.shape();
            return Err(InvalidRequest(format!(
                "tensor `{name}`: expected {known} rows as in tensor `{by}`, got {shape:?}"
            )));
        }
        common = Some((count, name));
    }
    Ok(common)
}

/// Refuses a request of more than `max_length` rows; `name` is that of the tensor to blame.
pub(super) fn check_length(
    name: &str,
    rows: usize,
    max_length: usize,
) -> Result<(), InvalidRequest> {
    match rows <= max_length {
        true => Ok(()),
        false => {
            let text = format!("tensor `{name}`: expected at most {max_length} rows, got {rows}");
            Err(InvalidRequest(text))
        }
    }
}
