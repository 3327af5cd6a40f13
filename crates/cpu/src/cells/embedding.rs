//! An embedding in front of a recurrent cell, and what its rows project to.
//!
//! What a word adds to the sums of a step depends on nothing but the word. A small table is
//! projected as a whole; of a large one, the words that were met are remembered.

use batchmaker_graph::Lookup;
use batchmaker_kernels::{Lines, ProjectionRow, Recurrence, XPart};

use crate::memory::projection_cache::{Claim, Remembered};

/// Bytes of a table's projection that is made when the cell is materialised.
const WHOLE_BYTES_MAX: usize = 8 << 20;

/// Bytes of projections that are remembered of a larger table.
const REMEMBERED_BYTES_MAX: usize = 128 << 20;

/// A table that turns ids into inputs of a cell.
pub(crate) struct Embedding {
    lookup: Lookup,
    projected: Projected,
}

enum Projected {
    No,
    /// All rows, at so many floats from each other.
    Whole(Lines, usize),
    Met(Remembered),
}

impl Embedding {
    /// For `cell`, whose x is a row of `lookup`; projected or not.
    pub(crate) fn new(cell: &dyn Recurrence, lookup: Lookup, is_projected: bool) -> Self {
        assert_eq!(lookup.width, cell.input_size(), "an embedding is the cell's x");
        let len = cell.projected_len();
        let projected = if !is_projected || cell.projection_macs() == 0 {
            Projected::No
        } else if let Some(whole) = project_all(cell, &lookup) {
            Projected::Whole(whole, Lines::row_stride(len))
        } else {
            Projected::Met(Remembered::new(lookup.rows(), len, REMEMBERED_BYTES_MAX))
        };
        Self { lookup, projected }
    }

    /// Whether every word is projected.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.projected, Projected::Whole(..))
    }

    /// Whether words are remembered as they come.
    pub(crate) fn remembers(&self) -> bool {
        matches!(self.projected, Projected::Met(_))
    }

    /// What stands for the id in a step.
    pub(crate) fn x(&self, id: i64) -> (*const f32, XPart) {
        let row = self.lookup.row(id);
        let projected = match &self.projected {
            Projected::No => None,
            Projected::Whole(rows, stride) => Some(&rows.as_slice()[id as usize * stride..]),
            Projected::Met(known) => known.get(id as usize),
        };
        match projected {
            Some(projected) => (projected.as_ptr(), XPart::Projected),
            None => (row.as_ptr(), XPart::Given),
        }
    }

    /// A word that is to be remembered: what is to be projected for it.
    pub(crate) fn meet(&self, id: i64) -> Option<(ProjectionRow, Claim)> {
        let Projected::Met(known) = &self.projected else { return None };
        let x = self.lookup.row(id).as_ptr();
        let claim = known.claim(id as usize)?;
        Some((ProjectionRow { x, projected: claim.row() }, claim))
    }

    /// Makes words known that were projected since they were met.
    pub(crate) fn publish(&self, claims: impl IntoIterator<Item = Claim>) {
        let Projected::Met(known) = &self.projected else { return };
        claims.into_iter().for_each(|claim| known.publish(claim));
    }
}

/// All rows of a table, projected, if that is small.
fn project_all(cell: &dyn Recurrence, lookup: &Lookup) -> Option<Lines> {
    let stride = Lines::row_stride(cell.projected_len());
    let len = lookup.rows().checked_mul(stride)?;
    if len == 0 || len > WHOLE_BYTES_MAX / size_of::<f32>() {
        return None;
    }
    let mut projected = Lines::zeros(len);
    let inputs = lookup.table.chunks_exact(lookup.width);
    let row = |(x, projected): (&[f32], &mut [f32])| ProjectionRow {
        x: x.as_ptr(),
        projected: projected.as_mut_ptr(),
    };
    let rows: Vec<_> =
        inputs.zip(projected.as_mut_slice().chunks_exact_mut(stride)).map(row).collect();
    // SAFETY: each row has elements of its own, of the cell's lengths.
    unsafe { cell.project(&rows, 0..cell.projection_panels()) };
    Some(projected)
}
