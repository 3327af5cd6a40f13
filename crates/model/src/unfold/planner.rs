//! From an analysed, cut file to cell types and a [`Plan`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use batchmaker_graph::{CellRegistry, RowSpec, SinkTime, TensorData};

use crate::analysis::recurrence::{Initial, Step};
use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Reading, RecurrentPort, Scope, Source};
use crate::data::layout::{Axis, Content, InputLayout};
use crate::data::symbolic::{AtomId, BATCH, Dim, Factor, steps};
use crate::emit::recurrent::cell;
use crate::emit::registration::{CellUse, LoadOptions, NewCell};
use crate::emit::{row_program, sequence_program};
use crate::partition::segment::{Cut, Part, Segment};
use crate::unfold::integers::is_wide;
use crate::unfold::unfold_plan::{
    ChainOrder, Extent, Plan, PlanAxis, PlanInput, PlanOutput, PlanRead, PlanSink, PlanStage,
    PlanValue,
};
use crate::unfold::unfolding::{ReplyTensor, RequestTensor, TensorInfo, Unfolding};

struct Planner<'a> {
    analysis: &'a Analysis,
    cut: &'a Cut,
    values: Vec<PlanValue>,
    by_reading: HashMap<Reading, usize>,
    /// The values of outputs that are stacks.
    stacked: HashMap<usize, usize>,
    /// The values of first states that the file holds.
    initial: HashMap<(usize, usize), usize>,
    /// The fewest steps along an axis that hold every step that is read by its number.
    steps_min: HashMap<AtomId, usize>,
    /// What is made or read by whole sequences: a sequence's rows stand together.
    whole: BTreeSet<Reading>,
}

/// Why an output cannot be given back: its name and the reason.
pub(crate) type OutputReason = (String, String);

/// Checks that every output's axes are ones that rows can be given back under.
pub(crate) fn check_outputs(analysis: &Analysis) -> Vec<OutputReason> {
    let mut reasons = Vec::new();
    let mut orders: HashMap<Reading, bool> = HashMap::new();
    for (name, view) in &analysis.outputs {
        if steps(&view.dims).len() > 1 {
            let shape = analysis.axes.show(&view.dims);
            reasons.push((name.clone(), format!("{shape} varies along more than one axis")));
            continue;
        }
        let mixed = view.dims.iter().any(|dim| dim.in_row() && dim.atoms().next().is_some());
        let reading = analysis.resolve(view.source, view.at);
        let joint = view.dims.iter().any(|dim| dim.atoms().count() > 1);
        let order = *orders.entry(reading).or_insert(time_first(&view.dims));
        let atoms_lead = view.dims.first().is_some_and(|dim| dim.atoms().count() > 0);
        if mixed || (joint && (order != time_first(&view.dims) || !atoms_lead)) {
            let shape = analysis.axes.show(&view.dims);
            reasons.push((name.clone(), format!("its axes {shape} mix rows and what is in them")));
        }
    }
    reasons
}

fn time_first(dims: &[Dim]) -> bool {
    dims.iter().flat_map(Dim::atoms).next().is_some_and(|first| first != BATCH)
}

fn extent(dim: &Dim) -> Extent {
    match dim.0[..] {
        [Factor::Atom(BATCH)] => Extent::Batch,
        [Factor::Atom(steps)] => Extent::Steps(steps),
        [Factor::Atom(_), ..] => Extent::Both(steps(std::slice::from_ref(dim))[0]),
        _ => Extent::Fixed(dim.fixed_part()),
    }
}

/// The order that brings the axes of rows to the front, where that is asked for with the batch first.
fn rows_first(dims: &[Dim], is_batch_first: bool) -> Option<Vec<usize>> {
    let (mut order, inside): (Vec<usize>, Vec<usize>) =
        (0..dims.len()).partition(|&axis| !dims[axis].in_row());
    if is_batch_first {
        order.sort_by_key(|&axis| dims[axis].as_atom() != Some(BATCH));
    }
    order.extend(inside);
    (!order.is_sorted()).then_some(order)
}

