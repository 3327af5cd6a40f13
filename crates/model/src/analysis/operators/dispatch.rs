//! Applies an operator to values by the rules that the table of operators has for it: on rows where it is a
//! function of rows, else over whole sequences.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::{Inputs, OnRepeated, Operator, Rule};
use crate::analysis::operators::per_sequence::{is_per_sequence, place_of_batch, shape_at};
use crate::analysis::operators::repeated;
use crate::analysis::operators::sequence_op::{materialised, varies};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Scope, Source, Val, View};
use crate::data::dim::{Dim, steps};
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::node::Node;

/// Applies another operator, in the place of `node`, to tensors; gives its first output.
pub(crate) fn apply(
    analysis: &mut Analysis,
    node: &Node,
    operator: &str,
    attributes: Vec<AttributeProto>,
    inputs: Vec<Val>,
) -> Result<Val, String> {
    if inputs.iter().any(|val| matches!(val, Val::Unknown)) {
        return Ok(Val::Unknown);
    }
    let node = Node::plain(operator, node).with(attributes);
    let inputs: Vec<Option<Val>> = inputs.into_iter().map(Some).collect();
    let vals = evaluate(analysis, &node, &inputs)?;
    Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
}

/// The node's outputs, or why it cannot be served.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let operator = entry(analysis, node)?;
    if let Some(rule) = operator.on_dequantised
        && let Some(vals) = rule(analysis, node, inputs)?
    {
        return Ok(vals);
    }
    if operator.takes_weights && inputs.iter().skip(1).flatten().any(is_filled) {
        let inputs = with_weights(analysis, inputs)?;
        return evaluate(analysis, node, &inputs);
    }
    if inputs.iter().flatten().any(is_per_sequence) && !operator.takes_per_sequence {
        return beside_rows(analysis, operator, node, inputs);
    }
    let is_narrow = |val: &Val| val.element().is_some_and(ElementType::is_narrow);
    if let Some(rule) = operator.on_narrow.filter(|_| inputs.iter().flatten().any(is_narrow)) {
        return rule(analysis, node, inputs);
    }
    let is_list = |val: &Val| matches!(val, Val::List(_));
    if inputs.iter().flatten().any(is_list) && !operator.takes_lists {
        return Err("its input is a sequence of tensors".to_owned());
    }
    let has_more_outputs = node.output(1).is_some() || node.output(2).is_some();
    let on_any = operator.with_more_outputs.filter(|_| has_more_outputs).or(operator.on_any);
    if let Some(rule) = on_any {
        return follow(analysis, operator, Some(rule), node, inputs);
    }
    let views = inputs.iter().flatten().filter_map(|val| match val {
        Val::View(view) => Some(view),
        _ => None,
    });
    let mut views = views.peekable();
    let is_constant = views.peek().is_none();
    let has_one_axis = !analysis.has_roles() || views.all(|view| steps(&view.dims).len() <= 1);
    if has_one_axis
        && !is_constant
        && stays_whole(analysis, operator, inputs)
        && let Some(rule) = operator.on_sequences
        && let Ok(vals) = rule(analysis, node, inputs)
    {
        return Ok(vals);
    }
    let on_rows = match has_one_axis {
        true => on_rows(analysis, node, inputs),
        false => Err("its input varies along more than one axis".to_owned()),
    };
    let on_rows =
        on_rows.and_then(|vals| match vals.iter().all(|val| analysis.has_axes_once(val)) {
            true => Ok(vals),
            false => Err("its output varies along more than one axis".to_owned()),
        });
    let reason = match on_rows {
        Ok(vals) => return Ok(vals),
        Err(reason) => reason,
    };
    if let Some(lengths_as_data) = operator.lengths_as_data
        && let Some(data) = lengths_as_data(analysis, node, inputs)?
    {
        return evaluate(analysis, node, &data);
    }
    match (is_constant, operator.on_sequences) {
        (true, rule) if varies(inputs) => {
            let inputs = materialised(analysis, node, inputs)?;
            let rule = rule.ok_or(reason)?;
            rule(analysis, node, &inputs)
        }
        (true, _) | (false, None) => Err(reason),
        (false, Some(rule)) => rule(analysis, node, inputs).map_err(|over_sequences| {
            // Of an operator without a rule on rows there is no more to say.
            match operator.on_rows.is_none() || over_sequences == reason {
                true => over_sequences,
                false => format!("{reason}; on whole sequences: {over_sequences}"),
            }
        }),
    }
}

