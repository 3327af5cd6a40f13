//! An operation of a cell: kernels with their weights, or a program that the host runs.

use std::sync::Arc;

use batchmaker_executor::RowProgram;
use batchmaker_graph::{LinearArgMax, Lookup, RecurrentCell, RowSpec, TreeCell};

use super::constants::Packing;
use crate::kernels::linear::PackedLinearArgMax;
use crate::kernels::recurrent::PackedRecurrent;
use crate::kernels::tree::PackedTree;
use crate::kernels::weights::Storage;

/// What an operation computes of each row.
pub(crate) enum OperationBody {
    /// A step of a recurrent operator. Reads x and the states, writes the states.
    Step(Step),
    /// A cell of a TreeLSTM. Reads x, or h and c of both children; writes h and c.
    Tree(Tree),
    /// A linear layer with arg-max. Reads x, writes the index.
    Linear(Linear),
    /// A program. Reads its inputs, writes its outputs.
    Program(Arc<Program>),
}

/// An operation, and the registers that it reads and writes.
pub(crate) struct Operation {
    pub(crate) body: OperationBody,
    /// A register that is none holds zeros.
    pub(crate) reads: Vec<Option<usize>>,
    pub(crate) writes: Vec<usize>,
}

/// An embedding: where its table is among the constants, and its sizes.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) place: u64,
    pub(crate) rows: usize,
    pub(crate) width: usize,
}

impl Table {
    fn new(lookup: Option<&Lookup>, packing: &mut Packing) -> Option<Self> {
        let Lookup { table, width } = lookup?;
        let rows = lookup?.rows();
        Some(Self { place: packing.add(table), rows, width: *width })
    }
}

/// Kernels of a step.
pub(crate) struct Step {
    pub(crate) packed: PackedRecurrent,
    /// The places of w, r and b of each launch.
    pub(crate) weights: Vec<[u64; 3]>,
    pub(crate) peepholes: Option<u64>,
    /// The places of the scales of W and R.
    pub(crate) scales: [Option<u64>; 2],
    pub(crate) table: Option<Table>,
}

impl Step {
    /// Packs a cell; none where there is no kernel for it.
    pub(super) fn new(
        cell: &RecurrentCell,
        storage: Storage,
        packing: &mut Packing,
    ) -> Option<Self> {
        let mut packed = PackedRecurrent::new(cell, storage)?;
        let mut weights = Vec::new();
        for launch in &mut packed.launches {
            let [w, r] = [&mut launch.w, &mut launch.r].map(std::mem::take);
            let [w, r] = [w, r].map(|of| packing.add(&of));
            weights.push([w, r, packing.add(&std::mem::take(&mut launch.b))]);
        }
        let mut add = |of: Option<Vec<f32>>| of.map(|of| packing.add(&of));
        let peepholes = add(packed.peepholes.take());
        let scales = [packed.w_scale.take(), packed.r_scale.take()].map(add);
        let table = Table::new(cell.lookup.as_ref(), packing);
        Some(Self { packed, weights, peepholes, scales, table })
    }
}

/// The kernel of a cell of a tree.
pub(crate) struct Tree {
    pub(crate) packed: PackedTree,
    /// The places of w, r and b.
    pub(crate) weights: [u64; 3],
    pub(crate) table: Option<Table>,
    pub(crate) is_leaf: bool,
}

impl Tree {
    pub(super) fn new(cell: &TreeCell, storage: Storage, packing: &mut Packing) -> Self {
        let mut packed = PackedTree::new(cell, storage);
        let [w, r] = [&mut packed.w, &mut packed.r].map(std::mem::take);
        let [w, r] = [w, r].map(|of| packing.add(&of));
        let weights = [w, r, packing.add(&std::mem::take(&mut packed.b))];
        let table = Table::new(PackedTree::table(cell), packing);
        Self { packed, weights, table, is_leaf: matches!(cell, TreeCell::Leaf { .. }) }
    }
}

/// The kernels of a linear layer with arg-max.
pub(crate) struct Linear {
    pub(crate) packed: PackedLinearArgMax,
    /// The places of w and b.
    pub(crate) weights: [u64; 2],
}

impl Linear {
    pub(super) fn new(layer: &LinearArgMax, storage: Storage, packing: &mut Packing) -> Self {
        let mut packed = PackedLinearArgMax::new(layer, storage);
        let w = packing.add(&std::mem::take(&mut packed.w));
        let weights = [w, packing.add(&std::mem::take(&mut packed.b))];
        Self { packed, weights }
    }
}

/// A program over rows, with the rows of its ports.
pub(crate) struct Program {
    pub(crate) program: RowProgram,
    pub(crate) inputs: Vec<RowSpec>,
    pub(crate) outputs: Vec<RowSpec>,
}
