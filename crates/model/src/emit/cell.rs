//! An analysed cell, cut and compiled: row by row, as one program or as operations one after the other.

use std::collections::BTreeMap;

use batchmaker_graph::{
    Cell, CellBody, CompositeCell, ElementType, Operation, OperationBody, Precision, RowSpec,
};

use crate::analysis::ids::id_bound;
use crate::analysis::recurrence::{Initial, SequenceLengths, operator_name};
use crate::analysis::references::{needed, row_of};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, RecurrentPort, Scope, Source, ValueRef, View};
use crate::data::dim::row_shape;
use crate::data::named_cell::{CellInput, CellOutput, NamedCell};
use crate::emit::recognise::tree_lstm::{Recognised, through_copies};
use crate::emit::recurrent::fused_step;
use crate::emit::row_segment;
use crate::emit::step_program::step_program;
use crate::error::{Diagnostic, LoadError};
use crate::partition::arg_max::{self, ArgMax};
use crate::partition::copies::copy_plain_outputs;
use crate::partition::cut::cut;
use crate::partition::segment::{Cut, Instance, Part, Segment};

/// Compiles an analysed cell of rows: to a composite cell where parts of it have fused kernels, else to one
/// program.
pub(crate) fn compile(file: &str, analysis: &mut Analysis) -> Result<NamedCell, LoadError> {
    let arg_maxes = arg_max::find(analysis);
    if !(analysis.recurrents.is_empty() && arg_maxes.is_empty()) {
        let refused = |diagnostics| LoadError::refused(file.to_owned(), diagnostics);
        return composite(analysis, arg_maxes).map_err(refused);
    }
    copy_plain_outputs(analysis);
    Ok(row_wise(analysis))
}

/// The cell that a fused kernel of trees runs.
pub(crate) fn fused_tree(analysis: &Analysis, recognised: Recognised) -> NamedCell {
    let Recognised { cell, inputs, outputs, summary } = recognised;
    let port_of = |index: usize| inputs.iter().position(|&known| known == index);
    let output = |source: Source| outputs.iter().position(|&known| known == source);
    let outputs = analysis.outputs.iter().map(|named| {
        let port = output(through_copies(analysis, named.1.source)).expect("it is h or c");
        named_output(analysis, named, port)
    });
    NamedCell {
        inputs: named_inputs(analysis, true, port_of),
        outputs: outputs.collect(),
        cell: Cell::tree(cell),
        fused: true,
        description: summary,
    }
}

fn row_wise(analysis: &Analysis) -> NamedCell {
    let mut outputs: Vec<ValueRef> = Vec::new();
    for (_, view) in &analysis.outputs {
        let reference = ValueRef { source: view.source, at: None };
        if !outputs.contains(&reference) {
            outputs.push(reference);
        }
    }
    let needed = needed(analysis, outputs.iter().map(|reference| reference.source));
    let instances: Vec<Instance> = (0..analysis.ops.len())
        .filter(|&op| needed[op])
        .map(|op| Instance { op, at: None })
        .collect();
    let is_read = |input: usize| {
        let reference = ValueRef { source: Source::Input(input), at: None };
        let operands = instances.iter().flat_map(|instance| &analysis.ops[instance.op].operands);
        operands.filter_map(|operand| analysis.reads(operand, None)).any(|read| read == reference)
    };
    let read: Vec<usize> = (0..analysis.inputs.len()).filter(|&input| is_read(input)).collect();
    let inputs = read.iter().map(|&input| ValueRef { source: Source::Input(input), at: None });
    let segment = Segment {
        instances,
        domain: Domain { time: None, batch: true },
        scope: Scope::Row,
        stage: 0,
        guard: None,
        recurrence_depth: 0,
        inputs: inputs.collect(),
        outputs: outputs.clone(),
    };
    let cell = row_segment::compile(analysis, &segment);
    let port_of = |index: usize| read.iter().position(|&known| known == index);
    let named = analysis.outputs.iter().map(|named| {
        let port = outputs.iter().position(|known| known.source == named.1.source);
        named_output(analysis, named, port.expect("all are there"))
    });
    let outputs = named.collect();
    let description = match &cell.body {
        CellBody::Program(program) => format!("row by row: {}", program.summary),
        _ => String::new(),
    };
    let inputs = named_inputs(analysis, false, port_of);
    NamedCell { cell, inputs, outputs, fused: false, description }
}

