//! The byte budget of an engine, and the parts of it that requests hold: from a body's first byte to a reply's
//! last.
//!
//! Who wants more than is left waits in order of arrival. Two shares of the budget keep those who hold much from
//! those who need little or are about to give back:
//! - A request *arrives* until the engine takes it. Large requests that arrive hold at most half of the budget, so
//!   that those that were taken are never kept from ending by others that wait.
//! - What is large, as it holds more than [`SMALL_BYTES`], and what stays for long, such as a connection, leaves an
//!   eighth of the budget to small requests.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::error::EngineError;

/// The bytes that are counted as one.
const UNIT_BYTES: usize = 1024;

/// The most bytes of a request that is small.
pub(crate) const SMALL_BYTES: usize = 256 << 10;

/// The parts of the budget that are left to small requests: one of as many.
const LEFT_TO_SMALL: usize = 8;

/// A bound on the bytes that requests, sessions and connections hold together.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    /// The most bytes of a request that is small.
    small_bytes: usize,
    /// The units that nobody holds.
    all: Arc<Semaphore>,
    /// Of half of the units, those that no large request holds that arrives.
    arriving: Arc<Semaphore>,
    /// Of all units but those left to small requests, those that nothing large holds.
    large: Arc<Semaphore>,
}

/// Bytes of a [`MemoryBudget`], given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    all: OwnedSemaphorePermit,
    /// As many units of the half for large requests that arrive, or none as long as it is small; nothing once the
    /// engine took the request.
    arriving: Option<OwnedSemaphorePermit>,
    /// As many units of the share for what is large; none as long as it is small.
    large: Option<OwnedSemaphorePermit>,
}

/// The units that a reservation lacks.
#[derive(Clone, Copy)]
struct Lack {
    all: u32,
    arriving: Option<u32>,
    large: Option<u32>,
}

impl MemoryBudget {
    /// A budget of `bytes_max`, rounded down to KiB.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        let units = bytes_max / UNIT_BYTES;
        let semaphore = |units| Arc::new(Semaphore::new(units));
        Arc::new(Self {
            bytes_max: units * UNIT_BYTES,
            small_bytes: SMALL_BYTES.min(bytes_max / LEFT_TO_SMALL / 8),
            all: semaphore(units),
            arriving: semaphore(units / 2),
            large: semaphore(units - units / LEFT_TO_SMALL),
        })
    }

    /// The bound.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The bytes that are held now.
    pub fn bytes_in_use(&self) -> usize {
        let left = self.all.available_permits().saturating_mul(UNIT_BYTES);
        self.bytes_max.saturating_sub(left)
    }

    /// A reservation of no bytes, for a request that arrives.
    pub fn arrival(self: &Arc<Self>) -> Reservation {
        let (all, arriving) = (none_of(&self.all), Some(none_of(&self.arriving)));
        Reservation { budget: self.clone(), all, arriving, large: None }
    }

    /// A reservation of no bytes, for what stays long, such as a connection.
    pub fn standing(self: &Arc<Self>) -> Reservation {
        let (all, large) = (none_of(&self.all), Some(none_of(&self.large)));
        Reservation { budget: self.clone(), all, arriving: None, large }
    }

    pub(crate) fn error_in_use(&self) -> EngineError {
        EngineError::MemoryInUse { bytes: self.bytes_in_use() }
    }
}

