//! Models with an unfolding function of the program's own.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellRegistry, ElementType, InvalidRequest, NamedTensor, Parameters, Precision, Unfold,
    UnfoldError, Unfolded,
};
use batchmaker_model::{
    Axis, Content, InputLayout, LoadError, LoadOptions, MAX_LENGTH, Model, NamedCell, NewCell,
    ReplyTensor, RequestTensor, Takes, TensorInfo, Unfolding,
};

use crate::cell_handle::CellHandle;
use crate::graph::Graph;

/// A request as an unfolding function sees it: its tensors bear the names, data types and ranks that the
/// model declares.
#[derive(Debug)]
pub struct UnfoldRequest {
    tensors: Vec<NamedTensor>,
}

type UnfoldFn = dyn Fn(UnfoldRequest, &mut Graph) -> Result<(), InvalidRequest> + Send + Sync;

/// A model with an unfolding function of the program's own: it turns a request into a graph of cells.
///
/// ```
/// use batchmaker::{Cell, CustomModel, ElementType, Engine, RecurrentCell, RecurrentKind, Request};
/// use batchmaker::{RnnActivation, Tensor, TensorData};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // h' = relu(x + h): a running sum of numbers that are not below zero.
/// let sum = Cell::recurrent(RecurrentCell {
///     kind: RecurrentKind::Rnn { activation: RnnActivation::Relu },
///     input_size: 1,
///     hidden_size: 1,
///     w: vec![1.0].into(),
///     r: vec![1.0].into(),
///     b: None,
///     lookup: None,
/// });
/// let mut model = CustomModel::new("sums");
/// let sum = model.cell("sum", sum);
/// let model = model
///     .input("x", ElementType::F32, &[-1])
///     .output("sums", ElementType::F32, &[-1])
///     .unfold(move |mut request, graph| {
///         let x = graph.input(request.take("x")?, &[]);
///         let sums = graph.value(ElementType::F32, &[], x.rows());
///         graph.chain(&sum, x.rows()).input(x).each_step(0, sums).add();
///         graph.output("sums", sums, &[x.rows()]);
///         Ok(())
///     });
/// let engine = Engine::builder().custom_model(model).build()?;
/// let x = Tensor::new(vec![3], TensorData::F32(vec![1.0, 2.0, 4.0]));
/// let reply = engine.run("sums", Request::new().input("x", x))?;
/// assert_eq!(*reply.outputs[0].tensor.data(), TensorData::F32(vec![1.0, 3.0, 7.0]));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct CustomModel {
    name: String,
    version: String,
    cells: Vec<CellHandle>,
    inputs: Vec<RequestTensor>,
    outputs: Vec<ReplyTensor>,
    unfold: Option<Box<UnfoldFn>>,
    max_length: usize,
}

impl std::fmt::Debug for CustomModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CustomModel {
    /// A model without cells and tensors.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: "1".to_owned(),
            cells: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            unfold: None,
            max_length: MAX_LENGTH,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds a cell, and returns the handle that unfolding functions name it by. Where cells of the model
    /// compete, those added later, which come later in the computation, are preferred.
    pub fn cell(&mut self, name: &str, cell: Cell) -> CellHandle {
        let (fused, description) = (cell.is_fused(), "a cell of the program's own".to_owned());
        self.add(CellHandle::new(name, cell, fused, description))
    }

    /// Adds a cell that was read from a file, as [`cell`](Self::cell) does.
    pub fn cell_file(&mut self, name: &str, file: NamedCell) -> CellHandle {
        let NamedCell { cell, fused, description, .. } = file;
        self.add(CellHandle::new(name, cell, fused, description))
    }

    fn add(&mut self, handle: CellHandle) -> CellHandle {
        self.cells.push(handle.clone());
        handle
    }

    /// Sets the version, 1 without it.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Declares an input tensor. In its shape, -1 is a length that requests choose.
    pub fn input(mut self, name: &str, element: ElementType, shape: &[i64]) -> Self {
        let axis = |&length: &i64| usize::try_from(length).map_or(Axis::Time, Axis::Fixed);
        let axes = shape.iter().map(axis).collect();
        let layout = InputLayout { axes, content: Content::Numbers, optional: false };
        let info = TensorInfo { name: name.to_owned(), element, shape: shape.to_vec() };
        self.inputs.push(RequestTensor { info, layout, step_axis: None });
        self
    }

    /// Declares an output tensor. In its shape, -1 is a length that differs between replies.
    pub fn output(mut self, name: &str, element: ElementType, shape: &[i64]) -> Self {
        let info = TensorInfo { name: name.to_owned(), element, shape: shape.to_vec() };
        self.outputs.push(ReplyTensor { info, batch_axis: None });
        self
    }

    /// Sets the unfolding function. It is called once for each request, before the request is admitted; it
    /// is pure and quick. It may return why the request is wrong. A graph that cannot run fails the
    /// request with [`EngineError::Unfolding`](crate::EngineError::Unfolding), whose text names the mistake.
    pub fn unfold(
        mut self,
        unfold: impl Fn(UnfoldRequest, &mut Graph) -> Result<(), InvalidRequest> + Send + Sync + 'static,
    ) -> Self {
        self.unfold = Some(Box::new(unfold));
        self
    }

    /// Registers the cells, and makes the model.
    pub(crate) fn register(
        self,
        options: &LoadOptions,
        registry: &mut CellRegistry,
    ) -> Result<Model, LoadError> {
        let mut cells = Vec::new();
        for (handle, priority) in self.cells.iter().zip(0..) {
            let (name, cell) = (handle.name(), handle.cell());
            let (fused, description) = (handle.is_fused(), handle.description());
            let new = NewCell { name, cell, stage: 0, priority, fused, description };
            // A profile may choose the precision of a cell for which the program chose none.
            let chosen = (cell.precision != Precision::default()).then_some(cell.precision);
            let used = options.register(registry, &new, None, chosen);
            handle.set_id(used.cell_type);
            cells.push(used);
        }
        let Self { name, version, inputs, outputs, unfold, max_length, cells: handles } = self;
        let declared = outputs.iter().map(|output| output.info.name.clone()).collect();
        let unfolder = Arc::new(CustomUnfolder { unfold, cells: handles, outputs: declared });
        let takes = Takes::NONE;
        let unfolding = Unfolding { unfolder, inputs, outputs, cells, max_length, takes };
        Model::new(&name, &version, unfolding)
    }
}

struct CustomUnfolder {
    unfold: Option<Box<UnfoldFn>>,
    cells: Vec<CellHandle>,
    /// The names of the model's outputs.
    outputs: Vec<String>,
}

impl Unfold for CustomUnfolder {
    fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError> {
        let mut graph = Graph::new(&self.cells, parameters);
        match &self.unfold {
            Some(unfold) => unfold(UnfoldRequest { tensors }, &mut graph)?,
            None => graph.fail("the model has no unfolding function".to_owned()),
        }
        graph.finish(&self.outputs)
    }
}

impl UnfoldRequest {
    /// Takes a tensor out of the request.
    ///
    /// # Errors
    /// The model declares no such input, or it was taken before.
    pub fn take(&mut self, name: &str) -> Result<batchmaker_graph::Tensor, InvalidRequest> {
        let position = self.tensors.iter().position(|tensor| tensor.name == name);
        let missing = || InvalidRequest(format!("the unfolding function finds no tensor `{name}`"));
        Ok(self.tensors.remove(position.ok_or_else(missing)?).tensor)
    }
}
