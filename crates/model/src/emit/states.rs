//! A cell as the step of a chain: some of its inputs are states, which its outputs renew.

use std::collections::BTreeMap;

use batchmaker_graph::{
    Cell, CellBody, CompositeCell, Operation, OperationBody, Precision, RecurrentCell,
};

use crate::data::direction::Direction;
use crate::data::named_cell::NamedCell;
use crate::emit::recurrent::chain_summary;

/// The cell with some of its inputs as states.
pub(crate) fn with_states(
    mut named: NamedCell,
    states: &BTreeMap<String, String>,
) -> Result<NamedCell, String> {
    // The input port and the output port of each state that the cell reads.
    let mut ports: Vec<(usize, usize)> = Vec::new();
    for (input, output) in states {
        let first = named.input(input).ok_or_else(|| format!("it has no input `{input}`"))?;
        let next = named.output(output).ok_or_else(|| format!("it has no output `{output}`"))?;
        next.check_feeds(first).map_err(|reason| format!("its state: {reason}"))?;
        ports.extend(first.port.map(|port| (port, next.port)));
    }
    // An input that the cell does not read is no state.
    named.inputs.retain(|input| input.port.is_some() || !states.contains_key(&input.name));
    if ports.is_empty() {
        return Ok(named);
    }
    let composite = composite(&named.cell);
    if let Some((cell, order)) = recurrent_step(&composite, named.cell.inputs.len(), &ports) {
        ports = order.into_iter().map(|state| ports[state]).collect();
        named.description = chain_summary(&cell, Direction::Forward);
        named.fused = true;
        named.cell = Cell::recurrent(cell);
    } else {
        named.cell = chain(composite, &named.cell, &ports);
    }
    let state_of = |port: usize| ports.iter().position(|state| state.0 == port);
    for input in &mut named.inputs {
        let Some(port) = input.port else { continue };
        input.state = state_of(port);
        input.port = input.state.is_none().then(|| number_of_others(port, state_of));
    }
    for output in &mut named.outputs {
        let state = |port: usize| ports.iter().position(|state| state.1 == port);
        output.port = state(output.port)
            .unwrap_or_else(|| ports.len() + number_of_others(output.port, state));
    }
    Ok(named)
}

/// The number of ports before `port` that are no states.
fn number_of_others(port: usize, state: impl Fn(usize) -> Option<usize>) -> usize {
    (0..port).filter(|&port| state(port).is_none()).count()
}

/// The operations of a row-wise cell.
fn composite(cell: &Cell) -> CompositeCell {
    let (inputs, outputs) = (cell.inputs.len(), cell.outputs.len());
    match &cell.body {
        CellBody::Composite(composite) => composite.clone(),
        CellBody::Program(program) => CompositeCell {
            registers: cell.inputs.iter().chain(&cell.outputs).cloned().collect(),
            operations: vec![Operation {
                body: OperationBody::Program(program.clone()),
                reads: (0..inputs).map(Some).collect(),
                writes: (inputs..inputs + outputs).collect(),
            }],
            outputs: (inputs..inputs + outputs).collect(),
        },
        CellBody::Recurrent(_) | CellBody::Tree(_) | CellBody::Sequence(_) => {
            unreachable!("a cell's file is none of these as it is")
        }
    }
}

/// The recurrent operator whose step is all that a cell does, and which of the states are those of
/// the operator, in its order.
fn recurrent_step(
    composite: &CompositeCell,
    inputs: usize,
    ports: &[(usize, usize)],
) -> Option<(RecurrentCell, Vec<usize>)> {
    let [Operation { body: OperationBody::Step(cell), reads, writes }] = &composite.operations[..]
    else {
        return None;
    };
    let (x, states) = reads.split_first()?;
    let is_state = |register: usize| ports.iter().any(|state| state.0 == register);
    let is_step_alone = x.is_some_and(|x| x < inputs && !is_state(x))
        && inputs == 1 + writes.len()
        && composite.outputs.len() == writes.len()
        && ports.len() == writes.len();
    if !is_step_alone {
        return None;
    }
    let state = |(&read, &write): (&Option<usize>, &usize)| {
        ports
            .iter()
            .position(|&(input, output)| read == Some(input) && composite.outputs[output] == write)
    };
    let order = states.iter().zip(writes).map(state).collect::<Option<Vec<_>>>()?;
    Some((cell.clone(), order))
}

/// The cell whose inputs are those of `cell` that are no states, and whose outputs are the states'
/// next values, then the others.
fn chain(composite: CompositeCell, cell: &Cell, ports: &[(usize, usize)]) -> Cell {
    let is_state = |port: usize| ports.iter().any(|state| state.0 == port);
    let others: Vec<usize> = (0..cell.inputs.len()).filter(|&port| !is_state(port)).collect();
    let order: Vec<usize> = others.iter().copied().chain(ports.iter().map(|p| p.0)).collect();
    let register = |old: usize| order.iter().position(|&port| port == old).unwrap_or(old);
    let mut registers = composite.registers.clone();
    for (new, &old) in order.iter().enumerate() {
        registers[new] = composite.registers[old].clone();
    }
    let operations = composite.operations.into_iter().map(|operation| Operation {
        body: operation.body,
        reads: operation.reads.into_iter().map(|read| read.map(register)).collect(),
        writes: operation.writes.into_iter().map(register).collect(),
    });
    let is_next = |port: usize| ports.iter().any(|state| state.1 == port);
    let rest = (0..cell.outputs.len()).filter(|&port| !is_next(port));
    let given: Vec<usize> = ports.iter().map(|state| state.1).chain(rest).collect();
    let outputs = given.iter().map(|&port| register(composite.outputs[port])).collect();
    let operations = operations.collect();
    Cell {
        inputs: others.iter().map(|&port| cell.inputs[port].clone()).collect(),
        states: ports.iter().map(|state| cell.inputs[state.0].clone()).collect(),
        outputs: given.iter().map(|&port| cell.outputs[port].clone()).collect(),
        precision: Precision::F32,
        body: CellBody::Composite(CompositeCell { registers, operations, outputs }),
    }
}
