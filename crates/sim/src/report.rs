//! The report of a simulation that is over.

use std::fmt;
use std::ops::AddAssign;

/// The counts of a simulation that broke no rule, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Simulations.
    pub seeds: u64,
    /// Requests that arrived, each of which was answered.
    pub requests: u64,
    /// Requests that succeeded, with the values that they have when run alone.
    pub succeeded: u64,
    /// Requests that were answered as cancelled.
    pub cancelled: u64,
    /// Requests whose deadlines were reached.
    pub timed_out: u64,
    /// Requests that were refused since they could not meet their deadlines.
    pub unmeetable: u64,
    /// Requests that were promoted since they had waited for long.
    pub promoted: u64,
    /// Requests that failed, with a task, with a worker or with their session.
    pub failed: u64,
    /// Sessions that began, each of which ended.
    pub sessions: u64,
    /// Requests that were chunks of sessions.
    pub chunks: u64,
    /// Chunks that succeeded.
    pub succeeded_chunks: u64,
    /// Chunks that waited for an earlier one when they arrived.
    pub waiting_chunks: u64,
    /// Chunks that failed since their session was broken.
    pub lost_chunks: u64,
    /// Tasks submitted.
    pub tasks: u64,
    /// Batches in these tasks.
    pub batches: u64,
    /// Nodes in these batches.
    pub nodes: u64,
    /// Rows of padding in these batches.
    pub padding: u64,
    /// Chains that reached their end of sequence.
    pub ends_of_sequence: u64,
    /// Decisions of requests that were read.
    pub decisions: u64,
    /// Rows and states copied between workers.
    pub copies: u64,
    /// Cancellations, those of finished and unknown requests among them.
    pub cancellations: u64,
    /// Tasks that failed.
    pub failed_tasks: u64,
    /// The number of times that a worker was lost.
    pub lost_workers: u64,
    /// The number of times that the limits changed.
    pub limits: u64,
    /// Tasks given to a worker with unfinished ones of an earlier round.
    pub overlapping: u64,
    /// Reports of steps before their task was over.
    pub progress: u64,
    /// Rows that were read before their request ended.
    pub streamed_rows: u64,
    /// Chains that waited for a slot.
    pub slot_waits: u64,
    /// Steps of the event loop.
    pub steps: u64,
    /// A digest of all events and of all that the manager returned, in order.
    pub trace_hash: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.requests += other.requests;
        self.succeeded += other.succeeded;
        self.cancelled += other.cancelled;
        self.timed_out += other.timed_out;
        self.unmeetable += other.unmeetable;
        self.promoted += other.promoted;
        self.failed += other.failed;
        self.sessions += other.sessions;
        self.chunks += other.chunks;
        self.succeeded_chunks += other.succeeded_chunks;
        self.waiting_chunks += other.waiting_chunks;
        self.lost_chunks += other.lost_chunks;
        self.tasks += other.tasks;
        self.batches += other.batches;
        self.nodes += other.nodes;
        self.padding += other.padding;
        self.ends_of_sequence += other.ends_of_sequence;
        self.decisions += other.decisions;
        self.copies += other.copies;
        self.cancellations += other.cancellations;
        self.failed_tasks += other.failed_tasks;
        self.lost_workers += other.lost_workers;
        self.limits += other.limits;
        self.overlapping += other.overlapping;
        self.progress += other.progress;
        self.streamed_rows += other.streamed_rows;
        self.slot_waits += other.slot_waits;
        self.steps += other.steps;
        // The same whatever the order in which seeds are added.
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds          {}", self.seeds)?;
        writeln!(
            f,
            "requests       {}: {} succeeded, {} cancelled, {} failed, {} timed out, {} unmeetable",
            self.requests,
            self.succeeded,
            self.cancelled,
            self.failed,
            self.timed_out,
            self.unmeetable
        )?;
        writeln!(f, "promoted       {}", self.promoted)?;
        writeln!(f, "sessions       {}", self.sessions)?;
        writeln!(
            f,
            "chunks         {}: {} succeeded, {} waited, {} lost with their session",
            self.chunks, self.succeeded_chunks, self.waiting_chunks, self.lost_chunks
        )?;
        writeln!(f, "tasks          {} ({} batches)", self.tasks, self.batches)?;
        writeln!(f, "nodes          {} (and {} of padding)", self.nodes, self.padding)?;
        writeln!(f, "ends of sequence {}", self.ends_of_sequence)?;
        writeln!(f, "decisions      {}", self.decisions)?;
        writeln!(f, "copies         {}", self.copies)?;
        writeln!(f, "cancellations  {}", self.cancellations)?;
        writeln!(f, "failed tasks   {}", self.failed_tasks)?;
        writeln!(f, "lost workers   {}", self.lost_workers)?;
        writeln!(f, "other limits   {}", self.limits)?;
        writeln!(f, "overlapping    {}", self.overlapping)?;
        writeln!(f, "progress       {} ({} rows read early)", self.progress, self.streamed_rows)?;
        writeln!(f, "slot waits     {}", self.slot_waits)?;
        writeln!(f, "steps          {}", self.steps)?;
        write!(f, "trace hash     {:016x}", self.trace_hash)
    }
}

/// A rule that was broken, and how to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed, which breaks it every time.
    pub seed: u64,
    /// The virtual time, in nanoseconds.
    pub now_ns: u64,
    /// The checker that found it.
    pub checker: String,
    /// The finding.
    pub what: String,
    /// The last events before, oldest first.
    pub trace: Vec<String>,
}

impl std::error::Error for Violation {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {} at {} ns: {}", self.seed, self.checker, self.now_ns, self.what)?;
        writeln!(f, "the last events:")?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        write!(f, "replay: cargo xtask sim --seed {} --trace", self.seed)
    }
}