impl Reservation {
    /// The bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.all.num_permits() * UNIT_BYTES
    }

    /// Holds `bytes` at least, at once.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`] where it never can, [`EngineError::MemoryInUse`] where it cannot now; then
    /// nothing changes.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), EngineError> {
        let lack = self.lack(bytes)?;
        let budget = &self.budget;
        let take = |semaphore: &Arc<Semaphore>, units: u32| {
            let taken = semaphore.clone().try_acquire_many_owned(units);
            taken.map_err(|_| budget.error_in_use())
        };
        let arriving = lack.arriving.map(|units| take(&budget.arriving, units)).transpose()?;
        let large = lack.large.map(|units| take(&budget.large, units)).transpose()?;
        let all = take(&budget.all, lack.all)?;
        self.add(all, arriving, large);
        Ok(())
    }

    /// Holds `bytes` at least, as soon as there are as many. Dropping the future changes nothing.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`] where that can never be.
    pub async fn grow_to(&mut self, bytes: usize) -> Result<(), EngineError> {
        if self.try_grow_to(bytes).is_ok() {
            return Ok(());
        }
        let lack = self.lack(bytes)?;
        let (arriving, large) = (self.budget.arriving.clone(), self.budget.large.clone());
        let arriving = match lack.arriving {
            Some(units) => Some(wait_for(arriving, units).await),
            None => None,
        };
        let large = match lack.large {
            Some(units) => Some(wait_for(large, units).await),
            None => None,
        };
        let all = wait_for(self.budget.all.clone(), lack.all).await;
        self.add(all, arriving, large);
        Ok(())
    }

    fn add(
        &mut self,
        all: OwnedSemaphorePermit,
        arriving: Option<OwnedSemaphorePermit>,
        large: Option<OwnedSemaphorePermit>,
    ) {
        self.all.merge(all);
        for (held, more) in [(&mut self.arriving, arriving), (&mut self.large, large)] {
            match (&mut *held, more) {
                (Some(held), Some(more)) => held.merge(more),
                (None, more) => *held = more,
                (Some(_), None) => {}
            }
        }
    }

    /// Holds as many of `bytes` as there are now.
    pub fn grow_towards(&mut self, bytes: usize) {
        let left = |semaphore: &Semaphore| semaphore.available_permits() * UNIT_BYTES;
        let held = self.bytes();
        let mut most = held + left(&self.budget.all);
        // What is small may become large.
        let of_share = |share: &Option<OwnedSemaphorePermit>, semaphore: &Semaphore| {
            share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) * UNIT_BYTES
                + left(semaphore)
        };
        let mut of_shares = of_share(&self.large, &self.budget.large);
        if self.arriving.is_some() {
            of_shares = of_shares.min(of_share(&self.arriving, &self.budget.arriving));
        }
        most = most.min(of_shares.max(self.budget.small_bytes));
        // A semaphore gives no more than 2^32 units at once.
        let most_at_once = u32::MAX as usize * UNIT_BYTES;
        let bytes = bytes.min(most).min(self.bytes_max()).min(most_at_once);
        // Others may be quicker, but what is small is left to small ones.
        if self.try_grow_to(bytes / UNIT_BYTES * UNIT_BYTES).is_err() {
            let _ = self.try_grow_to(bytes.min(self.budget.small_bytes));
        }
    }

    /// Gives back what it holds beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        let is_small = bytes <= self.budget.small_bytes && self.arriving.is_some();
        for held in [Some(&mut self.all), self.arriving.as_mut(), self.large.as_mut()] {
            let Some(held) = held else { continue };
            drop(held.split(held.num_permits().saturating_sub(units)));
        }
        if is_small {
            self.arriving = Some(none_of(&self.budget.arriving));
            self.large = None;
        }
    }

    /// Takes `bytes`, or as many as it holds, out of it.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.all.num_permits());
        let part = |held: &mut OwnedSemaphorePermit| {
            // Of the shares for what is large, it holds as many or none.
            held.split(units.min(held.num_permits())).expect("it holds as many")
        };
        let (budget, all) = (self.budget.clone(), part(&mut self.all));
        let (arriving, large) = (self.arriving.as_mut().map(part), self.large.as_mut().map(part));
        Self { budget, all, arriving, large }
    }

    /// Holds `bytes` at least, at once, and arrives no more.
    ///
    /// # Errors
    /// As for [`try_grow_to`](Self::try_grow_to); nothing changes.
    pub(crate) fn try_take(&mut self, bytes: usize) -> Result<(), EngineError> {
        let arriving = self.arriving.take();
        let grown = self.try_grow_to(bytes);
        if grown.is_err() {
            self.arriving = arriving;
        }
        grown
    }

    /// Holds `bytes` at least, as soon as there are as many, and arrives no more. Until then it counts among those
    /// that arrive, so that requests which wait for each other leave half of the budget to those that run.
    ///
    /// # Errors
    /// As for [`grow_to`](Self::grow_to).
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<(), EngineError> {
        let arriving = self.arriving.take();
        let result = self.grow_to(bytes).await;
        drop(arriving);
        result
    }

    /// The most bytes that it can ever hold.
    pub(crate) fn bytes_max(&self) -> usize {
        let all = self.budget.bytes_max / UNIT_BYTES;
        let large = all - all / LEFT_TO_SMALL;
        let units = if self.arriving.is_some() { all / 2 } else { large };
        units * UNIT_BYTES
    }

    /// The units that are missing for `bytes`.
    fn lack(&self, bytes: usize) -> Result<Lack, EngineError> {
        let bytes_max = self.bytes_max();
        let wanted = bytes.div_ceil(UNIT_BYTES).max(self.all.num_permits());
        let missing = |held: Option<&OwnedSemaphorePermit>| {
            let held = held.map_or(0, OwnedSemaphorePermit::num_permits);
            u32::try_from(wanted - held).map_err(|_| EngineError::TooLarge { bytes, bytes_max })
        };
        if bytes > bytes_max {
            return Err(EngineError::TooLarge { bytes, bytes_max });
        }
        let is_large = self.large.is_some() || bytes > self.budget.small_bytes;
        let is_arriving = self.arriving.is_some() && is_large;
        Ok(Lack {
            all: missing(Some(&self.all))?,
            arriving: is_arriving.then(|| missing(self.arriving.as_ref())).transpose()?,
            large: is_large.then(|| missing(self.large.as_ref())).transpose()?,
        })
    }
}

