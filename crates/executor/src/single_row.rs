//! Plans how a batch of a single row or sequence runs, so that it gives the bits that it has in a larger batch.
//!
//! For a single row, an operator that is sensitive to the number of rows (`row_count.rs`), and the operators that
//! follow it up to the next costly one, run on the row twice; all others run on it once. `single_row_branch.rs` adds
//! these operators to the graph a second time; they share the weights of the first.
//!
//! Where lengths of sequences decide what is sensitive, a run checks them (`shape_check.rs`). If an operator was
//! sensitive after all, that run and all further ones with these lengths take the sequence twice.

use rten_onnx::onnx::{DataType, GraphProto};

use crate::probe::{Probe, shape_node, shape_of};
use crate::row_count::{has_unknown_products, may_be_sensitive};
use crate::shape_check::{Operation, ShapeCheck, shape_checks};
use crate::single_row_branch::{AddedBranch, BranchOutput, Copies, add_branch, output_info};

/// The form in which a single row or sequence is run.
pub(crate) enum SingleRow {
    /// Like any batch.
    Plain,
    /// Twice, as a batch of two.
    Twice,
    /// Through a branch of the program that has outputs of its own.
    Branch(SingleRowBranch),
}

/// The part of a program that runs a single row or sequence.
pub(crate) struct SingleRowBranch {
    /// One for each output port.
    pub(crate) outputs: Vec<BranchOutput>,
    /// Names of tensors whose shapes show, after a run, whether these outputs are right.
    pub(crate) shapes: Vec<String>,
    /// The operators whose operands these tensors are.
    pub(crate) checks: Vec<ShapeCheck>,
    /// The tensors that the branch adds.
    pub(crate) copies: Copies,
}

/// Plans how one row or sequence of the program `graph` runs, and adds to the graph what that takes. `has_lengths` says
/// that shapes differ from sequence to sequence; `probe` is none if the program could not be probed.
pub(crate) fn plan(graph: &mut GraphProto, probe: Option<&Probe>, has_lengths: bool) -> SingleRow {
    if !may_be_sensitive(graph) {
        return SingleRow::Plain;
    }
    if graph.node.iter().any(has_unknown_products) {
        return SingleRow::Twice;
    }
    let branch = match probe {
        Some(probe) => add_branch(graph, probe),
        // Unknown lengths are checked; of unknown rows nothing is known.
        None if has_lengths => {
            let names = graph.output.iter().filter_map(|output| output.name.clone());
            let outputs = names.map(|name| BranchOutput { name, is_double: false }).collect();
            let operations = graph.node.iter().filter_map(Operation::of).collect();
            Some(AddedBranch { outputs, operations, copies: Copies::new() })
        }
        None => None,
    };
    let Some(AddedBranch { outputs, operations, copies }) = branch else {
        return SingleRow::Twice;
    };
    let (shapes, checks) = match has_lengths {
        true => shape_checks(graph, probe, &operations),
        false => (Vec::new(), Vec::new()),
    };
    let mut own = graph.output.iter().filter_map(|output| output.name.as_ref());
    if checks.is_empty() && outputs.iter().all(|output| own.next() == Some(&output.name)) {
        return SingleRow::Plain;
    }
    graph.node.extend(shapes.iter().map(|name| shape_node(name)));
    let infos = shapes.iter().map(|name| output_info(shape_of(name), Some(DataType::INT64)));
    graph.output.extend(infos);
    SingleRow::Branch(SingleRowBranch { outputs, shapes, checks, copies })
}
