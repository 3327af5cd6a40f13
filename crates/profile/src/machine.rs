//! The machine that a profile was measured with: times and plans of another machine mean nothing here.

use std::fmt;

use batchmaker_device::Device;
use serde::{Deserialize, Serialize};

/// Characters of a machine that are shown.
const SHOWN_MAX: usize = 300;

/// A machine, as far as the times of batches depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as the device describes it.
    pub processor: String,
    /// The version of the program, whose kernels were measured.
    pub version: String,
}

impl Machine {
    /// The machine of a device of this process.
    pub fn of(device: &dyn Device) -> Self {
        let processor = device.capabilities().processor.as_ref().to_owned();
        Self { processor, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}, version {}", self.processor, self.version);
        // It may come from a file that anybody wrote.
        let shown = text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { '?' } else { c });
        f.write_str(&shown.collect::<String>())
    }
}