async fn wait_for(semaphore: Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    let closed = |_: AcquireError| unreachable!("nobody closes the budget");
    semaphore.acquire_many_owned(units).await.unwrap_or_else(closed)
}

fn none_of(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.clone().try_acquire_many_owned(0).expect("nothing is always there")
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const MIB: usize = 1 << 20;

    /// The budget of the tests: requests of 256 KiB are small.
    fn budget() -> Arc<MemoryBudget> {
        MemoryBudget::new(64 * MIB)
    }

    #[test]
    fn what_arrives_leaves_half_to_what_was_taken() {
        let budget = budget();
        let mut arrival = budget.arrival();
        arrival.try_grow_to(32 * MIB).unwrap();
        let mut other = budget.arrival();
        let in_use = EngineError::MemoryInUse { bytes: 32 * MIB };
        assert_eq!(other.try_grow_to(2 * MIB), Err(in_use));
        let too_large = EngineError::TooLarge { bytes: 33 * MIB, bytes_max: 32 * MIB };
        assert_eq!(arrival.try_grow_to(33 * MIB), Err(too_large));
        arrival.try_take(0).unwrap();
        other.try_grow_to(1).unwrap();
        arrival.try_grow_to(55 * MIB).unwrap();
        assert_eq!(budget.bytes_in_use(), 55 * MIB + UNIT_BYTES);
        drop((arrival, other));
        assert_eq!(budget.bytes_in_use(), 0);
    }

    #[test]
    fn a_budget_without_a_bound_gives_much() {
        let mut reservation = MemoryBudget::new(usize::MAX).arrival();
        for held in [0, SMALL_BYTES, 9 * SMALL_BYTES] {
            reservation.try_grow_to(held).unwrap();
            reservation.grow_towards(usize::MAX);
            assert!(reservation.bytes() > 1 << 40, "{}", reservation.bytes());
            reservation.shrink_to(held);
        }
    }

    #[test]
    fn what_is_large_leaves_a_part_to_small_requests() {
        let budget = budget();
        let mut large = budget.standing();
        large.try_grow_to(56 * MIB).unwrap();
        let (mut small, mut growing) = (budget.arrival(), budget.arrival());
        small.try_grow_to(SMALL_BYTES).unwrap();
        growing.try_grow_to(SMALL_BYTES).unwrap();
        assert!(growing.try_grow_to(SMALL_BYTES + 1).is_err());
        growing.grow_towards(9 * MIB);
        assert_eq!(growing.bytes(), SMALL_BYTES);
        large.shrink_to(50 * MIB);
        growing.grow_towards(9 * MIB);
        assert_eq!(growing.bytes(), 6 * MIB);
        drop((large, small, growing));
        assert_eq!(budget.large.available_permits(), 56 * MIB / UNIT_BYTES);
    }

    #[test]
    fn parts_are_given_back_once() {
        let budget = budget();
        let mut whole = budget.arrival();
        whole.grow_towards(usize::MAX);
        assert_eq!(whole.bytes(), 32 * MIB);
        let part = whole.split(2 * MIB);
        whole.shrink_to(MIB + 1);
        let bytes = (whole.bytes(), part.bytes(), budget.bytes_in_use());
        assert_eq!(bytes, (MIB + UNIT_BYTES, 2 * MIB, 3 * MIB + UNIT_BYTES));
        drop(part);
        assert_eq!(budget.bytes_in_use(), MIB + UNIT_BYTES);
    }

    #[test]
    fn who_waits_is_served_in_order_and_may_leave() {
        let budget = budget();
        let mut first = budget.standing();
        first.try_grow_to(50 * MIB).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let (mut large, mut second) = (budget.standing(), budget.standing());
        {
            let mut large = pin!(large.grow_to(20 * MIB));
            assert_eq!(large.as_mut().poll(&mut context), Poll::Pending);
            // A smaller one does not pass the larger one, which would wait for ever.
            let mut second = pin!(second.grow_to(4 * MIB));
            assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
            // One that is small does: a part is kept for it.
            budget.arrival().try_grow_to(SMALL_BYTES).unwrap();
            first.shrink_to(36 * MIB);
            assert_eq!(large.as_mut().poll(&mut context), Poll::Ready(Ok(())));
            assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
        }
        let bytes = (large.bytes(), second.bytes(), budget.bytes_in_use());
        assert_eq!(bytes, (20 * MIB, 0, 56 * MIB));
    }
}
