//! The byte budget of an engine, and the parts of it that requests hold: from a body's first byte to a reply's
//! last.
//!
//! Who wants more than is left waits in order of arrival. A request *arrives* until the engine takes it; requests
//! that arrive hold at most half of the budget, so that those that were taken are never kept from ending, and
//! from giving back what they hold, by others that wait.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::error::EngineError;

/// The bytes that are counted as one.
const UNIT_BYTES: usize = 1024;

/// A bound on the bytes that requests, sessions and connections hold together.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    /// The units that nobody holds.
    units: Arc<Semaphore>,
    /// Of half of the units, those that no request holds that arrives.
    arriving: Arc<Semaphore>,
}

/// Bytes of a [`MemoryBudget`], given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    units: OwnedSemaphorePermit,
    /// As many units of the half for requests that arrive; none once the engine took the request.
    arriving: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    /// A budget of `bytes_max`, rounded down to KiB.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        let whole = bytes_max / UNIT_BYTES;
        let semaphore = |units| Arc::new(Semaphore::new(units));
        let (units, arriving) = (semaphore(whole), semaphore(whole / 2));
        Arc::new(Self { bytes_max: whole * UNIT_BYTES, units, arriving })
    }

    /// The bound.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The bytes that are held now.
    pub fn bytes_in_use(&self) -> usize {
        let left = self.units.available_permits().saturating_mul(UNIT_BYTES);
        self.bytes_max.saturating_sub(left)
    }

    /// A reservation of no bytes, for a request that arrives.
    pub fn arrival(self: &Arc<Self>) -> Reservation {
        Reservation { arriving: Some(none_of(&self.arriving)), ..self.standing() }
    }

    /// A reservation of no bytes, for what does not arrive, such as a connection.
    pub fn standing(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), units: none_of(&self.units), arriving: None }
    }

    pub(crate) fn error_in_use(&self) -> EngineError {
        EngineError::MemoryInUse { bytes: self.bytes_in_use() }
    }
}

