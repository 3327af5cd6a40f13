//! Which rows of a value the nodes of a run use.

use std::sync::Arc;

use crate::ValueIndex;

/// A row of a value for each node of a run, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The value.
    pub value: ValueIndex,
    /// Which of its rows.
    pub order: RowOrder,
    /// The number of rows, from that one on, that a node uses: more than 1 only at ports of a
    /// [`crate::SequenceCell`] that take all steps.
    pub span: u32,
}

/// A row for each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// Node `i` uses row `first + i * stride`.
    Strided {
        /// The row of node 0.
        first: u32,
        /// Rows from one node to the next; 0: all nodes use one row, below 0: backwards.
        stride: i32,
    },
    /// Node `i` uses the `i`th of these.
    Listed(Arc<[u32]>),
}

impl Rows {
    /// Row `first + i * stride` for node `i`.
    pub fn strided(value: ValueIndex, first: u32, stride: i32) -> Self {
        Self { value, order: RowOrder::Strided { first, stride }, span: 1 }
    }

    /// Rows `first..first + span`, together, for the one node of a run.
    pub fn spanning(value: ValueIndex, first: u32, span: u32) -> Self {
        Self { value, order: RowOrder::Strided { first, stride: 0 }, span }
    }

    /// The same row for all nodes.
    pub fn one(value: ValueIndex, row: u32) -> Self {
        Self::strided(value, row, 0)
    }

    /// Row `i` for node `i`.
    pub fn all(value: ValueIndex) -> Self {
        Self::strided(value, 0, 1)
    }

    /// The `i`th of `rows` for node `i`.
    pub fn listed(value: ValueIndex, rows: impl Into<Arc<[u32]>>) -> Self {
        Self { value, order: RowOrder::Listed(rows.into()), span: 1 }
    }

    /// The row of `node`.
    pub fn row(&self, node: u32) -> usize {
        match &self.order {
            RowOrder::Strided { first, stride } => {
                (i64::from(*first) + i64::from(node) * i64::from(*stride)) as usize
            }
            RowOrder::Listed(rows) => rows[node as usize] as usize,
        }
    }

    /// The same rows for `length` nodes, the last first.
    pub fn reversed(&self, length: u32) -> Self {
        match &self.order {
            RowOrder::Strided { stride, .. } => {
                Self::strided(self.value, self.row(length - 1) as u32, -stride)
            }
            RowOrder::Listed(rows) => {
                let rows: Vec<u32> = rows[..length as usize].iter().rev().copied().collect();
                Self::listed(self.value, rows)
            }
        }
    }

    /// The same rows for nodes that are numbered anew: the new node `i` was node `order[i]`.
    pub(crate) fn renumbered(&self, order: &[u32]) -> Self {
        match self.order {
            RowOrder::Strided { stride: 0, .. } => self.clone(),
            _ => {
                let rows: Vec<u32> = order.iter().map(|&node| self.row(node) as u32).collect();
                Self::listed(self.value, rows)
            }
        }
    }
}
