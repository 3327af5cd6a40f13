//! The kernels that are made for a recurrent cell, in one mapping.

use batchmaker_graph::RecurrentCell;

use super::persistent::{ROWS, choose, choose_quantum};
use crate::kernels::persistent::PersistentKernel;
use crate::kernels::quantum::QuantumKernel;
use crate::kernels::weights::Storage;
use crate::mapping::{CostModel, Limits, Mapping};

/// The kernels that are made for a recurrent cell, in one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedKernels {
    /// The kernel of a task.
    pub(crate) kernel: PersistentKernel,
    /// The kernel that runs task after task, if the cell has one.
    pub(crate) quantum: Option<QuantumKernel>,
}

impl MappedKernels {
    /// The kernels of a cell that no plan is known of; none if its weights fit no GPU's registers and shared memory.
    pub(crate) fn of(
        cell: (&RecurrentCell, Storage),
        limits: Limits,
        with_quanta: bool,
    ) -> Option<Self> {
        // Weights are faster in registers than in shared memory.
        let mut all_limits = [limits.in_registers(), limits].into_iter();
        let choose_quantum = || all_limits.clone().find_map(|limits| choose_quantum(cell, limits));
        let quantum = with_quanta.then(choose_quantum).flatten();
        let kernel = match quantum {
            Some(of) => of.persistent().within(limits, 0),
            None => all_limits.find_map(|limits| choose(cell, limits))?,
        };
        Some(Self { kernel, quantum })
    }

    /// The same kernels in another mapping.
    ///
    /// # Errors
    /// The reason why the mapping does not take the place of this one.
    pub(crate) fn with_mapping(self, mapping: Mapping, limits: Limits) -> Result<Self, String> {
        let [parts, own] = [mapping, self.kernel.mapping()].map(|of| self.kernel.parts_of_sum(of));
        if parts != own {
            return Err(format!("sums of {parts} parts, where the order of its sums takes {own}"));
        }
        let kernel = self.kernel.with_mapping(mapping).within(limits, 0);
        let quantum = self.quantum.and_then(|_| QuantumKernel::within(kernel, limits));
        let with = Self { kernel, quantum };
        let fits = with.fits(1, limits);
        fits.then_some(with).ok_or_else(|| "a mapping that does not fit the GPU".to_owned())
    }

    /// Whether a GPU of these limits runs them for `rows` rows with one tile a block.
    fn fits(&self, rows: usize, limits: Limits) -> bool {
        self.kernel.fits(rows, limits) && self.quantum.is_none_or(|of| of.fits(rows, limits))
    }

