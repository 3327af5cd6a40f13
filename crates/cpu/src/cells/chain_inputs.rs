//! The inputs of chains, and their projection before the steps that need them.

use batchmaker_graph::{Lookup, UnknownId};
use batchmaker_kernels::{ProjectionRow, Recurrence, XPart};

use super::batch_job::project_rows;
use super::embedding::Embedding;
use super::recurrent_chain::RecurrentChain;
use crate::memory::projected_blocks::ProjectedBlocks;
use crate::memory::token_cache::Claim;
use crate::threads::thread_group::ThreadGroup;

/// The most new token ids that are projected together before a batch goes on.
const NEW_IDS_MAX: usize = 64;

/// A packed cell, and the embedding that its inputs are looked up in, if they are token ids.
pub(crate) struct ChainInputs {
    cell: Box<dyn Recurrence>,
    embedding: Option<Embedding>,
}

/// The scratch buffers and projections of one roster.
pub(crate) struct InputBuffers {
    /// The rows to project before the next steps.
    pub(crate) to_project: Vec<ProjectionRow>,
    /// The number of steps that `to_project` is for.
    pub(crate) steps_to_project: usize,
    /// The new token ids that are being projected.
    claims: Vec<Claim>,
    pub(crate) blocks: ProjectedBlocks,
}

impl ChainInputs {
    /// The inputs of `cell`, through `lookup` where they are token ids. `is_projected` says whether the rows
    /// of the lookup's table are projected.
    pub(crate) fn new(
        cell: Box<dyn Recurrence>,
        lookup: Option<Lookup>,
        is_projected: bool,
    ) -> Self {
        let embedding = lookup.map(|lookup| Embedding::new(&*cell, lookup, is_projected));
        Self { cell, embedding }
    }

    /// The cell.
    pub(crate) fn cell(&self) -> &dyn Recurrence {
        &*self.cell
    }

    /// Empty buffers.
    pub(crate) fn buffers(&self) -> InputBuffers {
        InputBuffers {
            to_project: Vec::new(),
            steps_to_project: 0,
            claims: Vec::new(),
            blocks: ProjectedBlocks::new(self.cell.projected_len()),
        }
    }

    /// Bytes of an input's row: one I64, or an f32 for each element of x.
    pub(crate) fn row_bytes(&self) -> usize {
        if self.embedding.is_some() { 8 } else { 4 * self.cell.input_size() }
    }

    /// Whether the whole table was projected when the cell was materialised.
    pub(crate) fn is_table_projected(&self) -> bool {
        self.embedding.as_ref().is_some_and(Embedding::is_table_projected)
    }

    /// Whether projections of token ids are cached.
    pub(crate) fn is_cached(&self) -> bool {
        self.embedding.as_ref().is_some_and(Embedding::is_cached)
    }

    /// Checks the token ids of a chain's next `known` steps, whose inputs are written. Those that came with
    /// the request were checked when it was admitted.
    ///
    /// # Safety
    /// The chain has rows of [`Self::row_bytes`] bytes as inputs, and those of these steps are written.
    pub(crate) unsafe fn check_ids(
        &self,
        chain: &RecurrentChain,
        known: u32,
    ) -> Result<(), UnknownId> {
        let Some(embedding) = self.embedding.as_ref().filter(|_| !chain.is_x_known) else {
            return Ok(());
        };
        let steps = chain.course.step()..chain.known_end(known);
        // SAFETY: the inputs of these steps are written, and each is one I64.
        embedding.check(steps.map(|step| unsafe { chain.token_id(step) }))
    }

    /// Returns the address of the input of a chain's step, if it has no projected block.
    ///
    /// # Safety
    /// The chain has rows of [`Self::row_bytes`] bytes as inputs, and that of `step` is written.
    pub(crate) unsafe fn x(&self, chain: &RecurrentChain, step: u32) -> (*const f32, XPart) {
        match &self.embedding {
            None => (chain.x.row(step).cast::<f32>().cast_const(), XPart::Given),
            // SAFETY: the row of the step is one I64, which is written.
            Some(embedding) => embedding.x(unsafe { chain.token_id(step) }),
        }
    }

    /// Projects token ids that the cache lacks, of the steps whose inputs are written: the next `known` steps
    /// of each chain, or all where x came with the request.
    ///
    /// # Safety
    /// The chains have rows of [`Self::row_bytes`] bytes as inputs, and those of these steps are written.
    pub(crate) unsafe fn project_new_ids(
        &self,
        buffers: &mut InputBuffers,
        chains: &mut [RecurrentChain],
        known: u32,
        group: &mut ThreadGroup,
    ) {
        let Some(embedding) = self.embedding.as_ref().filter(|embedding| embedding.is_cached())
        else {
            return;
        };
        let InputBuffers { to_project, claims, .. } = buffers;
        to_project.clear();
        for chain in chains {
            let end = chain.known_end(known);
            while chain.ids_claimed < end && claims.len() < NEW_IDS_MAX {
                // SAFETY: the step is one of those whose token ids are written.
                let id = unsafe { chain.token_id(chain.ids_claimed) };
                if let Some((row, claim)) = embedding.claim(id) {
                    to_project.push(row);
                    claims.push(claim);
                }
                chain.ids_claimed += 1;
            }
        }
        if claims.is_empty() {
            return;
        }
        // SAFETY: inputs are rows of the table, and the other rows were claimed for this.
        unsafe { project_rows(&*self.cell, to_project, group) };
        embedding.publish(claims.drain(..));
    }

    /// Lists the rows to project in `buffers`: with `pre_projection`, those of the next steps whose inputs
    /// are written (`known` of them, or all where x came with the request), of chains that have no
    /// projection of their next step. Chains give back the blocks that they are done with.
    ///
    /// # Safety
    /// The chains have rows of [`Self::row_bytes`] bytes as inputs, and those of these steps are written.
    pub(crate) unsafe fn list_pre_projection(
        &self,
        buffers: &mut InputBuffers,
        chains: &mut [RecurrentChain],
        pre_projection: bool,
        known: u32,
    ) {
        let InputBuffers { to_project, steps_to_project, blocks, .. } = buffers;
        to_project.clear();
        *steps_to_project = 0;
        for chain in chains {
            if chain.is_projected() {
                continue;
            }
            if let Some(done) = chain.projected.take() {
                blocks.give_back(done);
            }
            let end = chain.known_end(known);
            if !pre_projection || chain.course.step() >= end {
                continue;
            }
            // SAFETY: `step` is one of those whose inputs are written.
            let x = |step| unsafe { self.x(chain, step) };
            let is_given = |step| x(step).1 == XPart::Given;
            let projected = blocks.take(chain.course.step()..end, is_given);
            if let Some(projected) = &projected {
                for step in projected.steps() {
                    let (x, XPart::Given) = x(step) else { continue };
                    let Some(projected) = projected.row(step) else { continue };
                    to_project.push(ProjectionRow { x, projected });
                }
                *steps_to_project += projected.steps().len();
            }
            chain.projected = projected;
        }
    }
}
