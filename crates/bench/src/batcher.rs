//! A dynamic batcher in front of an engine, as frameworks have one: requests that wait are padded to the longest of them, and go through the
//! engine together.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batchmaker::{Engine, Request};
use tokio::sync::oneshot;

use crate::driver::Answer;
use crate::padding::BatchAxes;

/// The batches that a batcher forms: ZeroBatch, where the window is zero, or DelayBatch of DVABatch (section 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// The most requests of a batch.
    pub batch_max: u32,
    /// The time that the first request of a batch waits for others.
    pub window: Duration,
    /// The number of batches that run at the same time.
    pub concurrency: u16,
}

/// Sends batches to a model of an engine, one after the other from each of its threads, until it is dropped.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Batcher {
    pub(crate) fn start(engine: &Engine, model: &str, axes: BatchAxes, batching: Batching) -> Self {
        let queue = Arc::new(Queue::new(batching));
        let work = || {
            let (engine, model, axes) = (engine.clone(), model.to_owned(), axes.clone());
            let queue = queue.clone();
            std::thread::spawn(move || {
                let _closes = Closes(&queue);
                while let Some(batch) = queue.take() {
                    answer(&engine, &model, &axes, batch);
                }
            })
        };
        let threads = (0..batching.concurrency.max(1)).map(|_| work()).collect();
        Self { queue, threads }
    }

    /// Has a request wait for its batch.
    pub(crate) fn send(&self, request: Request) -> Pin<Box<dyn Future<Output = Answer>>> {
        let (sender, answer) = oneshot::channel();
        self.queue.push(Waiting { request, since: Instant::now(), sender });
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| Answer::Error("the batcher has ended".to_owned()))
        })
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic has been told of already.
            let _ = thread.join();
        }
    }
}

/// Runs a batch, and answers each of its requests.
fn answer(engine: &Engine, model: &str, axes: &BatchAxes, batch: Vec<Waiting>) {
    let (requests, waiting): (Vec<Request>, Vec<_>) =
        batch.into_iter().map(|one| (one.request, (one.since, one.sender))).unzip();
    let padded = axes.padded(requests).map_err(|error| error.to_string());
    let sent = Instant::now();
    let reply = padded.and_then(|padded| {
        let of_batch = |error| format!("a batch of {}: {error}", waiting.len());
        engine.run(model, padded).map_err(of_batch)
    });
    for (since, sender) in waiting {
        let answer = match &reply {
            Ok(reply) => {
                let waited = u64::try_from((sent - since).as_nanos()).unwrap_or(u64::MAX);
                Answer::Reply {
                    at: reply.answered,
                    queue_and_compute_ns: Some((waited + reply.queue_ns, reply.compute_ns)),
                }
            }
            Err(error) => Answer::Error(error.clone()),
        };
        // Nobody waits for it any more where the run was given up.
        let _ = sender.send(answer);
    }
}

/// Closes a queue when a thread ends, even by a panic, so that nobody waits for it in vain.
struct Closes<'a>(&'a Queue);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
        if std::thread::panicking() {
            self.0.lock().waiting.clear();
        }
    }
}

/// A request that waits for its batch.
#[derive(Debug)]
struct Waiting {
    request: Request,
    since: Instant,
    sender: oneshot::Sender<Answer>,
}

/// The requests that wait, in order of arrival.
#[derive(Debug)]
struct Queue {
    batching: Batching,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    is_closed: bool,
}

impl Queue {
    fn new(batching: Batching) -> Self {
        Self { batching, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a request wait. It is dropped if the queue is closed.
    fn push(&self, waiting: Waiting) {
        let mut state = self.lock();
        if !state.is_closed {
            state.waiting.push_back(waiting);
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// The requests of the next batch, once it is full or its first request has waited for the window; none once the queue is closed and
    /// empty.
    fn take(&self) -> Option<Vec<Waiting>> {
        let batch_max = self.batching.batch_max.max(1) as usize;
        let mut state = self.lock();
        loop {
            let left = match state.waiting.front() {
                None if state.is_closed => return None,
                None => Duration::MAX,
                Some(_) if state.is_closed || state.waiting.len() >= batch_max => Duration::ZERO,
                Some(first) => self.batching.window.saturating_sub(first.since.elapsed()),
            };
            if left.is_zero() {
                let count = state.waiting.len().min(batch_max);
                return Some(state.waiting.drain(..count).collect());
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(batch_max: u32, window: Duration) -> Queue {
        Queue::new(Batching { batch_max, window, concurrency: 1 })
    }

    fn push(queue: &Queue, count: usize) {
        for _ in 0..count {
            let (sender, _) = oneshot::channel();
            queue.push(Waiting { request: Request::new(), since: Instant::now(), sender });
        }
    }

    fn sizes(queue: &Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.take().map(|batch| batch.len())).collect()
    }

    #[test]
    fn those_that_wait_share_batches() {
        let queue = queue(4, Duration::ZERO);
        push(&queue, 3);
        assert_eq!(
            queue.take().map(|batch| batch.len()),
            Some(3),
            "it is not full, but nobody waits"
        );
        push(&queue, 9);
        queue.close();
        assert_eq!(sizes(&queue), [4, 4, 1]);
    }

    #[test]
    fn the_first_waits_for_the_window() {
        let window = Duration::from_millis(300);
        let queue = queue(4, window);
        let began = Instant::now();
        push(&queue, 2);
        std::thread::scope(|scope| {
            scope.spawn(|| push(&queue, 1));
            assert_eq!(queue.take().map(|batch| batch.len()), Some(3));
        });
        assert!(began.elapsed() >= window);
    }

    #[test]
    fn a_full_batch_does_not_wait() {
        let queue = queue(4, Duration::from_secs(3600));
        push(&queue, 5);
        assert_eq!(queue.take().map(|batch| batch.len()), Some(4));
        queue.close();
        assert_eq!(sizes(&queue), [1], "nor does one after which none can come");
    }
}
