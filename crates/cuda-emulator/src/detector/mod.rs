//! Finds accesses that nothing orders, by happens-before.
//!
//! Each thread has a vector clock ([`Clock`]): for each other thread, the last of its periods that is known to be over. A barrier, a release
//! or a fence ends a period. Each access is kept with its thread and period ([`Granule`]); a later access of the same bytes races with it
//! unless its thread knows that period. The rules are those of CUDA's memory model (PTX ISA, "Memory Consistency Model"):
//!
//! - `__syncthreads` orders all threads of a block, `__syncwarp` those of its mask; shuffles and votes order nothing.
//! - An acquire of a value orders what follows after what came before the release that published it, if the scopes of both include both
//!   threads. A fence turns the relaxed loads before it into acquires and the relaxed stores after it into releases, in its own scope.
//! - A store ends what others published before through the same address; an atomic operation that reads and writes adds to it.
//! - Atomic operations on the same bytes do not race with each other if the scope of each includes the other's thread.
//!
//! Launches and copies are ordered as a whole, by the streams and events of the host ([`History`]): an access races with that of an earlier
//! operation which does not precede its own.

mod clock;
mod granule;
mod history;
mod published;
mod scope;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

pub(crate) use self::clock::ThreadNumber;
use self::clock::{Clock, Known};
pub(crate) use self::granule::{Access, Earlier, Granule};
pub use self::history::{History, Sequential};
use self::published::Published;
pub(crate) use self::scope::Scope;

/// The ordering of an atomic operation: whether it acquires, and whether it releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

/// Whether an atomic operation reads the value, writes it, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Load,
    Store,
    /// A load and a store at once.
    Update,
}

/// The place of a thread among those that are resident. Another thread has it when its block is over.
pub(crate) type Slot = usize;

/// The knowledge of a launch's threads.
pub(crate) struct Detector {
    /// The number of the launch among the operations on the GPU.
    operation: u32,
    /// The last operation that was found to precede the launch.
    preceding: u32,
    /// Threads of a block.
    of_block: usize,
    /// The threads that are resident, by their slots.
    threads: Vec<Ordering>,
    published: HashMap<usize, Published>,
    nothing: Rc<Known>,
}

/// Something for each scope of threads: those of the block, and those of the GPU.
type ByScope<T> = [T; 2];

/// What a thread knows, and what its fences and releases prepared.
struct Ordering {
    clock: Clock,
    block: usize,
    /// The clocks that relaxed loads have found: the next fence of the scope acquires them.
    found: ByScope<Option<Rc<Known>>>,
    /// The clock at the last fence of each scope: relaxed stores after the fence publish it.
    ready: ByScope<Option<Rc<Known>>>,
    /// What it released last through an address: its later stores there publish that too.
    released: HashMap<usize, ByScope<Option<Rc<Known>>>>,
    /// The scope of its last fence.
    fence: Option<Scope>,
}

impl Ordering {
    fn new(clock: Clock, block: usize) -> Self {
        let (found, ready, released) = Default::default();
        Self { clock, block, found, ready, released, fence: None }
    }
}

impl Detector {
    /// The detector of an operation, a launch of `blocks` blocks of `of_block` threads, of which as many are resident as there are slots for.
    pub(crate) fn new(operation: u32, [blocks, of_block]: [usize; 2], slots: usize) -> Self {
        let nothing = Rc::new(Known::nothing(blocks));
        let thread =
            |slot: Slot| Ordering::new(Clock::new(slot % of_block, of_block, nothing.clone()), 0);
        let threads = (0..slots).map(thread).collect();
        let published = HashMap::new();
        Self { operation, preceding: 0, of_block, threads, published, nothing }
    }

