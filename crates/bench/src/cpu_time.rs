//! Processor time of this process, as Linux tells it; none elsewhere.

use std::fs;

/// Clock ticks a second, in which Linux tells a process's time; it is 100 on all its platforms.
const TICKS_PER_S: f64 = 100.0;

/// Processor time so far, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// Of all threads, those that have ended included; within a hundredth of a second.
    pub(crate) process_s: f64,
    /// Of the workers' own threads.
    pub(crate) workers_s: f64,
    /// Of the threads that help them compute.
    pub(crate) helpers_s: f64,
}

impl CpuTime {
    pub(crate) fn now() -> Option<Self> {
        let (workers_s, helpers_s) = workers_and_helpers_s()?;
        Some(Self { process_s: process_s()?, workers_s, helpers_s })
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            process_s: self.process_s + more.process_s,
            workers_s: self.workers_s + more.workers_s,
            helpers_s: self.helpers_s + more.helpers_s,
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            process_s: self.process_s - before.process_s,
            workers_s: self.workers_s - before.workers_s,
            helpers_s: self.helpers_s - before.helpers_s,
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

/// Threads called `worker-W` and `worker-W.T`, as engine and CPU device name them.
fn workers_and_helpers_s() -> Option<(f64, f64)> {
    let (mut workers_ns, mut helpers_ns) = (0, 0);
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(thread.path().join(name)).ok();
        // A thread may end while it is looked at.
        let Some(name) = read("comm").filter(|name| name.starts_with("worker-")) else { continue };
        let on_cpu = read("schedstat");
        let on_cpu = on_cpu.as_deref().and_then(|text| text.split_ascii_whitespace().next());
        let on_cpu_ns: u64 = on_cpu.and_then(|ns| ns.parse().ok()).unwrap_or(0);
        *(if name.contains('.') { &mut helpers_ns } else { &mut workers_ns }) += on_cpu_ns;
    }
    Some((workers_ns as f64 / 1e9, helpers_ns as f64 / 1e9))
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
