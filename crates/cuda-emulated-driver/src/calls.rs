//! What each thread of the host has asked of the driver, and the processor's time that its calls took.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock::lock;

/// The calls of a thread.
#[derive(Default)]
struct Calls {
    /// The name of the thread.
    thread: String,
    took: Duration,
    /// Calls of each function.
    functions: BTreeMap<&'static str, u64>,
    /// The operations that it submitted, by what they are.
    submitted: BTreeMap<String, u64>,
}

impl Display for Calls {
    /// A line for each number: the thread, what it counts, and the number.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { thread, took, functions, submitted } = self;
        let functions = functions.iter().map(|(&name, count)| (name, count));
        let submitted = submitted.iter().map(|(what, count)| (what.as_str(), count));
        writeln!(f, "{thread}\tnanoseconds\t{}", took.as_nanos())?;
        functions
            .chain(submitted)
            .try_for_each(|(what, count)| writeln!(f, "{thread}\t{what}\t{count}"))
    }
}

/// The calls of all threads.
static ALL: Mutex<Vec<Arc<Mutex<Calls>>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Arc<Mutex<Calls>> = {
        let own = Calls { thread: name(), ..Calls::default() };
        let own = Arc::new(Mutex::new(own));
        lock(&ALL).push(own.clone());
        own
    };
}

/// The name of the current thread, of which Linux keeps 15 bytes.
fn name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: the call writes at most 16 bytes, the last of which is zero.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned()
}

/// The processor's time of the current thread.
pub(crate) fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counts a call of this thread.
pub(crate) fn count(function: &'static str, took: Duration) {
    // A thread that ends may still call.
    let _ = OWN.try_with(|own| {
        let own = &mut *lock(own);
        *own.functions.entry(function).or_default() += 1;
        own.took += took;
    });
}

/// Counts an operation that this thread submits.
pub(crate) fn count_submitted(what: &str) {
    let _ = OWN.try_with(|own| {
        let submitted = &mut lock(own).submitted;
        match submitted.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(submitted.insert(what.to_owned(), 1)),
        }
    });
}

/// What all threads have asked for so far, in lines as [`Calls`] are displayed.
pub(crate) fn text() -> String {
    lock(&ALL).iter().map(|of| lock(of).to_string()).collect()
}
