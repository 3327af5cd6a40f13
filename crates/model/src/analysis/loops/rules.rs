//! The rules of `Loop` and `Scan`: whether a loop is served as a chain, by repeating its body, or as it stands.

use crate::analysis::loops::counted::counted;
use crate::analysis::loops::form::Loop;
use crate::analysis::operator::Inputs;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::int::Int;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The most steps of a loop that is the body again and again whatever it goes along.
const FEW: i64 = 8;

/// The most nodes that repeating a body may come to.
const REPEATED_MAX: i64 = 10_000;

/// `Loop`.
pub(crate) fn a_loop(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    if has_unknown(analysis, inputs) {
        return Ok(Vec::new());
    }
    match counted(analysis, node, inputs, file) {
        Some(counted) => {
            let of_loop = Loop::of_loop(&counted.node, &counted.inputs)?;
            let vals = evaluate(analysis, &of_loop, file)?;
            Ok(if vals.is_empty() { vals } else { counted.outputs(vals) })
        }
        None => evaluate(analysis, &Loop::of_loop(node, inputs)?, file),
    }
}

/// `Scan`.
pub(crate) fn scan(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    match has_unknown(analysis, inputs) {
        true => Ok(Vec::new()),
        false => evaluate(analysis, &Loop::of_scan(analysis, node, inputs)?, file),
    }
}

/// Whether an input is downstream of a diagnostic: then axes of batch and steps may be missed.
fn has_unknown(analysis: &mut Analysis, inputs: &Inputs) -> bool {
    let has_unknown = inputs.iter().flatten().any(|val| matches!(val, Val::Unknown));
    analysis.misses_recurrence |= has_unknown;
    has_unknown
}

/// The outputs of a loop whose inputs are all known.
fn evaluate(
    analysis: &mut Analysis,
    a_loop: &Loop<'_>,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    let node = a_loop.node;
    let inside = a_loop.hoist(analysis, file);
    let count = a_loop.trips.as_ref().and_then(Int::as_number);
    let comes_to = |count: i64| count.checked_mul(inside.len() as i64);
    let is_bearable = |&count: &i64| comes_to(count).is_some_and(|nodes| nodes <= REPEATED_MAX);
    let repeated_count = count.filter(is_bearable);
    let is_inside = analysis.is_cell() || analysis.body.is_some();
    let few = repeated_count.filter(|&count| count <= FEW || is_inside);
    if few.is_none() && is_inside {
        return Err(match count {
            Some(_) => "inside a cell or another loop, it comes to too many nodes".to_owned(),
            None => {
                "inside a cell or another loop, it has steps that the file does not count".into()
            }
        });
    }
    let mut reasons = Vec::new();
    if few.is_none() {
        match a_loop.chain(analysis, &inside, file) {
            Ok(vals) => return Ok(vals),
            Err(diagnostics) => reasons = diagnostics,
        }
    }
    if let Some(count) = repeated_count {
        let known = analysis.diagnostics.len();
        match a_loop.repeat(analysis, count, &inside, file) {
            Ok(vals) => return Ok(vals),
            Err(reason) if is_inside => return Err(reason),
            Err(reason) => {
                analysis.diagnostics.truncate(known);
                reasons = vec![node.diagnostic(reason)];
            }
        }
    }
    match a_loop.execute(analysis, &inside, file) {
        Ok(vals) => return Ok(vals),
        Err(reason) if reason.is_empty() => {}
        Err(reason) => reasons.push(node.diagnostic(format!("as it stands: {reason}"))),
    }
    analysis.diagnostics.extend(reasons);
    Ok(Vec::new())
}
