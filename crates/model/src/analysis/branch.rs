//! ONNX operator `If`.
//!
//! A condition that is known at load takes its branch. One of the request's lengths, or of single numbers that it
//! brings, makes *variants* of the file, one for each branch: a request is unfolded by the variant whose conditions it
//! meets. One of data is computed for each row: both branches run, and each row takes its own.

use crate::analysis::condition::scalar_of;
use crate::analysis::operator::Inputs;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, Val};
use crate::data::scalar::Scalar;
use crate::data::symbol::BATCH;
use crate::file::attribute::ints_attribute;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The outputs of an `If`.
pub(super) fn branch(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    if inputs.iter().flatten().any(|val| matches!(val, Val::Unknown)) {
        return Ok(Vec::new());
    }
    let Some(Some(condition)) = inputs.first() else { return Err("it has no condition".into()) };
    let known = match condition {
        Val::Literal(literal) | Val::Fill(literal, _) => literal.as_bools(),
        _ => None,
    };
    let name = node.label.clone();
    if let Some(&is_true) = known.and_then(|bits| bits.data.first()) {
        analysis.branches.insert(name, is_true);
        return outputs_of(analysis, node, is_true, file);
    }
    match scalar_of(analysis, condition).filter(|_| analysis.body.is_none()) {
        Some(scalar) => {
            let is_true = decide(analysis, name, scalar);
            outputs_of(analysis, node, is_true, file)
        }
        None if !analysis.has_roles() => {
            let is_true = analysis.assumed.get(&name).copied().unwrap_or(true);
            outputs_of(analysis, node, is_true, file)
        }
        None => select(analysis, node, condition, file),
    }
}

/// Takes a branch by what is assumed of the condition, or the first if nothing is, and remembers the condition.
fn decide(analysis: &mut Analysis, name: String, condition: Scalar) -> bool {
    if let Some((_, is_true)) = analysis.conditions.iter().find(|(known, _)| *known == condition) {
        return *is_true;
    }
    let is_true = analysis.assumed.get(&name).copied().unwrap_or(true);
    if let Some((int, number)) = condition.as_equality().filter(|_| is_true && analysis.has_roles())
        && let (Some((1, &[symbol])), Ok(length)) = (int.as_product(), usize::try_from(number))
        && length > 0
    {
        match analysis.axes.find(symbol) {
            BATCH => {
                analysis.bind(BATCH, length);
            }
            symbol if analysis.bind(symbol, length) => {}
            symbol => analysis.bind_windows(symbol, length),
        }
    }
    analysis.forks.push(name);
    analysis.conditions.push((condition, is_true));
    is_true
}

/// The outputs of one of the branches.
fn outputs_of(
    analysis: &mut Analysis,
    node: &Node,
    is_true: bool,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    let name = if is_true { "then_branch" } else { "else_branch" };
    let graph = node.subgraph(name).ok_or_else(|| format!("it has no {name}"))?;
    analysis.add_initializers(graph);
    for node in &graph.nodes {
        analysis.add_node(node, file);
    }
    Ok(graph.outputs.iter().map(|name| analysis.value(name, file)).collect())
}

/// The outputs of both branches, of which every row takes those that its condition says.
fn select(
    analysis: &mut Analysis,
    node: &Node,
    condition: &Val,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    if condition.dims().iter().any(|dim| dim.fixed_part() != 1) {
        return Err("its condition is of several elements".to_owned());
    }
    let varies = condition.dims().iter().any(|dim| dim.symbols().next().is_some());
    analysis.selects += 1;
    let branches = [true, false].map(|is_true| outputs_of(analysis, node, is_true, file));
    analysis.selects -= 1;
    let [then, otherwise] = branches;
    let mut outputs = Vec::new();
    for (then, otherwise) in then?.into_iter().zip(otherwise?) {
        let is_alike = |a: &Val, b: &Val| {
            let (a, b) = (a.dims(), b.dims());
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| analysis.axes.same_dim(a, b))
        };
        if matches!((&then, &otherwise), (Val::Unknown, _) | (_, Val::Unknown)) {
            outputs.push(Val::Unknown);
            continue;
        }
        if !is_alike(&then, &otherwise) {
            let [a, b] = [&then, &otherwise].map(|val| analysis.axes.show(&val.dims()));
            return Err(format!(
                "its condition depends on data, and its branches give tensors of {a} and {b}"
            ));
        }
        // One truth value for each sequence stands beside tensors of any rank, whose first axis is the batch.
        let (rank, of_condition) = (then.dims().len(), condition.dims().len());
        let condition = match varies && of_condition < rank {
            true => {
                let axes = (of_condition..rank).map(|axis| axis as i64).collect();
                let axes = vec![ints_attribute("axes", axes)];
                apply(analysis, node, "Unsqueeze", axes, vec![condition.clone()])?
            }
            false => condition.clone(),
        };
        let inputs = vec![condition, then, otherwise];
        let output = apply(analysis, node, "Where", vec![], inputs)?;
        if let Val::View(view) = &output
            && let Source::Op(index, _) = view.source
        {
            // Written as `Where`; the partition sees where the branches meet.
            analysis.ops[index].operator = "If".to_owned();
        }
        outputs.push(output);
    }
    Ok(outputs)
}
