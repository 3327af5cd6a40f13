//! Micro-benchmarks of what the cost model counts: `kernels/benchmarks.cuh`.

use std::fmt::Write as _;

use bytemuck::{Pod, Zeroable};

/// The argument of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BenchmarkArguments {
    /// The address of [`NUMBERS`] floats.
    pub numbers: u64,
    /// The address of a float for each thread, which the kernel writes.
    pub results: u64,
    /// The rounds of work.
    pub rounds: u32,
    /// Always 0.
    pub padding: u32,
}

/// Floats that the kernels read.
pub const NUMBERS: usize = LOADED_BYTES / 4 + 8;

/// The most threads of a block.
pub const THREADS_MAX: usize = 1024;

/// Bytes that a block loads in a round of [`Benchmark::Loads`].
pub const LOADED_BYTES: usize = 64 << 10;

/// A micro-benchmark: the work of its kernel in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// Each lane multiplies 64 elements of h with weights of this number of gate rows.
    Products(usize),
    /// Each thread adds this number of sums over the lanes of its warp: each takes five shuffles.
    Shuffles(usize),
    /// A block loads [`LOADED_BYTES`] bytes from the L2 cache.
    Loads,
}

impl Benchmark {
    /// Gate rows and sums for which there are kernels.
    pub const COUNTS: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

    /// All kernels.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_counts = Self::COUNTS.into_iter();
        of_counts.flat_map(|of| [Self::Products(of), Self::Shuffles(of)]).chain([Self::Loads])
    }

    /// What a round consists of, one after the other in a thread: multiply-adds of a gate row, shuffles of a sum, or bytes of a block.
    pub fn units(self) -> usize {
        match self {
            Self::Products(_) => 64,
            Self::Shuffles(_) => 5,
            Self::Loads => LOADED_BYTES,
        }
    }

    /// The kernel's name.
    pub fn name(self) -> String {
        match self {
            Self::Products(gate_rows) => format!("benchmark_products_{gate_rows}"),
            Self::Shuffles(sums) => format!("benchmark_shuffles_{sums}"),
            Self::Loads => "benchmark_loads".to_owned(),
        }
    }

    /// The source of all kernels.
    pub fn source() -> String {
        let mut source = "#include \"benchmarks.cuh\"\n".to_owned();
        for kernel in Self::all() {
            let run = match kernel {
                Self::Products(gate_rows) => format!("multiply_rounds<{gate_rows}>"),
                Self::Shuffles(sums) => format!("shuffle_rounds<{sums}>"),
                Self::Loads => "load_rounds".to_owned(),
            };
            writeln!(source, "BENCHMARK({}, {run})", kernel.name()).expect("memory takes text");
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_kernel_for_each_count() {
        let source = Benchmark::source();
        assert_eq!(source.lines().count(), 1 + 8 + 8 + 1);
        let line = "BENCHMARK(benchmark_products_12, multiply_rounds<12>)";
        assert!(source.lines().any(|of| of == line), "{source}");
    }
}
