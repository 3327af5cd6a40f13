//! The unfolder of a whole ONNX file: a plan that is made at load, walked at each request.
//!
//! A request brings B sequences of T steps. Each becomes a chain in every recurrent
//! operator and a run of rows in every row-wise segment, so that no sequence waits for
//! another. Rows of a value stand in the order of the request's or the reply's tensor
//! where there is one.

use batchmaker_graph::{
    CellGraphBuilder, CellTypeId, Chunk, InvalidRequest, NamedTensor, OutputTensor, Parameters,
    RowSpec, Rows, Sink, SinkTime, Tensor, TensorData, Unfold, Unfolded, ValueIndex,
};

use crate::analysis::recurrence::SequenceLengths;
use crate::analysis::value::Domain;
use crate::data::direction::Direction;
use crate::data::symbol::{BATCH, Symbol, Windows};
use crate::unfold::integers::check_integers;

/// The length of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Fixed(usize),
    Batch,
    Steps(Symbol),
    /// Batch times steps, in the order of the value's rows.
    Both(Symbol),
}

/// A request tensor.
#[derive(Clone, Debug)]
pub(crate) struct PlanInput {
    pub(crate) name: String,
    pub(crate) axes: Vec<Extent>,
    /// To bring the axes of rows to the front; none: they are there.
    pub(crate) permutation: Option<Vec<usize>>,
    /// Elements must be in 0..ids.
    pub(crate) ids: Option<usize>,
    /// 64-bit integers must fit 32 bits, all that cells compute with.
    pub(crate) narrow: bool,
    /// None: nothing reads it.
    pub(crate) value: Option<usize>,
}

/// A matrix of rows.
#[derive(Clone, Debug)]
pub(crate) struct PlanValue {
    pub(crate) row: RowSpec,
    pub(crate) domain: Domain,
    /// Whether the rows of a step stand together, rather than those of a sequence.
    pub(crate) time_major: bool,
    /// How often the domain's rows stand one after the other.
    pub(crate) slots: usize,
}

/// Where a stage reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanRead {
    pub(crate) value: usize,
    /// The step, where the value is over time and the reader is not.
    pub(crate) at: Option<i64>,
    pub(crate) slot: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanSink {
    pub(crate) port: usize,
    pub(crate) time: SinkTime,
    pub(crate) value: usize,
    pub(crate) slot: usize,
}

/// Which rows a chain's steps take, in which order.
#[derive(Clone, Debug)]
pub(crate) struct ChainOrder {
    /// By input port, which way the rows go.
    pub(crate) reads: Vec<Direction>,
    /// By output port.
    pub(crate) writes: Vec<Direction>,
    pub(crate) lengths: SequenceLengths,
    /// Otherwise its steps are rows.
    pub(crate) keeps_state: bool,
}

impl ChainOrder {
    /// Whether steps go from the last row to the first.
    fn is_backwards(&self) -> bool {
        self.reads.iter().chain(&self.writes).any(|&way| way == Direction::Reverse)
    }
}

/// A cell and its runs.
#[derive(Clone, Debug)]
pub(crate) struct PlanCell {
    pub(crate) cell_type: CellTypeId,
    /// Of a chain; none: rows.
    pub(crate) chain: Option<ChainOrder>,
    /// Whether a node takes all steps of what it reads, and gives all of what it makes.
    pub(crate) is_sequence_level: bool,
    pub(crate) domain: Domain,
    pub(crate) inputs: Vec<PlanRead>,
    pub(crate) initial: Vec<Option<PlanRead>>,
    pub(crate) sinks: Vec<PlanSink>,
}

#[derive(Clone, Debug)]
pub(crate) struct PlanOutput {
    pub(crate) name: String,
    pub(crate) value: usize,
    pub(crate) axes: Vec<Extent>,
    pub(crate) permutation: Option<Vec<usize>>,
}

impl PlanOutput {
    /// The reply tensor's axis of batch.
    pub(crate) fn batch_axis(&self) -> Option<usize> {
        let own = self.axes.iter().position(|&axis| axis == Extent::Batch)?;
        match &self.permutation {
            Some(permutation) => permutation.iter().position(|&axis| axis == own),
            None => Some(own),
        }
    }
}

