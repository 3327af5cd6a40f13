//! Mistakes made on purpose between the manager and the device are noticed, and the same seeds are
//! good without them: the checkers and the device can fail.

use batchmaker_sim::{Options, Sabotage, Violation, run};

/// Seeds within which each mistake must be noticed.
const SEEDS: u64 = 30;

/// The first violation of `sabotage` that the device finds, among the seeds up to it.
fn caught(sabotage: Sabotage) -> Violation {
    let broken = (0..SEEDS).find_map(|seed| {
        run(seed, Options { sabotage, ..Options::default() })
            .err()
            .filter(|violation| violation.checker == "device")
    });
    let violation = broken.unwrap_or_else(|| panic!("{sabotage:?} in none of {SEEDS} seeds"));
    if let Err(violation) = run(violation.seed, Options::default()) {
        panic!("without {sabotage:?}, too: {violation}");
    }
    violation
}

#[test]
fn a_state_read_before_its_copy() {
    let Violation { what, .. } = caught(Sabotage::UncopiedStates);
    assert!(what.contains("has no state on") || what.contains("holds the state of"), "{what}");
}

#[test]
fn a_row_read_before_its_completion() {
    let Violation { what, .. } = caught(Sabotage::EarlyRows);
    assert!(what.contains("is not written") || what.contains("is unfinished"), "{what}");
}

#[test]
fn a_round_for_a_lost_worker() {
    let Violation { what, .. } = caught(Sabotage::UnreportedLoss);
    assert!(what.contains("is lost and is given"), "{what}");
}
