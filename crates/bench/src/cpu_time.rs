//! Processor time of this process, as Linux reports it; none on other systems.

use std::fs;

/// Clock ticks a second, in which Linux counts a process's time; it is 100 on all its platforms.
const TICKS_PER_S: f64 = 100.0;

/// Processor time so far, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// Time of all threads, including those that have ended, to a hundredth of a second.
    pub(crate) process_s: f64,
    /// Time of the workers' own threads.
    pub(crate) workers_s: f64,
    /// Time of the threads that help workers compute.
    pub(crate) helpers_s: f64,
    /// Time for which both waited for a core.
    pub(crate) descheduled_s: f64,
}

impl CpuTime {
    pub(crate) fn now() -> Option<Self> {
        let ComputeThreads { workers_ns, helpers_ns, descheduled_ns } = compute_threads()?;
        let [workers_s, helpers_s, descheduled_s] =
            [workers_ns, helpers_ns, descheduled_ns].map(|ns| ns as f64 / 1e9);
        Some(Self { process_s: process_s()?, workers_s, helpers_s, descheduled_s })
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            process_s: self.process_s + more.process_s,
            workers_s: self.workers_s + more.workers_s,
            helpers_s: self.helpers_s + more.helpers_s,
            descheduled_s: self.descheduled_s + more.descheduled_s,
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            process_s: self.process_s - before.process_s,
            workers_s: self.workers_s - before.workers_s,
            helpers_s: self.helpers_s - before.helpers_s,
            descheduled_s: self.descheduled_s - before.descheduled_s,
        }
    }
}

/// User and system time of `/proc/self/stat`.
fn process_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name, in brackets, may hold anything; the state is field 3.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_S)
}

/// Times of the threads that compute: on a core, and waiting for one.
#[derive(Default)]
struct ComputeThreads {
    workers_ns: u64,
    helpers_ns: u64,
    descheduled_ns: u64,
}

/// Threads called `worker-W` and `worker-W.T`, as engine and CPU device name them; and those that programs run on, `rten-T`, which
/// workers run on too.
fn compute_threads() -> Option<ComputeThreads> {
    let mut threads = ComputeThreads::default();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(thread.path().join(name)).ok();
        // A thread may end while it is looked at.
        let is_known = |name: &String| name.starts_with("worker-") || name.starts_with("rten-");
        let Some(name) = read("comm").filter(is_known) else { continue };
        let times = read("schedstat").unwrap_or_default();
        let mut times = times.split_ascii_whitespace().map(|ns| ns.parse().unwrap_or(0));
        let mut next_ns = || -> u64 { times.next().unwrap_or(0) };
        let is_helper = name.contains('.');
        *(if is_helper { &mut threads.helpers_ns } else { &mut threads.workers_ns }) += next_ns();
        threads.descheduled_ns += next_ns();
    }
    Some(threads)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn busy_threads_are_counted() {
        let before = CpuTime::now().unwrap();
        let spin = || {
            let start = std::time::Instant::now();
            while start.elapsed().as_millis() < 100 {
                std::hint::spin_loop();
            }
            CpuTime::now().unwrap()
        };
        let helper = std::thread::Builder::new().name("worker-0.1".to_owned()).spawn(spin).unwrap();
        let used = helper.join().unwrap().since(before);
        assert!(used.process_s > 0.02, "{used:?}");
        assert!(used.helpers_s > 0.01, "{used:?}");
    }
}
