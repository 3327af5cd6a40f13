//! Which machine a profile was made on: another's times and configurations mean nothing here.

use std::fmt;
use std::fs::read_to_string;
use std::sync::OnceLock;

use batchmaker_cpu::Isa;
use serde::{Deserialize, Serialize};

/// Characters of a machine that are shown.
const SHOWN_MAX: usize = 300;

/// The fingerprint of a machine, as far as kernels notice it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor: name, family, model and stepping where the system tells them.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// The instruction set of the kernels.
    pub isa: String,
    /// Sizes of a core's caches, nearest first, as the system writes them.
    pub caches: Vec<String>,
    /// The version of the program, whose kernels were measured.
    pub version: String,
}

impl Machine {
    /// This machine, with kernels of `isa`.
    pub fn here(isa: Isa) -> Self {
        // Once: a thread that is on a core of its own since sees that one only.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores =
            *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { processor: processor(), cores, isa: isa.to_string(), caches: caches(), version }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, isa, caches, version } = self;
        let (caches, plural) = (caches.join(", "), if *cores == 1 { "" } else { "s" });
        let text =
            format!("{processor}, {cores} core{plural}, {isa}, caches {caches}, version {version}");
        // It may come from a file that anybody wrote.
        let shown = text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { '?' } else { c });
        f.write_str(&shown.collect::<String>())
    }
}

fn processor() -> String {
    let Ok(text) = read_to_string("/proc/cpuinfo") else {
        return std::env::consts::ARCH.to_owned();
    };
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    };
    match field("model name") {
        Some(name) => {
            let number = |name| field(name).unwrap_or("?");
            let [family, model, stepping] = ["cpu family", "model", "stepping"].map(number);
            format!("{name} ({family}-{model}-{stepping})")
        }
        None => field("CPU part").unwrap_or(std::env::consts::ARCH).to_owned(),
    }
}

fn caches() -> Vec<String> {
    let of_index = |index: usize| {
        let file = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        (file("type")? != "Instruction").then(|| file("size")).flatten()
    };
    (0..8).filter_map(of_index).collect()
}
