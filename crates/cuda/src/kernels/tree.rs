//! Cells of a binary TreeLSTM: `kernels/tree_node.cu`.

use batchmaker_graph::{Lookup as Table, TreeCell};
use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Lookup, Operand};
use super::step::side_by_side;
use super::tiles;
use super::weights::Storage;

/// The argument of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TreeArguments {
    /// The rows.
    pub batch: Batch,
    /// x of a leaf, `[input_size]`, or its id in the table of `lookup`; of an inner node h of the left child, `[hidden_size]`.
    pub first: Operand,
    /// h of the right child.
    pub right: Operand,
    /// The cell state of the left child.
    pub c_left: Operand,
    /// The cell state of the right child.
    pub c_right: Operand,
    /// h of the node.
    pub h: Operand,
    /// The cell state of the node.
    pub c: Operand,
    /// The embedding whose rows x is, if it is one.
    pub lookup: Lookup,
    /// The address of [`PackedTree::w`].
    pub w: u64,
    /// The address of [`PackedTree::r`].
    pub r: u64,
    /// The address of [`PackedTree::b`].
    pub b: u64,
    /// Elements of x.
    pub input: i32,
    /// Elements of h.
    pub hidden: i32,
}

/// A cell of a tree as the kernels read it.
#[derive(Clone, Debug)]
pub struct PackedTree {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Weights of x of a leaf, `[input_size, hidden_size, gates]`, or of h of the left child, `[hidden_size, hidden_size, gates]`, as
    /// they are stored.
    pub w: Vec<u8>,
    /// Weights of h of the right child, likewise.
    pub r: Vec<u8>,
    /// `[hidden_size, gates]`.
    pub b: Vec<f32>,
    input_size: usize,
    hidden_size: usize,
}

impl PackedTree {
    /// Packs a cell.
    pub fn new(cell: &TreeCell, storage: Storage) -> Self {
        let biases = |b: Option<&[f32]>, gates: usize, hidden: usize| {
            b.map_or_else(|| vec![0.0; gates * hidden], |b| side_by_side(b, 0..gates, hidden, 1))
        };
        let weights = |w: &[f32], gates: usize, hidden: usize, inputs: usize| {
            storage.bytes(&side_by_side(w, 0..gates, hidden, inputs), hidden * gates)
        };
        match cell {
            TreeCell::Leaf { input_size, hidden_size, w, b, .. } => Self {
                kernel: storage.choose(["tree_leaf_f32", "tree_leaf_bf16"]),
                w: weights(w, 3, *hidden_size, *input_size),
                r: Vec::new(),
                b: biases(b.as_deref(), 3, *hidden_size),
                input_size: *input_size,
                hidden_size: *hidden_size,
            },
            TreeCell::Inner { hidden_size, l, r, b } => Self {
                kernel: storage.choose(["tree_inner_f32", "tree_inner_bf16"]),
                w: weights(l, 5, *hidden_size, *hidden_size),
                r: weights(r, 5, *hidden_size, *hidden_size),
                b: biases(b.as_deref(), 5, *hidden_size),
                input_size: *hidden_size,
                hidden_size: *hidden_size,
            },
        }
    }

    /// The embedding of a leaf, if it has one.
    pub fn table(cell: &TreeCell) -> Option<&Table> {
        match cell {
            TreeCell::Leaf { lookup, .. } => lookup.as_ref(),
            TreeCell::Inner { .. } => None,
        }
    }

    /// Elements of x, or of h of the left child.
    pub fn input_size(&self) -> usize {
        self.input_size
    }

    /// Elements of h.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Blocks along x and y of a launch for a batch of `rows` rows.
    pub fn grid(&self, rows: usize) -> [u32; 3] {
        tiles::grid(self.hidden_size, rows)
    }
}