/// A cell with recurrent operators or an arg-max in it, cut as a whole file would be.
fn composite(
    analysis: &mut Analysis,
    arg_maxes: Vec<ArgMax>,
) -> Result<NamedCell, Vec<Diagnostic>> {
    let cut = cut(analysis, arg_maxes, &[]);
    let analysis = &*analysis;
    let mut diagnostics = Vec::new();
    let mut registers = Registers::default();
    for (index, input) in analysis.inputs.iter().enumerate() {
        let source = Source::Input(index);
        registers.add(ValueRef { source, at: None }, row_of(analysis, source));
        if cut.stacks.inputs.contains_key(&index) {
            diagnostics.push(diagnostic(
                "input",
                &input.name,
                "it holds the states of several layers",
            ));
        }
    }
    let mut operations = Vec::new();
    for &part in &cut.parts {
        operations.push(match part {
            Part::Segment(index) => {
                let segment = &cut.segments[index];
                if let Some(arg_max) = cut.arg_max(segment) {
                    let reads = vec![Some(registers.find(&cut, segment.inputs[0]))];
                    let row = RowSpec::flat(ElementType::I64, 1);
                    let writes = vec![registers.add(segment.outputs[0], row)];
                    let body = OperationBody::LinearArgMax(arg_max.fused.clone());
                    operations.push(Operation { body, reads, writes });
                    continue;
                }
                let cell = row_segment::compile(analysis, segment);
                let CellBody::Program(program) = cell.body else {
                    unreachable!("a segment is a program")
                };
                let reads = segment.inputs.iter().map(|&read| Some(registers.find(&cut, read)));
                let reads = reads.collect();
                let written = segment.outputs.iter().zip(cell.outputs);
                let writes =
                    written.map(|(&reference, row)| registers.add(reference, row)).collect();
                Operation { body: OperationBody::Program(program), reads, writes }
            }
            Part::Recurrent(index) => {
                let recurrent = &analysis.recurrents[index];
                let Some(step) = recurrent.operator() else {
                    diagnostics.push(diagnostic("Loop", &recurrent.label, "a cell does one step"));
                    continue;
                };
                let x = cut.step_reads(analysis, index)[0];
                let mut reads = vec![Some(registers.find(&cut, x))];
                for initial in &recurrent.initial {
                    reads.push(match initial {
                        Initial::Zeros => None,
                        Initial::View(view) => {
                            let reference = analysis.resolve(view.source, view.at);
                            Some(registers.find(&cut, reference))
                        }
                        Initial::Constant { .. } => {
                            let reason = "a first state that is a constant other than zero";
                            diagnostics.push(diagnostic(step.operator(), &recurrent.label, reason));
                            None
                        }
                    });
                }
                let row = RowSpec::flat(ElementType::F32, step.hidden_size);
                let mut write = |port| {
                    let source = Source::Recurrent(index, port);
                    registers.add(ValueRef { source, at: None }, row.clone())
                };
                let writes: Vec<_> = step.last_states().iter().map(|&port| write(port)).collect();
                // A cell does one step, which is also the last.
                let every = Source::Recurrent(index, RecurrentPort::Every(0));
                registers.alias(ValueRef { source: every, at: None }, writes[0]);
                let is_one_step = match &recurrent.lengths {
                    SequenceLengths::All => true,
                    SequenceLengths::Constant(lengths) => lengths.iter().all(|&n| n == 1),
                    SequenceLengths::Input(_) => false,
                };
                if !is_one_step {
                    let reason = "its sequence_lens are not 1; in a cell it does one step";
                    diagnostics.push(diagnostic(step.operator(), &recurrent.label, reason));
                }
                let given: Vec<bool> = reads[1..].iter().map(Option::is_some).collect();
                let body = match step_program(step, &given) {
                    Some(program) => {
                        reads.retain(Option::is_some);
                        OperationBody::Program(program)
                    }
                    None => {
                        OperationBody::Step(fused_step(step, cut.lookup_table(analysis, index)))
                    }
                };
                Operation { body, reads, writes }
            }
        });
    }
    if !cut.stacks.outputs.is_empty() {
        let reason = "an output holds the states of several layers";
        diagnostics.push(diagnostic("graph", "output", reason));
    }
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let mut ports: Vec<usize> = Vec::new();
    let mut outputs = Vec::new();
    for named in &analysis.outputs {
        let view = &named.1;
        let register = registers.find(&cut, analysis.resolve(view.source, view.at));
        let port = ports.iter().position(|&known| known == register).unwrap_or_else(|| {
            ports.push(register);
            ports.len() - 1
        });
        outputs.push(named_output(analysis, named, port));
    }
    let parts: Vec<String> = operations
        .iter()
        .map(|operation| match &operation.body {
            OperationBody::Program(program) => program.summary.clone(),
            OperationBody::Step(step) => format!("{} (fused kernel)", operator_name(&step.kind)),
            OperationBody::LinearArgMax(_) => "MatMul, ArgMax (fused kernel)".to_owned(),
        })
        .collect();
    let description = format!("row by row: {}", parts.join(", "));
    let inputs = named_inputs(analysis, false, Some);
    let cell = Cell {
        inputs: registers.rows[..analysis.inputs.len()].to_vec(),
        states: Vec::new(),
        outputs: ports.iter().map(|&register| registers.rows[register].clone()).collect(),
        precision: Precision::F32,
        body: CellBody::Composite(CompositeCell {
            registers: registers.rows,
            operations,
            outputs: ports,
        }),
    };
    Ok(NamedCell { cell, inputs, outputs, fused: false, description })
}

