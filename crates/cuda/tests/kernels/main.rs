//! Each kernel in the emulator: it is right over seeds and shapes, without a report, and a row alone has the bits that it has in a batch; bugs that are
//! planted in its source are found. Takes g++.
#![cfg(all(target_arch = "x86_64", unix))]

mod chains;
mod harness;
mod linear;
mod lstm_of_bytes;
mod persistent;
mod projection;
mod quantum;
mod recurrent;
mod rows;
mod tree;
