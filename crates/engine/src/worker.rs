//! A worker's thread: it hands the manager what its queue has reported, takes the next round, has
//! values read for replies, and answers.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use batchmaker_device::{Bell, Completion, Read, TaskQueue};
use batchmaker_graph::{BatchedTask, EndOfSequence, RequestId, StatePlacement, WorkerId};
use batchmaker_manager::{Event, Failure, Finished, Manager, Outcome};

use crate::idle_polling::IdlePolling;
use crate::lock::lock;
use crate::reply::RequestTimes;
use crate::request_table::{Arrived, RequestTable};
use crate::responder::Ended;
use crate::shared::Shared;
use crate::statistics::Turn;

/// Runs a worker until the engine stops, or its part of the device is lost and others go on.
pub(crate) fn run(shared: &Shared, id: WorkerId, queue: Box<dyn TaskQueue>) {
    let host = queue.host();
    let drive: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        let _guard = AbortOnPanic;
        Worker::new(shared, id, queue).run();
        shared.watch.waits(id);
    });
    match host {
        Some(host) => host.run(drive),
        None => drive(),
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    id: WorkerId,
    bell: Arc<Bell>,
    /// The queue, or the reason why it is lost.
    queue: Result<Box<dyn TaskQueue>, Arc<str>>,
    /// Completions that the manager was not notified of.
    news: Vec<Completion>,
    /// Tasks to submit.
    round: Vec<BatchedTask>,
    /// Reads to ask for.
    reads: Vec<Read>,
    /// Reads that were asked for and have not arrived.
    outstanding: VecDeque<Read>,
    /// Requests to answer.
    answers: Vec<RequestId>,
    /// Decisions that were read, of which the manager was not notified.
    decided: Vec<Event>,
    ended: Vec<Ended>,
    /// Whether tasks are in flight.
    is_busy: bool,
    /// The turns of all workers up to this one's last.
    turns_seen: u64,
    idle_polling: IdlePolling,
    /// The most requests that it saw at a time since it last waited without work.
    requests_seen: usize,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, id: WorkerId, queue: Box<dyn TaskQueue>) -> Self {
        Self {
            shared,
            id,
            bell: shared.inbox.waiting.bell(id).clone(),
            queue: Ok(queue),
            news: Vec::new(),
            round: Vec::new(),
            reads: Vec::new(),
            outstanding: VecDeque::new(),
            answers: Vec::new(),
            decided: Vec::new(),
            ended: Vec::new(),
            is_busy: false,
            turns_seen: 0,
            idle_polling: IdlePolling::default(),
            requests_seen: 0,
        }
    }

    fn run(&mut self) {
        let shared = self.shared;
        let mut completions = Vec::new();
        let mut has_news = true;
        let mut begun_ns = shared.inbox.now_ns();
        while !shared.is_stopping.load(Ordering::SeqCst) {
            shared.watch.turns(self.id, begun_ns);
            let seen = self.bell.rung();
            let managed_ns = match std::mem::take(&mut has_news) {
                true => {
                    self.turn();
                    shared.inbox.now_ns()
                }
                false => begun_ns,
            };
            self.submit();
            self.answer();
            let answered_ns = shared.inbox.now_ns();
            if self.is_waited_for() {
                shared.watch.expects(self.id, answered_ns);
            }
            if let Ok(queue) = &mut self.queue {
                queue.poll(&mut completions);
            } else if shared.workers_up() > 0 {
                // Workers that are up do what is left.
                return shared.inbox.waiting.wake_one();
            }
            let polled_ns = shared.inbox.now_ns();
            shared.times.add(Turn {
                manager_ns: managed_ns - begun_ns,
                replies_ns: answered_ns - managed_ns,
                device_ns: polled_ns - answered_ns,
            });
            begun_ns = polled_ns;
            if completions.is_empty() {
                has_news = self.wait(seen);
                begun_ns = shared.inbox.now_ns();
            } else {
                shared.watch.heard(self.id, polled_ns);
                has_news = self.sort(&mut completions);
            }
        }
    }

    /// Takes reads that arrived. Returns whether there is something for the manager.
    fn sort(&mut self, completions: &mut Vec<Completion>) -> bool {
        let mut requests = None;
        let mut has_news = false;
        for completion in completions.drain(..) {
            match completion {
                Completion::Values { read, data } => {
                    // Mostly the first: reads arrive in their order or nearly so.
                    let position = self.outstanding.iter().position(|asked| *asked == read);
                    self.outstanding.remove(position.expect("what arrives was asked for"));
                    let requests = requests.get_or_insert_with(|| lock(&self.shared.requests));
                    let Arrived { due, decided } = requests.arrived(read, data);
                    due.sort_into(&mut self.reads, &mut self.answers);
                    self.decided.extend(decided);
                }
                // What came meanwhile need not wait for the end of a long task.
                Completion::Part { .. } => has_news = true,
                news => self.news.push(news),
            }
        }
        has_news || !self.news.is_empty() || !self.decided.is_empty()
    }

    /// One turn under the manager's lock.
    fn turn(&mut self) {
        let shared = self.shared;
        let mut manager = lock(&shared.manager);
        // The inbox is not locked while its events are handled.
        for (at_ns, event) in shared.inbox.take() {
            manager.handle(at_ns, event);
        }
        let now_ns = shared.inbox.now_ns();
        let has_news = !self.news.is_empty();
        let lost_queue = self.report(&mut manager, now_ns);
        self.decided.drain(..).for_each(|event| manager.handle(now_ns, event));
        manager.advance(now_ns);
        self.requests_seen = self.requests_seen.max(manager.requests());
        let is_up = self.queue.is_ok();
        let is_last = !is_up && shared.workers_up() == 0;
        if is_up {
            while let Some(task) = manager.next_task(self.id) {
                self.round.push(task);
            }
        } else if is_last {
            let abandoned = lock(&shared.requests).unended();
            for request in abandoned {
                manager.handle(now_ns, Event::Cancel { request });
            }
        }
        let mut requests = lock(&shared.requests);
        let undecided = manager.take_undecided().into_iter();
        self.reads.extend(undecided.filter_map(|undecided| requests.ask_for_decision(undecided)));
        if has_news {
            let completed = |request, run| manager.completed_nodes(request, run);
            requests.ask_for_steps(completed, &mut self.reads);
        }
        if is_up || is_last {
            requests.take_orphans(&mut self.reads);
        }
        self.finish(requests, manager.drain_finished(), now_ns);
        let ended_sessions = shared.sessions.release(&manager.take_ended_sessions());
        self.is_busy = manager.is_busy(self.id);
        let deadline_ns = manager.next_deadline().unwrap_or(u64::MAX);
        let is_sooner = deadline_ns < shared.deadline_ns.swap(deadline_ns, Ordering::SeqCst);
        // Before the look at who waits.
        self.turns_seen = shared.inbox.waiting.note_turn();
        let mut waiting = shared.inbox.waiting.those_waiting();
        if let Some(other) = waiting.find(|&other| is_sooner || manager.has_work_for(other)) {
            shared.inbox.waiting.wake(other);
        }
        let discarded = manager.take_discarded();
        drop(manager);
        drop((lost_queue, discarded, ended_sessions));
    }

    /// Notifies the manager of what the queue reported. Returns the queue if it is lost: dropping it may
    /// take long.
    fn report(&mut self, manager: &mut Manager, now_ns: u64) -> Option<Box<dyn TaskQueue>> {
        let worker = self.id;
        let mut lost_queue = None;
        let mut news = std::mem::take(&mut self.news);
        for completion in news.drain(..) {
            match completion {
                Completion::Steps { task, steps, ends } => {
                    self.report_ends(manager, now_ns, ends);
                    manager.handle(now_ns, Event::Progress { worker, task, steps });
                }
                Completion::Task(done) => {
                    self.report_ends(manager, now_ns, done.ends);
                    let task = done.task;
                    let event = match done.result {
                        Ok(()) => Event::Complete { worker, task },
                        Err(reason) => Event::TaskFailed { worker, task, reason },
                    };
                    manager.handle(now_ns, event);
                }
                Completion::Lost { reason } => {
                    lost_queue = std::mem::replace(&mut self.queue, Err(reason.clone())).ok();
                    self.reads.extend(self.outstanding.drain(..));
                    self.shared.worker_lost(worker, &reason);
                    manager.handle(now_ns, Event::WorkerDown { worker, reason });
                }
                Completion::Values { .. } | Completion::Part { .. } => {
                    unreachable!("the manager does not learn of these")
                }
            }
        }
        self.news = news;
        lost_queue
    }

    /// Hands the manager the chains that reached their end of sequence.
    fn report_ends(&self, manager: &mut Manager, now_ns: u64, ends: Vec<EndOfSequence>) {
        for chain in ends {
            lock(&self.shared.requests).note_end_of_sequence(chain);
            manager.handle(now_ns, Event::EndOfSequence { chain });
        }
    }

    /// Sees to requests that the manager says have ended.
    fn finish(
        &mut self,
        mut requests: MutexGuard<'a, RequestTable>,
        all: impl Iterator<Item = Finished>,
        now_ns: u64,
    ) {
        let (shared, ended) = (self.shared, self.shared.inbox.instant_of(now_ns));
        for Finished { request, outcome, queue_ns, total_ns } in all {
            // No client cancelled it: no worker is left.
            let outcome = match (outcome, shared.lost.get()) {
                (Outcome::Cancelled, Some(reason)) => {
                    Outcome::Failed(Failure::WorkerLost(reason.clone()))
                }
                (outcome, _) => outcome,
            };
            let is_done = outcome == Outcome::Succeeded;
            let times = RequestTimes { queue_ns, compute_ns: total_ns - queue_ns, ended };
            let session = requests.session(request);
            requests.end(request, outcome, times).sort_into(&mut self.reads, &mut self.answers);
            if let Some(session) = session {
                // Sessions are locked before requests, where both are.
                drop(requests);
                let states = shared.device.keep_states(request);
                shared.sessions.chunk_over(session, is_done, states, &shared.inbox);
                requests = lock(&shared.requests);
            }
        }
    }

    /// Hands the queue the round, and asks for what is to be read.
    fn submit(&mut self) {
        match &mut self.queue {
            Ok(queue) => {
                if !self.round.is_empty() {
                    queue.submit(&mut self.round);
                }
                for read in self.reads.drain(..) {
                    self.outstanding.push_back(read.clone());
                    queue.read(read);
                }
            }
            Err(reason) => {
                let reason = reason.clone();
                self.pass_reads_on(&reason);
            }
        }
    }

    /// Leaves the reads to workers that are up and share the memory; without such workers they fail.
    fn pass_reads_on(&mut self, reason: &Arc<str>) {
        if self.reads.is_empty() {
            return;
        }
        let shared = self.shared;
        let mut requests = lock(&shared.requests);
        if shared.placement == StatePlacement::Shared && shared.workers_up() > 0 {
            requests.leave_orphans(&mut self.reads);
            // A worker that took a turn after this one's last, and waits next, looks again.
            shared.inbox.waiting.note_turn();
            return;
        }
        let mut all_decided = Vec::new();
        while let Some(read) = self.reads.pop() {
            let Arrived { due, decided } = requests.arrived(read, Err(reason.clone()));
            due.sort_into(&mut self.reads, &mut self.answers);
            all_decided.extend(decided);
        }
        drop(requests);
        all_decided.into_iter().for_each(|event| shared.inbox.send(event));
    }

    /// Retires requests that are over, and answers them.
    fn answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        // First: once they are taken out, their positions are free for the next.
        self.answers.iter().for_each(|&request| self.shared.device.retire(request));
        let mut requests = lock(&self.shared.requests);
        self.ended.extend(self.answers.drain(..).map(|request| requests.take_ended(request)));
        let is_drained = requests.len() == 0;
        drop(requests);
        self.ended.drain(..).for_each(Ended::answer);
        if is_drained {
            self.shared.drained.notify_all();
        }
    }

    /// Whether the queue has something to report.
    fn is_waited_for(&self) -> bool {
        self.is_busy || !self.outstanding.is_empty()
    }

    /// Waits until the queue reports something or another thread has something for the manager. Returns
    /// whether it is the latter.
    fn wait(&mut self, seen: u64) -> bool {
        let shared = self.shared;
        shared.inbox.waiting.begin(self.id, !self.is_busy);
        // A thread that takes a turn from now on sees that this worker waits. Turns since its own may have
        // made work for it.
        let has_work = || {
            shared.inbox.waiting.turns() != self.turns_seen
                && (lock(&shared.manager).has_work_for(self.id)
                    || lock(&shared.requests).has_orphans())
        };
        let is_due =
            !shared.inbox.is_empty() || shared.is_stopping.load(Ordering::SeqCst) || has_work();
        let deadline_ns = || match shared.deadline_ns.load(Ordering::SeqCst) {
            u64::MAX => None,
            ns => Some(ns),
        };
        if !is_due {
            let deadline = deadline_ns().map(|ns| shared.inbox.instant_of(ns));
            shared.watch.waits(self.id);
            if self.is_waited_for() {
                self.bell.wait(seen, shared.poll_for, deadline);
            } else {
                let start = Instant::now();
                self.bell.wait(seen, self.idle_polling.poll_for(), deadline);
                self.idle_polling.note(start.elapsed(), std::mem::take(&mut self.requests_seen));
            }
        }
        let was_woken = shared.inbox.waiting.end(self.id);
        let is_deadline = deadline_ns().is_some_and(|ns| shared.inbox.now_ns() >= ns);
        is_due || was_woken || is_deadline
    }
}

/// A worker that dies would leave its requests without an answer for ever: better no
/// server than a silent one.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let line = "batchmaker: a worker thread failed; this is a bug, the process ends";
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "{line}");
            std::process::abort();
        }
    }
}
