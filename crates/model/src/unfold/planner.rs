//! Registers the cells of an analysed, cut file, and makes its [`UnfoldPlan`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use batchmaker_graph::{Cell, CellRegistry, CellTypeId, RowSpec, SinkTime, TensorData};

use crate::analysis::derivation::DerivedOperand;
use crate::analysis::index_check::CheckKind;
use crate::analysis::reach::{Dependence, dependence, dependences};
use crate::analysis::recurrence::{Initial, Step};
use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, RecurrentPort, Scope, Source, ValueRef};
use crate::data::dim::{Dim, steps};
use crate::data::symbol::{BATCH, Symbol};
use crate::emit::recurrent::cell;
use crate::emit::registration::{LoadOptions, NewCell};
use crate::emit::{row_segment, sequence_segment};
use crate::partition::guards::OpGuard;
use crate::partition::segment::{Cut, Part, Segment};
use crate::unfold::cell_names::CellNames;
use crate::unfold::integers::is_wide;
use crate::unfold::interface::{extent, layout, length, rows_first, step_axis, time_first};
use crate::unfold::plan::{
    ChainOrder, Overlap, PlanAxis, PlanCell, PlanCheck, PlanGuard, PlanInput, PlanOutput, PlanRead,
    PlanSink, PlanValue, UnfoldPlan,
};
use crate::unfold::priorities::priorities;
use crate::unfold::unfolding::{ReplyTensor, RequestTensor, Takes, TensorInfo, Unfolding};

struct Planner<'a> {
    analysis: &'a Analysis,
    cut: &'a Cut,
    values: Vec<PlanValue>,
    by_reference: HashMap<ValueRef, usize>,
    /// The values of outputs that are stacks.
    stacked: HashMap<usize, usize>,
    /// The values of first states that the file holds.
    initial: HashMap<(usize, usize), usize>,
    /// The fewest steps along an axis that hold every step that is read by its number.
    steps_min: HashMap<Symbol, usize>,
    /// Values that sequence-level cells write or read: a sequence's rows stand together.
    sequence_level: BTreeSet<ValueRef>,
}

/// The plan of a file, and the unfolding that walks it.
pub(crate) struct Planned {
    pub(crate) plan: Arc<UnfoldPlan>,
    pub(crate) unfolding: Unfolding,
}

/// The cell of a part of a file.
struct PartCell {
    /// The label of its recurrent node, or of the last node of its segment.
    label: String,
    cell: Cell,
    stage: usize,
    fused: bool,
    description: String,
}

/// Registers the cells of a file and plans how requests use them.
pub(crate) fn plan(
    analysis: &Analysis,
    cut: &Cut,
    options: &LoadOptions,
    max_length: usize,
    registry: &mut CellRegistry,
    names: &mut CellNames,
) -> Planned {
    let mut planner = Planner {
        analysis,
        cut,
        values: Vec::new(),
        by_reference: HashMap::new(),
        stacked: HashMap::new(),
        initial: HashMap::new(),
        steps_min: HashMap::new(),
        sequence_level: BTreeSet::new(),
    };
    for segment in cut.segments.iter().filter(|segment| segment.scope != Scope::Row) {
        let of = segment.inputs.iter().chain(&segment.outputs);
        planner.sequence_level.extend(of.map(|&reference| cut.produced(reference)));
    }
    let inputs = planner.inputs();
    let constants = planner.constants();
    let lengths = planner.lengths();
    planner.matrices();
    let mut cells = Vec::new();
    let mut used = Vec::new();
    for (&part, priority) in cut.parts.iter().zip(priorities(analysis, cut)) {
        let PartCell { label, cell, stage, fused, description } = planner.cell_of(part);
        let name = names.name(&label, &cell);
        let (name, cell, description) = (&*name, &cell, &*description);
        let new = NewCell { name, cell, stage, priority, fused, description };
        let cell = options.register(registry, &new, None, None);
        cells.push(planner.part(part, cell.cell_type));
        used.push(cell);
    }
    let mut outputs = planner.outputs();
    let first = analysis.outputs.len() - analysis.checks.len();
    let checks = outputs.drain(first..).zip(&analysis.checks).map(|(output, check)| PlanCheck {
        value: output.value,
        low: check.low.clone(),
        high: check.high.clone(),
        reason: check.reason.clone(),
        is_of_indices: check.kind == CheckKind::Index,
    });
    let checks = checks.collect();
    let overlap =
        Overlap::of(&analysis.axes, (&planner.values, &cells, &outputs), &planner.dependences());
    let mut plan = UnfoldPlan {
        inputs,
        constants,
        lengths,
        cells,
        outputs,
        checks,
        not_negative: analysis.not_negative.clone(),
        batch: analysis.axes.length(BATCH).filter(|_| !analysis.bound.batch_is_one()),
        axes: planner.axes(),
        max_length,
        values: planner.values,
        overlap,
        refuses_chunks: None,
    };
    plan.refuses_chunks = plan.why_no_chunks();
    let info = |name: &str, element, dims: &[Dim]| TensorInfo {
        name: name.to_owned(),
        element,
        shape: dims.iter().map(|dim| length(analysis, dim)).collect(),
    };
    let inputs = analysis.inputs.iter().zip(&plan.inputs);
    let inputs = inputs.filter(|(input, _)| input.derived.is_none());
    let inputs = inputs.map(|(input, planned)| RequestTensor {
        info: info(&input.name, input.element, &input.dims),
        layout: layout(planned, &plan),
        step_axis: step_axis(planned),
    });
    let outputs = analysis.outputs.iter().zip(&plan.outputs);
    let outputs = outputs.map(|((name, view), planned)| ReplyTensor {
        info: info(name, view.element, &view.dims),
        batch_axis: planned.batch_axis(),
    });
    let (inputs, outputs) = (inputs.collect(), outputs.collect());
    let plan = Arc::new(plan);
    let (unfolder, takes) = (plan.clone(), Takes::ALL);
    let unfolding = Unfolding { unfolder, inputs, outputs, cells: used, max_length, takes };
    Planned { plan, unfolding }
}

