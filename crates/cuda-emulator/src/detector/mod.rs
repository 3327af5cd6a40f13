//! Finds accesses that nothing orders, by happens-before.
//!
//! Each thread has a vector clock ([`Clock`]): for each other thread, the last of its periods that is known to be over. A barrier, a release
//! or a fence ends a period. Each access is kept with its thread and period ([`Granule`]); a later access of the same bytes races with it
//! unless its thread knows that period. The rules are those of CUDA's memory model (PTX ISA, "Memory Consistency Model"):
//!
//! - `__syncthreads` orders all threads of a block, `__syncwarp` those of its mask; shuffles and votes order nothing.
//! - An acquire of a value orders what follows after what came before the release that published it, if the scopes of both include both
//!   threads. A fence turns the relaxed loads before it into acquires and the relaxed stores after it into releases, in its own scope.
//! - A store ends what was published before through the same address; an atomic operation that reads and writes adds to it.
//! - Atomic operations race with other accesses alone.
//!
//! Launches and copies are ordered as a whole, by the streams and events of the host ([`History`]): an access races with that of an earlier
//! operation which does not precede its own.

mod clock;
mod granule;
mod history;
mod published;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use self::clock::{Clock, Known};
pub(crate) use self::clock::{SLOTS_MAX, Slot};
pub(crate) use self::granule::{Access, Earlier, Granule};
pub use self::history::{History, Sequential};
use self::published::Published;

/// The threads that an operation publishes to, or learns from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Block,
    Gpu,
    System,
}

/// How an atomic operation orders other accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

/// What an atomic operation does to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Load,
    Store,
    /// A load and a store at once.
    Update,
}

/// The knowledge of a launch's threads.
pub(crate) struct Detector {
    /// The number of the launch among the operations on the GPU.
    operation: u32,
    /// The last operation that was found to precede the launch.
    preceding: u32,
    threads: Vec<Ordering>,
    published: HashMap<usize, Published>,
    nothing: Rc<Known>,
}

/// What a thread knows, and what its fences prepared.
struct Ordering {
    clock: Clock,
    block: usize,
    /// What relaxed loads found, for the next fence: in the block's scope, and in the GPU's.
    found: [Option<Rc<Known>>; 2],
    /// What the last fences made ready for relaxed stores, likewise.
    ready: [Option<Rc<Known>>; 2],
}

impl Detector {
    pub(crate) fn new(operation: u32, slots: usize) -> Self {
        let nothing = Rc::new(vec![0; slots]);
        let thread = |slot| Ordering {
            clock: Clock::new(slot, nothing.clone()),
            block: 0,
            found: [None, None],
            ready: [None, None],
        };
        let threads = (0..slots).map(thread).collect();
        Self { operation, preceding: 0, threads, published: HashMap::new(), nothing }
    }

    /// New threads of block `block` take these slots: they know nothing of others.
    pub(crate) fn begin(&mut self, slots: Range<Slot>, block: usize) {
        for thread in &mut self.threads[slots] {
            thread.clock.begin(self.nothing.clone());
            (thread.block, thread.found, thread.ready) = (block, [None, None], [None, None]);
        }
    }

    /// Notes an access of the bytes that `granule` covers and `access` names, and returns an earlier access that races with it.
    pub(crate) fn access(
        &mut self,
        slot: Slot,
        granule: &mut Granule,
        access: Access,
        history: &dyn History,
        random: impl FnOnce() -> u32,
    ) -> Option<Earlier> {
        let preceding = &mut self.preceding;
        let precedes = |operation| {
            let precedes = operation == *preceding || history.precedes(operation);
            *preceding = if precedes { operation } else { *preceding };
            precedes
        };
        let earlier = granule.operation(self.operation, (access.bytes, access.is_write), precedes);
        let of_thread = granule.thread(&self.threads[slot].clock, access, random);
        of_thread.or(earlier.map(Earlier::Operation))
    }

    /// Whether this launch has written the bytes of a granule.
    pub(crate) fn is_written(&self, granule: &Granule) -> bool {
        granule.is_written(self.operation)
    }

    /// Orders all of these threads: what each did before, all know.
    pub(crate) fn meet(&mut self, slots: &[Slot]) {
        let Some((&first, others)) = slots.split_first() else { return };
        let mut known = self.threads[first].clock.known().clone();
        let mut last = self.threads[first].clock.known().clone();
        for &slot in others {
            let of = self.threads[slot].clock.known();
            if !Rc::ptr_eq(of, &last) {
                last = of.clone();
                clock::join(&mut known, of);
            }
        }
        let own = Rc::make_mut(&mut known);
        for &slot in slots {
            own[slot] = self.threads[slot].clock.period();
        }
        for &slot in slots {
            self.threads[slot].clock.replace(known.clone());
        }
    }