/// All that is known of a file's unfolding before a request comes.
#[derive(Clone, Debug)]
pub(crate) struct UnfoldPlan {
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) values: Vec<PlanValue>,
    /// Values that every request is given: first states that the file holds.
    pub(crate) constants: Vec<(usize, TensorData)>,
    /// Values that are the lengths of axes.
    pub(crate) lengths: Vec<(usize, Symbol)>,
    pub(crate) cells: Vec<PlanCell>,
    pub(crate) outputs: Vec<PlanOutput>,
    /// Sequences a request, where the file fixes it.
    pub(crate) batch: Option<usize>,
    /// Axes of steps, by their symbols' ids.
    pub(crate) axes: Vec<PlanAxis>,
    /// The most rows a request may carry.
    pub(crate) max_length: usize,
    /// Why a sequence cannot come in chunks.
    pub(crate) refuses_chunks: Option<&'static str>,
}

/// An axis of steps.
#[derive(Clone, Debug)]
pub(crate) struct PlanAxis {
    /// Where the file fixes it.
    pub(crate) length: Option<usize>,
    /// The fewest steps that hold every step that is read by its number.
    pub(crate) min: usize,
    /// The most that the file has constants for.
    pub(crate) max: usize,
    /// What it is the number of windows of; more than one where such numbers turned out to be equal.
    pub(crate) windows: Vec<(Symbol, Windows)>,
}

/// A request's lengths.
struct Lengths {
    batch: usize,
    /// By the symbols' ids.
    steps: Vec<usize>,
}

impl Lengths {
    fn of(&self, extent: Extent) -> usize {
        match extent {
            Extent::Fixed(n) => n,
            Extent::Batch => self.batch,
            Extent::Steps(axis) => self.steps(Some(axis)),
            Extent::Both(axis) => self.batch * self.steps(Some(axis)),
        }
    }

    fn steps(&self, axis: Option<Symbol>) -> usize {
        axis.map_or(1, |axis| self.steps[axis.0 as usize])
    }

    fn rows(&self, domain: Domain) -> usize {
        let steps = self.steps(domain.time);
        if domain.batch { steps * self.batch } else { steps }
    }
}

/// `[batch, time, 8]`.
fn show(axes: &[Extent]) -> String {
    let axes: Vec<String> = axes
        .iter()
        .map(|axis| match axis {
            Extent::Fixed(n) => n.to_string(),
            Extent::Batch => "batch".to_owned(),
            Extent::Steps(_) => "time".to_owned(),
            Extent::Both(_) => "batch*time".to_owned(),
        })
        .collect();
    format!("[{}]", axes.join(", "))
}

