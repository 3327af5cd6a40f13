//! A loaded model: names and types at its edge, text in and out, and its unfolder.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, ElementType, InvalidGraph, InvalidRequest, KeptSteps, NamedTensor, OutputTensor,
    Parameters, Tensor, TensorData, UnfoldError, Unfolded, ValueCheck,
};

use crate::data::layout::{Axis, Content, InputLayout};
use crate::emit::registration::ModelCell;
use crate::error::LoadError;
use crate::file::files::Files;
use crate::file::passed::Passed;
use crate::loading::reply_plan::{PlannedOutput, PlannedTensor, ReplyPlan};
use crate::loading::text::{Labels, OutputTable, TextTable, Tokenizer, Unit, read_vocabulary};
use crate::partition::stage_starts::StageNodes;
use crate::unfold::unfolding::{ReplyTensor, RequestTensor, TensorInfo, Unfolding};

/// The tables of a `model.toml` beside the graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) text: Option<TextTable>,
    pub(crate) outputs: BTreeMap<String, OutputTable>,
    /// The number that all integers of an output are below, for each output whose cells imply one.
    pub(crate) id_bounds: BTreeMap<String, usize>,
    /// Inputs of strings that are outputs too.
    pub(crate) passed: Vec<Passed>,
    /// The nodes that begin stages 1, 2, ….
    pub(crate) stages: StageNodes,
    /// Notes for its owner on how its files were read.
    pub(crate) notes: Vec<String>,
}

