//! Cuts a model into stages by the times of its pieces (DVABatch, section 7.1).

use std::collections::BTreeSet;

/// A batch of the preferred size takes at most this many times as long for each of its members as a batch of the best size does.
const PREFERRED_SLACK: f64 = 1.1;

/// The same for a batch of the fast size.
const FAST_SLACK: f64 = 1.03;

/// The least share of a model's time that pieces of another preferred size have, so that a stage begins with them.
const SHARE_MIN: f64 = 0.1;

/// Operators of a model that no stage divides.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The node that it begins with.
    pub start: String,
    /// Whether other requests need it than the piece before it: an early exit or a skip is decided between them.
    pub is_decided: bool,
    /// Sizes of batches, ascending, each with the nanoseconds that the piece takes for such a batch.
    pub times: Vec<(u32, u64)>,
}

/// The smallest size of batch that uses the device about as well as any: a member takes at most a tenth longer than in the best size.
/// None without times.
pub fn preferred_size(times: &[(u32, u64)]) -> Option<u32> {
    smallest_within(times, PREFERRED_SLACK)
}

/// The smallest size of batch at which the device is about at its highest rate: a member takes at most 3 % longer than in the best size. None
/// without times.
pub fn fast_size(times: &[(u32, u64)]) -> Option<u32> {
    smallest_within(times, FAST_SLACK)
}

/// The smallest size of batch whose members take at most `slack` times as long as in the best size.
fn smallest_within(times: &[(u32, u64)], slack: f64) -> Option<u32> {
    let of_member = |&(size, ns): &(u32, u64)| ns as f64 / f64::from(size);
    let best = times.iter().map(of_member).min_by(f64::total_cmp)?;
    times.iter().find(|&time| of_member(time) <= slack * best).map(|&(size, _)| size)
}

/// The times of pieces one after the other, at the sizes of the first.
pub fn times_of(pieces: &[Piece]) -> Vec<(u32, u64)> {
    let sizes = pieces.first().into_iter().flat_map(|piece| &piece.times);
    let time = |size: u32| {
        let of =
            |piece: &Piece| piece.times.iter().find(|time| time.0 == size).map_or(0, |time| time.1);
        pieces.iter().map(of).sum()
    };
    sizes.map(|&(size, _)| (size, time(size))).collect()
}

/// The number of stages of which each begins with other requests than the one before it: one more than decisions.
pub fn stages_of_decisions(pieces: &[Piece]) -> usize {
    1 + decisions(pieces).count()
}

/// The positions of the pieces that begin stages 1, 2, …: so that the longest of `count` stages takes the least time, in batches of the
/// size that the model prefers. A stage begins where a decision falls, and where pieces prefer another size, if there are enough. Fewer
/// stages than `count` where there are fewer pieces.
pub fn slice(pieces: &[Piece], count: usize) -> Vec<usize> {
    let count = count.clamp(1, pieces.len().max(1));
    let mut forced = BTreeSet::new();
    for wanted in [decisions(pieces).collect(), changes(pieces)] {
        let with: BTreeSet<usize> = forced.iter().copied().chain(wanted).collect();
        if with.len() < count {
            forced = with;
        }
    }
    divided(pieces, count, &forced)
}

/// The positions of pieces before which a decision falls.
fn decisions(pieces: &[Piece]) -> impl Iterator<Item = usize> + '_ {
    (1..pieces.len()).filter(|&at| pieces[at].is_decided)
}

/// The positions of pieces before which the preferred size changes, among those that take a share of the time.
fn changes(pieces: &[Piece]) -> Vec<usize> {
    let whole = times_of(pieces);
    let Some(size) = preferred_size(&whole) else { return Vec::new() };
    let time = |piece: &Piece| time_at(&piece.times, size);
    let total: f64 = pieces.iter().map(time).sum();
    // Runs of pieces that prefer one size: the first, the size, and the time.
    let mut runs: Vec<(usize, u32, f64)> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let Some(preferred) = preferred_size(&piece.times) else { continue };
        match runs.last_mut() {
            Some((_, of, sum)) if *of == preferred => *sum += time(piece),
            _ => runs.push((at, preferred, time(piece))),
        }
    }
    runs.retain(|(.., sum)| *sum >= SHARE_MIN * total);
    runs.dedup_by_key(|run| run.1);
    runs.iter().skip(1).map(|run| run.0).collect()
}

