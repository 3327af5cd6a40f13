//! Threads that wait for the parts of runs awake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::attends::Attends;
use super::pause::pause;
use super::shared_cores::{Core, SharedCores};

/// The time for which all other workers must have been idle before helpers are called in the middle of a run. A client often sends its next
/// request sooner. The worker that takes it would share its core with a thread that this run waits for.
const IDLE_FOR: Duration = Duration::from_micros(100);

/// The looks in a row that a thread leaves out while others wake up: some tenths of a millisecond.
const REFUSALS_MAX: u32 = 2_000;

/// The time for which threads that attend stay awake after a run: the cells of a request run one soon after the other, and
/// a client often sends its next request soon.
const STAYS_FOR: Duration = Duration::from_micros(200);

/// Keeps the calling helper off the worker's own cores.
type KeepOff = Arc<dyn Fn() + Send + Sync>;

/// The threads that attend to the runs of one worker: some of its own pool, and helpers on idle cores. They look for parts without sleeping:
/// to wake a thread takes as long as a short operator.
pub(super) struct Attendants {
    /// Attended runs that have not ended.
    runs: AtomicUsize,
    /// Threads of the worker's own pool, the one that runs the program included.
    count: usize,
    cores: Arc<SharedCores>,
    keep_off: KeepOff,
    own: Threads,
    helpers: Threads,
    /// The number of times that the worker took its own cores.
    takes: AtomicUsize,
    /// The number of times that those who stay awake between runs were told to leave.
    dismissals: AtomicUsize,
    /// [`Self::reasons_to_leave`] when the last run ended.
    reasons_at_end: AtomicUsize,
    /// The time for which threads stay awake after a run.
    pub(super) stays_for: Duration,
}

/// The threads of one pool that attend to the runs of one worker.
struct Threads {
    /// Those that attend or are on their way.
    called: AtomicUsize,
    /// Those that attend.
    present: AtomicUsize,
    /// Threads of the pool that were called, by whichever worker, and have not woken up yet. While there are some, those that attend do not look
    /// for parts: they would take the call, and the other would go on sleeping.
    waking: Arc<AtomicUsize>,
}

impl Threads {
    fn new(waking: Arc<AtomicUsize>) -> Self {
        Self { called: AtomicUsize::new(0), present: AtomicUsize::new(0), waking }
    }

    /// Those that look for parts.
    fn awake(&self) -> usize {
        match self.waking.load(Ordering::Relaxed) {
            0 => self.present.load(Ordering::Relaxed),
            _ => 0,
        }
    }
}

impl Attendants {
    pub(super) fn new(count: usize, cores: Arc<SharedCores>, keep_off: KeepOff) -> Self {
        let (own, helpers) = (Threads::new(Arc::default()), Threads::new(cores.waking.clone()));
        Self {
            runs: AtomicUsize::new(0),
            count,
            cores,
            keep_off,
            own,
            helpers,
            takes: AtomicUsize::new(0),
            dismissals: AtomicUsize::new(0),
            reasons_at_end: AtomicUsize::new(0),
            stays_for: STAYS_FOR,
        }
    }

