//! A note on how the quantised operators of a file are computed.

use std::collections::BTreeMap;

use crate::file::onnx_file::OnnxFile;

/// Operators that sum products of whole numbers of 8 bits in general cells.
const OPERATORS: [&str; 4] = ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"];

/// The note that a file's products of bytes have its own arithmetic; none for a file without such products. `of_dequantised` counts
/// those of numbers that `DequantizeLinear` gave.
pub(super) fn products_of_bytes(
    file: &OnnxFile,
    of_dequantised: &BTreeMap<String, usize>,
) -> Option<String> {
    let mut counts = of_dequantised.clone();
    for node in file.nodes.iter().filter(|node| OPERATORS.contains(&&node.operator[..])) {
        *counts.entry(node.operator.clone()).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    (!counts.is_empty()).then(|| {
        format!(
            "{} with the file's own arithmetic: sums of products of bytes, which are exact, and held as FLOAT, exact below 2^24 (in \
             cells with loops, branches or products of computed tensors, terms are FLOAT too)",
            counts.join(", ")
        )
    })
}
