//! Operators that are no function of rows: convolutions and pools along steps, reductions and softmax
//! over them, products between steps. Their rules take whole tensors, whose axes may all vary.

pub(in crate::analysis) mod along;
pub(in crate::analysis) mod elements;
pub(in crate::analysis) mod layout;
pub(in crate::analysis) mod resize;
pub(in crate::analysis) mod select;
pub(super) mod spatial;
pub(in crate::analysis) mod windows;
