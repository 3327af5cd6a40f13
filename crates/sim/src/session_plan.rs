//! The sessions of a scenario: their chunks, when each arrives, and how a session ends.

use std::sync::Arc;

use batchmaker_graph::Chunk;

use crate::arrival::Arrival;
use crate::graphs::Model;
use crate::rng::Rng;

/// One sequence in chunks.
#[derive(Clone, Debug)]
pub(crate) struct SessionPlan {
    /// The chunks in their order. Those after the session's end never arrive.
    pub(crate) chunks: Vec<Arrival>,
    /// The time, in nanoseconds, at which its client ends it or takes too long; none: not before all is
    /// calm.
    pub(crate) ends_ns: Option<u64>,
    /// The time from a chunk that did not succeed to the session's end, in nanoseconds.
    pub(crate) ends_after_break_ns: u64,
}

impl SessionPlan {
    /// The times, in nanoseconds, at which something happens to it.
    pub(crate) fn times_ns(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().map(|chunk| chunk.time_ns).chain(self.ends_ns)
    }
}

/// Draws sessions of the `models` that take chunks, which begin up to `last_ns`.
pub(crate) fn draw(models: &[Model], last_ns: u64, rng: &mut Rng) -> Vec<SessionPlan> {
    let models: Vec<&Model> = models.iter().filter(|model| model.takes_chunks()).collect();
    if models.is_empty() || rng.chance(30) {
        return Vec::new();
    }
    let gap_ns_max = rng.log_within(10_000..=20_000_000);
    let burst_percent = *rng.pick(&[0, 30, 90]);
    let has_priorities = rng.chance(30);
    let length_max = *rng.pick(&[1, 4, 20, 20]);
    let chunks_max = rng.within(1..=16);
    let sessions = (0..rng.within(1..=24)).map(|_| {
        let model = *rng.pick(&models);
        let mut time_ns = rng.within(0..=last_ns);
        let mut chunks = Vec::new();
        for position in 0..rng.within(1..=chunks_max) {
            if position > 0 && !rng.chance(burst_percent) {
                time_ns += rng.within(0..=gap_ns_max);
            }
            let chunk = if position == 0 { Chunk::First } else { Chunk::Next };
            let length = rng.log_within(1..=length_max) as u32;
            let graph = Arc::new(model.unfold_chunk(chunk, length));
            let priority = if has_priorities { rng.within(0..=3) as u32 } else { 0 };
            let (model, allowed_ns) = (model.id, None);
            chunks.push(Arrival { time_ns, model, priority, allowed_ns, graph });
        }
        let ends_ns = match rng.within(0..=9) {
            0 => None,
            // Before its last chunks, which do not come then.
            1 => Some(rng.within(chunks[0].time_ns..=time_ns)),
            2 | 3 => Some(time_ns + rng.within(0..=2_000_000)),
            _ => Some(time_ns),
        };
        let ends_after_break_ns = if rng.chance(40) { 0 } else { rng.within(0..=gap_ns_max) };
        SessionPlan { chunks, ends_ns, ends_after_break_ns }
    });
    sessions.collect()
}
