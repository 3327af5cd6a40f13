//! A worker's thread: tell the manager, ask it for tasks, run them, answer.

use std::sync::atomic::Ordering;

use batchmaker_device::{Progress, TaskQueue};
use batchmaker_graph::{BatchedTask, Stopped, WorkerId};
use batchmaker_manager::{Event, Outcome};

use crate::engine::{Shared, lock};
use crate::request_table::Ended;
use crate::statistics::Turn;

/// Runs until the engine stops.
pub(crate) fn run(shared: &Shared, worker: WorkerId, mut queue: Box<dyn TaskQueue>) {
    let _guard = AbortOnPanic;
    let (mut tasks, mut stops, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let mut progress = Progress::None;
    while !shared.is_stopping.load(Ordering::SeqCst) {
        let begun_ns = shared.now_ns();
        let is_busy = meet_manager(shared, worker, (progress, &mut stops), &mut tasks, &mut ended);
        let managed_ns = shared.now_ns();
        for task in tasks.drain(..) {
            queue.submit(task);
        }
        answer(shared, &mut ended);
        let answered_ns = shared.now_ns();
        progress = if is_busy { queue.poll() } else { Progress::None };
        queue.take_stops(&mut stops);
        let turn = Turn {
            manager_ns: managed_ns - begun_ns,
            replies_ns: answered_ns - managed_ns,
            device_ns: shared.now_ns() - answered_ns,
        };
        shared.times.add(turn);
        if !is_busy {
            sleep_unless_told(shared, worker);
        }
    }
}

/// One turn under the manager's lock. Tells whether the worker has tasks in flight.
fn meet_manager(
    shared: &Shared,
    worker: WorkerId,
    (progress, stops): (Progress, &mut Vec<Stopped>),
    tasks: &mut Vec<BatchedTask>,
    ended: &mut Vec<Ended>,
) -> bool {
    let mut manager = lock(&shared.manager);
    let told = std::mem::take(&mut *lock(&shared.inbox));
    for (at_ns, event) in told {
        manager.handle(at_ns, event);
    }
    let now = shared.now_ns();
    for chain in stops.drain(..) {
        lock(&shared.requests).note_stop(chain);
        manager.handle(now, Event::Stopped { chain });
    }
    match progress {
        Progress::None => {}
        Progress::Complete(task) => manager.handle(now, Event::Complete { worker, task }),
        Progress::Failed(task) => {
            let reason = "the device could not run it".into();
            manager.handle(now, Event::TaskFailed { worker, task, reason });
        }
    }
    if progress != Progress::None {
        let completed = |request, run| manager.completed_nodes(request, run);
        lock(&shared.requests).tell_steps(&*shared.device, completed);
    }
    while let Some(task) = manager.next_task(worker) {
        tasks.push(task);
    }
    for finished in manager.drain_finished() {
        let request = finished.request;
        if finished.outcome == Outcome::Succeeded {
            lock(&shared.requests).tell_last_steps(&*shared.device, request);
        }
        // Under the manager's lock: once it is removed, the id's position is free for the next.
        let values = shared.device.retire(request);
        let responder = lock(&shared.requests).remove(request);
        if let Some(session) = responder.session {
            let is_done = finished.outcome == Outcome::Succeeded;
            shared.sessions.piece_over(session, is_done, shared);
        }
        ended.push(Ended {
            responder,
            outcome: finished.outcome,
            values,
            queue_ns: finished.queue_ns,
            compute_ns: finished.total_ns - finished.queue_ns,
            ended: shared.instant_of(now),
        });
    }
    shared.sessions.release(&manager.take_ended_sessions());
    let sleepers = shared.sleepers.load(Ordering::SeqCst);
    let others = (0..u64::BITS).filter(|bit| sleepers & (1 << bit) != 0).map(WorkerId);
    if let Some(idle) = others.into_iter().find(|&other| manager.has_work_for(other)) {
        shared.wake(1 << idle.0);
    }
    manager.is_busy(worker)
}

fn answer(shared: &Shared, ended: &mut Vec<Ended>) {
    if ended.is_empty() {
        return;
    }
    for request in ended.drain(..) {
        request.answer();
    }
    let requests = lock(&shared.requests);
    if requests.len() == 0 {
        shared.drained.notify_all();
    }
}

/// Parks the thread unless something came in since it last looked.
fn sleep_unless_told(shared: &Shared, worker: WorkerId) {
    let bit = 1 << worker.0;
    shared.sleepers.fetch_or(bit, Ordering::SeqCst);
    let is_told = !lock(&shared.inbox).is_empty()
        || shared.is_stopping.load(Ordering::SeqCst)
        || lock(&shared.manager).has_work_for(worker);
    if !is_told {
        std::thread::park();
    }
    shared.sleepers.fetch_and(!bit, Ordering::SeqCst);
}

/// A worker that dies would leave its requests without an answer for ever: better no
/// server than a silent one.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("batchmaker: a worker thread failed; this is a bug, the process ends");
            std::process::abort();
        }
    }
}