/// A model that is ready to be served.
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The tensors of a request: those of the unfolding function, then those that are passed on to the reply.
    pub inputs: Vec<TensorInfo>,
    /// The tensors of a reply.
    pub outputs: Vec<TensorInfo>,
    /// Its cells, in order of computation: how its graph was cut, and why.
    pub cells: Vec<ModelCell>,
    /// The nodes of its file that begin stages 1, 2, …, if it is cut into stages.
    pub stage_starts: Vec<String>,
    /// Those of them before which an early exit or a skip is decided, if the model was loaded with all that stages may begin with
    /// ([`StageStarts::All`](crate::StageStarts::All)), or with these.
    pub decided_starts: Vec<String>,
    /// Notes for its owner on how its files were read.
    pub notes: Vec<String>,
    unfolding: Unfolding,
    text: Option<Text>,
    labels: Vec<Arc<Labels>>,
    passed: Vec<Passed>,
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
            let bound = tables.id_bounds.get(&table.tensor).copied();
            labels.push(Arc::new(output_labels(name, table, &unfolding, bound, files)?));
        }
        let mut outputs = Vec::new();
        for ReplyTensor { info, batch_axis } in &unfolding.outputs {
            let mut info = info.clone();
            if let (Some(axis), true) = (batch_axis, text.is_some()) {
                info.shape.remove(*axis);
            }
            let mapped: Vec<&Arc<Labels>> =
                labels.iter().filter(|l| l.tensor == info.name).collect();
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
        for Passed { input, outputs: names, shape } in &tables.passed {
            let info = |name: &String| {
                let (name, shape) = (name.clone(), shape.clone());
                TensorInfo { name, element: ElementType::Bytes, shape }
            };
            inputs.push(info(input));
            outputs.extend(names.iter().map(info));
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
            stage_starts: tables.stages.starts,
            decided_starts: tables.stages.decided,
            notes: tables.notes,
            unfolding,
            text,
            labels,
            passed: tables.passed,
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
        let computed = self.unfolding.inputs.iter().enumerate().map(layout);
        computed.chain(self.passed.iter().map(passed_layout)).collect()
    }

    /// The most sequences that a request may bring, if the first axis of all its tensors and of all outputs is that of the sequences; none for other
    /// models.
    pub fn sequences_max(&self) -> Option<usize> {
        let is_first = |layout: &InputLayout| layout.axes.first() == Some(&Axis::Batch);
        let is_batch = self.text.is_none()
            && !self.inputs.is_empty()
            && self.layouts().iter().all(is_first)
            && self.unfolding.outputs.iter().all(|output| output.batch_axis == Some(0));
        is_batch.then_some(self.unfolding.max_length)
    }

    /// The reason that a sequence cannot come in the chunks of a session; none if it can.
    pub fn why_no_sessions(&self) -> Option<&str> {
        let of_text = self.text.is_some() && self.kept_bytes_max() > 0;
        match self.unfolding.unfolder.refuses_chunks() {
            _ if !self.unfolding.takes.chunks => Some("its unfolding function takes no chunks"),
            None if of_text => Some("it takes windows of the steps of a text"),
            reason => reason,
        }
    }

    /// The static inputs among the tensors of a session's first chunk: those that have no row for each step, and
    /// so hold for the whole session.
    pub fn static_inputs(&self, first: &[NamedTensor]) -> Vec<NamedTensor> {
        first.iter().filter(|tensor| self.is_static_input(&tensor.name)).cloned().collect()
    }

    /// The tensors of a later chunk of a session, together with its static inputs.
    ///
    /// # Errors
    /// If the chunk brings a static input again.
    pub fn later_chunk(
        &self,
        mut tensors: Vec<NamedTensor>,
        static_inputs: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, InvalidRequest> {
        if let Some(again) = tensors.iter().find(|tensor| self.is_static_input(&tensor.name)) {
            let name = &again.name;
            let text = format!("tensor `{name}`: a session's first chunk brings it, no later one");
            return Err(InvalidRequest(text));
        }
        tensors.extend_from_slice(static_inputs);
        Ok(tensors)
    }

    /// The tensors of a session's chunk after the steps that were kept before it, and the steps that the chunk after it
    /// needs again.
    pub fn after_kept(
        &self,
        kept: &KeptSteps,
        chunk: Vec<NamedTensor>,
    ) -> (Vec<NamedTensor>, KeptSteps) {
        let unfolder = &self.unfolding.unfolder;
        let tensors = unfolder.join(kept, chunk);
        let kept = unfolder.keep(&tensors, kept.answered);
        (tensors, kept)
    }

    /// The most bytes of steps that a session keeps for its next chunk; 0 if it keeps none.
    pub fn kept_bytes_max(&self) -> usize {
        self.unfolding.unfolder.kept_bytes_max()
    }

    fn is_static_input(&self, name: &str) -> bool {
        let input = self.inputs.iter().position(|input| input.name == name);
        let layout = input.and_then(|input| Some(&self.unfolding.inputs.get(input)?.layout));
        layout.is_some_and(|layout| !layout.axes.contains(&Axis::Time))
    }

    /// Unfolds a request, whose tensors may come in any order, and plans its reply: the tensors named
    /// in `outputs`, in that order, or all of them where it is empty.
    ///
    /// # Errors
    /// The text names the tensor, what was expected and what came: an unknown, missing or
    /// repeated tensor, a wrong data type or shape, an empty or too long sequence, an id
    /// outside its table, lengths that differ between tensors, an unknown output; or a parameter that
    /// the model does not take.
    pub fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
        outputs: &[String],
    ) -> Result<(Unfolded, ReplyPlan), UnfoldError> {
        if !self.unfolding.takes.steps {
            parameters.refuse_steps()?;
        }
        if let Some(reason) = self.why_no_sessions() {
            parameters.refuse_chunks(reason)?;
        }
        let mut tensors = self.sort(tensors)?;
        let passed = tensors.split_off(tensors.len() - self.passed.len());
        let unfolded = self.unfolding.unfolder.unfold(tensors, parameters)?;
        self.check(&unfolded, parameters).map_err(InvalidGraph)?;
        let plan = self.plan_reply(&unfolded, passed, outputs)?;
        Ok((unfolded, plan))
    }

    /// The tensors of a request in the declared order, text as ids.
    fn sort(&self, tensors: Vec<NamedTensor>) -> Result<Vec<NamedTensor>, InvalidRequest> {
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
            if expected.stored() != found {
                let text = format!("tensor `{name}`: expected {expected}, got {found}");
                return Err(InvalidRequest(text));
            }
            let (rank, shape) = (self.inputs[index].shape.len(), tensor.tensor.shape());
            if rank != shape.len() {
                let expected = &self.inputs[index].shape;
                let text = format!("tensor `{name}`: expected shape {expected:?}, got {shape:?}");
                return Err(InvalidRequest(text));
            }
            let is_passed = index >= self.unfolding.inputs.len();
            let fits = |(&of, &length): (&i64, &usize)| of < 0 || of as usize == length;
            if is_passed && !self.inputs[index].shape.iter().zip(shape).all(fits) {
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
                (None, _) if self.is_optional(index) => {}
                (None, _) => {
                    let text = format!("tensor `{name}`: missing; expected {element} {shape:?}");
                    return Err(InvalidRequest(text));
                }
            }
        }
        Ok(tensors)
    }

    /// Whether a request may leave an input out.
    fn is_optional(&self, input: usize) -> bool {
        self.unfolding.inputs.get(input).is_some_and(|input| input.layout.optional)
    }

    /// Checks what the unfolding function made against what the model declares.
    fn check(&self, unfolded: &Unfolded, parameters: &Parameters) -> Result<(), String> {
        let (graph, declared) = (&unfolded.graph, &self.unfolding.outputs);
        if graph.chunk() != parameters.chunk {
            return Err("it is not a graph of the session's chunk".to_owned());
        }
        let names = unfolded.outputs.iter().map(|output| &output.name);
        if !names.eq(declared.iter().map(|output| &output.info.name)) {
            return Err("its outputs are not those that the model declares".to_owned());
        }
        if unfolded.checks.iter().any(|check| !graph.outputs().contains(&check.value)) {
            return Err("it checks a value that is none of its outputs".to_owned());
        }
        for (output, declared) in unfolded.outputs.iter().zip(declared) {
            let (name, info) = (&output.name, &declared.info);
            check_output(graph, output, info).map_err(|why| format!("output `{name}`: {why}"))?;
        }
        Ok(())
    }

    /// Plans how the tensors in `outputs`, or all of them, are made of the graph's output values, or `passed`.
    fn plan_reply(
        &self,
        unfolded: &Unfolded,
        passed: Vec<NamedTensor>,
        outputs: &[String],
    ) -> Result<ReplyPlan, InvalidRequest> {
        let mut planned = Vec::with_capacity(self.outputs.len());
        for (tensor, declared) in unfolded.outputs.iter().zip(&self.unfolding.outputs) {
            let position = unfolded.graph.outputs().iter().position(|&of| of == tensor.value);
            let position = position.expect("the unfolding was checked");
            let dropped_axis = declared.batch_axis.filter(|_| self.text.is_some());
            let output = |name: &str, labels: Option<&Arc<Labels>>| PlannedOutput {
                name: name.to_owned(),
                position,
                tensor: tensor.clone(),
                dropped_axis,
                labels: labels.cloned(),
            };
            let mapped = self.labels.iter().filter(|labels| labels.tensor == tensor.name);
            let before = planned.len();
            planned.extend(mapped.map(|labels| output(&labels.name, Some(labels))));
            if planned.len() == before {
                planned.push(output(&tensor.name, None));
            }
        }
        let mut planned: Vec<PlannedTensor> =
            planned.into_iter().map(PlannedTensor::Computed).collect();
        for (Passed { outputs, .. }, NamedTensor { tensor, .. }) in self.passed.iter().zip(passed) {
            let output = |name: &String| NamedTensor { name: name.clone(), tensor: tensor.clone() };
            planned.extend(outputs.iter().map(output).map(PlannedTensor::Passed));
        }
        let position = |check: &ValueCheck| {
            let position = unfolded.graph.outputs().iter().position(|&value| value == check.value);
            (position.expect("the unfolding was checked"), check.clone())
        };
        let checks = unfolded.checks.iter().map(position).collect();
        if outputs.is_empty() {
            let plan = ReplyPlan::new(planned).with_checks(checks);
            return Ok(plan.with_choices_of(&unfolded.graph));
        }
        let mut planned: Vec<_> = planned.into_iter().map(Some).collect();
        let take = |name: &String| {
            let is_named = |output: &&mut Option<PlannedTensor>| {
                output.as_ref().is_some_and(|output| output.name() == name)
            };
            let found = planned.iter_mut().find(is_named).and_then(Option::take);
            found.ok_or_else(|| match self.outputs.iter().any(|output| output.name == *name) {
                true => InvalidRequest(format!("output '{name}' is asked for twice")),
                false => {
                    let names: Vec<&str> =
                        self.outputs.iter().map(|output| &*output.name).collect();
                    let names = names.join(", ");
                    InvalidRequest(format!("output '{name}' is unknown, expected {names}"))
                }
            })
        };
        let outputs = outputs.iter().map(take).collect::<Result<_, _>>()?;
        let plan = ReplyPlan::new(outputs).with_checks(checks);
        Ok(plan.with_choices_of(&unfolded.graph))
    }

    /// The output that is the reply's text, if one is: of several the one that is joined, else one
    /// of a single label, else the first.
    pub fn text_output(&self) -> Option<&str> {
        let is_joined = |labels: &&Arc<Labels>| labels.join.is_some();
        let is_one = |labels: &&Arc<Labels>| {
            let info = self.outputs.iter().find(|output| output.name == labels.name);
            info.is_some_and(|info| info.shape.iter().all(|&n| n == 1))
        };
        let labels = self.labels.iter().find(is_joined);
        let labels = labels.or(self.labels.iter().find(is_one)).or(self.labels.first())?;
        Some(&labels.name)
    }
}

