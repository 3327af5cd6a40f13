//! An embedding in front of a recurrent cell, and the projections of its rows.
//!
//! A token id's part of the sums of a step depends on nothing but the token id. A small table is projected as
//! a whole; of a large one, the rows of ids that occur are projected and cached.

use batchmaker_graph::{Lookup, UnknownId};
use batchmaker_kernels::{Lines, ProjectionRow, Recurrence, XPart};

use crate::memory::token_cache::{Claim, TokenCache};

/// The most bytes of a table's projection, for it to be made when the cell is materialised.
const TABLE_BYTES_MAX: usize = 8 << 20;

/// The most bytes of projections that are cached of a larger table.
const CACHE_BYTES_MAX: usize = 128 << 20;

/// A table that turns token ids into inputs of a cell.
pub(crate) struct Embedding {
    lookup: Lookup,
    projected: Projected,
}

enum Projected {
    No,
    /// The projections of all rows, and the floats from one to the next.
    Table(Lines, usize),
    /// The projections of the token ids that occurred.
    Cached(TokenCache),
}

impl Embedding {
    /// The embedding of `cell`, whose x is a row of `lookup`. `is_projected` says whether rows are projected.
    pub(crate) fn new(cell: &dyn Recurrence, lookup: Lookup, is_projected: bool) -> Self {
        assert_eq!(lookup.width, cell.input_size(), "an embedding is the cell's x");
        let len = cell.projected_len();
        let projected = if !is_projected || cell.projection_macs() == 0 {
            Projected::No
        } else if let Some(table) = project_all(cell, &lookup) {
            Projected::Table(table, Lines::row_stride(len))
        } else {
            Projected::Cached(TokenCache::new(lookup.rows(), len, CACHE_BYTES_MAX))
        };
        Self { lookup, projected }
    }

    /// Whether the whole table is projected.
    pub(crate) fn is_table_projected(&self) -> bool {
        matches!(self.projected, Projected::Table(..))
    }

    /// Whether the projections of token ids are cached as they occur.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.projected, Projected::Cached(_))
    }

    /// Checks that the table has a row of each of `ids`.
    pub(crate) fn check(&self, ids: impl IntoIterator<Item = i64>) -> Result<(), UnknownId> {
        ids.into_iter().try_for_each(|id| self.lookup.row(id).map(drop))
    }

    /// The row of the table of an id that was checked.
    fn row(&self, id: i64) -> &[f32] {
        self.lookup.row(id).expect("ids are checked before their rows are used")
    }

    /// The input of a step for token id `id`, which was checked: its projection, if it is there, or its row
    /// of the table.
    pub(crate) fn x(&self, id: i64) -> (*const f32, XPart) {
        let row = self.row(id);
        let projected = match &self.projected {
            Projected::No => None,
            Projected::Table(rows, stride) => Some(&rows.as_slice()[id as usize * stride..]),
            Projected::Cached(cache) => cache.lookup(id as usize),
        };
        match projected {
            Some(projected) => (projected.as_ptr(), XPart::Projected),
            None => (row.as_ptr(), XPart::Given),
        }
    }

    /// Claims the projection of token id `id`, which was checked, if it is to be cached and is not yet, and returns the row to
    /// project.
    pub(crate) fn claim(&self, id: i64) -> Option<(ProjectionRow, Claim)> {
        let Projected::Cached(cache) = &self.projected else { return None };
        let x = self.row(id).as_ptr();
        let claim = cache.claim(id as usize)?;
        Some((ProjectionRow { x, projected: claim.row() }, claim))
    }

    /// Makes projections known that were computed since they were claimed.
    pub(crate) fn publish(&self, claims: impl IntoIterator<Item = Claim>) {
        let Projected::Cached(cache) = &self.projected else { return };
        claims.into_iter().for_each(|claim| cache.publish(claim));
    }
}

/// The projections of all rows of a table, if they are small.
fn project_all(cell: &dyn Recurrence, lookup: &Lookup) -> Option<Lines> {
    let stride = Lines::row_stride(cell.projected_len());
    let len = lookup.rows().checked_mul(stride)?;
    if len == 0 || len > TABLE_BYTES_MAX / size_of::<f32>() {
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
    // SAFETY: each row reads and writes elements of its own, of the cell's lengths, in this thread alone.
    unsafe { cell.project(&rows, 0..cell.projection_panels()) };
    Some(projected)
}