impl UnfoldPlan {
    /// Why a sequence cannot come in chunks: something of it depends on more than the steps so far.
    pub(crate) fn why_no_chunks(&self) -> Option<&'static str> {
        let mut time = None;
        for cell in self.cells.iter().filter(|cell| cell.chain.is_some()) {
            let own = cell.domain.time;
            if own.is_some_and(|axis| self.axes[axis.0 as usize].length.is_some()) {
                return Some("its sequences have one length");
            }
            if own.is_some_and(|axis| !self.axes[axis.0 as usize].windows.is_empty())
                || *time.get_or_insert(own) != own
            {
                return Some("its steps are not those of its input");
            }
        }
        if self.cells.iter().any(|cell| cell.is_sequence_level) {
            return Some("a part of it takes all steps at once");
        }
        if !self.lengths.is_empty() {
            return Some("it computes on the length of its sequence");
        }
        if self.cells.iter().all(|cell| cell.chain.is_none()) {
            return Some("it keeps no state");
        }
        // Values without an axis of time that are made of a sequence: the state so far, or a step.
        let mut so_far = vec![false; self.values.len()];
        for cell in &self.cells {
            let over_time = cell.domain.time.is_some();
            let is_so_far = |read: &PlanRead| {
                let over_time = self.values[read.value].domain.time.is_some();
                let is_step = over_time && read.at.is_some();
                so_far[read.value] || is_step
            };
            let reads = cell.inputs.iter().chain(cell.initial.iter().flatten());
            if let Some(order) = &cell.chain
                && order.is_backwards()
            {
                return Some("its steps depend on the end of its sequence");
            }
            if let Some(order) = &cell.chain
                && order.lengths != SequenceLengths::All
            {
                return Some("it is told the lengths of its sequences");
            }
            if reads.clone().any(|read| read.at.is_some_and(|at| at != -1)) {
                return Some("it reads a step by its number");
            }
            if cell.initial.iter().flatten().any(is_so_far)
                || (over_time && cell.inputs.iter().any(is_so_far))
            {
                return Some("its steps depend on the end of its sequence");
            }
            let is_made_of = over_time || reads.clone().any(is_so_far);
            for sink in &cell.sinks {
                so_far[sink.value] |= is_made_of && self.values[sink.value].domain.time.is_none();
            }
        }
        None
    }

    /// The lengths of batch and steps, which all tensors must agree on.
    fn lengths(&self, tensors: &[NamedTensor]) -> Result<Lengths, InvalidRequest> {
        // Per axis: its length and who set it.
        let mut batch = self.batch.map(|n| (n, "the model"));
        let by_model = |axis: &PlanAxis| axis.length.map(|n| (n, "the model"));
        let mut steps: Vec<Option<(usize, &str)>> = self.axes.iter().map(by_model).collect();
        for (input, tensor) in self.inputs.iter().zip(tensors) {
            let found = tensor.tensor.shape();
            let refuse = |why: String| {
                let (name, expected) = (&input.name, show(&input.axes));
                let text = format!("tensor `{name}`: expected shape {expected}, got {found:?}");
                Err(InvalidRequest(if why.is_empty() { text } else { format!("{text}: {why}") }))
            };
            if found.len() != input.axes.len() {
                return refuse(String::new());
            }
            for (axis, &length) in input.axes.iter().zip(found) {
                let (known, name) = match axis {
                    Extent::Fixed(n) if *n == length => continue,
                    Extent::Fixed(_) | Extent::Both(_) => return refuse(String::new()),
                    Extent::Batch => (&mut batch, "batch"),
                    Extent::Steps(axis) => (&mut steps[axis.0 as usize], "time"),
                };
                match (length, *known) {
                    (0, _) if name == "time" => return refuse("an empty sequence".to_owned()),
                    (0, _) => return refuse("an empty batch".to_owned()),
                    (_, None) => *known = Some((length, &input.name)),
                    (_, Some((n, _))) if n == length => {}
                    (_, Some((n, by @ "the model"))) => {
                        return refuse(format!("{name} is {n} by {by}"));
                    }
                    (_, Some((n, by))) => {
                        return refuse(format!("{name} is {n} by tensor `{by}`"));
                    }
                }
            }
        }
        self.count_windows(&mut steps)?;
        let batch_rows = batch.map_or(1, |(n, _)| n);
        // What the file fixes is no matter of the request: features count as axes, too.
        let given = steps.iter().zip(&self.axes).filter(|(_, axis)| axis.length.is_none());
        let longest = given.filter_map(|(step, _)| *step).max_by_key(|(n, _)| *n);
        let by = longest.or(batch).map_or("", |(_, by)| by);
        match batch_rows.checked_mul(longest.map_or(1, |(n, _)| n)) {
            Some(rows) if rows <= self.max_length => {}
            rows => {
                let (rows, max) = (rows.unwrap_or(usize::MAX), self.max_length);
                let text = format!("tensor `{by}`: expected at most {max} rows, got {rows}");
                return Err(InvalidRequest(text));
            }
        }
        for (axis, found) in self.axes.iter().zip(&steps) {
            if let Some((found, by)) = found.filter(|(found, _)| *found < axis.min) {
                let min = axis.min;
                let text = format!("tensor `{by}`: expected at least {min} steps, got {found}");
                return Err(InvalidRequest(text));
            }
            if let Some((found, by)) = found.filter(|(found, _)| *found > axis.max) {
                let max = axis.max;
                let text = format!("tensor `{by}`: expected at most {max} steps, got {found}");
                return Err(InvalidRequest(text));
            }
        }
        let steps = steps.into_iter().map(|found| found.map_or(1, |(n, _)| n)).collect();
        Ok(Lengths { batch: batch_rows, steps })
    }

    /// Adds the lengths that follow from others.
    fn count_windows(&self, steps: &mut [Option<(usize, &str)>]) -> Result<(), InvalidRequest> {
        // Windows over windows: as often as there are axes, all are known.
        for _ in 0..self.axes.len() {
            let all = self.axes.iter().enumerate();
            let all = all.flat_map(|(at, axis)| axis.windows.iter().map(move |w| (at, *w)));
            for (at, (of, windows)) in all {
                let Some((length, by)) = steps[of.0 as usize] else { continue };
                let Some(count) = windows.count(length).filter(|&count| count > 0) else {
                    let text = format!("tensor `{by}`: {length} steps are too few for the model");
                    return Err(InvalidRequest(text));
                };
                match steps[at] {
                    None => steps[at] = Some((count, by)),
                    Some((known, _)) if known == count => {}
                    Some((known, other)) => {
                        let text = format!(
                            "tensor `{by}`: of its {length} steps the model makes {count}, where \
                             tensor `{other}` has {known}"
                        );
                        return Err(InvalidRequest(text));
                    }
                }
            }
        }
        Ok(())
    }

    fn rows(&self, read: PlanRead, axis: Option<Symbol>, b: usize, lengths: &Lengths) -> Rows {
        let value = &self.values[read.value];
        let steps = lengths.steps(value.domain.time);
        let (time_stride, batch_stride) = match (value.domain.time, value.domain.batch) {
            (Some(_), true) if value.time_major => (lengths.batch, 1),
            (Some(_), true) => (1, steps),
            (time, batch) => (usize::from(time.is_some()), usize::from(batch)),
        };
        let step = match read.at {
            Some(at) if at < 0 => (steps as i64 + at) as usize,
            Some(at) => at as usize,
            None => 0,
        };
        let slot = read.slot * lengths.rows(value.domain);
        let moves = value.domain.time.is_some() && axis.is_some() && read.at.is_none();
        let first = slot + step * time_stride + b * batch_stride;
        let stride = if moves { time_stride as i32 } else { 0 };
        Rows::strided(ValueIndex(read.value as u32), first as u32, stride)
    }

    /// All rows of a sequence.
    fn span(&self, read: PlanRead, b: usize, lengths: &Lengths) -> Rows {
        let first = self.rows(read, None, b, lengths);
        let value = &self.values[read.value];
        let span = if read.at.is_none() { lengths.steps(value.domain.time) } else { 1 };
        Rows::spanning(first.value, first.row(0) as u32, span as u32)
    }
}

