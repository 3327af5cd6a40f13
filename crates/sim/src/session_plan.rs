//! The sessions of a scenario: what comes in chunks, when each comes, and how a session ends.

use std::sync::Arc;

use batchmaker_graph::Chunk;

use crate::graphs::Model;
use crate::rng::Rng;
use crate::scenario::Arrival;

/// One sequence in chunks.
#[derive(Clone, Debug)]
pub(crate) struct SessionPlan {
    /// In their order. Those after the session's end never come.
    pub(crate) chunks: Vec<Arrival>,
    /// When its client ends it, or takes too long; none: not before all is calm.
    pub(crate) ends_ns: Option<u64>,
    /// How long after a chunk that did not succeed it is ended.
    pub(crate) ends_after_break_ns: u64,
}

impl SessionPlan {
    /// When something is to happen to it.
    pub(crate) fn times_ns(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().map(|chunk| chunk.time_ns).chain(self.ends_ns)
    }
}

/// Sessions of those among `models` that can be in chunks, begun in the time up to `last_ns`.
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
            chunks.push(Arrival { time_ns, model: model.id, priority, graph });
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
