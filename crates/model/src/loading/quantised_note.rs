//! A note on how the quantised operators of a file are computed.

use std::collections::{BTreeMap, HashMap};

use crate::file::onnx_file::OnnxFile;

/// Operators that sum products of whole numbers of 8 bits in general cells.
const OPERATORS: [&str; 4] = ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"];

/// The note that a file's products of bytes have its own arithmetic; none for a file without such products.
pub(super) fn products_of_bytes(file: &OnnxFile) -> Option<String> {
    let dequantised = file.nodes.iter().filter(|node| node.operator == "DequantizeLinear");
    let dequantised: HashMap<&String, &String> = dequantised
        .filter_map(|node| Some((node.outputs.first()?, node.inputs.first()?)))
        .collect();
    let mut counts = BTreeMap::new();
    for node in &file.nodes {
        let is_of_dequantised = ["Conv", "Gemm", "MatMul"].contains(&&node.operator[..])
            && matches!(&node.inputs[..], [x, w, ..] if dequantised.contains_key(x)
                && dequantised.get(w).is_some_and(|&w| file.initializers.contains_key(w)));
        if is_of_dequantised || OPERATORS.contains(&&node.operator[..]) {
            *counts.entry(&node.operator[..]).or_insert(0) += 1;
        }
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
