//! The load generator: plays a trace to a service, on one thread that sends what is due and takes
//! what is answered. It knows nothing of what it drives, and makes no figures of what it saw.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use batchmaker::{Slices, Statistics, ask_for_slices};
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;

use crate::shape::Shape;
use crate::trace::Trace;

/// The time between two calls of a [`Watch`].
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A system that requests are sent to.
pub trait Service {
    /// A request that is ready to be sent.
    type Request;
    /// Its answer.
    type Answer: Future<Output = Answer>;

    /// Prepares request number `index`, which has this shape. It is called before the request is due.
    fn prepare(&mut self, index: usize, shape: &Shape) -> Self::Request;

    /// The number of children of an inner node, where requests are trees.
    fn arity(&self) -> Option<u32> {
        None
    }

    /// Sends a request.
    fn send(&mut self, request: Self::Request) -> Self::Answer;

    /// The counters of its engine; none over HTTP.
    fn statistics(&self) -> Option<Statistics>;
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With a reply.
    Reply {
        /// When the reply came.
        at: Instant,
        /// The time that it waited for its first batch, and the time from there to the reply; unknown
        /// over a wire.
        queue_and_compute_ns: Option<(u64, u64)>,
    },
    /// With an error.
    Error(String),
}

/// The time that answers gather in a saturated run before others are sent in their place: a generator
/// that takes a core from the workers for each answer would measure itself.
const GATHER: Duration = Duration::from_micros(200);

/// With fewer requests in flight than this, answers do not gather: workers might run dry.
const GATHER_FROM: usize = 64;

/// Called every [`LOOK_EVERY`] during a run with the time since its start, the number of requests answered, and the
/// number of requests in flight.
pub(crate) type Watch<'a, S> = dyn FnMut(&S, Duration, usize, usize) + 'a;

/// A request that was sent and answered.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) steps: u32,
    /// The time at which it should have been sent; in a saturated run, the time at which it was.
    pub(crate) intended: Instant,
    pub(crate) sent: Instant,
    pub(crate) answer: Answer,
}

/// The order in which requests without times are played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saturation {
    /// A request is sent whenever fewer than this are in flight.
    pub(crate) in_flight_max: usize,
    /// For how long the requests of the trace are sent over and over again; none: each is sent once.
    pub(crate) time: Option<Duration>,
}

/// Plays `trace`, each request at its time. Returns once all are answered: when it began, and each
/// request in the order of the answers. Meanwhile a thread that sends requests at their times has short slices: it would be late where workers
/// use all cores.
pub(crate) fn play<S: Service>(
    service: &mut S,
    trace: &Trace,
    saturation: Saturation,
    watch: &mut Watch<'_, S>,
) -> (Instant, Vec<Sent>) {
    let alarm = Arc::new(Alarm { thread: std::thread::current(), is_set: AtomicBool::new(false) });
    let waker = Waker::from(alarm.clone());
    let mut context = Context::from_waker(&waker);
    let mut in_flight = pin!(FuturesUnordered::new());
    let mut done = Vec::with_capacity(trace.arrivals.len());
    let is_saturated = trace.arrivals.first().is_some_and(|arrival| arrival.at_ns.is_none());
    if !is_saturated {
        ask_for_slices(Slices::Short);
    }
    let rounds = if is_saturated && saturation.time.is_some() { usize::MAX } else { 1 };
    let mut arrivals = (0..rounds).flat_map(|_| &trace.arrivals).enumerate();
    let mut prepare = |service: &mut S| {
        let (index, arrival) = arrivals.next()?;
        Some((arrival, service.prepare(index, &arrival.shape)))
    };
    let mut next = prepare(service);
    let start = Instant::now();
    let mut next_look = LOOK_EVERY;
    loop {
        // Answers first: in a saturated run each of them lets another request be sent.
        while let Poll::Ready(Some(sent)) = in_flight.as_mut().poll_next(&mut context) {
            done.push(sent);
        }
        // Then the requests that are due.
        while let Some((arrival, request)) = next.take() {
            let intended = arrival.at_ns.map(|at_ns| start + Duration::from_nanos(at_ns));
            let now = Instant::now();
            let is_due = match intended {
                Some(intended) => intended <= now,
                None if saturation.time.is_some_and(|time| now - start >= time) => break,
                None => in_flight.len() < saturation.in_flight_max,
            };
            if !is_due {
                next = Some((arrival, request));
                break;
            }
            let steps = arrival.shape.steps();
            let intended = intended.unwrap_or(now);
            let answer = service.send(request);
            in_flight
                .push(async move { Sent { steps, intended, sent: now, answer: answer.await } });
            next = prepare(service);
        }
        let since_start = start.elapsed();
        if since_start >= next_look {
            next_look = since_start + LOOK_EVERY;
            watch(service, since_start, done.len(), in_flight.len());
        }
        let due = match &next {
            None if in_flight.is_empty() => break,
            // A reply holds the time of its arrival, so nothing has to wake up for it.
            Some((arrival, _)) if arrival.at_ns.is_some() => {
                alarm.is_set.store(false, Ordering::SeqCst);
                Duration::from_nanos(arrival.at_ns.unwrap_or(0))
            }
            _ => {
                alarm.is_set.store(true, Ordering::SeqCst);
                // An answer that came before the alarm was set has woken nobody.
                if let Poll::Ready(Some(sent)) = in_flight.as_mut().poll_next(&mut context) {
                    done.push(sent);
                    continue;
                }
                Duration::MAX
            }
        };
        std::thread::park_timeout(due.min(next_look).saturating_sub(start.elapsed()));
        if due == Duration::MAX && in_flight.len() >= GATHER_FROM {
            std::thread::sleep(GATHER);
        }
    }
    ask_for_slices(Slices::Usual);
    (start, done)
}