/// Registers the cells of a file and plans how requests use them.
pub(crate) fn plan(
    analysis: &Analysis,
    cut: &Cut,
    options: &LoadOptions,
    max_length: usize,
    registry: &mut CellRegistry,
) -> Unfolding {
    let mut planner = Planner {
        analysis,
        cut,
        values: Vec::new(),
        by_reading: HashMap::new(),
        stacked: HashMap::new(),
        initial: HashMap::new(),
        steps_min: HashMap::new(),
        whole: BTreeSet::new(),
    };
    for segment in cut.segments.iter().filter(|segment| segment.scope != Scope::Row) {
        let of = segment.inputs.iter().chain(&segment.outputs);
        planner.whole.extend(of.map(|&reading| cut.made(reading)));
    }
    let inputs = planner.inputs();
    let constants = planner.constants();
    let lengths = planner.lengths();
    planner.matrices();
    let mut stages = Vec::new();
    let mut cells = Vec::new();
    for (&stage, priority) in cut.parts.iter().zip(priorities(analysis, cut)) {
        let (planned, cell) = planner.stage(stage, priority, options, registry);
        stages.push(planned);
        cells.push(cell);
    }
    let outputs = planner.outputs();
    let mut plan = Plan {
        inputs,
        constants,
        lengths,
        stages,
        outputs,
        batch: analysis.axes.length(BATCH).filter(|_| !analysis.bound.batch_is_one()),
        axes: planner.axes(),
        max_length,
        values: planner.values,
        whole: None,
    };
    plan.whole = plan.why_whole();
    let info = |name: &str, element, dims: &[Dim]| TensorInfo {
        name: name.to_owned(),
        element,
        shape: dims.iter().map(|dim| length(analysis, dim)).collect(),
    };
    let inputs = analysis.inputs.iter().zip(&plan.inputs).map(|(input, planned)| RequestTensor {
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
    Unfolding { unfolder: Arc::new(plan), inputs, outputs, cells, max_length }
}

/// The priority of each stage's cell, from 0 on: later in the computation is higher (section 4.3 of the
/// BatchMaker paper). The number of recurrent operators upstream comes first; stages with equally many are in the
/// order in which they wait for each other. Those of which neither waits for the other may be equal.
fn priorities(analysis: &Analysis, cut: &Cut) -> Vec<i32> {
    let level = |stage: Part| match stage {
        Part::Segment(index) => 2 * cut.segments[index].level,
        Part::Recurrent(index) => 2 * analysis.recurrents[index].level + 1,
    };
    // Stages of one level on the longest path to a stage.
    let mut places: Vec<(usize, usize)> = Vec::new();
    for &stage in &cut.parts {
        let reads = match stage {
            Part::Segment(index) => cut.segments[index].inputs.clone(),
            Part::Recurrent(index) => cut.recurrent_reads(analysis, index),
        };
        let is_read = |before: Part| {
            reads.iter().any(|&reading| match (before, reading.source) {
                (Part::Recurrent(index), Source::Recurrent(read, _)) => index == read,
                (Part::Segment(index), Source::Op(..)) => {
                    cut.segments[index].outputs.contains(&cut.made(reading))
                }
                _ => false,
            })
        };
        let before = cut
            .parts
            .iter()
            .zip(&places)
            .filter(|(before, (of, _))| *of == level(stage) && is_read(**before));
        let depth = before.map(|(_, (_, depth))| depth + 1).max().unwrap_or(0);
        places.push((level(stage), depth));
    }
    let ranks: BTreeSet<(usize, usize)> = places.iter().copied().collect();
    let rank = |place: &(usize, usize)| ranks.range(..place).count() as i32;
    places.iter().map(rank).collect()
}

fn layout(input: &PlanInput, plan: &Plan) -> InputLayout {
    let axis = |&extent: &Extent| match extent {
        Extent::Fixed(extent) => Axis::Fixed(extent),
        Extent::Batch => plan.batch.map_or(Axis::Batch, Axis::Fixed),
        Extent::Steps(axis) | Extent::Both(axis) => {
            plan.axes[axis.0 as usize].length.map_or(Axis::Time, Axis::Fixed)
        }
    };
    let content = input.ids.map_or(Content::Numbers, |ids| Content::Ids(ids as u64));
    InputLayout { axes: input.axes.iter().map(axis).collect(), content, optional: false }
}

/// The axis of time, if there is one and every other is of batch or 1.
fn step_axis(input: &PlanInput) -> Option<usize> {
    let axes = &input.axes;
    let mut times = (0..axes.len()).filter(|&axis| matches!(axes[axis], Extent::Steps(_)));
    let inside = |axis: &Extent| !matches!(axis, Extent::Fixed(2..) | Extent::Both(_));
    let first = times.next()?;
    (times.next().is_none() && axes.iter().all(inside)).then_some(first)
}

/// The length of a dimension, -1 where requests choose it.
fn length(analysis: &Analysis, dim: &Dim) -> i64 {
    let factors = dim.0.iter().map(|factor| match factor {
        Factor::Fixed(n) => Some(*n as i64),
        Factor::Atom(atom) => analysis.axes.length(*atom).map(|n| n as i64),
    });
    factors.product::<Option<i64>>().unwrap_or(-1)
}

impl Planner<'_> {
    /// All axes of steps, by their atoms' ids.
    fn axes(&self) -> Vec<PlanAxis> {
        let axes = &self.analysis.axes;
        let limits = |atom| self.analysis.limits.get(&atom).copied().unwrap_or((1, usize::MAX));
        let mut planned: Vec<PlanAxis> = axes
            .all()
            .map(|atom| PlanAxis {
                length: axes.length(atom),
                min: self.steps_min.get(&atom).copied().unwrap_or(1).max(limits(atom).0),
                max: limits(atom).1,
                windows: Vec::new(),
            })
            .collect();
        for (made, of, windows) in axes.all_windows() {
            planned[made.0 as usize].windows.push((of, windows));
        }
        planned
    }

    fn add(&mut self, value: PlanValue) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// All readings of all stages and outputs.
    fn readings(&self) -> Vec<Reading> {
        let mut readings = Vec::new();
        for stage in &self.cut.parts {
            match *stage {
                Part::Segment(index) => readings.extend(&self.cut.segments[index].inputs),
                Part::Recurrent(index) => {
                    readings.extend(self.cut.recurrent_reads(self.analysis, index));
                }
            }
        }
        for (index, (_, view)) in self.analysis.outputs.iter().enumerate() {
            if !self.cut.stacks.outputs.contains_key(&index) {
                readings.push(self.analysis.resolve(view.source, view.at));
            }
        }
        readings
    }

    fn inputs(&mut self) -> Vec<PlanInput> {
        let readings = self.readings();
        let mut in_programs: Vec<Reading> =
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
            let of_input = |reading: &&Reading| reading.source == source;
            let used = stack.is_some() || readings.iter().any(|reading| of_input(&reading));
            let narrow = is_wide(input.element) && in_programs.iter().any(|r| of_input(&r));
            let value = used.then(|| {
                let mut row = row_of(self.analysis, source);
                if let Some(layers) = stack {
                    row = RowSpec::flat(row.element, row.elements() / layers);
                }
                let domain = Domain::of(&input.dims);
                let is_whole = self.whole.contains(&Reading { source, at: None });
                let time_major = time_first(&input.dims) && !is_whole;
                self.add(PlanValue { row, domain, time_major, slots: stack.unwrap_or(1) })
            });
            if let Some(value) = value {
                self.by_reading.insert(Reading { source, at: None }, value);
            }
            inputs.push(PlanInput {
                name: input.name.clone(),
                axes: input.dims.iter().map(extent).collect(),
                permutation: rows_first(
                    &input.dims,
                    self.whole.contains(&Reading { source, at: None }),
                )
                .filter(|_| stack.is_none()),
                ids: input.ids,
                narrow,
                value,
            });
        }
        inputs
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

    /// A value for each length that a program is told.
    fn lengths(&mut self) -> Vec<(usize, AtomId)> {
        let mut lengths = Vec::new();
        for reading in self.readings() {
            if let Source::Length(atom) = reading.source
                && !self.by_reading.contains_key(&reading)
            {
                let (row, domain) = (row_of(self.analysis, reading.source), Domain::default());
                let value = self.add(PlanValue { row, domain, time_major: false, slots: 1 });
                self.by_reading.insert(reading, value);
                lengths.push((value, atom));
            }
        }
        lengths
    }

    /// A value for all that is made by a stage and read by another or the reply.
    fn matrices(&mut self) {
        let mut orders: HashMap<Reading, bool> = HashMap::new();
        for (_, view) in &self.analysis.outputs {
            let reading = self.analysis.resolve(view.source, view.at);
            orders.entry(reading).or_insert(time_first(&view.dims));
        }
        for reading in self.readings() {
            let key = self.cut.made(reading);
            if self.by_reading.contains_key(&key) || matches!(key.source, Source::Input(_)) {
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
            let time_major = wanted && !self.whole.contains(&key);
            let row = row_of(self.analysis, key.source);
            let value = self.add(PlanValue { row, domain, time_major, slots: 1 });
            self.by_reading.insert(key, value);
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

    fn read(&mut self, reading: Reading) -> PlanRead {
        let key = self.cut.made(reading);
        let at = reading.at.filter(|_| key.at.is_none());
        if let Some(at) = at {
            let steps = if at < 0 { -at } else { at + 1 };
            if let Some(axis) = self.values[self.by_reading[&key]].domain.time {
                let min = self.steps_min.entry(axis).or_insert(1);
                *min = (*min).max(steps as usize);
            }
        }
        PlanRead { value: self.by_reading[&key], at, slot: 0 }
    }

    fn stage(
        &mut self,
        stage: Part,
        priority: i32,
        options: &LoadOptions,
        registry: &mut CellRegistry,
    ) -> (PlanStage, CellUse) {
        match stage {
            Part::Recurrent(index) => self.recurrent(index, priority, options, registry),
            Part::Segment(index) => {
                let segment = &self.cut.segments[index];
                self.segment(segment, priority, options, registry)
            }
        }
    }

    fn recurrent(
        &mut self,
        index: usize,
        priority: i32,
        options: &LoadOptions,
        registry: &mut CellRegistry,
    ) -> (PlanStage, CellUse) {
        let recurrent = &self.analysis.recurrents[index];
        let lookup = self.cut.lookup_table(self.analysis, index);
        let (cell, why, fused) = cell(recurrent, lookup);
        let used = options.register(
            registry,
            &NewCell { name: &recurrent.label, cell: &cell, priority, fused, why: &why },
            None,
            None,
        );
        let reads = self.cut.step_reads(self.analysis, index);
        let inputs = reads.into_iter().map(|reading| self.read(reading)).collect();
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
                        let reading = Reading { source, at: None };
                        Some(PlanRead { value: self.by_reading[&reading], at: None, slot })
                    }
                    None => Some(self.read(self.analysis.resolve(view.source, view.at))),
                },
            })
            .collect();
        let mut sinks = Vec::new();
        let ports = 0..recurrent.directions.len();
        for port in ports.flat_map(|port| [RecurrentPort::Every(port), RecurrentPort::Last(port)]) {
            let reading = Reading { source: Source::Recurrent(index, port), at: None };
            let time = if port.is_every() { SinkTime::Every } else { SinkTime::Last };
            let number = port.number();
            if let Some(&value) = self.by_reading.get(&reading) {
                sinks.push(PlanSink { port: number, time, value, slot: 0 });
            }
            let mut stacks: Vec<_> = self.cut.stacks.outputs.iter().collect();
            stacks.sort_by_key(|(output, _)| **output);
            for (output, layers) in stacks {
                let value = self.stacked[output];
                let slots = (0..layers.len()).filter(|&slot| layers[slot] == (index, port));
                sinks.extend(slots.map(|slot| PlanSink { port: number, time, value, slot }));
            }
        }
        let domain = recurrent.domain;
        let cell_type = used.cell_type;
        let chain = Some(ChainOrder {
            reads: recurrent.inputs.iter().map(|(_, direction)| *direction).collect(),
            writes: recurrent.directions.clone(),
            lengths: recurrent.lengths.clone(),
            keeps_state: recurrent.keeps_state(),
        });
        (PlanStage { cell_type, chain, whole: false, domain, inputs, initial, sinks }, used)
    }

    fn segment(
        &mut self,
        segment: &Segment,
        priority: i32,
        options: &LoadOptions,
        registry: &mut CellRegistry,
    ) -> (PlanStage, CellUse) {
        let last = segment.instances.last().expect("a segment of nothing");
        let name = &self.analysis.ops[last.op].label;
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
        let why = format!("{what}, {over}, at level {}: {}", segment.level, labels.join(", "));
        let cell = match segment.scope {
            Scope::Row => row_program::build(self.analysis, segment),
            _ => {
                sequence_program::build(self.analysis, segment).expect("it was built to be checked")
            }
        };
        let used = options.register(
            registry,
            &NewCell { name, cell: &cell, priority, fused: false, why: &why },
            None,
            None,
        );
        let inputs = segment.inputs.iter().map(|&reading| self.read(reading)).collect();
        let sinks = segment
            .outputs
            .iter()
            .enumerate()
            .map(|(port, reading)| PlanSink {
                port,
                time: SinkTime::Every,
                value: self.by_reading[reading],
                slot: 0,
            })
            .collect();
        let planned = PlanStage {
            cell_type: used.cell_type,
            chain: None,
            whole: segment.scope != Scope::Row,
            domain: segment.domain,
            inputs,
            initial: Vec::new(),
            sinks,
        };
        (planned, used)
    }

    fn outputs(&mut self) -> Vec<PlanOutput> {
        let mut outputs = Vec::new();
        for (index, (name, view)) in self.analysis.outputs.iter().enumerate() {
            if let Some(&value) = self.stacked.get(&index) {
                let axes = view.dims.iter().map(extent).collect();
                outputs.push(PlanOutput { name: name.clone(), value, axes, permutation: None });
                continue;
            }
            let value = self.by_reading[&self.analysis.resolve(view.source, view.at)];
            let planned = &self.values[value];
            // The value's own axes: those of its rows in their order, then a row's.
            let dims = &view.dims;
            let mut own: Vec<usize> = (0..dims.len()).filter(|&a| !dims[a].in_row()).collect();
            if own.len() == 2 && time_first(dims) != planned.time_major {
                own.reverse();
            }
            own.extend((0..dims.len()).filter(|&axis| dims[axis].in_row()));
            let axes = own.iter().map(|&axis| extent(&dims[axis])).collect();
            // Axis `i` of the reply is axis `permutation[i]` of the value.
            let mut permutation = vec![0; own.len()];
            own.iter().enumerate().for_each(|(i, &axis)| permutation[axis] = i);
            let permutation = (!permutation.is_sorted()).then_some(permutation);
            outputs.push(PlanOutput { name: name.clone(), value, axes, permutation });
        }
        outputs
    }
}
