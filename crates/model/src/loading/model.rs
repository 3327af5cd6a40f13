//! A loaded model: names and types at its edge, text in and out, and its unfolder.

use std::collections::BTreeMap;

use batchmaker_graph::{
    ElementType, InvalidRequest, NamedTensor, Parameters, Tensor, TensorData, Unfolded,
};

use crate::data::layout::{Axis, Content, InputLayout};
use crate::emit::registration::CellUse;
use crate::error::LoadError;
use crate::file::files::Files;
use crate::loading::text::{Labels, OutputTable, TextTable, Tokenizer, Unit, read_vocabulary};
use crate::unfold::unfolding::{ReplyTensor, RequestTensor, TensorInfo, Unfolding};

/// The tables of a `model.toml` beside the graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) text: Option<TextTable>,
    pub(crate) outputs: BTreeMap<String, OutputTable>,
    /// Notes for its owner on how its files were read.
    pub(crate) notes: Vec<String>,
}

/// The facts about a request that [`Model::reply`] depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    drop_batch: bool,
}

/// The graph's outputs are not what the model's tables are made for; the model's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReplyError(pub String);

/// A model that is ready to be served.
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The tensors of a request.
    pub inputs: Vec<TensorInfo>,
    /// The tensors of a reply.
    pub outputs: Vec<TensorInfo>,
    /// Its cells, in order of computation: how its graph was cut, and why.
    pub cells: Vec<CellUse>,
    /// Notes for its owner on how its files were read.
    pub notes: Vec<String>,
    unfolding: Unfolding,
    text: Option<Text>,
    labels: Vec<Labels>,
}

struct Text {
    tokenizer: Tokenizer,
    /// The graph's input that the ids become.
    input: usize,
    /// Its axis of time.
    axis: usize,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("cells", &self.cells)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// A model with an unfolding function of one's own.
    ///
    /// # Errors
    /// If two tensors have one name.
    pub fn new(name: &str, version: &str, unfolding: Unfolding) -> Result<Self, LoadError> {
        let (name, version) = (name.to_owned(), version.to_owned());
        let tables = Tables { name, version, ..Tables::default() };
        Self::with_tables(unfolding, tables, &Files::Embedded(&[]))
    }

    pub(crate) fn with_tables(
        unfolding: Unfolding,
        tables: Tables,
        files: &Files<'_>,
    ) -> Result<Self, LoadError> {
        let text = tables.text.as_ref().map(|table| Text::new(&unfolding, table, files));
        let text = text.transpose()?;
        let mut inputs: Vec<TensorInfo> =
            unfolding.inputs.iter().map(|input| input.info.clone()).collect();
        if let Some(text) = &text {
            inputs[text.input] =
                TensorInfo { name: "text".to_owned(), element: ElementType::Bytes, shape: vec![1] };
        }
        let mut labels = Vec::new();
        for (name, table) in &tables.outputs {
            labels.push(output_labels(name, table, &unfolding, files)?);
        }
        let mut outputs = Vec::new();
        for ReplyTensor { info, batch_axis } in &unfolding.outputs {
            let mut info = info.clone();
            if let (Some(axis), true) = (batch_axis, text.is_some()) {
                info.shape.remove(*axis);
            }
            let mapped: Vec<&Labels> = labels.iter().filter(|l| l.tensor == info.name).collect();
            for labels in &mapped {
                outputs.push(TensorInfo {
                    name: labels.name.clone(),
                    element: ElementType::Bytes,
                    shape: labels.shape(&info.shape),
                });
            }
            if mapped.is_empty() {
                outputs.push(info);
            }
        }
        let twice = |list: &[TensorInfo]| {
            let name = |i: usize| &list[i].name;
            (0..list.len()).find(|&i| (0..i).any(|j| name(i) == name(j))).map(name).cloned()
        };
        if let Some(name) = twice(&inputs).or(twice(&outputs)) {
            return Err(toml_error(files, format!("two tensors are named `{name}`")));
        }
        Ok(Self {
            name: tables.name,
            version: tables.version,
            inputs,
            outputs,
            cells: unfolding.cells.clone(),
            notes: tables.notes,
            unfolding,
            text,
            labels,
        })
    }

    /// The layouts of the tensors of a request, in the order of `inputs`.
    pub fn layouts(&self) -> Vec<InputLayout> {
        let layout = |(index, input): (usize, &RequestTensor)| {
            let text = self.text.as_ref().filter(|text| text.input == index);
            let Some(text) = text else { return input.layout.clone() };
            let content = match text.tokenizer.unit() {
                Unit::Char => Content::Chars,
                Unit::Word => Content::Words,
            };
            InputLayout { axes: vec![Axis::Fixed(1)], content, optional: false }
        };
        self.unfolding.inputs.iter().enumerate().map(layout).collect()
    }

    /// The static inputs of a session: the tensors of its first chunk that hold for all of it, as they have no
    /// row for each step.
    pub fn said_once(&self, first: &[NamedTensor]) -> Vec<NamedTensor> {
        first.iter().filter(|tensor| self.is_static_input(&tensor.name)).cloned().collect()
    }