/// Whether an operator that is a function of rows is better applied to whole tensors: all that it reads are outputs of
/// operators on whole tensors, which it can run with.
fn stays_whole(analysis: &Analysis, operator: &Operator<Analysis>, inputs: &Inputs) -> bool {
    let mut views = inputs.iter().flatten().filter_map(|val| match val {
        Val::View(view) => Some(view),
        _ => None,
    });
    // Axes of steps are moved without a copy.
    let copies = |view: &View| operator.name == "Transpose" && steps(&view.dims).is_empty();
    let is_light = |view: &View| operator.is_light || copies(view);
    !varies(inputs) && views.all(|view| is_light(view) && is_whole(analysis, view))
}

/// Whether a value is the output of an operator on whole tensors, and what is computed from it may be one too. INT64 are lengths
/// and indices.
pub(crate) fn is_whole(analysis: &Analysis, view: &View) -> bool {
    let is_whole = |op: usize| view.at.is_none() && analysis.ops[op].scope != Scope::Row;
    analysis.has_roles()
        && !analysis.is_cell()
        && view.element != ElementType::I64
        && matches!(view.source, Source::Op(op, _) if is_whole(op))
}

/// The outputs of a node that reads tensors which each sequence has for itself. If that cannot be, the next pass takes
/// one sequence a request, whose tensors are those of the batch.
fn beside_rows(
    analysis: &mut Analysis,
    operator: &Operator<Analysis>,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    if operator.on_repeated != OnRepeated::Broadcast
        && !["Cast", "Identity"].contains(&operator.name)
    {
        analysis.bind(BATCH, 1);
        return Err("it reads numbers that each sequence has for itself".to_owned());
    }
    let aligned = place_of_batch(inputs).and_then(|place| {
        let rank = inputs.iter().flatten().map(|val| val.dims().len()).max().unwrap_or(0);
        let mut aligned = inputs.to_vec();
        for val in aligned.iter_mut().flatten() {
            if let Val::PerSequence(view) = val {
                let shape = shape_at(analysis, view, place.unwrap_or(rank + 1))?;
                let shape = Val::literal(Literal::ints(shape));
                *val =
                    apply(analysis, node, "Reshape", vec![], vec![Val::View(view.clone()), shape])?;
            }
        }
        Ok((place, evaluate(analysis, node, &aligned)?))
    });
    let (place, vals) = aligned.inspect_err(|_| _ = analysis.bind(BATCH, 1))?;
    let of_sequence = |val| match val {
        Val::View(view) if place.is_none() => Val::PerSequence(view),
        other => other,
    };
    Ok(vals.into_iter().map(of_sequence).collect())
}

/// The node's outputs by its operator's rule on rows or on constants.
pub(crate) fn on_rows(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let operator = entry(analysis, node)?;
    follow(analysis, operator, operator.on_rows.or(operator.on_constants), node, inputs)
}

/// Applies a rule to the inputs, with constants that are repeated treated as the table says.
fn follow(
    analysis: &mut Analysis,
    operator: &Operator<Analysis>,
    rule: Option<Rule<Analysis>>,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let is_repeated = |val: &Val| matches!(val, Val::Repeat(..));
    let as_it_stands = operator.on_repeated == OnRepeated::AsItStands;
    if inputs.iter().flatten().any(is_repeated) && !as_it_stands {
        return repeated::evaluate(analysis, operator, node, inputs);
    }
    match rule {
        Some(rule) => rule(analysis, node, inputs),
        None => Err("its input does not depend on the request".to_owned()),
    }
}

/// The entry of a node's operator in the table.
pub(crate) fn entry(
    analysis: &Analysis,
    node: &Node,
) -> Result<&'static Operator<Analysis>, String> {
    let operator = analysis.operators.find(&node.qualified());
    operator.ok_or_else(|| "the operator is not supported".to_owned())
}

/// Whether a value is one number in a shape that the file fixes.
fn is_filled(val: &Val) -> bool {
    matches!(val, Val::Fill(value, dims)
        if value.data().is_some() && dims.iter().all(|dim| dim.symbols().next().is_none()))
}

/// The inputs with those after the first that are one number in a fixed shape as whole constants.
fn with_weights(analysis: &mut Analysis, inputs: &Inputs) -> Result<Vec<Option<Val>>, String> {
    let mut inputs = inputs.to_vec();
    for val in inputs.iter_mut().skip(1).flatten() {
        if let (Val::Fill(value, dims), true) = (&*val, is_filled(val)) {
            let shape: Vec<usize> = dims.iter().map(Dim::fixed_part).collect();
            analysis.afford_filled(&shape)?;
            *val = Val::literal(value.expanded(&shape));
        }
    }
    Ok(inputs)
}