    /// The kernels of the same cell, with the same order of sums, in the `most` mappings that a cost model ranks first for `rows` rows: or for fewer, if no
    /// mapping fits that has one tile a block.
    pub(crate) fn ranked(
        self,
        cell: &RecurrentCell,
        rows: usize,
        (limits, model): (Limits, &CostModel),
        most: usize,
    ) -> Vec<Self> {
        let is_in_shared = self.kernel.in_shared() > 0
            || self.quantum.is_some_and(|of| of.persistent().in_shared() > 0);
        let limits = if is_in_shared { limits } else { limits.in_registers() };
        let ranked = |rows: usize| -> Vec<Self> {
            let of = (cell.hidden_size, rows);
            let storage = self.kernel.storage();
            let ranked = PersistentKernel::ranked_as(&cell.kind, storage, of, limits, model);
            let mapped =
                ranked.iter().filter_map(|of| self.with_mapping(of.mapping(), limits).ok());
            mapped.filter(|of| of.fits(rows, limits)).take(most).collect()
        };
        let fewer = ROWS.into_iter().filter(|&of| of < rows);
        let mut all = std::iter::once(rows).chain(fewer).map(ranked);
        all.find(|ranked| !ranked.is_empty()).unwrap_or_else(|| vec![self])
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::RecurrentKind;

    use super::super::persistent::model_of;
    use super::*;

    fn lstm(hidden_size: usize) -> RecurrentCell {
        RecurrentCell {
            kind: RecurrentKind::Lstm { p: None, bytes: None },
            input_size: 0,
            hidden_size,
            w: [].into(),
            r: vec![0.0; 4 * hidden_size * hidden_size].into(),
            b: None,
            lookup: None,
        }
    }

    #[test]
    fn mappings_of_all_batches_have_the_lanes_of_the_first_choice() {
        let limits = Limits::of(132);
        for (hidden, with_quanta) in [(64, false), (64, true), (256, true), (512, false)] {
            let cell = lstm(hidden);
            let own = MappedKernels::of((&cell, Storage::F32), limits, with_quanta).unwrap();
            assert_eq!(own.quantum.is_some(), with_quanta);
            for rows in [1, 3, 20, 512] {
                let ranked = own.ranked(&cell, rows, (limits, &model_of(limits)), 5);
                assert!((1..=5).contains(&ranked.len()), "{hidden} units, {rows} rows");
                for of in &ranked {
                    let mapping = of.kernel.mapping();
                    assert_eq!(mapping.lanes, own.kernel.mapping().lanes);
                    assert_eq!(own.with_mapping(mapping, limits), Ok(*of));
                    assert!(of.quantum.is_none_or(|of| of.fits(1, limits)));
                }
            }
            assert_eq!(
                own.ranked(&cell, 4096, (limits, &model_of(limits)), 5)[0],
                own,
                "the one for the most rows"
            );
        }
    }

    #[test]
    fn weights_that_do_not_fit_the_registers_lie_in_shared_memory() {
        let limits = Limits { shared_for_weights: 179 << 10, ..Limits::of(132) };
        let of = |hidden_size, storage, limits| {
            let cell = RecurrentCell { hidden_size, ..lstm(1) };
            MappedKernels::of((&cell, storage), limits, true)
        };
        for (hidden, storage, is_in_shared) in [
            (1024, Storage::F32, false),
            (1536, Storage::F32, true),
            (1024, Storage::Bf16, false),
            (1536, Storage::Bf16, true),
        ] {
            let own = of(hidden, storage, limits).expect("a mapping with shared memory");
            assert_eq!(of(hidden, storage, limits.in_registers()).is_none(), is_in_shared);
            let quantum = own.quantum.expect("a launch takes tasks");
            for kernel in [&own.kernel, quantum.persistent()] {
                let bytes = kernel.shared_bytes_of_weights();
                assert_eq!(bytes > 0, is_in_shared, "{hidden}: {bytes}");
                assert!(bytes <= limits.shared_for_weights, "{hidden}: {bytes}");
            }
            assert!(own.kernel.in_shared() <= quantum.persistent().in_shared());
        }
        assert_eq!(of(2560, Storage::F32, limits), None);
    }

    #[test]
    fn mappings_in_bfloat16_have_the_warps_of_the_first_choice() {
        let limits = Limits::of(132);
        let cell = lstm(1024);
        let own = MappedKernels::of((&cell, Storage::Bf16), limits, true).unwrap();
        let warps = own.kernel.mapping().groups;
        for rows in [1, 20, 512] {
            let ranked = own.ranked(&cell, rows, (limits, &model_of(limits)), 5);
            assert!(ranked.iter().all(|of| of.kernel.mapping().groups == warps), "{rows} rows");
        }
        let mapping = own.kernel.mapping();
        let refused = [
            Mapping { groups: 2 * warps, ..mapping },
            Mapping { lanes: 16, ..mapping },
            Mapping { tile_height: 4, ..mapping },
        ];
        assert!(refused.iter().all(|&of| own.with_mapping(of, limits).is_err()));
    }

    #[test]
    fn other_lanes_and_what_does_not_fit_are_refused() {
        let limits = Limits::of(132);
        let own = MappedKernels::of((&lstm(256), Storage::F32), limits, true).unwrap();
        let mapping = own.kernel.mapping();
        let refused = |mapping| own.with_mapping(mapping, limits).unwrap_err();
        let lanes = refused(Mapping { lanes: mapping.lanes / 2, ..mapping });
        assert!(lanes.contains("parts, where the order of its sums takes"), "{lanes}");
        let wide = refused(Mapping { tile_width: 256, ..mapping });
        assert_eq!(wide, "a mapping that does not fit the GPU");
    }
}
