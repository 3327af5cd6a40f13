//! A chain in a batch from step to step, the same on every device: where its state comes from,
//! which rows it reads and writes, which steps are padding, how it ends, and which state it leaves.

use batchmaker_graph::{
    CellGraph, Chunk, EndOfSequence, Item, Join, RequestId, RunIndex, SinkTime, SlotId, Stop,
    WorkerId,
};

/// A chain in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The chain's request.
    pub request: RequestId,
    /// The run of the request.
    pub run: RunIndex,
    /// The slot of its state.
    pub slot: SlotId,
    /// The step to run next.
    step: u32,
    /// The number of its nodes; steps from there on are padding.
    length: u32,
    /// The place of its state when it joins.
    origin: Origin,
    stop: Option<Stop>,
    /// Whether its request is a chunk of a session, to which it leaves its state.
    is_of_session: bool,
    has_ended: bool,
}

/// The place of a chain's state when it joins a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In no slot yet: it is the first state of the run, [`batchmaker_graph::Run::initial`].
    Initial,
    /// In its slot, where its step before or the session's chunk before left it.
    Slot,
    /// In the slot of that index in the memory of another worker.
    Elsewhere(WorkerId),
}

impl Chain {
    /// A chain of a request of this graph that joins a roster. `has_ended` says whether it reached its
    /// end of sequence in a task before: it may join again before the manager learns that.
    pub fn joining(graph: &CellGraph, join: &Join, has_ended: bool) -> Self {
        let &Join { request, run: index, slot, step, moved_from } = join;
        let run = &graph.runs()[index.index()];
        let origin = match moved_from {
            _ if step == 0 && graph.chunk() != Chunk::Next => Origin::Initial,
            None => Origin::Slot,
            Some(worker) => Origin::Elsewhere(worker),
        };
        Self {
            request,
            run: index,
            slot,
            step,
            length: run.length,
            origin,
            stop: run.stop,
            is_of_session: graph.chunk() != Chunk::Whole,
            has_ended,
        }
    }

    /// A chain that an explicit batch runs one step of.
    ///
    /// # Panics
    /// If the item has no slot, as items of row-wise cells.
    pub fn of_item(graph: &CellGraph, item: &Item, has_ended: bool) -> Self {
        let &Item { request, run, first: step, slot, moved_from, .. } = item;
        let slot = slot.expect("an item of a chain has a slot");
        Self::joining(graph, &Join { request, run, slot, step, moved_from }, has_ended)
    }

    /// The place of its state when it joins.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The step to run next.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// The number of its nodes.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Whether its next step is computed: not once it reached its end of sequence.
    pub fn is_running(&self) -> bool {
        !self.has_ended
    }

    /// Whether `step` is past its last node, so that its outputs are dropped.
    pub fn is_padding(&self, step: u32) -> bool {
        step >= self.length
    }

    /// The node whose inputs `step` reads: padding reads those of the last node again.
    pub fn input_node(&self, step: u32) -> u32 {
        step.min(self.length - 1)
    }

    /// The number of steps up to and with its last node; none past it.
    pub fn steps_to_end(&self) -> Option<u32> {
        self.length.checked_sub(self.step).filter(|&steps| steps > 0)
    }

    /// The node whose row a sink of this time writes after `step`, if it writes then.
    pub fn sink_node(&self, time: SinkTime, step: u32) -> Option<u32> {
        match time {
            _ if self.is_padding(step) => None,
            SinkTime::Every => Some(step),
            // The chain may end at the next node, so that this one is the last.
            SinkTime::Last if step + 1 == self.length || self.stop.is_some() => Some(0),
            SinkTime::Last => None,
        }
    }

    /// The step that reads the state which `step` leaves in the slot: the first step of the next chunk,
    /// where a session's chunk ends.
    pub fn state_step_after(&self, step: u32) -> u32 {
        if self.is_of_session && step + 1 == self.length { 0 } else { step + 1 }
    }

    /// The condition that may end the chain at its next node; `None` if it has none or is past its
    /// last node.
    pub fn stop(&self) -> Option<Stop> {
        self.stop.filter(|_| !self.is_padding(self.step))
    }

    /// Advances the chain by `steps` nodes, none of which ended it.
    ///
    /// # Panics
    /// If that is past the end of a session's chunk, which is never padded: padding would change the
    /// state that it leaves.
    pub fn advance(&mut self, steps: u32) {
        self.step += steps;
        assert!(!self.is_of_session || self.step <= self.length, "a session's chunk is padded");
    }

    /// Ends the chain with its next node, whose output is the stop. The node writes nothing.
    pub fn end(&mut self) -> EndOfSequence {
        self.step += 1;
        self.has_ended = true;
        EndOfSequence { request: self.request, run: self.run, nodes: self.step }
    }
}

/// The standing list of chains of one worker and cell type. `C` is a chain with the device's own data of
/// it.
#[derive(Clone, Debug)]
pub struct Roster<C> {
    /// The chains in no particular order.
    pub chains: Vec<C>,
}

/// A task asks for a change that the roster cannot make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// Some of these slots leave a roster that they are not on.
    #[error("{0:?} leave a roster that does not have them all")]
    Leaves(Vec<SlotId>),
    /// A chain joins a roster that has its slot.
    #[error("{0:?} joins a roster that has its slot")]
    Joins(SlotId),
}

impl<C> Default for Roster<C> {
    fn default() -> Self {
        Self { chains: Vec::new() }
    }
}