    /// The tensors of a session's later chunk, together with its static inputs (`said_once`).
    ///
    /// # Errors
    /// If the chunk brings a static input again.
    pub fn later_chunk(
        &self,
        mut tensors: Vec<NamedTensor>,
        said_once: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, InvalidRequest> {
        if let Some(again) = tensors.iter().find(|tensor| self.is_static_input(&tensor.name)) {
            let name = &again.name;
            let text = format!("tensor `{name}`: a session's first chunk brings it, no later one");
            return Err(InvalidRequest(text));
        }
        tensors.extend_from_slice(said_once);
        Ok(tensors)
    }

    fn is_static_input(&self, name: &str) -> bool {
        let input = self.inputs.iter().position(|input| input.name == name);
        let layout = input.map(|input| &self.unfolding.inputs[input].layout);
        layout.is_some_and(|layout| !layout.axes.contains(&Axis::Time))
    }

    /// Unfolds a request, whose tensors may come in any order.
    ///
    /// # Errors
    /// The text names the tensor, what was expected and what came: an unknown, missing or
    /// repeated tensor, a wrong data type or shape, an empty or too long sequence, an id
    /// outside its table, lengths that differ between tensors.
    pub fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
    ) -> Result<(Unfolded, ReplyPlan), InvalidRequest> {
        self.unfold_with(tensors, &Parameters::default())
    }

