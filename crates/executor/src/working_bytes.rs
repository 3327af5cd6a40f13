//! An upper bound of the bytes that a run of a program allocates, and the largest batch that stays below a bound.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rten_onnx::onnx::GraphProto;

use crate::lengths::Lengths;
use crate::memory_plan::MemoryPlan;
use crate::port::Port;
use crate::probe::{Probe, ShapeGrowth};
use crate::shape_check::ShapeCheck;
use crate::single_row::{SingleRow, SingleRowBranch};
use crate::single_row_branch::Copies;

/// The most bytes that a batch of several rows or sequences takes, unless a program is given another bound: its inputs, and
/// what its run allocates. A batch of one row or sequence may take more.
pub const BATCH_BYTES_MAX: u64 = 64 << 20;

/// The most rows or sequences of a batch that are looked for.
const BATCH_MAX: u64 = 4096;

/// The most lists of spans that are remembered. The memory is cleared when it is full.
const KNOWN_SPANS_MAX: usize = 4096;

/// The bytes that runs of a program take.
pub(crate) struct WorkingBytes {
    rule: Rule,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    is_batched: bool,
    /// The most bytes of a batch of several.
    batch_bytes_max: u64,
    /// What is known of lists of spans: of the input ports, then of the output ports.
    known: Mutex<BTreeMap<Vec<u32>, Known>>,
}

/// What is known of rows or sequences of some spans.
#[derive(Clone, Copy)]
struct Known {
    /// Bytes that a run of one allocates beside its inputs.
    one: u64,
    /// The number of a batch that stays below the bound, or 1.
    batch_max: u64,
}

enum Rule {
    /// By the operators of a run.
    Planned(Box<Plans>),
    /// The program took none of the lengths that it was tried with. Each of its operators is taken to allocate as many
    /// bytes as its ports have, or a square of the longest span, whichever is more.
    Unknown { operators: u64 },
}

struct Plans {
    lengths: Lengths,
    /// Of several rows or sequences, and of one that is run like them.
    batch: MemoryPlan,
    single: Single,
}

/// How one row or sequence is run: see [`SingleRow`].
enum Single {
    Plain,
    Twice,
    Branch {
        plan: MemoryPlan,
        checks: Vec<ShapeCheck>,
        /// The shapes that are checked.
        shapes: Vec<Option<ShapeGrowth>>,
    },
}

/// A dimension of at most this size may be 1: sizes are upper bounds.
const MAY_BE_ONE: f64 = 3.0;

impl WorkingBytes {
    /// The bytes of runs of the program `graph`, to which `single_row` has added its branch.
    pub(crate) fn new(
        graph: &GraphProto,
        probe: Option<&Probe>,
        single_row: &SingleRow,
        inputs: &[Port],
        outputs: &[Port],
    ) -> Self {
        let rule = match probe {
            Some(probe) => {
                Rule::Planned(Box::new(Plans::new(graph, probe, single_row, inputs, outputs)))
            }
            None => Rule::Unknown { operators: graph.node.len() as u64 },
        };
        Self::by_rule(rule, inputs, outputs)
    }

    /// The bytes of runs of a program that was cut into sections. `graph` has its operators in their order; `copies` maps
    /// tensors in another layout to those of the file; a section needs up to `scratch_bytes` beside its tensors.
    pub(crate) fn of_sections(
        graph: &GraphProto,
        probe: &Probe,
        (copies, scratch_bytes): (&Copies, u64),
        inputs: &[Port],
        outputs: &[Port],
    ) -> Self {
        let names: Vec<String> = (0..outputs.len()).map(|port| format!("out{port}")).collect();
        let mut batch = MemoryPlan::new(graph, probe, copies, inputs.len(), &names);
        batch.scratch_bytes = scratch_bytes;
        let plans = Plans { lengths: probe.lengths().clone(), batch, single: Single::Plain };
        Self::by_rule(Rule::Planned(Box::new(plans)), inputs, outputs)
    }

    fn by_rule(rule: Rule, inputs: &[Port], outputs: &[Port]) -> Self {
        let is_batched = inputs.iter().chain(outputs).all(|port| port.axes.batch);
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let (batch_bytes_max, known) = (BATCH_BYTES_MAX, Mutex::default());
        Self { rule, inputs, outputs, is_batched, batch_bytes_max, known }
    }

    /// Bounds a batch of several rows or sequences by `bytes`.
    pub(crate) fn bound_batches(&mut self, bytes: u64) {
        self.batch_bytes_max = bytes;
        self.known = Mutex::default();
    }

    /// Forgets how one row or sequence is run: it is run twice, as a batch of two.
    pub(crate) fn run_twice(&mut self) {
        if let Rule::Planned(plans) = &mut self.rule {
            plans.single = Single::Twice;
        }
    }

    /// Has each row or sequence run by itself.
    pub(crate) fn run_alone(&mut self) {
        self.is_batched = false;
    }

    /// Bytes that a run of one row or sequence allocates beside its inputs. `spans` has the rows of the input ports,
    /// then of the output ports.
    pub(crate) fn of_one(&self, spans: &[u32]) -> u64 {
        self.known(spans).one
    }

    /// The number of rows or sequences that run together within the bound, at least 1.
    pub(crate) fn batch_max(&self, spans: &[u32]) -> u64 {
        self.known(spans).batch_max
    }

