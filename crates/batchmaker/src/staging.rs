//! The options of the policy `staged` that follow from a model's profile (DVABatch, sections 7.2 to 7.4).

use batchmaker_manager::{Diversity, Split, Stages, StagingOptions};
use batchmaker_model::Model;
use batchmaker_profile::{ModelStages, fast_size, preferred_size, times_of};

use crate::zeros::has_lengths;

/// A batch is split if its halves, one after the other, are faster than the whole by this percentage; it is stretched if two requests end earlier
/// by it. On a CPU they take about as long, and a smaller difference may come of the measurement.
const MARGIN_PERCENT: u32 = 10;

/// The options that were given for a model, and those that follow from its profile for the others.
pub(crate) fn staging_options(
    given: StagingOptions,
    profile: &ModelStages,
    model: &Model,
) -> StagingOptions {
    settled(given, profile, has_lengths(model))
}

/// Whether its stages bring a model anything: whether batches are stretched between them, or split. `is_varied`: whether its requests bring
/// sequences of different lengths.
pub fn stages_pay(profile: &ModelStages, is_varied: bool) -> bool {
    let settled = settled(StagingOptions::default(), profile, is_varied);
    settled.stretch_ns != Some(0) || settled.split != Some(Split::Never)
}

/// The options that were given, and those that follow from the profile of a model. `is_varied`: whether its requests bring
/// sequences of different lengths.
///
/// - The policy: of input diversity for requests of different lengths, else of operator diversity where batches that are split are faster than
///   any that are not, else of load diversity.
/// - A batch has as many members as serve about as many requests a second as any number, or as short sequences prefer; where batches are split, as
///   the stage prefers that prefers the most.
/// - A batch is stretched behind its first stage if that pays. Two requests end after 3 T' + 2 T in all if the second waits until the first,
///   which is done with the first stage, has the rest of the way behind it; after 2 T + 2 T'' if it waits for the other behind the first
///   stage (T: the first stage for one, T' and T'': the others for one and for two). It takes others up to an age of 2 T: late-comers that find
///   the first stage free once, and not more and more of them.
/// - No batch waits for requests to come: as nothing is padded, Policy I has no use for others of the same length.
fn settled(given: StagingOptions, profile: &ModelStages, is_varied: bool) -> StagingOptions {
    let pieces = profile.pieces();
    let times = pieces.iter().map(|piece| piece.times.clone()).collect();
    let stages = Stages::new(Vec::new(), times);
    let of_whole = times_of(&pieces);
    let most = pieces.iter().filter_map(|piece| preferred_size(&piece.times)).max();
    let margin = match given.split {
        Some(Split::Margin(percent)) => percent,
        _ => MARGIN_PERCENT,
    };
    let splitting_pays = |size: u32| {
        let is_split = (1..stages.count()).any(|stage| stages.split(stage, size, margin).len() > 1);
        let of_member = |ns: u64, size: u32| ns as f64 / f64::from(size);
        let split = split_ns(&stages, 0, size, margin).map(|ns| of_member(ns, size));
        let is_allowed = |size: u32| given.batch_max.is_none_or(|most| size <= most);
        let wholes = of_whole.iter().filter(|time| is_allowed(time.0));
        let wholes = wholes.map(|&(size, ns)| of_member(ns, size));
        let factor = 1.0 + f64::from(margin) / 100.0;
        let is_faster = |(split, whole): (f64, f64)| factor * split <= whole;
        is_split && split.zip(wholes.min_by(f64::total_cmp)).is_some_and(is_faster)
    };
    let may_split = given.split != Some(Split::Never);
    let diversity = given.diversity.unwrap_or(match given.batch_max.or(most) {
        _ if is_varied => Diversity::Input,
        Some(size) if may_split && splitting_pays(size) => Diversity::Operator,
        _ => Diversity::Load,
    });
    let is_of_operators = diversity == Diversity::Operator;
    let fast = fast_size(&of_whole);
    let batch_max = if is_of_operators { most } else { profile.short_batch.or(fast) };
    let rest_ns = |size| ns_from(&stages, 1, size);
    let first_ns = ns_from(&stages, 0, 1).zip(rest_ns(1)).map(|(all, rest)| all - rest);
    let pays = || {
        let (apart, together) = (3 * rest_ns(1)?, first_ns? + 2 * rest_ns(2)?);
        Some(100 * apart > (100 + u64::from(MARGIN_PERCENT)) * together)
    };
    let is_stretched = !is_of_operators && (given.diversity.is_some() || pays() == Some(true));
    given.or(StagingOptions {
        diversity: Some(diversity),
        batch_max,
        stretch_ns: Some(first_ns.filter(|_| is_stretched).map_or(0, |ns| 2 * ns)),
        split: Some(if is_of_operators { Split::Margin(margin) } else { Split::Never }),
        ..StagingOptions::default()
    })
}