    /// Notes that the worker takes its own cores, before it does.
    pub(super) fn note_take(&self) {
        self.takes.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the threads that stay awake between runs leave.
    pub(super) fn dismiss(&self) {
        self.dismissals.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that rises when another worker takes its cores, or threads are to leave.
    fn reasons_to_leave(&self) -> usize {
        let of_others = self.cores.takes().wrapping_sub(self.takes.load(Ordering::Relaxed));
        of_others.wrapping_add(self.dismissals.load(Ordering::Relaxed))
    }

    /// The threads that attend and look for parts, of the own pool and helpers.
    pub(super) fn awake(&self) -> [usize; 2] {
        [&self.own, &self.helpers].map(Threads::awake)
    }

    /// The threads that attend or are on their way, likewise.
    pub(super) fn called(&self) -> [usize; 2] {
        [&self.own, &self.helpers].map(|of| of.called.load(Ordering::Relaxed))
    }

    /// Keeps the calling helper off the worker's own cores.
    pub(super) fn keep_off(&self) {
        (self.keep_off)();
    }

    /// Calls threads, so that up to `worth` attend until the result is dropped, the caller included, which is one of the worker's pool.
    pub(super) fn begin_run(self: &Arc<Self>, worth: usize) -> Run<'_> {
        let run = Run::begin(self);
        self.call_own(worth);
        self.call_helpers(worth);
        run
    }

    /// Calls threads that do not attend yet in the middle of a run, as [`Self::begin_run`] does; helpers only once all other workers have been
    /// idle for a while.
    pub(super) fn call_again(self: &Arc<Self>, worth: usize) {
        self.call_own(worth);
        let called: usize = self.called().iter().sum();
        if called + 1 < worth && self.cores.idle_for() >= IDLE_FOR {
            self.call_helpers(worth);
        }
    }

    /// Calls threads of the worker's own pool, so that up to `worth` attend, this one included.
    fn call_own(self: &Arc<Self>, worth: usize) {
        let own = self.count.min(worth);
        while self.own.called.load(Ordering::Relaxed) + 1 < own {
            let host = std::thread::current().id();
            let attendant = Attendant::of(self, Kind::Own { host });
            rayon::spawn(move || attendant.run());
        }
    }

    /// Calls helpers on idle cores, so that up to `worth` threads attend, those of the own pool included.
    fn call_helpers(self: &Arc<Self>, worth: usize) {
        let Some(pool) = &self.cores.helpers else { return };
        let others = pool.current_num_threads().min(worth.saturating_sub(self.count));
        while self.helpers.called.load(Ordering::Relaxed) < others
            && let Some(core) = SharedCores::borrow_one(&self.cores)
        {
            let attendant = Attendant::of(self, Kind::Helper(core));
            pool.spawn(move || attendant.run());
        }
    }

    /// Runs parts that wait in the pool of this thread until no run has followed the last one for a while, another worker has taken its cores
    /// since, or the core is not free any more, as `is_free` says. Meanwhile the thread is one of `threads`.
    fn attend(&self, threads: &Threads, is_free: &dyn Fn() -> bool) {
        let _present = Present::begin(&threads.present);
        let (mut looks, mut refusals) = (0, 0u32);
        let mut ended: Option<Instant> = None;
        while is_free() {
            if self.runs.load(Ordering::Acquire) > 0 {
                ended = None;
            } else {
                let ended = ended.get_or_insert_with(Instant::now);
                let at_end = self.reasons_at_end.load(Ordering::Relaxed);
                // The difference is negative while the worker itself takes its cores.
                let reasons = self.reasons_to_leave().wrapping_sub(at_end) as isize;
                if reasons > 0 || ended.elapsed() > self.stays_for {
                    break;
                }
            }
            let is_waking = threads.waking.load(Ordering::Relaxed) > 0;
            refusals = if is_waking { refusals.saturating_add(1) } else { 0 };
            let looks_now = !is_waking || refusals > REFUSALS_MAX;
            match looks_now.then(rayon::yield_now).flatten() {
                Some(rayon::Yield::Executed) => looks = 0,
                _ => pause(&mut looks),
            }
        }
    }
}

/// A run that is attended to until this is dropped.
pub(super) struct Run<'a> {
    attendants: &'a Attendants,
    _attends: Option<Attends>,
}

impl<'a> Run<'a> {
    fn begin(attendants: &'a Attendants) -> Self {
        attendants.runs.fetch_add(1, Ordering::Relaxed);
        Self { attendants, _attends: Attends::begin() }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let reasons = self.attendants.reasons_to_leave();
        self.attendants.reasons_at_end.store(reasons, Ordering::Relaxed);
        self.attendants.runs.fetch_sub(1, Ordering::Release);
    }
}

/// A thread that attends, or is on its way, until this is dropped.
struct Attendant {
    attendants: Arc<Attendants>,
    kind: Kind,
}

/// The pool that a thread belongs to that attends.
enum Kind {
    /// The worker's own pool. The thread `host` runs the program, and does not attend.
    Own { host: ThreadId },
    /// The pool of helpers, on an idle core.
    Helper(Core),
}

impl Attendant {
    fn of(attendants: &Arc<Attendants>, kind: Kind) -> Self {
        let attendant = Self { attendants: attendants.clone(), kind };
        attendant.threads().called.fetch_add(1, Ordering::Relaxed);
        attendant.threads().waking.fetch_add(1, Ordering::Relaxed);
        attendant
    }

    fn threads(&self) -> &Threads {
        match self.kind {
            Kind::Own { .. } => &self.attendants.own,
            Kind::Helper(_) => &self.attendants.helpers,
        }
    }

    fn run(&self) {
        let threads = self.threads();
        threads.waking.fetch_sub(1, Ordering::Relaxed);
        if matches!(self.kind, Kind::Own { host } if host == std::thread::current().id()) {
            return;
        }
        let Some(_attends) = Attends::begin() else { return };
        match &self.kind {
            Kind::Own { .. } => self.attendants.attend(threads, &|| true),
            Kind::Helper(core) => {
                self.attendants.keep_off();
                self.attendants.attend(threads, &|| !core.cores().is_overdrawn());
            }
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.threads().called.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that attends until this is dropped.
struct Present<'a>(&'a AtomicUsize);

impl<'a> Present<'a> {
    fn begin(present: &'a AtomicUsize) -> Self {
        present.fetch_add(1, Ordering::Relaxed);
        Self(present)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
