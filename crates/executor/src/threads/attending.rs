//! Threads that wait for the parts of a run awake.

use std::sync::atomic::{AtomicBool, Ordering};

use super::ExecutorThreads;
use super::attends::Attends;
use super::shared_cores::Borrowed;

/// The looks for parts in a row that find none, before a thread lets others have its core for a moment.
const LOOKS_BEFORE_YIELD: u32 = 32;

impl ExecutorThreads {
    /// Runs `work`, which divides work of its own again and again. Until it ends, up to `worth` threads, those of the pool and those of
    /// idle workers, look for parts without sleeping in between: to wake a thread takes as long as a short operator. It is called on one
    /// of the pool's threads.
    pub(crate) fn attended<T: Send>(&self, worth: usize, work: impl FnOnce() -> T + Send) -> T {
        let is_over = AtomicBool::new(false);
        let _runs = Attends::begin();
        let work = || {
            let _over = Over(&is_over);
            work()
        };
        let attend_to = |goes_on: &dyn Fn() -> bool| {
            if let Some(_attends) = Attends::begin() {
                attend(&|| !is_over.load(Ordering::Relaxed) && goes_on());
            }
        };
        let own = self.count.min(worth);
        let on_own = || match own {
            0 | 1 => work(),
            _ => rayon::scope(|scope| {
                for _ in 1..own {
                    scope.spawn(|_| attend_to(&|| true));
                }
                work()
            }),
        };
        let Some(pool) = &self.cores.helpers else { return on_own() };
        let others = pool.current_num_threads().min(worth.saturating_sub(own));
        let one = |_| Some(self.cores.borrow(1)).filter(|borrowed| borrowed.count > 0);
        let borrowed: Vec<Borrowed<'_>> = (0..others).map_while(one).collect();
        self.attending.fetch_add(borrowed.len(), Ordering::Relaxed);
        pool.in_place_scope(|scope| {
            for core in borrowed {
                scope.spawn(|_| {
                    attend_to(&|| self.cores.idle.load(Ordering::Relaxed) >= 0);
                    self.attending.fetch_sub(1, Ordering::Relaxed);
                    drop(core);
                });
            }
            on_own()
        })
    }
}

/// Says that a run is over once this is dropped, even by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs parts that wait in the pool of this thread, until `goes_on` says no.
fn attend(goes_on: &dyn Fn() -> bool) {
    let mut looks = 0u32;
    while goes_on() {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            looks = 0;
            continue;
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS_BEFORE_YIELD) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::threads::SharedCores;

    /// Work that is divided again and again, attended by the other threads of a worker and by an idle core.
    #[test]
    fn threads_attend_until_the_work_ends() {
        let cores = Arc::new(SharedCores::new(2, 2));
        let [one, two] = [0, 1].map(|_| ExecutorThreads::of_worker(2, cores.clone()));
        let sum = AtomicUsize::new(0);
        let run = |part| {
            sum.fetch_add(part, Ordering::Relaxed);
            Ok(())
        };
        let _in_use = one.in_use();
        let work = || {
            one.attended(8, || {
                for _ in 0..100 {
                    one.share(8, |count| (1..=count).collect(), run).unwrap();
                }
                // The other worker has work: helpers leave, and give its cores back.
                let in_use = two.in_use();
                while one.attending.load(Ordering::Relaxed) > 0 {
                    std::thread::yield_now();
                }
                assert_eq!(cores.idle.load(Ordering::Relaxed), 0);
                drop(in_use);
                one.share(8, |count| (1..=count).collect(), run).unwrap();
                "the result"
            })
        };
        assert_eq!(one.pool().run(work), "the result");
        let (divided, worth) = one.take_divided();
        assert!(divided > 100 && worth == 8 && sum.into_inner() > 0);
        assert_eq!(cores.idle.load(Ordering::Relaxed), 2, "those of the other worker");
        let panics = || one.pool().run(|| one.attended(8, || panic!("in attended work")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(cores.idle.load(Ordering::Relaxed), 2);
    }
}
