//! The arg-max of a linear layer over a batch, divided among the threads of a worker.

use batchmaker_graph::TensorData;
use batchmaker_kernels::{ArgMax, ArgMaxRow, PackedLinear};

use super::batch_job::{WORTH_THREADS, items, run_shared};
use crate::threads::phases::{Member, part};
use crate::threads::thread_group::ThreadGroup;

/// The index of the greatest sum of each row: `x` is `[rows, input]`.
pub(crate) fn arg_max(
    linear: &PackedLinear,
    rows: usize,
    x: &TensorData,
    group: &mut ThreadGroup,
) -> Vec<i64> {
    let TensorData::F32(x) = x else { unreachable!("x is {}", x.element()) };
    let (input, panels) = (linear.input_size(), linear.panels());
    assert_eq!(x.len(), rows * input, "x has all rows");
    let macs = rows * input * linear.output_size();
    let is_shared = macs >= WORTH_THREADS;
    let items =
        if is_shared { items(macs, panels, linear.panels_a_call(), group.threads()) } else { 1 };
    // `[item, row]`: the greatest among the sums of the item's panels.
    let mut found = vec![ArgMax::NONE; items * rows];
    let first = Shared(found.as_mut_ptr());
    let work = |member: &mut Member<'_>| {
        let first = &first;
        member.run_phase(items, |item| {
            let row = |row: usize| ArgMaxRow {
                x: x[row * input..].as_ptr(),
                best: first.0.wrapping_add(item * rows + row),
            };
            let rows: Vec<ArgMaxRow> = (0..rows).map(row).collect();
            // SAFETY: x has all rows, as was checked; an item has elements of its own in `found`.
            unsafe { linear.argmax(&rows, part(panels, item, items)) };
        });
    };
    run_shared(group, macs, &work);
    let best = |row: usize| {
        let of_items = found.iter().skip(row).step_by(rows);
        i64::from(of_items.fold(ArgMax::NONE, |best, &found| best.or(found)).index)
    };
    (0..rows).map(best).collect()
}

/// The elements that members of a group write, each its own.
struct Shared(*mut ArgMax);

// SAFETY: an address can be read from several threads; unsafe code that writes there vouches for it.
unsafe impl Sync for Shared {}
