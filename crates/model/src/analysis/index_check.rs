//! Computed integers, which every request is checked for: those that index a tensor, and those that may pass 32 bits.

use crate::analysis::value::View;
use crate::data::int::Int;

/// A check of an output of the analysis that no reply shows: the checks belong to the last outputs, in order.
#[derive(Clone, Debug)]
pub(crate) struct IndexCheck {
    /// The least and the greatest integer that a request may have there.
    pub(crate) low: Int,
    pub(crate) high: Int,
    /// What it means if they are not.
    pub(crate) reason: String,
    pub(crate) kind: CheckKind,
}

/// The purpose of a check of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckKind {
    /// They index a tensor.
    Index,
    /// They tell whether others fit 32 bits, or are other numbers of a kind.
    Number,
    /// A cast of FLOAT may have cut them off at the ends of 32 bits.
    Cast,
}

/// Integers that have still to be checked.
#[derive(Clone, Debug)]
pub(crate) struct Unchecked {
    pub(super) view: View,
    pub(super) low: Int,
    pub(super) high: Int,
    pub(super) reason: String,
    pub(super) kind: CheckKind,
}
