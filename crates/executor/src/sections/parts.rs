//! Divides tensors into parts for several threads.

use std::ops::Range;

/// `total` rows in `count` parts, about equal.
pub(super) fn even_parts(total: usize, count: usize) -> Vec<Range<usize>> {
    (0..count).map(|part| total * part / count..total * (part + 1) / count).collect()
}

/// The elements of each part, `of_one` for each row of it.
pub(super) fn split(
    mut rest: &mut [f32],
    parts: Vec<Range<usize>>,
    of_one: usize,
) -> Vec<(Range<usize>, &mut [f32])> {
    let own = |part: Range<usize>| {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(part.len() * of_one);
        rest = others;
        (part, own)
    };
    parts.into_iter().map(own).collect()
}
