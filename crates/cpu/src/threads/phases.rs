//! Work in stages, divided among the members of a thread group as they come to it.
//!
//! A stage has items that any member may do, in any order. Each member has a share of them, always
//! the same one if it can, so that what it reads stays in its core's caches; who is done with its
//! own takes from the far ends of the others' shares. A core that is slowed down, or not there at
//! all, then holds up the others for one item, not for a share. No stage begins before all items
//! of the one before are done.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::threads::signal::Signal;

/// Items that a stage can have.
pub(crate) const ITEMS_MAX: usize = u16::MAX as usize;

/// What the members of a group share while they work on stages.
pub(crate) struct Stages {
    /// What is left of the members' shares: the stage (32 bits), the next item, the end (16 each).
    /// A share of an earlier stage stands for one of this that nobody has touched.
    shares: Box<[Share]>,
    /// Items done in all stages.
    done: Signal,
}

/// In a cache line, or two fetched together, of its own.
#[derive(Default)]
#[repr(align(128))]
struct Share(AtomicU64);

/// A member on its way through the stages.
pub(crate) struct Member<'a> {
    stages: &'a Stages,
    number: usize,
    stage: u32,
    /// Items of all stages so far.
    items: u32,
}

impl Stages {
    pub(crate) fn new(members: usize) -> Self {
        let shares = (0..members).map(|_| Share::default()).collect();
        Self { shares, done: Signal::default() }
    }

    /// Forgets all stages, while no member is in one.
    pub(crate) fn reset(&self) {
        for share in &self.shares {
            share.0.store(0, Ordering::Relaxed);
        }
        self.done.reset();
    }

    /// A member, before the first stage. All members go through the same stages.
    pub(crate) fn member(&self, number: usize) -> Member<'_> {
        Member { stages: self, number, stage: 0, items: 0 }
    }
}

impl Member<'_> {
    /// Which one, from 0 on.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// How many there are.
    pub(crate) fn members(&self) -> usize {
        self.stages.shares.len()
    }

    /// Goes through a stage of `items` items: runs `item` for those that fall to this member, and
    /// returns when all are done. What was written in the stage is visible after.
    pub(crate) fn share(&mut self, items: usize, mut item: impl FnMut(usize)) {
        assert!(items <= ITEMS_MAX, "{items} items");
        self.stage += 1;
        self.items += items as u32;
        let shares = &self.stages.shares;
        let members = self.members();
        let mut count = 0;
        for turn in 0..members {
            let owner = (self.number + turn) % members;
            let all = part(items, owner, members);
            while let Some(claimed) = shares[owner].claim(self.stage, &all, turn == 0) {
                item(claimed);
                count += 1;
            }
        }
        if members > 1 {
            let items = self.items;
            self.stages.done.add(count);
            self.stages.done.wait_until(|done| done >= items);
        }
    }
}

impl Share {
    /// Takes the first or the last item that is left of a share, which is `all` at first.
    fn claim(&self, stage: u32, all: &Range<usize>, is_first: bool) -> Option<usize> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let left = match (seen >> 32) as u32 {
                of if of < stage => all.clone(),
                of if of == stage => (seen >> 16) as u16 as usize..seen as u16 as usize,
                // A stage that is over.
                _ => return None,
            };
            if left.is_empty() {
                return None;
            }
            let (item, left) = match is_first {
                true => (left.start, left.start + 1..left.end),
                false => (left.end - 1, left.start..left.end - 1),
            };
            let next = u64::from(stage) << 32 | (left.start as u64) << 16 | left.end as u64;
            match self.0.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(item),
                Err(now) => seen = now,
            }
        }
    }
}

/// The part of `0..count` that is the `index`th of `parts`.
pub(crate) fn part(count: usize, index: usize, parts: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::threads::thread_group::ThreadGroup;

    #[test]
    fn every_item_is_done_once_and_stages_keep_their_order() {
        const STAGES: usize = 200;
        let mut group = ThreadGroup::new("test", 3, |_| {}).unwrap();
        for items in [0, 1, 2, 7, 64] {
            let counts: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
            group.run(&|member| {
                for stage in 0..STAGES {
                    member.share(items, |item| {
                        let before = counts[item].fetch_add(1, Ordering::Relaxed);
                        assert_eq!(before as usize, stage, "item {item} of {items}");
                    });
                    let is_done =
                        |count: &AtomicU32| count.load(Ordering::Relaxed) as usize > stage;
                    assert!(counts.iter().all(is_done), "stage {stage} of {items} items");
                }
            });
        }
    }

    #[test]
    fn others_do_the_share_of_who_does_not_come() {
        let stages = Stages::new(2);
        let mut done = Vec::new();
        let mut present = stages.member(0);
        present.share(5, |item| done.push(item));
        present.share(3, |item| done.push(10 + item));
        assert_eq!(done, [0, 1, 4, 3, 2, 10, 12, 11]);
        let mut late = stages.member(1);
        late.share(5, |_| panic!("all is done"));
        late.share(3, |_| panic!("all is done"));
    }
}