fn time_at(times: &[(u32, u64)], size: u32) -> f64 {
    times.iter().find(|time| time.0 == size).map_or(0.0, |time| time.1 as f64)
}

/// Divides pieces into `count` stages whose longest is the shortest, each of which begins or ends, and none of which has, a position of
/// `forced` inside.
fn divided(pieces: &[Piece], count: usize, forced: &BTreeSet<usize>) -> Vec<usize> {
    let size = preferred_size(&times_of(pieces)).unwrap_or(1);
    let mut sums = vec![0.0];
    for piece in pieces {
        sums.push(sums[sums.len() - 1] + time_at(&piece.times, size));
    }
    let is_whole = |from: usize, to: usize| forced.range(from + 1..to).next().is_none();
    // For each number of stages and of pieces: the longest stage, and the pieces before the last stage.
    let n = pieces.len();
    let mut best = vec![vec![(f64::INFINITY, 0); n + 1]; count + 1];
    best[0][0] = (0.0, 0);
    for stages in 1..=count {
        for to in stages..=n {
            for from in stages - 1..to {
                let longest = best[stages - 1][from].0.max(sums[to] - sums[from]);
                if is_whole(from, to) && longest < best[stages][to].0 {
                    best[stages][to] = (longest, from);
                }
            }
        }
    }
    let mut starts = Vec::new();
    let mut to = n;
    for stages in (1..=count).rev() {
        to = best[stages][to].1;
        starts.push(to);
    }
    starts.reverse();
    starts.retain(|&start| start > 0);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces with these times of one member, for which a batch takes no longer up to a size, and in proportion beyond it.
    fn pieces(of: &[(u64, u32)]) -> Vec<Piece> {
        let piece = |(at, &(ns, full)): (usize, &(u64, u32))| {
            let time = |size: u32| (size, ns * u64::from(size.max(full) / full));
            let times = [1, 2, 4, 8, 16, 32, 64].map(time).to_vec();
            Piece { start: format!("node{at}"), is_decided: false, times }
        };
        of.iter().enumerate().map(piece).collect()
    }

    #[test]
    fn the_preferred_size_is_the_smallest_that_fills_the_device() {
        for full in [1, 4, 64] {
            assert_eq!(preferred_size(&pieces(&[(100, full)])[0].times), Some(full));
        }
        assert_eq!(preferred_size(&[]), None);
    }

    #[test]
    fn stages_take_about_equal_times() {
        let even = pieces(&[(10, 1); 6]);
        assert_eq!(slice(&even, 3), [2, 4]);
        assert_eq!(slice(&even, 1), [0; 0]);
        assert_eq!(slice(&even, 9), [1, 2, 3, 4, 5]);
        assert_eq!(slice(&pieces(&[(50, 1), (10, 1), (10, 1), (10, 1), (20, 1)]), 2), [1]);
        assert_eq!(slice(&pieces(&[(10, 1), (10, 1), (80, 1)]), 2), [2]);
        assert_eq!(slice(&[], 3), [0; 0]);
    }

    /// The first pieces fill the device alone, the others with four members: the stage begins there, though times would be more even
    /// elsewhere.
    #[test]
    fn a_stage_begins_where_preferences_change() {
        let of = [(10, 1), (10, 1), (10, 4), (10, 4), (10, 4), (10, 4), (10, 4), (10, 4)];
        assert_eq!(slice(&pieces(&of), 2), [2]);
        assert_eq!(slice(&pieces(&of), 1), [0; 0]);
        // A piece of little time changes nothing.
        let of = [(100, 1), (1, 4), (100, 1)];
        assert_eq!(slice(&pieces(&of), 2).len(), 1);
        assert!(changes(&pieces(&of)).is_empty());
    }

    /// Decisions come before preferences, and these before equal times.
    #[test]
    fn a_stage_begins_where_a_decision_falls() {
        let mut all = pieces(&[(10, 1), (10, 4), (10, 4), (10, 4), (10, 4), (10, 4)]);
        all[5].is_decided = true;
        assert_eq!(stages_of_decisions(&all), 2);
        assert_eq!(slice(&all, 1), [0; 0]);
        assert_eq!(slice(&all, 2), [5]);
        assert_eq!(slice(&all, 3), [1, 5]);
        assert_eq!([slice(&all, 4).len(), slice(&all, 6).len()], [3, 5]);
        all[2].is_decided = true;
        assert_eq!(slice(&all, 2), [1], "there is no stage for each decision");
    }
}
