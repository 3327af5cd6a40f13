//! The stages of a model and their times (DVABatch, section 7.1).

use batchmaker_graph::CellTypeId;

/// The stages that a model is cut into for [`crate::Policy::Staged`], and what is known of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    of_cells: Vec<usize>,
    times: Vec<Vec<(u32, u64)>>,
}

impl Stages {
    /// Stages of cells: for each cell type, by id, its stage. No cell reads what one of a later stage writes. `times` holds for each stage
    /// sizes of batches, ascending, each with the nanoseconds that such a batch takes; empty where they are not known.
    ///
    /// # Panics
    /// There is no stage, a cell type's is not among them, or sizes do not rise from 1 or more.
    pub fn new(of_cells: Vec<usize>, times: Vec<Vec<(u32, u64)>>) -> Self {
        assert!(!times.is_empty(), "a model without a stage");
        assert!(of_cells.iter().all(|&stage| stage < times.len()), "a cell of no stage");
        let rises = |times: &Vec<(u32, u64)>| {
            times.first().is_none_or(|first| first.0 > 0) && times.is_sorted_by(|a, b| a.0 < b.0)
        };
        assert!(times.iter().all(rises), "sizes of batches that do not rise");
        Self { of_cells, times }
    }

    /// One stage of `cell_types` cell types, of unknown time.
    pub fn whole(cell_types: usize) -> Self {
        Self { of_cells: vec![0; cell_types], times: vec![Vec::new()] }
    }

    /// The number of stages.
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// The stage of a cell type.
    ///
    /// # Panics
    /// It has none.
    pub fn of(&self, cell_type: CellTypeId) -> usize {
        self.of_cells[cell_type.index()]
    }

    /// The number of cell types that have a stage.
    pub(crate) fn cell_types(&self) -> usize {
        self.of_cells.len()
    }

    /// The time of a batch of `size` from `stage` to the end, the paper's T_remain, in nanoseconds: between sizes that were measured on a line,
    /// beyond them in proportion. None where the times of a stage are not known.
    pub fn remaining_ns(&self, stage: usize, size: u32) -> Option<u64> {
        self.times[stage..].iter().map(|times| time_ns(times, size)).sum()
    }

    /// The sizes of the parts of a batch of `size` that goes on to `stage` (Policy II): halves, and halves of these, as long as the whole takes as
    /// long as two, and `margin_percent` more.
    pub fn split(&self, stage: usize, size: u32, margin_percent: u32) -> Vec<u32> {
        let halves = [size / 2, size - size / 2];
        let time = |size| self.remaining_ns(stage, size);
        let factor = 1.0 + f64::from(margin_percent) / 100.0;
        let is_worth = |whole: u64, halves: u64| whole as f64 >= factor * halves as f64;
        let times = (time(size), time(halves[0]), time(halves[1]));
        match times {
            (Some(whole), Some(first), Some(second))
                if size > 1 && is_worth(whole, first + second) =>
            {
                halves.iter().flat_map(|&half| self.split(stage, half, margin_percent)).collect()
            }
            _ => vec![size],
        }
    }
}

fn time_ns(times: &[(u32, u64)], size: u32) -> Option<u64> {
    let after = times.partition_point(|&(known, _)| known < size);
    let (first, last) = (times.first()?, times.last()?);
    Some(match times.get(after) {
        Some(&(known, ns)) if known == size => ns,
        Some(_) if after == 0 => first.1,
        Some(&(to, to_ns)) => {
            let (from, from_ns) = times[after - 1];
            let share = f64::from(size - from) / f64::from(to - from);
            (from_ns as f64 + share * (to_ns as f64 - from_ns as f64)) as u64
        }
        None => (last.1 as f64 * f64::from(size) / f64::from(last.0)) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_split_where_halves_take_no_longer() {
        // The first stage takes as long for four as for one, the second for each as long as for the first.
        let flat = vec![(1, 100), (4, 100)];
        let steep = vec![(1, 100), (2, 200), (4, 400)];
        let stages = Stages::new(vec![0, 1], vec![flat, steep]);
        assert_eq!(stages.remaining_ns(0, 3), Some(400));
        assert_eq!(stages.remaining_ns(1, 8), Some(800));
        assert_eq!(stages.split(0, 4, 0), [4]);
        assert_eq!(stages.split(1, 4, 0), [1, 1, 1, 1]);
        assert_eq!(stages.split(1, 3, 0), [1, 1, 1]);
        assert_eq!(stages.split(1, 4, 1), [4], "halves take as long, not less");
    }

    #[test]
    fn batches_stay_whole_where_times_are_not_known() {
        let stages = Stages::new(vec![0], vec![Vec::new()]);
        assert_eq!(stages.remaining_ns(0, 4), None);
        assert_eq!(stages.split(0, 64, 0), [64]);
    }
}