impl Reservation {
    /// The bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.units.num_permits() * UNIT_BYTES
    }

    /// Holds `bytes` at least, at once.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`] where it never can, [`EngineError::MemoryInUse`] where it cannot now.
    pub fn try_grow_to(&mut self, bytes: usize) -> Result<(), EngineError> {
        let more = self.check(bytes)?;
        let no_permits = |_| self.budget.error_in_use();
        if let Some(arriving) = &mut self.arriving {
            let permits = self.budget.arriving.clone().try_acquire_many_owned(more);
            arriving.merge(permits.map_err(no_permits)?);
        }
        match self.budget.units.clone().try_acquire_many_owned(more) {
            Ok(permits) => self.units.merge(permits),
            Err(_) => {
                self.shrink_to(self.bytes());
                return Err(self.budget.error_in_use());
            }
        }
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
        let more = self.check(bytes)?;
        let open = |_: AcquireError| unreachable!("nobody closes the budget");
        let arriving = match &self.arriving {
            Some(_) => {
                let permits = self.budget.arriving.clone().acquire_many_owned(more).await;
                Some(permits.unwrap_or_else(open))
            }
            None => None,
        };
        let units = self.budget.units.clone().acquire_many_owned(more).await;
        self.units.merge(units.unwrap_or_else(open));
        if let (Some(held), Some(more)) = (&mut self.arriving, arriving) {
            held.merge(more);
        }
        Ok(())
    }

    /// Holds as many of `bytes` as there are now.
    pub fn grow_towards(&mut self, bytes: usize) {
        let wanted = bytes.min(self.bytes_max()).saturating_sub(self.bytes());
        let left = |semaphore: &Semaphore| semaphore.available_permits() * UNIT_BYTES;
        let of_arriving = self.arriving.as_ref().map(|_| left(&self.budget.arriving));
        let more = wanted.min(left(&self.budget.units)).min(of_arriving.unwrap_or(usize::MAX));
        // Others may be quicker.
        let _ = self.try_grow_to(self.bytes() + more / UNIT_BYTES * UNIT_BYTES);
    }

    /// Gives back what it holds beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        for held in [Some(&mut self.units), self.arriving.as_mut()].into_iter().flatten() {
            drop(held.split(held.num_permits().saturating_sub(units)));
        }
    }

    /// Takes `bytes`, or as many as it holds, out of it.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.units.num_permits());
        let part = |held: &mut OwnedSemaphorePermit| held.split(units).expect("it holds as many");
        let (budget, units) = (self.budget.clone(), part(&mut self.units));
        Self { budget, units, arriving: self.arriving.as_mut().map(part) }
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
        let units = if self.arriving.is_some() { all / 2 } else { all };
        units * UNIT_BYTES
    }

    /// The units that are missing for `bytes`.
    fn check(&self, bytes: usize) -> Result<u32, EngineError> {
        let bytes_max = self.bytes_max();
        let units = bytes.div_ceil(UNIT_BYTES);
        let more = u32::try_from(units.saturating_sub(self.units.num_permits()));
        match more {
            Ok(more) if bytes <= bytes_max => Ok(more),
            _ => Err(EngineError::TooLarge { bytes, bytes_max }),
        }
    }
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

    const KIB: usize = 1024;

    #[test]
    fn what_arrives_leaves_half_to_what_was_taken() {
        let budget = MemoryBudget::new(100 * KIB);
        let mut arrival = budget.arrival();
        arrival.try_grow_to(50 * KIB).unwrap();
        let mut other = budget.arrival();
        let in_use = EngineError::MemoryInUse { bytes: 50 * KIB };
        assert_eq!(other.try_grow_to(1), Err(in_use));
        let too_large = EngineError::TooLarge { bytes: 51 * KIB, bytes_max: 50 * KIB };
        assert_eq!(arrival.try_grow_to(51 * KIB), Err(too_large));
        arrival.try_take(0).unwrap();
        other.try_grow_to(1).unwrap();
        arrival.try_grow_to(99 * KIB).unwrap();
        assert_eq!(budget.bytes_in_use(), 100 * KIB);
        drop((arrival, other));
        assert_eq!(budget.bytes_in_use(), 0);
    }

    #[test]
    fn parts_are_given_back_once() {
        let budget = MemoryBudget::new(10 * KIB);
        let mut whole = budget.arrival();
        whole.grow_towards(usize::MAX);
        assert_eq!(whole.bytes(), 5 * KIB);
        let part = whole.split(2 * KIB);
        whole.shrink_to(KIB + 1);
        assert_eq!(
            (whole.bytes(), part.bytes(), budget.bytes_in_use()),
            (2 * KIB, 2 * KIB, 4 * KIB)
        );
        drop(part);
        assert_eq!(budget.bytes_in_use(), 2 * KIB);
    }

    #[test]
    fn who_waits_is_served_in_order_and_may_leave() {
        let budget = MemoryBudget::new(10 * KIB);
        let mut first = budget.standing();
        first.try_grow_to(8 * KIB).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let (mut large, mut small) = (budget.standing(), budget.standing());
        {
            let mut large = pin!(large.grow_to(5 * KIB));
            assert_eq!(large.as_mut().poll(&mut context), Poll::Pending);
            // A small one does not pass the large one, which would wait for ever.
            let mut small = pin!(small.grow_to(KIB));
            assert_eq!(small.as_mut().poll(&mut context), Poll::Pending);
            first.shrink_to(5 * KIB);
            assert_eq!(large.as_mut().poll(&mut context), Poll::Ready(Ok(())));
            assert_eq!(small.as_mut().poll(&mut context), Poll::Pending);
        }
        assert_eq!((large.bytes(), small.bytes(), budget.bytes_in_use()), (5 * KIB, 0, 10 * KIB));
    }
}