impl Planner<'_> {
    /// What the steps of each value depend on.
    fn dependences(&self) -> HashMap<usize, Dependence> {
        let known = dependences(self.analysis);
        let values = self.by_reference.iter().filter(|(reference, _)| reference.at.is_none());
        values
            .map(|(reference, &value)| (value, dependence(self.analysis, reference.source, &known)))
            .collect()
    }

    /// All axes of steps, by their symbols' ids.
    fn axes(&self) -> Vec<PlanAxis> {
        let axes = &self.analysis.axes;
        let limits = |symbol| self.analysis.limits.get(&symbol).copied().unwrap_or((1, usize::MAX));
        let mut planned: Vec<PlanAxis> = axes
            .all()
            .map(|symbol| PlanAxis {
                length: axes.length(symbol),
                min: self.steps_min.get(&symbol).copied().unwrap_or(1).max(limits(symbol).0),
                max: limits(symbol).1,
                windows: Vec::new(),
                factors: Some(axes.factors(symbol)).filter(|of| of.len() > 1).unwrap_or_default(),
            })
            .collect();
        for (produced, of, windows) in axes.all_windows() {
            planned[produced.0 as usize].windows.push((of, windows));
        }
        planned
    }

    fn add(&mut self, value: PlanValue) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// All values that parts and outputs read.
    fn references(&self) -> Vec<ValueRef> {
        let mut references = Vec::new();
        for part in &self.cut.parts {
            match *part {
                Part::Segment(index) => {
                    let segment = &self.cut.segments[index];
                    references.extend(&segment.inputs);
                    references.extend(segment.guard.map(|guard| guard.condition));
                }
                Part::Recurrent(index) => {
                    references.extend(self.cut.recurrent_reads(self.analysis, index));
                }
            }
        }
        for (index, (_, view)) in self.analysis.outputs.iter().enumerate() {
            if !self.cut.stacks.outputs.contains_key(&index) {
                references.push(self.analysis.resolve(view.source, view.at));
            }
            let others = self.cut.choices[index].others.iter();
            references.extend(others.flat_map(|&(condition, other)| [condition, other]));
        }
        references
    }

    fn inputs(&mut self) -> Vec<PlanInput> {
        let references = self.references();
        let mut in_programs: Vec<ValueRef> =
            self.cut.segments.iter().flat_map(|segment| segment.inputs.iter().copied()).collect();
        for (index, recurrent) in self.analysis.recurrents.iter().enumerate() {
            if matches!(recurrent.step, Step::Body(_)) {
                in_programs.extend(self.cut.recurrent_reads(self.analysis, index));
            }
        }
        let mut inputs = Vec::new();
        for (index, input) in self.analysis.inputs.iter().enumerate() {
            let source = Source::Input(index);
            let stack = self.cut.stacks.inputs.get(&index).copied();
            let of_input = |reference: &&ValueRef| reference.source == source;
            let used = stack.is_some() || references.iter().any(|reference| of_input(&reference));
            let narrow = is_wide(input.element) && in_programs.iter().any(|r| of_input(&r));
            let value = used.then(|| {
                let mut row = row_of(self.analysis, source);
                if let Some(layers) = stack {
                    row = RowSpec::flat(row.element, row.elements() / layers);
                }
                let domain = self.analysis.domain_of(&input.dims);
                let is_sequence_level =
                    self.sequence_level.contains(&ValueRef { source, at: None });
                let time_major = time_first(&input.dims) && !is_sequence_level;
                self.add(PlanValue { row, domain, time_major, slots: stack.unwrap_or(1) })
            });
            if let Some(value) = value {
                self.by_reference.insert(ValueRef { source, at: None }, value);
            }
            inputs.push(PlanInput {
                name: input.name.clone(),
                derived: input.derived.clone(),
                axes: input.dims.iter().map(extent).collect(),
                permutation: rows_first(
                    &input.dims,
                    self.sequence_level.contains(&ValueRef { source, at: None }),
                )
                .filter(|_| stack.is_none()),
                ids: input.ids,
                narrow,
                value,
            });
        }
        self.derived_steps();
        inputs
    }

    /// Notes the steps that derived inputs read by their numbers.
    fn derived_steps(&mut self) {
        let analysis = self.analysis;
        let derived = analysis.inputs.iter().filter_map(|input| input.derived.as_ref());
        for operand in derived.flat_map(|derived| &derived.operands) {
            if let DerivedOperand::Rows { input, at: Some(at), .. } = operand
                && let Some(axis) = analysis.domain(Source::Input(*input)).time
            {
                self.need_step(axis, *at);
            }
        }
    }

    /// Notes that requests need enough steps along an axis for step `at`; below 0: from the end.
    fn need_step(&mut self, axis: Symbol, at: i64) {
        let steps = if at < 0 { at.unsigned_abs() } else { at as u64 + 1 };
        let min = self.steps_min.entry(axis).or_insert(1);
        *min = (*min).max(steps as usize);
    }

    fn constants(&mut self) -> Vec<(usize, TensorData)> {
        let mut constants = Vec::new();
        for (index, recurrent) in self.analysis.recurrents.iter().enumerate() {
            for (state, initial) in recurrent.initial.iter().enumerate() {
                if let Initial::Constant { rows, data } = initial {
                    let elements = data.shape().iter().product::<usize>() / rows;
                    let row = RowSpec::flat(data.element(), elements);
                    let domain = Domain { time: None, batch: *rows > 1 };
                    let planned = PlanValue { row, domain, time_major: false, slots: 1 };
                    let value = self.add(planned);
                    self.initial.insert((index, state), value);
                    constants.push((value, data.data().expect("a first state is of numbers")));
                }
            }
        }
        constants
    }

    /// Adds a value for each length that a cell reads.
    fn lengths(&mut self) -> Vec<(usize, Symbol)> {
        let mut lengths = Vec::new();
        for reference in self.references() {
            if let Source::Length(symbol) = reference.source
                && !self.by_reference.contains_key(&reference)
            {
                let (row, domain) = (row_of(self.analysis, reference.source), Domain::default());
                let value = self.add(PlanValue { row, domain, time_major: false, slots: 1 });
                self.by_reference.insert(reference, value);
                lengths.push((value, symbol));
            }
        }
        lengths
    }

    /// Adds a value for each matrix that a cell writes and another or the reply reads.
    fn matrices(&mut self) {
        let mut orders: HashMap<ValueRef, bool> = HashMap::new();
        for (_, view) in &self.analysis.outputs {
            let reference = self.analysis.resolve(view.source, view.at);
            orders.entry(reference).or_insert(time_first(&view.dims));
        }
        for reference in self.references() {
            let key = self.cut.produced(reference);
            if self.by_reference.contains_key(&key) || matches!(key.source, Source::Input(_)) {
                continue;
            }
            let domain = match key.source {
                Source::Op(op, _) if self.analysis.ops[op].scope == Scope::Row => {
                    let instance = crate::partition::segment::Instance { op, at: key.at };
                    self.analysis.instance_domain(instance)
                }
                source => self.analysis.domain(source),
            };
            let wanted = orders.get(&key).copied().unwrap_or(false);
            let time_major = wanted && !self.sequence_level.contains(&key);
            let row = row_of(self.analysis, key.source);
            let value = self.add(PlanValue { row, domain, time_major, slots: 1 });
            self.by_reference.insert(key, value);
        }
        for (&output, layers) in &self.cut.stacks.outputs {
            let (first, port) = layers[0];
            let source = Source::Recurrent(first, port);
            let value = PlanValue {
                row: row_of(self.analysis, source),
                domain: self.analysis.domain(source),
                time_major: false,
                slots: layers.len(),
            };
            self.values.push(value);
            self.stacked.insert(output, self.values.len() - 1);
        }
    }

    fn read(&mut self, reference: ValueRef) -> PlanRead {
        let key = self.cut.produced(reference);
        let at = reference.at.filter(|_| key.at.is_none());
        if let Some(at) = at
            && let Some(axis) = self.values[self.by_reference[&key]].domain.time
        {
            self.need_step(axis, at);
        }
        PlanRead { value: self.by_reference[&key], at, slot: 0 }
    }

    /// The cell of a part.
    fn cell_of(&self, part: Part) -> PartCell {
        match part {
            Part::Recurrent(index) => {
                let recurrent = &self.analysis.recurrents[index];
                let lookup = self.cut.lookup_table(self.analysis, index);
                let (cell, description, fused) = cell(recurrent, lookup);
                PartCell { label: recurrent.label.clone(), cell, stage: 0, fused, description }
            }
            Part::Segment(index) => self.cell_of_segment(&self.cut.segments[index]),
        }
    }

    fn cell_of_segment(&self, segment: &Segment) -> PartCell {
        let last = segment.instances.last().expect("a segment of nothing");
        let over = match (segment.domain.time, segment.domain.batch) {
            (Some(_), _) => "every step",
            (None, true) => "once a sequence",
            (None, false) => "once a request",
        };
        let mut labels: Vec<&str> = Vec::new();
        for instance in &segment.instances {
            let label = self.analysis.ops[instance.op].label.as_str();
            if labels.last() != Some(&label) {
                labels.push(label);
            }
        }
        let what = match segment.scope {
            Scope::Row => "row-wise",
            Scope::Sequence | Scope::Request => "over whole sequences",
        };
        let condition = segment.guard.and_then(|guard| match guard.condition.source {
            Source::Op(op, _) => Some((guard.when, &self.analysis.ops[op].label)),
            _ => None,
        });
        let only = condition
            .map_or(String::new(), |(when, label)| format!(", only where {label} gives {when}"));
        let description = format!(
            "{what}, {over}{only}, at recurrence depth {}: {}",
            segment.recurrence_depth,
            labels.join(", ")
        );
        let cell = match segment.scope {
            Scope::Row => row_segment::compile(self.analysis, segment),
            _ => sequence_segment::compile(self.analysis, segment)
                .expect("it was built to be checked"),
        };
        PartCell {
            label: self.analysis.ops[last.op].label.clone(),
            cell,
            stage: segment.stage,
            fused: false,
            description,
        }
    }

    fn part(&mut self, part: Part, cell_type: CellTypeId) -> PlanCell {
        match part {
            Part::Recurrent(index) => self.recurrent(index, cell_type),
            Part::Segment(index) => self.segment(&self.cut.segments[index], cell_type),
        }
    }

    fn recurrent(&mut self, index: usize, cell_type: CellTypeId) -> PlanCell {
        let recurrent = &self.analysis.recurrents[index];
        let reads = self.cut.step_reads(self.analysis, index);
        let inputs = reads.into_iter().map(|reference| self.read(reference)).collect();
        let initial = recurrent
            .initial
            .iter()
            .enumerate()
            .map(|(state, initial)| match initial {
                Initial::Zeros => None,
                Initial::Constant { .. } => {
                    Some(PlanRead { value: self.initial[&(index, state)], at: None, slot: 0 })
                }
                Initial::View(view) => match self.cut.stacks.initial.get(&(index, state)) {
                    Some(&(input, slot)) => {
                        let source = Source::Input(input);
                        let reference = ValueRef { source, at: None };
                        Some(PlanRead { value: self.by_reference[&reference], at: None, slot })
                    }
                    None => Some(self.read(self.analysis.resolve(view.source, view.at))),
                },
            })
            .collect();
        let mut sinks = Vec::new();
        let ports = 0..recurrent.directions.len();
        for port in ports.flat_map(|port| [RecurrentPort::Every(port), RecurrentPort::Last(port)]) {
            let reference = ValueRef { source: Source::Recurrent(index, port), at: None };
            let time = if port.is_every() { SinkTime::Every } else { SinkTime::Last };
            let number = port.number();
            if let Some(&value) = self.by_reference.get(&reference) {
                sinks.push(PlanSink { port: number, time, value, slot: 0 });
            }
            for (output, layers) in &self.cut.stacks.outputs {
                let value = self.stacked[output];
                let slots = (0..layers.len()).filter(|&slot| layers[slot] == (index, port));
                sinks.extend(slots.map(|slot| PlanSink { port: number, time, value, slot }));
            }
        }
        let domain = recurrent.domain;
        let chain = Some(ChainOrder {
            reads: recurrent.inputs.iter().map(|(_, direction)| *direction).collect(),
            writes: recurrent.directions.clone(),
            lengths: recurrent.lengths.clone(),
            keeps_state: recurrent.keeps_state(),
        });
        let (is_sequence_level, guard) = (false, None);
        PlanCell { cell_type, chain, is_sequence_level, domain, inputs, initial, sinks, guard }
    }

    fn segment(&mut self, segment: &Segment, cell_type: CellTypeId) -> PlanCell {
        let inputs = segment.inputs.iter().map(|&reference| self.read(reference)).collect();
        let sinks = segment
            .outputs
            .iter()
            .enumerate()
            .map(|(port, reference)| PlanSink {
                port,
                time: SinkTime::Every,
                value: self.by_reference[reference],
                slot: 0,
            })
            .collect();
        PlanCell {
            cell_type,
            chain: None,
            is_sequence_level: segment.scope != Scope::Row,
            domain: segment.domain,
            inputs,
            initial: Vec::new(),
            sinks,
            guard: segment.guard.map(|OpGuard { condition, when }| PlanGuard {
                condition: self.by_reference[&self.cut.produced(condition)],
                when,
            }),
        }
    }

    fn outputs(&mut self) -> Vec<PlanOutput> {
        let mut outputs = Vec::new();
        for (index, (name, view)) in self.analysis.outputs.iter().enumerate() {
            if let Some(&value) = self.stacked.get(&index) {
                let axes = view.dims.iter().map(extent).collect();
                let (name, permutation, choices) = (name.clone(), None, Vec::new());
                outputs.push(PlanOutput { name, value, axes, permutation, choices });
                continue;
            }
            let value_of = |reference: &ValueRef| self.by_reference[&self.cut.produced(*reference)];
            let others = self.cut.choices[index].others.iter();
            let choices = others.map(|(condition, other)| (value_of(condition), value_of(other)));
            let choices = choices.collect();
            let value = self.by_reference[&self.analysis.resolve(view.source, view.at)];
            let planned = &self.values[value];
            // The value's own axes: those of its rows in their order, then a row's.
            let dims = &view.dims;
            let mut own: Vec<usize> = (0..dims.len()).filter(|&a| !dims[a].in_row()).collect();
            if steps(dims).len() > 1 {
                own.sort_by_key(|&axis| dims[axis].as_symbol());
            } else if own.len() == 2 && time_first(dims) != planned.time_major {
                own.reverse();
            }
            own.extend((0..dims.len()).filter(|&axis| dims[axis].in_row()));
            let axes = own.iter().map(|&axis| extent(&dims[axis])).collect();
            // Axis `i` of the reply is axis `permutation[i]` of the value.
            let mut permutation = vec![0; own.len()];
            own.iter().enumerate().for_each(|(i, &axis)| permutation[axis] = i);
            let permutation = (!permutation.is_sorted()).then_some(permutation);
            outputs.push(PlanOutput { name: name.clone(), value, axes, permutation, choices });
        }
        outputs
    }
}
