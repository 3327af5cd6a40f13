//! The trace of a simulation: a digest of everything that happened and, if somebody listens, a line for
//! each event.

use std::cell::Cell;
use std::fmt::{Debug, Write};

/// The digest so far, and the listener.
pub(crate) struct Trace<'a> {
    clock_ns: &'a Cell<u64>,
    hash: Hash,
    line: String,
    listener: Option<&'a mut dyn FnMut(&str)>,
}

impl<'a> Trace<'a> {
    /// Keeps the time in `clock_ns`, where it can be read after a panic.
    pub(crate) fn new(clock_ns: &'a Cell<u64>, listener: Option<&'a mut dyn FnMut(&str)>) -> Self {
        Self { clock_ns, hash: Hash(0xcbf2_9ce4_8422_2325), line: String::new(), listener }
    }

    pub(crate) fn now(&mut self, now_ns: u64) {
        self.clock_ns.set(now_ns);
    }

    pub(crate) fn note(&mut self, noun: &str, what: &dyn Debug) {
        let now_ns = self.clock_ns.get();
        match &mut self.listener {
            None => write!(self.hash, "{now_ns} {noun} {what:?}").expect("a digest takes all"),
            Some(listener) => {
                self.line.clear();
                write!(self.line, "{now_ns} {noun} {what:?}").expect("a string takes all");
                self.hash.write_str(&self.line).expect("a digest takes all");
                listener(&self.line);
            }
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.0
    }
}

/// FNV-1a, 64 bits.
struct Hash(u64);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