    /// New threads, those of block `block`, take these slots: they know nothing of others.
    pub(crate) fn begin(&mut self, slots: Range<Slot>, block: usize) {
        for (at, thread) in self.threads[slots].iter_mut().enumerate() {
            let number = block * self.of_block + at;
            *thread = Ordering::new(Clock::new(number, self.of_block, self.nothing.clone()), block);
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
        let Access { bytes, is_write, scope, .. } = access;
        let earlier = granule.operation(self.operation, (bytes, is_write, scope), precedes);
        let clock = &self.threads[slot].clock;
        let of_thread = granule.thread((clock, self.of_block), access, random);
        of_thread.or(earlier.map(Earlier::Operation))
    }

    /// Notes a read through the read-only cache. Returns whether this launch has written some of the bytes.
    pub(crate) fn read_only(&self, granule: &mut Granule, bytes: u8) -> bool {
        granule.read_only(self.operation, bytes)
    }

    /// Whether a write is of bytes that this launch has read through the read-only cache.
    pub(crate) fn was_read_only(&self, granule: &Granule, access: Access) -> bool {
        access.is_write && granule.was_read_only(access.bytes)
    }

    /// Memory from one address to another is free: what was published there is.
    pub(crate) fn forget(&mut self, addresses: Range<usize>) {
        self.published.retain(|address, _| !addresses.contains(address));
    }

    /// The scope of a thread's last fence.
    pub(crate) fn last_fence(&self, slot: Slot) -> Option<Scope> {
        self.threads[slot].fence
    }

    /// The number of the thread that has a slot.
    pub(crate) fn number(&self, slot: Slot) -> ThreadNumber {
        self.threads[slot].clock.thread()
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
            let clock = &self.threads[slot].clock;
            own.set(clock.thread(), self.of_block, clock.period());
        }
        for &slot in slots {
            self.threads[slot].clock.replace(known.clone());
        }
    }

    /// A fence: what relaxed loads found is known from now on, and relaxed stores publish what is known now.
    pub(crate) fn fence(&mut self, slot: Slot, scope: Scope) {
        let thread = &mut self.threads[slot];
        thread.fence = Some(scope);
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
        let released = thread.released.entry(address).or_default();
        let [in_block, anywhere] = &mut *released;
        let publish = |ready: &Option<Rc<Known>>, released: &mut Option<Rc<Known>>| {
            for known in [all.as_ref(), ready.as_ref()].into_iter().flatten() {
                match &mut *released {
                    Some(released) => clock::join(released, known),
                    none => *none = Some(known.clone()),
                }
            }
            released.clone()
        };
        if let Some(known) = publish(&thread.ready[0], in_block) {
            published.add_in_block(thread.block, &known);
        }
        if scope >= Scope::Gpu
            && let Some(known) = publish(&thread.ready[1], anywhere)
        {
            published.add(&known);
        }
        if order.releases {
            thread.clock.end_period();
        }
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
            let mut detector = Detector::new(1, [3, 2], 4);
            detector.begin(0..2, 0);
            detector.begin(2..4, 1);
            Self(detector, Granule::default())
        }

