//! The work of a job in phases, divided among the members of a thread group as they come to it.
//!
//! A phase has items that any member may do, in any order. Each member has a share of them, always
//! the same one if it can, so that what it reads stays in its core's caches. A member that has done its
//! own share takes items from the far ends of the others'. A core that is slowed down, or not there at
//! all, then delays the others by one item, not by a share. Members synchronise between phases: none begins
//! before all items of the one before are done. A guest, whose core belongs to another worker, may leave between two items.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::signal::Signal;

/// The most items of a phase.
pub(crate) const ITEMS_MAX: usize = u16::MAX as usize;

/// The state that the members of a job share while they work on phases.
pub(crate) struct Phases {
    /// The remainder of each member's share: the phase (32 bits), the next item, the end (16 each).
    /// A share of an earlier phase stands for one of this phase that nobody has touched.
    shares: Box<[Share]>,
    /// The number of items done in all phases.
    done: Signal,
}

/// The remainder of a share, in a cache line of its own, or two that are fetched together.
#[derive(Default)]
#[repr(align(128))]
struct Share(AtomicU64);

/// A member of a job, as it goes through the phases.
pub(crate) struct Member<'a> {
    phases: &'a Phases,
    number: usize,
    members: usize,
    /// Whether a guest may stay; none of other members.
    stays: Option<&'a dyn Fn() -> bool>,
    has_left: bool,
    phase: u32,
    /// The number of items of all phases so far.
    items: u32,
}

impl Phases {
    /// The phases of jobs that have up to `members_max` members.
    pub(crate) fn new(members_max: usize) -> Self {
        let shares = (0..members_max).map(|_| Share::default()).collect();
        Self { shares, done: Signal::default() }
    }

    /// Forgets all phases. No member may be in one.
    pub(crate) fn reset(&self) {
        for share in &self.shares {
            share.0.store(0, Ordering::Relaxed);
        }
        self.done.reset();
    }

    /// Member `number` of `members`, before the first phase. All members go through the same phases.
    pub(crate) fn member(&self, number: usize, members: usize) -> Member<'_> {
        assert!(number < members && members <= self.shares.len(), "member {number} of {members}");
        Member { phases: self, number, members, stays: None, has_left: false, phase: 0, items: 0 }
    }

    /// The same as a guest, who leaves once `stays` says no: the others do what is left.
    pub(crate) fn guest<'a>(
        &'a self,
        number: usize,
        members: usize,
        stays: &'a dyn Fn() -> bool,
    ) -> Member<'a> {
        Member { stays: Some(stays), ..self.member(number, members) }
    }
}

impl Member<'_> {
    /// The member's number, from 0 on.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The number of members.
    pub(crate) fn members(&self) -> usize {
        self.members
    }

    /// Whether the member is a guest that has left.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left
    }

    /// Whether the member goes on: a guest that has left does not come back.
    fn goes_on(&mut self) -> bool {
        self.has_left = self.has_left || self.stays.is_some_and(|stays| !stays());
        !self.has_left
    }

    /// Goes through a phase of `items` items: runs `item` for those that fall to this member, and
    /// returns when all are done. What members wrote in the phase is visible after. A guest that leaves returns at once.
    pub(crate) fn run_phase(&mut self, items: usize, mut item: impl FnMut(usize)) {
        assert!(items <= ITEMS_MAX, "{items} items");
        if !self.goes_on() {
            return;
        }
        self.phase += 1;
        self.items += items as u32;
        let shares = &self.phases.shares;
        let members = self.members();
        let mut count = 0;
        for turn in 0..members {
            let owner = (self.number + turn) % members;
            let all = part(items, owner, members);
            while self.goes_on()
                && let Some(claimed) = shares[owner].claim(self.phase, &all, turn == 0)
            {
                item(claimed);
                count += 1;
            }
        }
        if members > 1 {
            let items = self.items;
            self.phases.done.add(count);
            let is_over = |done| done >= items;
            match self.stays {
                None => self.phases.done.wait_until(is_over),
                Some(_) if self.has_left => {}
                Some(_) => self.phases.done.wait_as_guest(|| true, is_over),
            }
        }
    }
}

impl Share {
    /// Takes the first item that is left of a share of phase `phase`, or the last; at first `all` are left.
    fn claim(&self, phase: u32, all: &Range<usize>, is_first: bool) -> Option<usize> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let left = match (seen >> 32) as u32 {
                of if of < phase => all.clone(),
                of if of == phase => (seen >> 16) as u16 as usize..seen as u16 as usize,
                // A phase that is over.
                _ => return None,
            };
            if left.is_empty() {
                return None;
            }
            let (item, left) = match is_first {
                true => (left.start, left.start + 1..left.end),
                false => (left.end - 1, left.start..left.end - 1),
            };
            let next = u64::from(phase) << 32 | (left.start as u64) << 16 | left.end as u64;
            match self.0.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(item),
                Err(now) => seen = now,
            }
        }
    }
}

/// Part `index` of `0..count` divided into `parts` nearly equal parts.
pub(crate) fn part(count: usize, index: usize, parts: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn others_do_the_share_of_a_member_that_does_not_come() {
        let phases = Phases::new(2);
        let mut done = Vec::new();
        let mut present = phases.member(0, 2);
        present.run_phase(5, |item| done.push(item));
        present.run_phase(3, |item| done.push(10 + item));
        assert_eq!(done, [0, 1, 4, 3, 2, 10, 12, 11]);
        let mut late = phases.member(1, 2);
        late.run_phase(5, |_| panic!("all is done"));
        late.run_phase(3, |_| panic!("all is done"));
    }

    #[test]
    fn a_guest_leaves_after_the_item_at_hand() {
        let phases = Phases::new(3);
        let is_wanted = Cell::new(true);
        let stays = || is_wanted.get();
        let mut guest = phases.guest(1, 2, &stays);
        guest.run_phase(4, |item| {
            assert_eq!(item, 2, "the first of its share");
            is_wanted.set(false);
        });
        is_wanted.set(true);
        guest.run_phase(4, |_| panic!("a guest that has left does not come back"));
        let mut done = Vec::new();
        let mut member = phases.member(0, 2);
        member.run_phase(4, |item| done.push(item));
        member.run_phase(4, |item| done.push(10 + item));
        assert_eq!(done, [0, 1, 3, 10, 11, 13, 12]);
    }
}
