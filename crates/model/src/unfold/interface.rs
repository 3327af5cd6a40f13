//! The interface of a whole ONNX file: the axes of request and reply tensors, and checks that outputs can be
//! given back.

use std::collections::HashMap;

use crate::analysis::state::Analysis;
use crate::analysis::value::ValueRef;
use crate::data::dim::{Dim, Factor, steps};
use crate::data::layout::{Axis, Content, InputLayout};
use crate::data::symbol::BATCH;
use crate::unfold::plan::{Extent, PlanInput, UnfoldPlan};

/// The name of an output that cannot be given back, and the reason.
pub(crate) type OutputReason = (String, String);

/// Checks that every output's axes are ones that rows can be given back under.
pub(crate) fn check_outputs(analysis: &Analysis) -> Vec<OutputReason> {
    let mut reasons = Vec::new();
    let mut orders: HashMap<ValueRef, bool> = HashMap::new();
    for (name, view) in &analysis.outputs {
        let is_joint = |dim: &Dim| dim.symbols().count() > 1;
        if steps(&view.dims).len() > 1 && view.dims.iter().any(is_joint) {
            let shape = analysis.axes.show(&view.dims);
            let reason = format!("{shape} varies along more than one axis, and joins some of them");
            reasons.push((name.clone(), reason));
            continue;
        }
        let mixed = view.dims.iter().any(|dim| dim.in_row() && dim.symbols().next().is_some());
        let reference = analysis.resolve(view.source, view.at);
        let joint = view.dims.iter().any(|dim| dim.symbols().count() > 1);
        let order = *orders.entry(reference).or_insert(time_first(&view.dims));
        let symbols_lead = view.dims.first().is_some_and(|dim| dim.symbols().count() > 0);
        if mixed || (joint && (order != time_first(&view.dims) || !symbols_lead)) {
            let shape = analysis.axes.show(&view.dims);
            reasons.push((name.clone(), format!("its axes {shape} mix rows and what is in them")));
        }
    }
    reasons
}

pub(super) fn time_first(dims: &[Dim]) -> bool {
    dims.iter().flat_map(Dim::symbols).next().is_some_and(|first| first != BATCH)
}

pub(super) fn extent(dim: &Dim) -> Extent {
    match dim.0[..] {
        [Factor::Symbol(BATCH)] => Extent::Batch,
        [Factor::Symbol(steps)] => Extent::Steps(steps),
        [Factor::Symbol(_), ..] => Extent::Both(steps(std::slice::from_ref(dim))[0]),
        _ => Extent::Fixed(dim.fixed_part()),
    }
}

/// The order that brings the axes of rows to the front, where that is asked for with the batch first.
pub(super) fn rows_first(dims: &[Dim], is_batch_first: bool) -> Option<Vec<usize>> {
    let (mut order, inside): (Vec<usize>, Vec<usize>) =
        (0..dims.len()).partition(|&axis| !dims[axis].in_row());
    // The batch first, and several axes of steps in the order of their ids: the batch's is the least.
    if is_batch_first || steps(dims).len() > 1 {
        order.sort_by_key(|&axis| dims[axis].as_symbol());
    }
    order.extend(inside);
    (!order.is_sorted()).then_some(order)
}

pub(super) fn layout(input: &PlanInput, plan: &UnfoldPlan) -> InputLayout {
    let axis = |&extent: &Extent| match extent {
        Extent::Fixed(extent) => Axis::Fixed(extent),
        Extent::Batch => plan.batch.map_or(Axis::Batch, Axis::Fixed),
        Extent::Steps(axis) | Extent::Both(axis) => {
            plan.axes[axis.0 as usize].length.map_or(Axis::Time, Axis::Fixed)
        }
    };
    let content = input.ids.map_or(Content::Numbers, |ids| Content::Ids(ids as u64));
    InputLayout { axes: input.axes.iter().map(axis).collect(), content, optional: false }
}

/// The axis of time, if there is one and every other is of batch or 1.
pub(super) fn step_axis(input: &PlanInput) -> Option<usize> {
    let axes = &input.axes;
    let mut times = (0..axes.len()).filter(|&axis| matches!(axes[axis], Extent::Steps(_)));
    let inside = |axis: &Extent| !matches!(axis, Extent::Fixed(2..) | Extent::Both(_));
    let first = times.next()?;
    (times.next().is_none() && axes.iter().all(inside)).then_some(first)
}

/// The length of a dimension, -1 where requests choose it.
pub(super) fn length(analysis: &Analysis, dim: &Dim) -> i64 {
    let factors = dim.0.iter().map(|factor| match factor {
        Factor::Fixed(n) => Some(*n as i64),
        Factor::Symbol(symbol) => analysis.axes.length(*symbol).map(|n| n as i64),
    });
    factors.product::<Option<i64>>().unwrap_or(-1)
}