impl<C: AsRef<Chain>> Roster<C> {
    /// Takes out the chains in the slots `leaves` and passes each to `left`.
    ///
    /// # Errors
    /// [`RosterError::Leaves`] where one of them is not on the list; the others are taken out then.
    pub fn leave(
        &mut self,
        leaves: &[SlotId],
        mut left: impl FnMut(&mut C),
    ) -> Result<(), RosterError> {
        if leaves.is_empty() {
            return Ok(());
        }
        let before = self.chains.len();
        self.chains.retain_mut(|chain| {
            let leaves = leaves.contains(&(*chain).as_ref().slot);
            if leaves {
                left(chain);
            }
            !leaves
        });
        match before - self.chains.len() == leaves.len() {
            true => Ok(()),
            false => Err(RosterError::Leaves(leaves.to_vec())),
        }
    }

    /// Puts a chain on the list, after checks for devices that detect misuse.
    ///
    /// # Errors
    /// [`RosterError::Joins`] where another chain on the list has its slot's index. The check looks
    /// at all chains.
    pub fn join_checked(&mut self, chain: C) -> Result<(), RosterError> {
        let slot = chain.as_ref().slot;
        if self.chains.iter().any(|known| known.as_ref().slot.index == slot.index) {
            return Err(RosterError::Joins(slot));
        }
        self.chains.push(chain);
        Ok(())
    }
}

impl AsRef<Self> for Chain {
    fn as_ref(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, CellTypeId, ElementType, RowSpec, Rows};

    use super::*;

    const REQUEST: RequestId = RequestId { index: 0, generation: 0 };

    fn graph(chunk: Chunk, length: u32, stop: Option<Stop>) -> CellGraph {
        let mut graph = CellGraphBuilder::of_chunk(chunk);
        let x = graph.input(RowSpec::flat(ElementType::F32, 1), length);
        let (inputs, initial) = (vec![Rows::all(x)], vec![None]);
        match stop {
            None => graph.chain(CellTypeId(0), length, inputs, initial, Vec::new()),
            Some(stop) => {
                graph.chain_until(CellTypeId(0), length, inputs, initial, Vec::new(), stop)
            }
        };
        graph.finish().unwrap()
    }

    fn join(step: u32, moved_from: Option<WorkerId>) -> Join {
        let slot = SlotId { index: step, generation: 0 };
        Join { request: REQUEST, run: RunIndex(0), slot, step, moved_from }
    }

    #[test]
    fn states_come_from_where_they_are() {
        let origin = |chunk, step, moved_from| {
            Chain::joining(&graph(chunk, 3, None), &join(step, moved_from), false).origin()
        };
        let elsewhere = Some(WorkerId(1));
        assert_eq!(origin(Chunk::Whole, 0, None), Origin::Initial);
        assert_eq!(origin(Chunk::First, 0, None), Origin::Initial);
        assert_eq!(origin(Chunk::Next, 0, None), Origin::Slot);
        assert_eq!(origin(Chunk::Next, 0, elsewhere), Origin::Elsewhere(WorkerId(1)));
        assert_eq!(origin(Chunk::Whole, 2, None), Origin::Slot);
        assert_eq!(origin(Chunk::Whole, 2, elsewhere), Origin::Elsewhere(WorkerId(1)));
    }

    #[test]
    fn padding_reads_the_last_inputs_and_writes_nothing() {
        let chain = Chain::joining(&graph(Chunk::Whole, 3, None), &join(0, None), false);
        let reads = [0, 1, 2, 3, 7].map(|step| chain.input_node(step));
        assert_eq!(reads, [0, 1, 2, 2, 2]);
        let every = [0, 2, 3].map(|step| chain.sink_node(SinkTime::Every, step));
        assert_eq!(every, [Some(0), Some(2), None]);
        let last = [0, 1, 2, 3].map(|step| chain.sink_node(SinkTime::Last, step));
        assert_eq!(last, [None, None, Some(0), None]);
    }

    #[test]
    fn a_chunk_leaves_its_state_for_the_next() {
        for (chunk, after_last) in [(Chunk::Whole, 3), (Chunk::First, 0), (Chunk::Next, 0)] {
            let chain = Chain::joining(&graph(chunk, 3, None), &join(0, None), false);
            assert_eq!([0, 2].map(|step| chain.state_step_after(step)), [1, after_last]);
        }
    }

    #[test]
    fn an_open_chain_may_end_at_any_node() {
        let stop = Stop { port: 0, value: 7 };
        let mut chain = Chain::joining(&graph(Chunk::Whole, 2, Some(stop)), &join(0, None), false);
        assert_eq!((chain.stop(), chain.sink_node(SinkTime::Last, 0)), (Some(stop), Some(0)));
        chain.advance(1);
        let padded = Chain { step: 2, ..chain.clone() };
        assert_eq!(padded.stop(), None, "padding ends nothing");
        assert_eq!(chain.end(), EndOfSequence { request: REQUEST, run: RunIndex(0), nodes: 2 });
        assert!(!chain.is_running());
    }

    #[test]
    fn a_roster_knows_who_is_on_it() {
        let graph = graph(Chunk::Whole, 9, None);
        let chain = |step| Chain::joining(&graph, &join(step, None), false);
        let mut roster = Roster::default();
        (0..3).for_each(|step| roster.join_checked(chain(step)).unwrap());
        assert_eq!(roster.join_checked(chain(1)), Err(RosterError::Joins(chain(1).slot)));
        let mut left = Vec::new();
        roster.leave(&[chain(1).slot], |chain| left.push(chain.step())).unwrap();
        assert_eq!((left, roster.chains.len()), (vec![1], 2));
        assert!(roster.leave(&[chain(1).slot], |_| ()).is_err());
    }
}
