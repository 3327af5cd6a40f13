//! Reads ONNX files, and amends them before they are analysed. What the operators mean is not known here.

pub(crate) mod amend;
pub(crate) mod files;
pub(crate) mod onnx_file;
mod wire_check;
