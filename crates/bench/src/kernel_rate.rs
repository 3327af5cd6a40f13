//! The time of the batches of a run at the kernels' own rate: each cell type run alone on a
//! device of its own, with no manager, no arrivals and no replies. The time that a run took
//! beyond that is the cost of the system around the kernels.

use std::sync::Arc;

use batchmaker::CellStatistics;
use batchmaker_device::{CellTimer, Device, DeviceError, Effort};
use batchmaker_graph::{CellType, CellTypeId};

/// Seconds a batch, by cell type and batch size.
#[derive(Clone, Debug)]
pub struct KernelRate {
    /// `(size, seconds)`, sizes ascending.
    by_cell: Vec<Vec<(usize, f64)>>,
}

impl KernelRate {
    /// Measures every cell type on a queue of `device`, which has materialised them and runs
    /// nothing else, at powers of two and halfway between, up to the type's limit.
    ///
    /// # Errors
    /// If the device has no queue, or a batch fails.
    pub fn measure(device: &Arc<dyn Device>, cell_types: &[CellType]) -> Result<Self, DeviceError> {
        let mut cells = CellTimer::new(device.clone())?;
        let by_cell = (0..).zip(cell_types).map(|(id, cell_type)| {
            let limit = cell_type.max_batch_size as usize;
            let time = |size| {
                let seconds = cells.batch_s(CellTypeId(id), cell_type, size, Effort::default())?;
                Ok((size, seconds))
            };
            sizes(limit).into_iter().map(time).collect()
        });
        Ok(Self { by_cell: by_cell.collect::<Result<_, DeviceError>>()? })
    }

    /// The mean of several measurements of the same cell types; none if there are none.
    pub fn mean(measured: &[Self]) -> Option<Self> {
        let mut sum = measured.first()?.clone();
        for (of_cell, times) in sum.by_cell.iter_mut().enumerate() {
            for (at, (_, mean)) in times.iter_mut().enumerate() {
                let total: f64 = measured.iter().map(|one| one.by_cell[of_cell][at].1).sum();
                *mean = total / measured.len() as f64;
            }
        }
        Some(sum)
    }

    /// The seconds that all batches in `cells` take at this rate. `cells` has the order of the cell types.
    pub fn seconds(&self, cells: &[CellStatistics]) -> f64 {
        let of_cell = |(cell, times): (&CellStatistics, &Vec<(usize, f64)>)| -> f64 {
            let batches = cell.batches_by_size.iter().enumerate().filter(|(_, count)| **count > 0);
            batches.map(|(size, &count)| count as f64 * interpolated(times, size)).sum()
        };
        cells.iter().zip(&self.by_cell).map(of_cell).sum()
    }
}

/// Powers of two up to the limit, halfway between them, and the limit.
fn sizes(limit: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|bit| 1_usize << bit).take_while(|&size| size <= limit);
    let mut sizes: Vec<usize> = powers.flat_map(|size| [size, size + size / 2]).collect();
    sizes.push(limit);
    sizes.retain(|&size| size <= limit);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The seconds of a batch of `size`: interpolated between its neighbours in `times`, in proportion beyond them.
fn interpolated(times: &[(usize, f64)], size: usize) -> f64 {
    let after = times.partition_point(|&(known, _)| known < size);
    match (after.checked_sub(1).map(|before| times[before]), times.get(after)) {
        (_, Some(&(known, time))) if known == size => time,
        (Some((a, time_a)), Some(&(b, time_b))) => {
            time_a + (time_b - time_a) * (size - a) as f64 / (b - a) as f64
        }
        (Some((known, time)), None) | (None, Some(&(known, time))) => {
            time * size as f64 / known as f64
        }
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_at_the_limit() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(20), [1, 2, 3, 4, 6, 8, 12, 16, 20]);
    }

    #[test]
    fn batches_add_up_at_their_times() {
        let rate = KernelRate { by_cell: vec![vec![(1, 1.0), (2, 1.5), (4, 2.5)]] };
        let slower = KernelRate { by_cell: vec![vec![(1, 1.0), (2, 2.5), (4, 2.5)]] };
        let mean = KernelRate::mean(&[rate.clone(), slower]).unwrap();
        assert_eq!(mean.by_cell, [vec![(1, 1.0), (2, 2.0), (4, 2.5)]]);
        let cell = |batches_by_size: &[u64]| CellStatistics {
            batches_by_size: batches_by_size.to_vec(),
            ..CellStatistics::default()
        };
        assert_eq!(rate.seconds(&[cell(&[0, 3, 1])]), 4.5);
        assert_eq!(rate.seconds(&[cell(&[0, 0, 0, 2])]), 4.0, "3 is between 2 and 4");
        assert_eq!(rate.seconds(&[cell(&[0, 0, 0, 0, 0, 0, 0, 0, 1])]), 5.0, "8 is twice 4");
    }
}