/// The time of a batch of `size` from `stage` to the end; 0 behind the last one.
fn ns_from(stages: &Stages, stage: usize, size: u32) -> Option<u64> {
    if stage == stages.count() { Some(0) } else { stages.remaining_ns(stage, size) }
}

/// The time of a batch of `size` from `stage` to the end, split before each stage but the first where that is faster by `margin` percent.
fn split_ns(stages: &Stages, stage: usize, size: u32, margin: u32) -> Option<u64> {
    if stage == stages.count() {
        return Some(0);
    }
    let parts = if stage == 0 { vec![size] } else { stages.split(stage, size, margin) };
    let of_part = |part: u32| {
        let here = ns_from(stages, stage, part)? - ns_from(stages, stage + 1, part)?;
        Some(here + split_ns(stages, stage + 1, part, margin)?)
    };
    parts.into_iter().map(of_part).sum()
}

#[cfg(test)]
mod tests {
    use batchmaker_profile::Piece;

    use super::*;

    /// Two stages, by the microseconds of batches of 1, 2, 4 and 8.
    fn profile(stages: [[u64; 4]; 2]) -> ModelStages {
        let piece = |times: [u64; 4]| Piece {
            start: "node".to_owned(),
            is_decided: false,
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
        assert_eq!(text([short, FLAT], false), ":load:batch=8:stretch=100us:split=never");
        assert_eq!(text([short, FLAT], true), ":input:batch=8:stretch=100us:split=never");
        // By 7 %, which may come of the measurement.
        assert_eq!(text([[80, 80, 80, 80], FLAT], false), ":load:batch=8:stretch=0:split=never");
        let steep = [100, 200, 400, 2_000];
        assert_eq!(text([FLAT, steep], false), ":operator:batch=8:stretch=0:split=10");
        // A batch of 8 takes 1,060 us, split before the second stage 960; one of 2 takes 250, which is not much more a request.
        let slow = [100, 200, 400, 900];
        let text = text([[30, 50, 90, 160], slow], false);
        assert_eq!(text, ":load:batch=2:stretch=0:split=never");
    }

    #[test]
    fn stages_bring_something_where_batches_are_stretched_or_split() {
        let pay = |stages, is_varied| stages_pay(&profile(stages), is_varied);
        assert!(!pay([LINEAR, LINEAR], false));
        assert!(pay([[50, 50, 50, 50], FLAT], false));
        assert!(pay([[50, 50, 50, 50], FLAT], true));
        let steep = [FLAT, [100, 200, 400, 2_000]];
        assert!(pay(steep, false));
        assert!(!pay(steep, true), "those of different lengths are not split");
    }

    #[test]
    fn short_sequences_decide_the_size_of_a_batch() {
        let profile = profile_of_short(4, [LINEAR, LINEAR]);
        let text = settled(StagingOptions::default(), &profile, true).to_string();
        assert_eq!(text, ":input:batch=4:stretch=0:split=never");
        let times = profile_of_short(2, [[50, 50, 50, 400], FLAT]);
        let text = settled(StagingOptions::default(), &times, true).to_string();
        assert_eq!(text, ":input:batch=2:stretch=100us:split=never", "times are of long sequences");
    }

    fn profile_of_short(size: u32, stages: [[u64; 4]; 2]) -> ModelStages {
        ModelStages { short_batch: Some(size), ..profile(stages) }
    }

    #[test]
    fn what_is_given_stays() {
        let text = |given| settled_text(given, [FLAT, LINEAR], false);
        assert_eq!(text(":load:batch=2"), ":load:batch=2:stretch=200us:split=never");
        assert_eq!(text(":split=never:stretch=1ms"), ":load:batch=8:stretch=1ms:split=never");
        let short = [[50, 50, 50, 50], FLAT];
        let nothing_to_split = settled_text(":split=0", short, false);
        assert_eq!(nothing_to_split, ":load:batch=8:stretch=100us:split=0");
        let steep = [100, 200, 400, 2_000];
        let text = |given| settled_text(given, [FLAT, steep], false);
        assert_eq!(text(":split=never"), ":load:batch=4:stretch=0:split=never");
        assert_eq!(text(":batch=4"), ":load:batch=4:stretch=0:split=never");
    }
}
