//! Reads ONNX files, and amends them before they are analysed. The meaning of operators is not known here.

pub(crate) mod amend;
pub(crate) mod attribute;
pub(crate) mod files;
pub(crate) mod node;
pub(crate) mod onnx_file;
pub(crate) mod passed;
pub(crate) mod rules;
pub(crate) mod tensor;
mod wire_check;
