//! ONNX operator `If`, whose condition must be known.

use crate::analysis::operator::Inputs;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The outputs of the branch of an `If` that its condition, which must be known, selects.
pub(super) fn branch(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    if inputs.iter().flatten().any(|val| matches!(val, Val::Unknown)) {
        return Ok(Vec::new());
    }
    let condition = match inputs.first() {
        Some(Some(Val::Literal(literal) | Val::Fill(literal, _))) => literal.as_bools(),
        _ => None,
    };
    let condition = condition.and_then(|bits| bits.data.first().copied());
    let condition = condition.ok_or("its condition depends on the request")?;
    let name = if condition { "then_branch" } else { "else_branch" };
    let graph = node.subgraph(name).ok_or_else(|| format!("it has no {name}"))?;
    analysis.add_initializers(graph);
    for node in &graph.nodes {
        analysis.add_node(node, file);
    }
    Ok(graph.outputs.iter().map(|name| analysis.value(name, file)).collect())
}