    /// As [`Self::unfold`], with the parameters that the client gives besides tensors.
    ///
    /// # Errors
    /// As there, and a parameter that the model does not take.
    pub fn unfold_with(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<(Unfolded, ReplyPlan), InvalidRequest> {
        let mut sorted: Vec<Option<NamedTensor>> = self.inputs.iter().map(|_| None).collect();
        for tensor in tensors {
            let name = &tensor.name;
            let Some(index) = self.inputs.iter().position(|input| input.name == *name) else {
                let names: Vec<String> =
                    self.inputs.iter().map(|input| format!("`{}`", input.name)).collect();
                let names = names.join(", ");
                let text = format!("tensor `{name}`: unknown; the model's inputs are {names}");
                return Err(InvalidRequest(text));
            };
            let (expected, found) = (self.inputs[index].element, tensor.tensor.element());
            if expected != found {
                let text = format!("tensor `{name}`: expected {expected}, got {found}");
                return Err(InvalidRequest(text));
            }
            let (rank, shape) = (self.inputs[index].shape.len(), tensor.tensor.shape());
            if rank != shape.len() {
                let expected = &self.inputs[index].shape;
                let text = format!("tensor `{name}`: expected shape {expected:?}, got {shape:?}");
                return Err(InvalidRequest(text));
            }
            if sorted[index].is_some() {
                return Err(InvalidRequest(format!("tensor `{name}`: given twice")));
            }
            sorted[index] = Some(tensor);
        }
        let mut tensors = Vec::with_capacity(sorted.len());
        for (index, tensor) in sorted.into_iter().enumerate() {
            let TensorInfo { name, element, shape } = &self.inputs[index];
            match (tensor, self.text.as_ref().filter(|text| text.input == index)) {
                (Some(tensor), None) => tensors.push(tensor),
                (Some(tensor), Some(text)) => {
                    let ids =
                        text.tokenizer.encode_tensor(&tensor.tensor, self.unfolding.max_length)?;
                    tensors.push(text.as_tensor(&self.unfolding.inputs[index].info, ids));
                }
                (None, _) if self.unfolding.inputs[index].layout.optional => {}
                (None, _) => {
                    let text = format!("tensor `{name}`: missing; expected {element} {shape:?}");
                    return Err(InvalidRequest(text));
                }
            }
        }
        let unfolded = self.unfolding.unfolder.unfold_with(tensors, parameters)?;
        Ok((unfolded, ReplyPlan { drop_batch: self.text.is_some() }))
    }

    /// Some steps of a reply in the form that clients get: ids become their labels, one by one, where the reply
    /// has their text.
    ///
    /// # Errors
    /// An output holds an id that its vocabulary has no line for.
    pub fn steps(&self, outputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>, ReplyError> {
        let mut steps = Vec::new();
        for output in outputs {
            let mut mapped = false;
            for labels in self.labels.iter().filter(|labels| labels.tensor == output.name) {
                let one_by_one = labels.apply_apart(output.tensor.clone()).map_err(ReplyError)?;
                steps.push(NamedTensor { name: labels.name.clone(), tensor: one_by_one });
                mapped = true;
            }
            if !mapped {
                steps.push(output);
            }
        }
        Ok(steps)
    }

    /// The output that is the reply's text, if one is: of several the one that is joined, else one
    /// of a single label, else the first.
    pub fn text_output(&self) -> Option<&str> {
        let is_joined = |labels: &&Labels| labels.join.is_some();
        let is_one = |labels: &&Labels| {
            let info = self.outputs.iter().find(|output| output.name == labels.name);
            info.is_some_and(|info| info.shape.iter().all(|&n| n == 1))
        };
        let labels = self.labels.iter().find(is_joined);
        let labels = labels.or(self.labels.iter().find(is_one)).or(self.labels.first())?;
        Some(&labels.name)
    }

    /// The reply, of the graph's outputs in the order of [`Unfolded::outputs`] and under
    /// the shape and permutation given there.
    ///
    /// # Errors
    /// An output holds an id that its vocabulary has no line for.
    pub fn reply(
        &self,
        plan: &ReplyPlan,
        outputs: Vec<NamedTensor>,
    ) -> Result<Vec<NamedTensor>, ReplyError> {
        if !plan.drop_batch && self.labels.is_empty() {
            return Ok(outputs);
        }
        let mut reply = Vec::with_capacity(self.outputs.len());
        for (mut output, tensor) in outputs.into_iter().zip(&self.unfolding.outputs) {
            if let (Some(axis), true) = (&tensor.batch_axis, plan.drop_batch) {
                let mut shape = output.tensor.shape().to_vec();
                shape.remove(*axis);
                output.tensor = output.tensor.reshaped(shape);
            }
            let mut mapped = false;
            for labels in self.labels.iter().filter(|labels| labels.tensor == output.name) {
                let tensor = labels.apply(output.tensor.clone()).map_err(ReplyError)?;
                reply.push(NamedTensor { name: labels.name.clone(), tensor });
                mapped = true;
            }
            if !mapped {
                reply.push(output);
            }
        }
        Ok(reply)
    }
}

fn toml_error(files: &Files<'_>, reason: String) -> LoadError {
    LoadError::Malformed { file: files.label("model.toml"), reason }
}

impl Text {
    fn new(unfolding: &Unfolding, table: &TextTable, files: &Files<'_>) -> Result<Self, LoadError> {
        let tensor = &table.tensor;
        let refuse = |reason: String| Err(toml_error(files, format!("inputs.text: {reason}")));
        let Some(input) = unfolding.inputs.iter().position(|input| input.info.name == *tensor)
        else {
            return refuse(format!("the graph has no input `{tensor}`"));
        };
        let RequestTensor { info, layout, step_axis } = &unfolding.inputs[input];
        let integer = matches!(info.element, ElementType::I64 | ElementType::I32);
        let (&Some(axis), true) = (step_axis, integer) else {
            return refuse(format!("input `{tensor}` does not hold one id a step"));
        };
        let tokenizer = Tokenizer::new(files, table)?;
        if let Content::Ids(ids) = layout.content
            && (tokenizer.largest() >= ids as i64 || table.unknown < 0)
        {
            let largest = tokenizer.largest();
            return refuse(format!(
                "the vocabulary's ids run to {largest} (`unknown` is {}), those of `{tensor}` to {}",
                table.unknown,
                ids as i64 - 1
            ));
        }
        Ok(Self { tokenizer, input, axis })
    }

    /// One sequence of ids as the graph's input.
    fn as_tensor(&self, info: &TensorInfo, ids: Vec<i64>) -> NamedTensor {
        let mut shape = vec![1; info.shape.len()];
        shape[self.axis] = ids.len();
        let data = match info.element {
            ElementType::I32 => TensorData::I32(ids.into_iter().map(|id| id as i32).collect()),
            _ => TensorData::I64(ids),
        };
        NamedTensor { name: info.name.clone(), tensor: Tensor::new(shape, data) }
    }
}

fn output_labels(
    name: &str,
    table: &OutputTable,
    unfolding: &Unfolding,
    files: &Files<'_>,
) -> Result<Labels, LoadError> {
    let tensor = &table.tensor;
    let refuse = |reason: String| Err(toml_error(files, format!("outputs.{name}: {reason}")));
    let mut infos = unfolding.outputs.iter().map(|output| &output.info);
    let Some(info) = infos.find(|info| info.name == *tensor) else {
        return refuse(format!("the graph has no output `{tensor}`"));
    };
    let labels = read_vocabulary(files, &table.vocabulary)?;
    let integer = matches!(info.element, ElementType::I64 | ElementType::I32);
    match table.top {
        Some(k) => {
            let count = labels.len() as i64;
            if info.element != ElementType::F32 {
                return refuse(format!("`top` needs scores; `{tensor}` is {}", info.element));
            }
            if table.join.is_some() {
                return refuse("`top` and `join` exclude each other".to_owned());
            }
            if info.shape.last() != Some(&count) {
                let shape = &info.shape;
                return refuse(format!(
                    "the vocabulary has {count} lines, the last axis of `{tensor}` {shape:?} not"
                ));
            }
            if k == 0 || k > labels.len() {
                return refuse(format!("top: expected 1 to {count}, got {k}"));
            }
        }
        None if !integer => {
            return refuse(format!("expected ids; `{tensor}` is {}", info.element));
        }
        None => {}
    }
    Ok(Labels {
        name: name.to_owned(),
        tensor: tensor.clone(),
        labels,
        join: table.join.clone(),
        top: table.top,
    })
}
