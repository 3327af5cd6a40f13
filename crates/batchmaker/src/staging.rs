//! The options of the policy `staged` that follow from a model's profile (DVABatch, sections 7.2 to 7.4).

use batchmaker_manager::{Diversity, Split, Stages, StagingOptions};
use batchmaker_model::Model;
use batchmaker_profile::{ModelStages, Piece, preferred_size, times_of};

use crate::zeros::has_lengths;

/// A batch is split if its halves, one after the other, are faster than the whole by this percentage. On a CPU they take about as long, and
/// a smaller difference may come of the measurement.
const SPLIT_MARGIN_PERCENT: u32 = 10;

/// The options that were given for a model, and those that follow from its profile for the others.
pub(crate) fn staging_options(
    given: StagingOptions,
    profile: &ModelStages,
    model: &Model,
) -> StagingOptions {
    settled(given, profile, has_lengths(model))
}

/// The options that were given, and those that follow from the profile of a model. `is_varied`: whether its requests bring
/// sequences of different lengths.
///
/// - The policy: of input diversity for requests of different lengths, else of operator diversity where batches are to be split, else of
///   load diversity.
/// - A batch has as many members as the model prefers, or as short sequences do; where batches are split, as the stage prefers that prefers
///   the most.
/// - A batch is stretched behind its first stage if that pays. Two requests end after 3 T' + 2 T in all if the second waits until the first,
///   which is done with the first stage, has the rest of the way behind it; after 2 T + 2 T'' if it waits for the other behind the first
///   stage (T: the first stage for one, T' and T'': the others for one and for two).
/// - No batch waits for requests to come: as nothing is padded, Policy I has no use for others of the same length.
fn settled(given: StagingOptions, profile: &ModelStages, is_varied: bool) -> StagingOptions {
    let pieces = profile.pieces();
    let times = pieces.iter().map(|piece| piece.times.clone()).collect();
    let stages = Stages::new(Vec::new(), times);
    let preferred = |piece: &Piece| preferred_size(&piece.times);
    let most = pieces.iter().filter_map(preferred).max();
    let margin = match given.split {
        Some(Split::Margin(percent)) => percent,
        _ => SPLIT_MARGIN_PERCENT,
    };
    let is_split = |size: u32| {
        let parts = |stage| stages.split(stage, size, margin).len();
        (1..stages.count()).any(|stage| parts(stage) > 1)
    };
    let may_split = given.split != Some(Split::Never);
    let diversity = given.diversity.unwrap_or(match given.batch_max.or(most) {
        _ if is_varied => Diversity::Input,
        Some(size) if may_split && is_split(size) => Diversity::Operator,
        _ => Diversity::Load,
    });
    let is_of_operators = diversity == Diversity::Operator;
    let of_whole = preferred_size(&times_of(&pieces));
    let batch_max = if is_of_operators { most } else { profile.short_batch.or(of_whole) };
    let first_ns = |size| stages.remaining_ns(0, size)?.checked_sub(rest_ns(&stages, size)?);
    let pays = || Some(3 * rest_ns(&stages, 1)? > first_ns(1)? + 2 * rest_ns(&stages, 2)?);
    let is_stretched = !is_of_operators && (given.diversity.is_some() || pays() == Some(true));
    // The times are not of short sequences.
    let members = given.batch_max.or(of_whole).unwrap_or(1);
    given.or(StagingOptions {
        diversity: Some(diversity),
        batch_max,
        stretch_ns: Some(first_ns(members).filter(|_| is_stretched).unwrap_or(0)),
        split: Some(if is_of_operators { Split::Margin(margin) } else { Split::Never }),
        ..StagingOptions::default()
    })
}

/// The time of a batch in all stages but the first.
fn rest_ns(stages: &Stages, size: u32) -> Option<u64> {
    if stages.count() == 1 { Some(0) } else { stages.remaining_ns(1, size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two stages, by the microseconds of batches of 1, 2, 4 and 8.
    fn profile(stages: [[u64; 4]; 2]) -> ModelStages {
        let piece = |times: [u64; 4]| Piece {
            start: "node".to_owned(),
            times: [1, 2, 4, 8].into_iter().zip(times.map(|us| us * 1_000)).collect(),
        };
        ModelStages::of(&stages.map(piece))
    }

    fn settled_text(given: &str, stages: [[u64; 4]; 2], is_varied: bool) -> String {
        settled(given.parse().unwrap(), &profile(stages), is_varied).to_string()
    }

    const LINEAR: [u64; 4] = [100, 200, 400, 800];
    const FLAT: [u64; 4] = [100, 100, 100, 100];

    #[test]
    fn policies_follow_from_the_profile() {
        let text = |stages, is_varied| settled_text("", stages, is_varied);
        assert_eq!(text([LINEAR, LINEAR], false), ":load:batch=1:stretch=0:split=never");
        assert_eq!(text([LINEAR, LINEAR], true), ":input:batch=1:stretch=0:split=never");
        assert_eq!(text([FLAT, FLAT], false), ":load:batch=8:stretch=0:split=never");
        let short = [50, 50, 50, 50];
        assert_eq!(text([short, FLAT], false), ":load:batch=8:stretch=50us:split=never");
        assert_eq!(text([short, FLAT], true), ":input:batch=8:stretch=50us:split=never");
        let steep = [100, 200, 400, 2_000];
        assert_eq!(text([FLAT, steep], false), ":operator:batch=8:stretch=0:split=10");
    }

    #[test]
    fn short_sequences_decide_the_size_of_a_batch() {
        let profile = profile_of_short(4, [LINEAR, LINEAR]);
        let text = settled(StagingOptions::default(), &profile, true).to_string();
        assert_eq!(text, ":input:batch=4:stretch=0:split=never");
        let times = profile_of_short(2, [[50, 50, 50, 400], FLAT]);
        let text = settled(StagingOptions::default(), &times, true).to_string();
        assert_eq!(text, ":input:batch=2:stretch=50us:split=never", "times are of long sequences");
    }

    fn profile_of_short(size: u32, stages: [[u64; 4]; 2]) -> ModelStages {
        ModelStages { short_batch: Some(size), ..profile(stages) }
    }

    #[test]
    fn what_is_given_stays() {
        let text = |given| settled_text(given, [FLAT, LINEAR], false);
        assert_eq!(text(":load:batch=2"), ":load:batch=2:stretch=100us:split=never");
        assert_eq!(text(":split=never:stretch=1ms"), ":load:batch=8:stretch=1ms:split=never");
        let steep = [100, 200, 400, 2_000];
        let text = |given| settled_text(given, [FLAT, steep], false);
        assert_eq!(text(":split=never"), ":load:batch=4:stretch=0:split=never");
        assert_eq!(text(":batch=4"), ":load:batch=4:stretch=0:split=never");
    }
}
