//! A fixed set of seeds, and replay. `cargo xtask sim` runs more.

use batchmaker_sim::{Options, Summary, run};

/// Later seeds that broke a rule once: a failed task, a least batch size, a stale leave step; many
/// steps that were reported one by one.
const FOUND: [u64; 4] = [67, 69, 1608, 1546];

#[test]
fn fixed_seeds_keep_to_all_rules() {
    let mut total = Summary::default();
    for seed in (0..50).chain(FOUND) {
        match run(seed, Options::default()) {
            Ok(summary) => total += summary,
            Err(violation) => panic!("{violation}"),
        }
    }
    // The set is worth something only if all that can happen does.
    let happened = [
        total.succeeded,
        total.cancelled,
        total.failed,
        total.timed_out,
        total.unmeetable,
        total.promoted,
        total.copies,
        total.padding,
        total.failed_tasks,
        total.lost_workers,
        total.limits,
        total.succeeded_chunks,
        total.waiting_chunks,
        total.lost_chunks,
        total.overlapping,
        total.progress,
        total.streamed_rows,
        total.slot_waits,
    ];
    assert!(happened.iter().all(|&count| count > 0), "{total}");
    let ended = total.succeeded + total.cancelled + total.failed;
    assert_eq!(ended + total.timed_out + total.unmeetable, total.requests);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..8 {
        let mut lines = Vec::new();
        let mut listener = |line: &str| lines.push(line.to_owned());
        let first =
            run(seed, Options { listener: Some(&mut listener), ..Options::default() }).unwrap();
        let mut again = Vec::new();
        let mut listener = |line: &str| again.push(line.to_owned());
        let second =
            run(seed, Options { listener: Some(&mut listener), ..Options::default() }).unwrap();
        assert_eq!(lines, again);
        assert_eq!(first, second);
        assert_eq!(first, run(seed, Options::default()).unwrap(), "whether or not anybody listens");
    }
}

#[test]
fn seeds_differ() {
    let hash = |seed| run(seed, Options::default()).unwrap().trace_hash;
    assert_ne!(hash(1), hash(2));
}
