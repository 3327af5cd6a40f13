//! Computed integers that index a tensor, which every request is checked for.

use crate::analysis::value::View;
use crate::data::int::Int;

/// A check of an output of the analysis that no reply shows: the checks belong to the last outputs, in order.
#[derive(Clone, Debug)]
pub(crate) struct IndexCheck {
    /// The least and the greatest integer that a request may have there.
    pub(crate) low: Int,
    pub(crate) high: Int,
    /// The node that the integers index a tensor for.
    pub(crate) label: String,
}

/// An index that has still to be checked.
#[derive(Clone, Debug)]
pub(crate) struct Unchecked {
    pub(super) view: View,
    pub(super) low: Int,
    pub(super) high: Int,
    pub(super) label: String,
}