    /// A fence: what relaxed loads found is known from now on, and relaxed stores publish what is known now.
    pub(crate) fn fence(&mut self, slot: Slot, scope: Scope) {
        let thread = &mut self.threads[slot];
        if let Some(found) = &thread.found[0] {
            thread.clock.learn(found);
        }
        if scope >= Scope::Gpu
            && let Some(found) = thread.found[1].take()
        {
            thread.clock.learn(&found);
        }
        let ready = thread.clock.all();
        if scope >= Scope::Gpu {
            thread.ready[1] = Some(ready.clone());
        }
        thread.ready[0] = Some(ready);
        thread.clock.end_period();
    }

    /// The order that an atomic operation at an address makes.
    pub(crate) fn atomic(
        &mut self,
        slot: Slot,
        address: usize,
        (effect, order, scope): (Effect, Order, Scope),
    ) {
        let thread = &mut self.threads[slot];
        let published = self.published.entry(address).or_default();
        if effect != Effect::Store {
            let within_block = published.in_block(thread.block);
            let anywhere = published.anywhere().filter(|_| scope >= Scope::Gpu);
            for (at, known) in [(0, within_block), (1, anywhere)] {
                let Some(known) = known else { continue };
                match (order.acquires, &mut thread.found[at]) {
                    (true, _) => thread.clock.learn(known),
                    (false, Some(found)) => clock::join(found, known),
                    (false, none) => *none = Some(known.clone()),
                }
            }
        }
        if effect == Effect::Load {
            return;
        }
        if effect == Effect::Store {
            published.clear();
        }
        let all = order.releases.then(|| thread.clock.all());
        if let Some(known) = all.as_ref().or(thread.ready[0].as_ref()) {
            published.add_in_block(thread.block, known);
        }
        if scope >= Scope::Gpu
            && let Some(known) = all.as_ref().or(thread.ready[1].as_ref())
        {
            published.add(known);
        }
        if order.releases {
            thread.clock.end_period();
        }
    }