impl Unfold for UnfoldPlan {
    fn unfold(&self, tensors: Vec<NamedTensor>) -> Result<Unfolded, InvalidRequest> {
        self.unfold_with(tensors, &Parameters::default())
    }

    fn unfold_with(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, InvalidRequest> {
        parameters.refuse_steps()?;
        if let Some(reason) = self.refuses_chunks {
            parameters.refuse_chunks(reason)?;
        }
        let lengths = self.lengths(&tensors)?;
        let chunk = parameters.chunk;
        if chunk != Chunk::Whole && lengths.batch > 1 {
            let text = format!("a session is one sequence, got a batch of {}", lengths.batch);
            return Err(InvalidRequest(text));
        }
        let steps: Vec<Vec<u32>> = self
            .cells
            .iter()
            .map(|cell| self.chain_lengths(cell, &tensors, &lengths))
            .collect::<Result<_, _>>()?;
        let mut graph = CellGraphBuilder::of_chunk(chunk);
        let mut inputs = Vec::new();
        for (input, tensor) in self.inputs.iter().zip(tensors) {
            check_integers(&input.name, (input.ids, input.narrow), tensor.tensor.data())?;
            let Some(value) = input.value else { continue };
            let tensor = match &input.permutation {
                Some(permutation) => tensor.tensor.permuted(permutation),
                None => tensor.tensor,
            };
            let added = self.add_input(&mut graph, value, tensor, &lengths);
            inputs.push(added);
        }
        for (value, data) in &self.constants {
            let row = &self.values[*value].row;
            let rows = data.len() / row.elements();
            let tensor = Tensor::new(vec![rows, row.elements()], data.clone());
            inputs.push(self.add_input(&mut graph, *value, tensor, &lengths));
        }
        for &(value, axis) in &self.lengths {
            let length = match axis {
                BATCH => lengths.batch,
                axis => lengths.steps(Some(axis)),
            };
            let length = TensorData::I64(vec![length as i64]);
            let tensor = Tensor::new(vec![1], length);
            inputs.push(self.add_input(&mut graph, value, tensor, &lengths));
        }
        for value in &self.values[inputs.len()..] {
            graph.value(value.row.clone(), (value.slots * lengths.rows(value.domain)) as u32);
        }
        for (cell, steps) in self.cells.iter().zip(steps) {
            let over_all = lengths.steps(cell.domain.time) as u32;
            let sequences = if cell.domain.batch { lengths.batch } else { 1 };
            for b in 0..sequences {
                let length = if steps.is_empty() { over_all } else { steps[b % steps.len()] };
                if length == 0 {
                    continue;
                }
                let ordered = |rows: Rows, way: Option<Direction>| match way {
                    Some(Direction::Reverse) => rows.reversed(length),
                    _ => rows,
                };
                let reads = |port: usize| cell.chain.as_ref().map(|order| order.reads[port]);
                let writes = |port: usize| cell.chain.as_ref().map(|order| order.writes[port]);
                if cell.is_sequence_level {
                    let reads = cell.inputs.iter().map(|&read| self.span(read, b, &lengths));
                    let sinks = cell.sinks.iter().map(|sink| {
                        let to = PlanRead { value: sink.value, at: None, slot: sink.slot };
                        Sink { port: sink.port, time: sink.time, rows: self.span(to, b, &lengths) }
                    });
                    let (reads, sinks) = (reads.collect(), sinks.collect());
                    graph.rows(cell.cell_type, 1, reads, sinks);
                    continue;
                }
                let read = |(port, read): (usize, &PlanRead)| {
                    ordered(self.rows(*read, cell.domain.time, b, &lengths), reads(port))
                };
                let reads = cell.inputs.iter().enumerate().map(read).collect();
                let sinks = cell.sinks.iter().map(|sink| {
                    let to = PlanRead { value: sink.value, at: None, slot: sink.slot };
                    let over_time = cell.domain.time.filter(|_| sink.time == SinkTime::Every);
                    let rows = ordered(self.rows(to, over_time, b, &lengths), writes(sink.port));
                    Sink { port: sink.port, time: sink.time, rows }
                });
                let sinks = sinks.collect();
                if cell.chain.as_ref().is_some_and(|order| order.keeps_state) {
                    let first = |state: &Option<PlanRead>| {
                        let read = state.filter(|_| chunk != Chunk::Next)?;
                        Some(self.rows(read, None, b, &lengths))
                    };
                    let initial = cell.initial.iter().map(first).collect();
                    graph.chain(cell.cell_type, length, reads, initial, sinks);
                } else {
                    graph.rows(cell.cell_type, length, reads, sinks);
                }
            }
        }
        let outputs: Vec<OutputTensor> = self
            .outputs
            .iter()
            .map(|output| OutputTensor {
                name: output.name.clone(),
                value: ValueIndex(output.value as u32),
                rows: None,
                shape: output.axes.iter().map(|&axis| lengths.of(axis)).collect(),
                until: None,
                permutation: output.permutation.clone(),
            })
            .collect();
        outputs.iter().for_each(|output| graph.output(output.value));
        Ok(Unfolded { graph: graph.finish(), inputs, outputs })
    }
}

impl UnfoldPlan {
    /// The steps of each sequence's chain, where they are not all there are.
    fn chain_lengths(
        &self,
        cell: &PlanCell,
        tensors: &[NamedTensor],
        lengths: &Lengths,
    ) -> Result<Vec<u32>, InvalidRequest> {
        let (name, given): (_, Vec<i64>) = match cell.chain.as_ref().map(|order| &order.lengths) {
            None | Some(SequenceLengths::All) => return Ok(Vec::new()),
            Some(SequenceLengths::Constant(lengths)) => {
                ("the model's lengths", lengths.iter().map(|&length| length as i64).collect())
            }
            Some(SequenceLengths::Input(input)) => match tensors[*input].tensor.data() {
                TensorData::I64(data) => (&*self.inputs[*input].name, data.clone()),
                TensorData::I32(data) => {
                    (&*self.inputs[*input].name, data.iter().map(|&n| n.into()).collect())
                }
                _ => unreachable!("lengths are integers"),
            },
        };
        let max = lengths.steps(cell.domain.time);
        let length = |&length: &i64| {
            let fits = usize::try_from(length).is_ok_and(|length| length <= max);
            fits.then_some(length as u32).ok_or_else(|| {
                let text = format!("tensor `{name}`: expected lengths of 0 to {max}, got {length}");
                InvalidRequest(text)
            })
        };
        given.iter().map(length).collect()
    }

    /// Adds a value that the request brings; its tensor as rows.
    fn add_input(
        &self,
        graph: &mut CellGraphBuilder,
        value: usize,
        tensor: Tensor,
        lengths: &Lengths,
    ) -> Tensor {
        let planned = &self.values[value];
        let rows = planned.slots * lengths.rows(planned.domain);
        let added = graph.input(planned.row.clone(), rows as u32);
        assert_eq!(added.index(), value, "inputs come first, in order");
        let mut shape = vec![rows];
        shape.extend(&planned.row.shape);
        tensor.reshaped(shape)
    }
}