/// The registers of a composite cell, by the values that they hold.
#[derive(Default)]
struct Registers {
    rows: Vec<RowSpec>,
    by_reference: BTreeMap<ValueRef, usize>,
}

impl Registers {
    fn add(&mut self, reference: ValueRef, row: RowSpec) -> usize {
        self.rows.push(row);
        self.by_reference.insert(reference, self.rows.len() - 1);
        self.rows.len() - 1
    }

    fn alias(&mut self, reference: ValueRef, register: usize) {
        self.by_reference.insert(reference, register);
    }

    fn find(&self, cut: &Cut, reference: ValueRef) -> usize {
        self.by_reference[&cut.produced(reference)]
    }
}

fn diagnostic(operator: &str, node: &str, reason: &str) -> Diagnostic {
    let [operator, node, reason] = [operator, node, reason].map(str::to_owned);
    Diagnostic { operator, node, reason }
}

fn named_inputs(
    analysis: &Analysis,
    fused: bool,
    port_of: impl Fn(usize) -> Option<usize>,
) -> Vec<CellInput> {
    let inputs = analysis.inputs.iter().enumerate().map(|(index, input)| CellInput {
        name: input.name.clone(),
        row: RowSpec::new(input.element, row_shape(&input.dims)),
        ids: input.ids,
        narrow: input.element.stored() == ElementType::I64 && !fused && port_of(index).is_some(),
        port: port_of(index),
        state: None,
    });
    inputs.collect()
}

/// An output of an analysed cell, which its output port `port` gives.
fn named_output(analysis: &Analysis, (name, view): &(String, View), port: usize) -> CellOutput {
    CellOutput {
        name: name.clone(),
        row: RowSpec::new(view.element, row_shape(&view.dims)),
        bound: id_bound(analysis, view),
        port,
    }
}
