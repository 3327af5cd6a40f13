//! Mistakes made on purpose are noticed, and the same seeds are good without them: the checkers and the
//! device can fail.

use batchmaker_sim::{Options, Sabotage, Violation, run};

/// Seeds within which each mistake must be noticed.
const SEEDS: u64 = 130;

/// The first violation of `sabotage` that `checker` finds, among the seeds up to it.
fn caught(sabotage: Sabotage, checker: &str) -> Violation {
    let broken = (0..SEEDS).find_map(|seed| {
        run(seed, Options { sabotage, ..Options::default() })
            .err()
            .filter(|violation| violation.checker == checker)
    });
    let violation = broken.unwrap_or_else(|| panic!("{sabotage:?} in none of {SEEDS} seeds"));
    if let Err(violation) = run(violation.seed, Options::default()) {
        panic!("without {sabotage:?}, too: {violation}");
    }
    violation
}

#[test]
fn a_state_read_before_its_copy() {
    let Violation { what, .. } = caught(Sabotage::UncopiedStates, "device");
    assert!(what.contains("has no state on") || what.contains("holds the state of"), "{what}");
}

#[test]
fn a_row_read_before_its_completion() {
    let Violation { what, .. } = caught(Sabotage::EarlyRows, "device");
    assert!(what.contains("is not written") || what.contains("is unfinished"), "{what}");
}

#[test]
fn a_round_for_a_lost_worker() {
    let Violation { what, .. } = caught(Sabotage::UnreportedLoss, "device");
    assert!(what.contains("is lost and is given"), "{what}");
}

#[test]
fn a_deadline_that_passes_unnoticed() {
    caught(Sabotage::LateDeadlines, "deadlines");
}

#[test]
fn models_that_get_more_than_their_share() {
    let Violation { what, .. } = caught(Sabotage::NoShares, "shares");
    assert!(what.contains("at weights"), "{what}");
}

#[test]
fn an_old_request_that_is_not_promoted() {
    caught(Sabotage::NoAging, "queue order");
}

#[test]
fn a_request_that_starves() {
    let Violation { what, .. } = caught(Sabotage::StrictPriorities, "waits");
    assert!(what.contains("nodes of model0 were served"), "{what}");
}

#[test]
fn a_cell_type_that_waits_for_too_long() {
    let Violation { what, .. } = caught(Sabotage::NoPatience, "patience");
    assert!(what.contains("has waited since"), "{what}");
}

#[test]
fn a_large_request_that_goes_before_small_ones() {
    caught(Sabotage::NoLargeRequests, "queue order");
}
