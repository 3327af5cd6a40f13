//! The operators of a program's file.

use rten_onnx::onnx::NodeProto;

/// The operator's name in ONNX.
pub(crate) fn operator(node: &NodeProto) -> &str {
    node.op_type.as_deref().unwrap_or_default()
}
