//! Vector clocks of threads. Threads that met at a barrier share what they know, so that a barrier costs as much as it has threads.

use std::rc::Rc;

/// The place of a thread among those that are resident. Another thread has it when its block is over.
pub(crate) type Slot = usize;

/// Slots that clocks tell apart.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// For each slot, the last of its periods that is known to be over.
pub(super) type Known = Vec<u32>;

/// Bits of an [`Epoch`] that hold a slot; the others hold a period.
const SLOT_BITS: u32 = 12;

const PERIOD_BITS: u32 = u32::BITS - SLOT_BITS;

/// A slot and one of its periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch(u32);

impl Epoch {
    pub(super) fn slot(self) -> Slot {
        (self.0 >> PERIOD_BITS) as Slot
    }

    fn period(self) -> u32 {
        self.0 & ((1 << PERIOD_BITS) - 1)
    }
}

/// What a thread knows of the others.
pub(super) struct Clock {
    slot: Slot,
    /// The first period of the thread that has the slot now.
    first: u32,
    period: u32,
    known: Rc<Known>,
}

impl Clock {
    pub(super) fn new(slot: Slot, known: Rc<Known>) -> Self {
        Self { slot, first: 1, period: 1, known }
    }

    /// A new thread takes the slot.
    pub(super) fn begin(&mut self, known: Rc<Known>) {
        self.period += 1;
        self.first = self.period;
        self.known = known;
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch((self.slot as u32) << PERIOD_BITS | self.period)
    }

    /// Whether what happened in an epoch comes before what the thread does now.
    pub(super) fn follows(&self, epoch: Epoch) -> bool {
        let is_own = epoch.slot() == self.slot && epoch.period() >= self.first;
        is_own || self.known[epoch.slot()] >= epoch.period()
    }

    pub(super) fn known(&self) -> &Rc<Known> {
        &self.known
    }

    pub(super) fn period(&self) -> u32 {
        self.period
    }

    /// Ends the period, after which the thread knows just this.
    pub(super) fn replace(&mut self, known: Rc<Known>) {
        self.known = known;
        self.end_period();
    }

    pub(super) fn learn(&mut self, known: &Rc<Known>) {
        join(&mut self.known, known);
    }

    /// What the thread knows, its own period included.
    pub(super) fn all(&self) -> Rc<Known> {
        let mut all = self.known.clone();
        Rc::make_mut(&mut all)[self.slot] = self.period;
        all
    }

    pub(super) fn end_period(&mut self) {
        self.period += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.period >= (1 << PERIOD_BITS) - 2
    }
}

/// Adds what `from` knows to `to`.
pub(super) fn join(to: &mut Rc<Known>, from: &Rc<Known>) {
    if Rc::ptr_eq(to, from) {
        return;
    }
    for (to, &from) in Rc::make_mut(to).iter_mut().zip(from.iter()) {
        *to = from.max(*to);
    }
}