/// Wakes the generator for an answer, while that is wanted.
struct Alarm {
    thread: Thread,
    is_set: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_set.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::trace::Arrival;

    /// Answers each request so long after it was sent.
    struct Delays {
        delay: Duration,
        in_flight: Rc<Cell<usize>>,
        in_flight_most: usize,
    }

    impl Delays {
        fn new(delay: Duration) -> Self {
            Self { delay, in_flight: Rc::default(), in_flight_most: 0 }
        }
    }

    impl Service for Delays {
        type Request = (usize, u32);
        type Answer = std::pin::Pin<Box<dyn Future<Output = Answer>>>;

        fn prepare(&mut self, index: usize, shape: &Shape) -> Self::Request {
            (index, shape.length())
        }

        fn send(&mut self, (index, _): Self::Request) -> Self::Answer {
            self.in_flight.set(self.in_flight.get() + 1);
            self.in_flight_most = self.in_flight_most.max(self.in_flight.get());
            let (delay, in_flight) = (self.delay, self.in_flight.clone());
            let (sender, receiver) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                let _ = sender.send(Instant::now());
            });
            Box::pin(async move {
                let at = receiver.await.unwrap();
                in_flight.set(in_flight.get() - 1);
                match index {
                    7 => Answer::Error("seven".to_owned()),
                    _ => Answer::Reply { at, queue_and_compute_ns: None },
                }
            })
        }

        fn statistics(&self) -> Option<Statistics> {
            None
        }
    }

    const THREE: Saturation = Saturation { in_flight_max: 3, time: None };

    fn play_all(
        service: &mut Delays,
        trace: &Trace,
        saturation: Saturation,
    ) -> (Instant, Vec<Sent>) {
        play(service, trace, saturation, &mut |_, _, _, _| {})
    }

    #[test]
    fn requests_are_sent_at_their_times_whatever_is_in_flight() {
        let at_ms =
            |at_ms: u64| Arrival { at_ns: Some(at_ms * 1_000_000), shape: Shape::Sequence(1) };
        let trace = Trace { arrivals: (0..10).map(|index| at_ms(2 * index)).collect() };
        let mut service = Delays::new(Duration::from_millis(50));
        let (start, mut sent) = play_all(&mut service, &trace, THREE);
        // They come in the order of the answers.
        sent.sort_by_key(|request| request.intended);
        assert_eq!(sent.len(), 10);
        assert_eq!(service.in_flight_most, 10, "nobody waits for an answer");
        for (arrival, request) in trace.arrivals.iter().zip(&sent) {
            assert_eq!(request.intended - start, Duration::from_nanos(arrival.at_ns.unwrap()));
            assert!(request.sent >= request.intended);
        }
        let mut late: Vec<_> = sent.iter().map(|request| request.sent - request.intended).collect();
        late.sort_unstable();
        assert!(late[5] < Duration::from_millis(40), "{late:?}");
        let errors = sent.iter().filter(|request| matches!(request.answer, Answer::Error(_)));
        assert_eq!(errors.count(), 1);
    }

    #[test]
    fn saturation_keeps_so_many_in_flight() {
        let mut service = Delays::new(Duration::from_millis(3));
        let (start, sent) =
            play_all(&mut service, &Trace::saturated(vec![Shape::Sequence(1); 20]), THREE);
        assert!(start.elapsed() < Duration::from_millis(800), "an answer wakes the generator");
        assert_eq!((sent.len(), service.in_flight_most), (20, 3));
        assert!(sent.iter().all(|request| request.intended == request.sent));
    }

    #[test]
    fn saturation_ends_with_its_time() {
        let mut service = Delays::new(Duration::from_millis(3));
        let saturation = Saturation { time: Some(Duration::from_millis(30)), ..THREE };
        let (_, sent) =
            play_all(&mut service, &Trace::saturated(vec![Shape::Sequence(1); 2]), saturation);
        assert!((3..1000).contains(&sent.len()), "{}", sent.len());
    }
}
