//! Alarms: they end waits that may take too long. Futures of the engine run on any executor, or none with a timer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The waits of an engine that end at a time.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    table: Mutex<Table>,
    /// Signalled when there is a new first alarm, or the engine stops.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// Who is woken, by time and number.
    by_time: BTreeMap<Key, Waker>,
    last: u64,
    is_stopping: bool,
}

type Key = (Instant, u64);

/// The alarm of one wait, which is taken back on drop.
struct Alarm<'a> {
    alarms: &'a Alarms,
    key: Key,
}

impl Alarms {
    /// Waits for `future`, but no longer than `time`: none then.
    pub(crate) async fn within<T>(
        &self,
        time: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        let mut alarm = None;
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            if alarm.is_none() {
                // Without an end, there is no alarm.
                alarm = Instant::now().checked_add(time).map(|at| self.alarm(at));
            }
            match &alarm {
                Some(alarm) if Instant::now() >= alarm.key.0 => return Poll::Ready(None),
                Some(alarm) => self.set(alarm.key, context.waker().clone()),
                None => {}
            }
            Poll::Pending
        })
        .await
    }

    fn alarm(&self, at: Instant) -> Alarm<'_> {
        let mut table = lock(&self.table);
        table.last += 1;
        Alarm { alarms: self, key: (at, table.last) }
    }

    fn set(&self, key: Key, waker: Waker) {
        let mut table = lock(&self.table);
        table.by_time.insert(key, waker);
        let is_first = table.by_time.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(table);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Wakes those whose time has come, until the engine stops.
    pub(crate) fn run(&self) {
        let mut table = lock(&self.table);
        while !table.is_stopping {
            let now = Instant::now();
            let due = table.by_time.first_entry().filter(|first| first.key().0 <= now);
            if let Some(due) = due {
                let waker = due.remove();
                drop(table);
                waker.wake();
                table = lock(&self.table);
                continue;
            }
            let first = table.by_time.first_key_value().map(|(&(at, _), _)| at - now);
            table = match first {
                None => self.changed.wait(table).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let waited = self.changed.wait_timeout(table, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Lets [`run`](Self::run) return.
    pub(crate) fn stop(&self) {
        lock(&self.table).is_stopping = true;
        self.changed.notify_all();
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        lock(&self.alarms.table).by_time.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Wake};
    use std::thread::{self, Thread};

    use super::*;
    use crate::memory::MemoryBudget;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Waits for a future on this thread, which nothing but its waker wakes.
    fn block_on<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn arrivals_that_wait_for_each_other_do_not_wait_for_ever() {
        const MIB: usize = 1 << 20;
        let (alarms, budget) = (Alarms::default(), MemoryBudget::new(512 * MIB));
        let wait = |held: usize, needed: usize, time: u64| {
            let mut arrival = budget.arrival();
            arrival.try_grow_to(held * MIB).unwrap();
            let time = Duration::from_millis(time);
            let taken = async move { arrival.take(needed * MIB).await };
            Box::pin(alarms.within(time, taken))
        };
        let mut waits = [wait(200, 440, 100), wait(56, 300, 60_000)];
        for wait in &mut waits {
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
        }
        let (first, second) = thread::scope(|scope| {
            scope.spawn(|| alarms.run());
            let waits = waits.map(|wait| scope.spawn(move || block_on(wait)));
            let outcomes = waits.map(|thread| thread.join().unwrap());
            alarms.stop();
            outcomes.into()
        });
        assert_eq!(first, None);
        // The first one gave its bytes back.
        assert_eq!(second, Some(Ok(())));
        assert!(lock(&alarms.table).by_time.is_empty());
        assert_eq!(budget.bytes_in_use(), 0);
    }

    #[test]
    fn a_wait_without_an_end_has_no_alarm() {
        let alarms = Alarms::default();
        let mut future = pin!(alarms.within(Duration::MAX, std::future::pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        assert!(lock(&alarms.table).by_time.is_empty());
    }
}