/// The layout of strings that are passed on: any strings, of any length where the file leaves it open.
fn passed_layout(passed: &Passed) -> InputLayout {
    let axis = |(at, &length): (usize, &i64)| match usize::try_from(length) {
        Ok(length) => Axis::Fixed(length),
        Err(_) if at == 0 => Axis::Batch,
        Err(_) => Axis::Time,
    };
    let axes = passed.shape.iter().enumerate().map(axis).collect();
    InputLayout { axes, content: Content::Numbers, optional: false }
}

/// Checks that a tensor of the reply can be made of the value that it reads.
fn check_output(graph: &CellGraph, output: &OutputTensor, info: &TensorInfo) -> Result<(), String> {
    let OutputTensor { value, rows, shape, until, permutation, .. } = output;
    if !graph.outputs().contains(value) {
        return Err(format!("{value} is not marked as an output of the graph"));
    }
    let spec = &graph.values()[value.index()];
    if spec.row.element != info.element.stored() {
        return Err(format!("{value} holds {}, not {}", spec.row.element, info.element));
    }
    let rows = rows.clone().unwrap_or(0..spec.rows as usize);
    if rows.start > rows.end || rows.end > spec.rows as usize {
        return Err(format!("rows {rows:?} of {value}, which has {}", spec.rows));
    }
    let elements = shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis));
    if elements != Some(rows.len() * spec.row.elements()) {
        let found = rows.len() * spec.row.elements();
        return Err(format!("shape {shape:?} for {found} elements"));
    }
    if let Some(permutation) = permutation {
        let mut axes = permutation.clone();
        axes.sort_unstable();
        if !axes.into_iter().eq(0..shape.len()) {
            return Err(format!("{permutation:?} is no order of the axes of {shape:?}"));
        }
    }
    let Some(until) = until else { return Ok(()) };
    let run = graph.runs().get(until.index()).ok_or_else(|| format!("there is no {until}"))?;
    match shape.first() == Some(&(run.length as usize)) && rows.len() == run.length as usize {
        true => Ok(()),
        false => Err(format!("{until} has {} steps, shape {shape:?} another number", run.length)),
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

/// The labels that output `name` of `model.toml` maps a tensor to, whose integers are all below `bound`.
fn output_labels(
    name: &str,
    table: &OutputTable,
    unfolding: &Unfolding,
    bound: Option<usize>,
    files: &Files<'_>,
) -> Result<Labels, LoadError> {
    let tensor = &table.tensor;
    let refuse = |reason: String| Err(toml_error(files, format!("outputs.{name}: {reason}")));
    let mut infos = unfolding.outputs.iter().map(|output| &output.info);
    let Some(info) = infos.find(|info| info.name == *tensor) else {
        return refuse(format!("the graph has no output `{tensor}`"));
    };
    let labels = read_vocabulary(files, &table.vocabulary)?;
    let vocabulary = |reason| LoadError::Malformed { file: files.label(&table.vocabulary), reason };
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
                let needed = match info.shape.last() {
                    Some(scores @ 0..) => format!("needs {scores}, a line for each score of a row"),
                    _ => "has no last axis of fixed length, which `top` needs".to_owned(),
                };
                let shape = &info.shape;
                let reason = format!("it has {count} lines; output `{tensor}` {shape:?} {needed}");
                return Err(vocabulary(format!("{reason} (outputs.{name})")));
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
    if let Some(needed) = bound.filter(|&bound| table.top.is_none() && bound > labels.len()) {
        let (lines, last) = (labels.len(), needed - 1);
        return Err(vocabulary(format!(
            "it has {lines} lines; output `{tensor}` holds ids 0 to {last}, which need {needed} \
             (outputs.{name})"
        )));
    }
    Ok(Labels {
        name: name.to_owned(),
        tensor: tensor.clone(),
        longest: labels.iter().map(String::len).max().unwrap_or(0),
        labels,
        join: table.join.clone(),
        top: table.top,
    })
}