    /// Whether a thread has had more periods than can be counted.
    pub(crate) fn is_full(&self, slot: Slot) -> bool {
        self.threads[slot].clock.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAXED: Order = Order { acquires: false, releases: false };
    const ACQUIRE: Order = Order { acquires: true, releases: false };
    const RELEASE: Order = Order { acquires: false, releases: true };
    const FLAG: usize = 1000;

    /// Two blocks of two threads each, and one granule.
    struct Launch(Detector, Granule);

    impl Launch {
        fn new() -> Self {
            let mut detector = Detector::new(1, 4);
            detector.begin(0..2, 0);
            detector.begin(2..4, 1);
            Self(detector, Granule::default())
        }

        /// Whether an access of all bytes of the granule races.
        fn races(&mut self, slot: Slot, is_write: bool) -> bool {
            let access = Access { site: 1, bytes: 0b1111, is_write, is_atomic: false };
            self.0.access(slot, &mut self.1, access, &Sequential, || 0).is_some()
        }

        fn store(&mut self, slot: Slot, order: Order, scope: Scope) {
            self.0.atomic(slot, FLAG, (Effect::Store, order, scope));
        }

        fn load(&mut self, slot: Slot, order: Order, scope: Scope) {
            self.0.atomic(slot, FLAG, (Effect::Load, order, scope));
        }
    }

    #[test]
    fn a_barrier_orders_its_threads() {
        let mut launch = Launch::new();
        assert!(!launch.races(0, true));
        launch.0.meet(&[0, 1]);
        assert!(!launch.races(1, false), "after the barrier");
        assert!(launch.races(2, false), "another block");
    }

    #[test]
    fn reads_race_with_writes_alone() {
        let mut launch = Launch::new();
        assert!(!launch.races(0, false) && !launch.races(1, false));
        assert!(launch.races(2, true));
    }

    #[test]
    fn a_release_and_an_acquire_order() {
        for (release, acquire, scope, is_right) in [
            (RELEASE, ACQUIRE, Scope::Gpu, true),
            (RELAXED, ACQUIRE, Scope::Gpu, false),
            (RELEASE, RELAXED, Scope::Gpu, false),
            (RELEASE, ACQUIRE, Scope::Block, false),
        ] {
            let mut launch = Launch::new();
            launch.races(0, true);
            launch.store(0, release, scope);
            launch.load(2, acquire, Scope::Gpu);
            assert_eq!(launch.races(2, false), !is_right, "{release:?} {acquire:?} {scope:?}");
        }
    }

    #[test]
    fn fences_order_relaxed_accesses_in_their_scope() {
        for (before, after, reader, is_right) in [
            (Scope::Gpu, Scope::Gpu, 2, true),
            (Scope::Block, Scope::Gpu, 2, false),
            (Scope::Gpu, Scope::Block, 2, false),
            (Scope::Block, Scope::Block, 1, true),
        ] {
            let mut launch = Launch::new();
            launch.races(0, true);
            launch.0.fence(0, before);
            launch.store(0, RELAXED, Scope::Gpu);
            launch.load(reader, RELAXED, Scope::Gpu);
            launch.0.fence(reader, after);
            assert_eq!(launch.races(reader, false), !is_right, "{before:?} {after:?} {reader}");
        }
    }

    #[test]
    fn a_fence_after_the_flag_orders_nothing() {
        let mut launch = Launch::new();
        launch.races(0, true);
        launch.store(0, RELAXED, Scope::Gpu);
        launch.0.fence(0, Scope::Gpu);
        launch.load(2, ACQUIRE, Scope::Gpu);
        assert!(launch.races(2, false));
    }

    #[test]
    fn order_passes_through_a_third_thread() {
        let mut launch = Launch::new();
        launch.races(0, true);
        launch.0.meet(&[0, 1]);
        launch.store(1, RELEASE, Scope::Gpu);
        launch.load(2, ACQUIRE, Scope::Gpu);
        launch.0.meet(&[2, 3]);
        assert!(!launch.races(3, true));
    }

    #[test]
    fn a_thread_in_the_place_of_another_does_not_follow_it() {
        let mut launch = Launch::new();
        launch.races(0, true);
        launch.0.begin(0..2, 2);
        assert!(launch.races(0, false));
    }

    #[test]
    fn bytes_are_told_apart() {
        let mut launch = Launch::new();
        let mut races = |slot, bytes| {
            let access = Access { site: 1, bytes, is_write: true, is_atomic: false };
            launch.0.access(slot, &mut launch.1, access, &Sequential, || 0).is_some()
        };
        assert!(!races(0, 0b0011));
        assert!(!races(2, 0b1100));
        assert!(races(3, 0b0110));
    }

    #[test]
    fn atomic_operations_do_not_race_with_each_other() {
        let mut launch = Launch::new();
        let mut races = |slot, is_atomic| {
            let access = Access { site: 1, bytes: 15, is_write: true, is_atomic };
            launch.0.access(slot, &mut launch.1, access, &Sequential, || 0).is_some()
        };
        assert!(!races(0, true));
        assert!(!races(2, true));
        assert!(races(1, false));
    }

    /// A launch that some operations do not precede.
    struct Not(&'static [u32]);

    impl History for Not {
        fn precedes(&self, operation: u32) -> bool {
            !self.0.contains(&operation)
        }

        fn describe(&self, operation: u32) -> String {
            format!("operation {operation}")
        }
    }

    #[test]
    fn operations_race_that_do_not_precede_each_other() {
        let race = |accesses: &[(u32, bool)], bytes, not: &'static [u32]| {
            let mut granule = Granule::default();
            let mut race = None;
            for &(operation, is_write) in accesses {
                let mut launch = Detector::new(operation, 1);
                launch.begin(0..1, 0);
                let access = Access { site: 1, bytes, is_write, is_atomic: false };
                race = launch.access(0, &mut granule, access, &Not(not), || 0);
            }
            race
        };
        let (write, read) = (true, false);
        assert_eq!(race(&[(1, write), (2, read)], 15, &[1]), Some(Earlier::Operation(1)));
        assert_eq!(race(&[(1, write), (2, read)], 15, &[]), None);
        assert_eq!(race(&[(1, read), (2, read)], 15, &[1]), None);
        assert_eq!(race(&[(1, read), (2, write)], 15, &[1]), Some(Earlier::Operation(1)));
        assert_eq!(race(&[(1, write), (2, write), (3, read)], 15, &[1]), None, "2 followed 1");
        assert_eq!(
            race(&[(1, write), (2, read), (3, write)], 15, &[2]),
            Some(Earlier::Operation(2))
        );
        assert_eq!(race(&[(1, write), (1, read)], 15, &[1]), None, "within an operation");
    }
}
