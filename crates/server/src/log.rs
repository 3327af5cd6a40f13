//! Lines for whoever runs the server, on standard error.
//!
//! Standard error may be closed, or a pipe that nobody reads: a thread of its own writes, so that nothing else ever
//! waits for it. What it cannot write is lost.

use std::io::{Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// The lines that wait to be written, at most.
const WAITING_MAX: usize = 256;

/// The time that the last lines have to be written.
const FLUSH_TIME: Duration = Duration::from_millis(200);

enum Entry {
    Line(String),
    /// Everything before is to be written; then the sender is told.
    Flush(SyncSender<()>),
}

/// Writes `batchmaker: `, `line` and an end of line.
pub fn log(line: &str) {
    send(Entry::Line(format!("batchmaker: {line}\n")));
}

static IS_DETAILED: AtomicBool = AtomicBool::new(false);

/// Whether lines about single requests are written, too: what the server ignores of them.
pub fn log_details(is_detailed: bool) {
    IS_DETAILED.store(is_detailed, Ordering::Relaxed);
}

/// Writes a line about a single request, if such ones are wanted.
pub(crate) fn log_detail(line: impl FnOnce() -> String) {
    if IS_DETAILED.load(Ordering::Relaxed) {
        log(&line());
    }
}

/// Waits until all lines are written, but not for long: for the end of a process.
pub fn flush_log() {
    let (done, is_done) = sync_channel(1);
    send(Entry::Flush(done));
    let _ = is_done.recv_timeout(FLUSH_TIME);
}

fn send(entry: Entry) {
    static WRITER: OnceLock<Option<SyncSender<Entry>>> = OnceLock::new();
    let writer = WRITER.get_or_init(|| {
        let (sender, entries) = sync_channel(WAITING_MAX);
        let write = move || {
            for entry in entries {
                match entry {
                    Entry::Line(line) => drop(stderr().write_all(line.as_bytes())),
                    Entry::Flush(done) => drop(done.send(())),
                }
            }
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(write);
        thread.is_ok().then_some(sender)
    });
    if let Some(writer) = writer {
        let _ = writer.try_send(entry);
    }
}
