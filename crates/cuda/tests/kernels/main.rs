//! Each kernel in the emulator: without a report and right over seeds and shapes, alone as together; and bugs that are planted in its source are
//! found. Takes g++.
#![cfg(all(target_arch = "x86_64", unix))]

mod harness;
mod linear;
mod recurrent;
