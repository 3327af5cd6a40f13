//! Divides tensors into parts for several threads.

use std::ops::Range;

/// Elements that are copied to other places that are worth another thread which waits for them: some microseconds.
pub(super) const MOVED_PART_ELEMENTS: usize = 1 << 15;

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

/// The elements of each part, some columns of all rows, which have `columns` elements.
pub(super) fn split_columns(
    y: &mut [f32],
    parts: Vec<Range<usize>>,
    columns: usize,
) -> Vec<(Range<usize>, Vec<&mut [f32]>)> {
    let mut all: Vec<(Range<usize>, Vec<&mut [f32]>)> =
        parts.into_iter().map(|part| (part, Vec::new())).collect();
    for mut row in y.chunks_exact_mut(columns.max(1)) {
        for (part, of_part) in &mut all {
            let (own, others) = row.split_at_mut(part.len());
            of_part.push(own);
            row = others;
        }
    }
    all
}
