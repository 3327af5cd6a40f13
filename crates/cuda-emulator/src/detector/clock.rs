//! Vector clocks of threads.
//!
//! A clock has a period for each thread of the launch, block by block. Blocks share what they know of each other: threads that met at a
//! barrier have the same clock but for their own period, so that a barrier costs as much as its block has threads.

use std::rc::Rc;

/// A thread of a launch: its block's number, times the threads of a block, and its number in the block.
pub(crate) type ThreadNumber = usize;

/// For each block, the last period of each of its threads that is known to be over; none where nothing of the block is known.
#[derive(Clone, Debug)]
pub(super) struct Known(Vec<Option<Rc<Vec<u32>>>>);

impl Known {
    pub(super) fn nothing(blocks: usize) -> Self {
        Self(vec![None; blocks])
    }

    fn period(&self, thread: ThreadNumber, of_block: usize) -> u32 {
        self.0[thread / of_block].as_ref().map_or(0, |block| block[thread % of_block])
    }

    pub(super) fn set(&mut self, thread: ThreadNumber, of_block: usize, period: u32) {
        let block = self.0[thread / of_block].get_or_insert_with(|| Rc::new(vec![0; of_block]));
        Rc::make_mut(block)[thread % of_block] = period;
    }
}

/// A thread and one of its periods, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) thread: u32,
    period: u32,
}

/// A thread's vector clock: its own period, and the periods of other threads that are over for it.
pub(super) struct Clock {
    thread: ThreadNumber,
    of_block: usize,
    period: u32,
    known: Rc<Known>,
}

impl Clock {
    pub(super) fn new(thread: ThreadNumber, of_block: usize, known: Rc<Known>) -> Self {
        Self { thread, of_block, period: 1, known }
    }

    pub(super) fn thread(&self) -> ThreadNumber {
        self.thread
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch { thread: self.thread as u32, period: self.period }
    }

    /// Whether what happened in an epoch comes before what the thread does now.
    pub(super) fn follows(&self, epoch: Epoch) -> bool {
        let thread = epoch.thread as usize;
        thread == self.thread || self.known.period(thread, self.of_block) >= epoch.period
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
        Rc::make_mut(&mut all).set(self.thread, self.of_block, self.period);
        all
    }

    pub(super) fn end_period(&mut self) {
        self.period += 1;
    }
}

/// Adds what `from` knows to `to`.
pub(super) fn join(to: &mut Rc<Known>, from: &Rc<Known>) {
    if Rc::ptr_eq(to, from) {
        return;
    }
    for (to, from) in Rc::make_mut(to).0.iter_mut().zip(&from.0) {
        match (to, from) {
            (_, None) => {}
            (to @ None, Some(from)) => *to = Some(from.clone()),
            (Some(to), Some(from)) if Rc::ptr_eq(to, from) => {}
            (Some(to), Some(from)) => {
                let periods = Rc::make_mut(to).iter_mut().zip(from.iter());
                periods.for_each(|(to, &from)| *to = from.max(*to));
            }
        }
    }
}
