//! A description of this processor: what of it the kernels depend on.

use std::fs::read_to_string;
use std::sync::{Arc, OnceLock};

use batchmaker_kernels::Isa;

/// The name, the number of cores that the process may use, the instruction set `isa`, and the sizes of a
/// core's caches, nearest first.
pub(crate) fn describe(isa: Isa) -> Arc<str> {
    // Once: a thread that is on a core of its own since sees that one only.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (caches, plural) = (caches().join(", "), if cores == 1 { "" } else { "s" });
    format!("{}, {cores} core{plural}, {isa}, caches {caches}", name()).into()
}

/// The name, with family, model and stepping where the system reports them.
fn name() -> String {
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

/// The sizes of a core's data caches, as the system writes them.
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