        /// Whether an access of all bytes of the granule races.
        fn races(&mut self, slot: Slot, is_write: bool) -> bool {
            let access = Access { site: 1, bytes: 0b1111, is_write, scope: None };
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
    fn reads_before_a_barrier_make_room_for_those_after_it() {
        for random in 0..5 {
            let mut detector = Detector::new(1, [1, 8], 8);
            detector.begin(0..8, 0);
            let mut granule = Granule::default();
            let mut races = |detector: &mut Detector, slot: Slot, is_write: bool| {
                let access = Access { site: 1, bytes: 0b1111, is_write, scope: None };
                detector.access(slot, &mut granule, access, &Sequential, || random).is_some()
            };
            (0..7).for_each(|slot| assert!(!races(&mut detector, slot, false)));
            detector.meet(&[0, 1, 2, 3, 4, 5, 6, 7]);
            assert!(!races(&mut detector, 5, false) && !races(&mut detector, 7, false));
            assert!(races(&mut detector, 7, true), "with the read of thread 5, random {random}");
        }
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
    fn what_is_stored_after_a_release_publishes_it_too() {
        let mut launch = Launch::new();
        launch.races(0, true);
        launch.store(0, RELEASE, Scope::Gpu);
        launch.store(0, RELAXED, Scope::Gpu);
        launch.load(2, ACQUIRE, Scope::Gpu);
        assert!(!launch.races(2, false));
        launch.store(1, RELAXED, Scope::Gpu);
        launch.load(3, ACQUIRE, Scope::Gpu);
        assert!(launch.races(3, false), "another thread's store ends it");
    }

    #[test]
    fn the_last_block_follows_all_that_were_in_its_place() {
        let mut launch = Launch::new();
        let count = |launch: &mut Launch, slot| {
            launch.0.fence(slot, Scope::Gpu);
            launch.0.atomic(slot, FLAG, (Effect::Update, RELAXED, Scope::Gpu));
            launch.0.fence(slot, Scope::Gpu);
        };
        launch.races(0, true);
        count(&mut launch, 0);
        launch.0.begin(0..2, 2);
        count(&mut launch, 0);
        count(&mut launch, 2);
        assert!(!launch.races(2, true));
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
        launch.0.meet(&[0, 1]);
        assert!(launch.races(0, false));
    }

    #[test]
    fn bytes_are_told_apart() {
        let mut launch = Launch::new();
        let mut races = |slot, bytes| {
            let access = Access { site: 1, bytes, is_write: true, scope: None };
            launch.0.access(slot, &mut launch.1, access, &Sequential, || 0).is_some()
        };
        assert!(!races(0, 0b0011));
        assert!(!races(2, 0b1100));
        assert!(races(3, 0b0110));
    }

    #[test]
    fn atomic_operations_do_not_race_with_each_other() {
        let mut launch = Launch::new();
        let mut races = |slot, scope| {
            let access = Access { site: 1, bytes: 15, is_write: true, scope };
            launch.0.access(slot, &mut launch.1, access, &Sequential, || 0).is_some()
        };
        let gpu = Some(Scope::Gpu);
        assert!(!races(0, gpu));
        assert!(!races(2, gpu));
        assert!(races(3, Some(Scope::Block)), "it does not include the other block");
        assert!(races(1, None));
    }

    #[test]
    fn atomic_operations_of_two_launches_need_no_order() {
        let mut granule = Granule::default();
        let mut race = |operation, is_write, scope| {
            let mut launch = Detector::new(operation, [1, 1], 1);
            launch.begin(0..1, 0);
            let access = Access { site: 1, bytes: 15, is_write, scope };
            launch.access(0, &mut granule, access, &Not(&[1, 2, 3]), || 0)
        };
        let gpu = Some(Scope::Gpu);
        assert_eq!(race(1, true, gpu), None);
        assert_eq!(race(2, true, gpu), None);
        assert!(race(3, false, None).is_some());
        assert!(race(4, true, Some(Scope::Block)).is_some());
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
                let mut launch = Detector::new(operation, [1, 1], 1);
                launch.begin(0..1, 0);
                let access = Access { site: 1, bytes, is_write, scope: None };
                race = launch.access(0, &mut granule, access, &Not(not), || 0);
            }
            race
        };
        let (write, read) = (true, false);
        assert_eq!(race(&[(1, write), (2, read)], 15, &[1]), Some(Earlier::Operation(1)));
        assert_eq!(race(&[(1, write), (2, read)], 15, &[]), None);
        assert_eq!(race(&[(1, read), (2, read)], 15, &[1]), None);
        assert_eq!(race(&[(1, read), (2, write)], 15, &[1]), Some(Earlier::Operation(1)));
        assert_eq!(
            race(&[(1, write), (2, read), (3, write)], 15, &[2]),
            Some(Earlier::Operation(2))
        );
        assert_eq!(race(&[(1, write), (1, read)], 15, &[1]), None, "within an operation");
        assert_eq!(
            race(&[(1, read), (2, read), (3, write)], 15, &[1]),
            Some(Earlier::Operation(1))
        );
        assert_eq!(
            race(&[(1, write), (2, write), (3, write), (4, read)], 15, &[2]),
            Some(Earlier::Operation(2))
        );
    }
}
