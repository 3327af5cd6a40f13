//! The rules of ONNX operators. A rule says what an operator makes of the values that are its inputs; the
//! table (`analysis/table.rs`) says which rules an operator has.

pub(super) mod arguments;
pub(super) mod broadcast;
pub(super) mod casts;
pub(super) mod composed;
pub(super) mod constants;
pub(super) mod contract;
pub(super) mod dispatch;
pub(super) mod elementwise;
pub(super) mod fold;
pub(super) mod layout;
pub(super) mod lengths;
pub(super) mod lists;
pub(super) mod narrow;
pub(super) mod overflow;
pub(super) mod per_sequence;
pub(super) mod reduce;
pub(super) mod repeated;
pub(super) mod rewrites;
pub(super) mod rounded_to_float;
pub(super) mod select;
pub(super) mod sequence_level;
pub(super) mod sequence_op;