    /// Bytes of the inputs of `count` rows or sequences.
    pub(crate) fn of_inputs(&self, count: u64, spans: &[u32]) -> u64 {
        let bytes = self.inputs.iter().zip(spans).map(|(port, &span)| port.bytes(count, span));
        bytes.fold(0, u64::saturating_add)
    }

    fn known(&self, spans: &[u32]) -> Known {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = known().get(spans) {
            return known;
        }
        let batch_max = if self.is_batched { self.find_batch_max(spans) } else { 1 };
        let found = Known { one: self.find_one(spans), batch_max };
        let mut known = known();
        if known.len() == KNOWN_SPANS_MAX {
            known.clear();
        }
        known.insert(spans.to_vec(), found);
        found
    }

    fn find_one(&self, spans: &[u32]) -> u64 {
        let inputs = self.of_inputs(1, spans);
        // The inputs are copied behind themselves, and the run takes both copies.
        let twice = || inputs.saturating_mul(2).saturating_add(self.of_batch(2, spans));
        let Rule::Planned(plans) = &self.rule else {
            return if self.is_batched { twice() } else { self.of_batch(1, spans) };
        };
        match &plans.single {
            Single::Plain => self.of_batch(1, spans),
            Single::Twice if self.is_batched => twice(),
            Single::Twice => self.of_batch(1, spans),
            Single::Branch { plan, checks, shapes } => {
                let lengths = plans.lengths.of(spans);
                let once = plan.bytes(1, &lengths, &self.inputs, &self.outputs);
                if checks.is_empty() {
                    return once;
                }
                // The first run with these lengths keeps the inputs, to run again if a check fails.
                let once = once.saturating_add(inputs);
                let shapes: Option<Vec<_>> =
                    shapes.iter().map(|shape| Some(smallest(shape.as_ref()?, &lengths))).collect();
                let may_fail = shapes
                    .is_none_or(|shapes| checks.iter().any(|check| check.is_sensitive(&shapes)));
                if may_fail { once.max(twice()) } else { once }
            }
        }
    }

    /// Bytes that a run of `count` rows or sequences, run like several, allocates beside its inputs.
    fn of_batch(&self, count: u64, spans: &[u32]) -> u64 {
        match &self.rule {
            Rule::Planned(plans) => {
                let lengths = plans.lengths.of(spans);
                plans.batch.bytes(count, &lengths, &self.inputs, &self.outputs)
            }
            Rule::Unknown { operators } => {
                let ports = self.inputs.iter().chain(&self.outputs).zip(spans);
                let ports = ports.map(|(port, &span)| port.bytes(count, span));
                let longest = u64::from(spans.iter().copied().max().unwrap_or(1));
                let square = longest.saturating_mul(longest).saturating_mul(4 * count);
                let largest = ports.fold(0, u64::saturating_add).max(square);
                largest.saturating_mul(*operators)
            }
        }
    }

    fn find_batch_max(&self, spans: &[u32]) -> u64 {
        let bytes = |count: u64| {
            let inputs = self.of_inputs(count, spans);
            inputs.saturating_add(self.of_batch(count, spans))
        };
        let most = bytes(BATCH_MAX);
        let bytes_max = self.batch_bytes_max;
        if most <= bytes_max {
            return BATCH_MAX;
        }
        // Bytes grow about as the number does, but for those of weights.
        let mut count = (bytes_max / (most / BATCH_MAX).max(1)).clamp(1, BATCH_MAX);
        while count > 1 && bytes(count) > bytes_max {
            count -= count.div_ceil(8);
        }
        count.max(1)
    }
}

impl Plans {
    fn new(
        graph: &GraphProto,
        probe: &Probe,
        single_row: &SingleRow,
        inputs: &[Port],
        outputs: &[Port],
    ) -> Self {
        let none = BTreeMap::new();
        let copies = match single_row {
            SingleRow::Branch(branch) => &branch.copies,
            SingleRow::Plain | SingleRow::Twice => &none,
        };
        let plan =
            |outputs: &[String]| MemoryPlan::new(graph, probe, copies, inputs.len(), outputs);
        let own: Vec<String> = (0..outputs.len()).map(|port| format!("out{port}")).collect();
        let single = match single_row {
            SingleRow::Plain => Single::Plain,
            SingleRow::Twice => Single::Twice,
            SingleRow::Branch(SingleRowBranch { outputs, shapes, checks, copies }) => {
                let outputs: Vec<String> =
                    outputs.iter().map(|output| output.name.clone()).collect();
                let shape = |name: &String| {
                    let (of, _) = copies.get(name).unwrap_or(&(name.clone(), false)).clone();
                    probe.growth(&of).cloned()
                };
                let shapes = shapes.iter().map(shape).collect();
                Single::Branch { plan: plan(&outputs), checks: checks.clone(), shapes }
            }
        };
        Self { lengths: probe.lengths().clone(), batch: plan(&own), single }
    }
}

/// A shape with ones where the dimensions may be 1.
fn smallest(shape: &ShapeGrowth, lengths: &[f64]) -> Vec<usize> {
    let dim = |size: f64| if size <= MAY_BE_ONE { 1 } else { size as usize };
    shape.dims.iter().map(|growth| dim(growth.at(lengths))).collect()
}
