//! What the GRNN paper measured (Holmes et al., EuroSys 2019): tables that measurements are put beside. Times are milliseconds of 100 steps whose input is as
//! wide as the hidden state, on a Titan V; DeepCPU's on two Xeons E5-2650 v4 (section 8.1).

use batchmaker_cuda::mapping::{Mapping, Problem};

/// The length of a sequence in the paper's benchmarks (section 8.2).
pub(crate) const STEPS: u32 = 100;

/// The peak throughput of a Titan V in f32, in operations a second (section 8.1).
pub(crate) const TITAN_V_FLOPS: f64 = 13.67e12;

/// A row of Table 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table1 {
    /// Units of the hidden state, and elements of the input.
    pub(crate) hidden: usize,
    /// Rows of a batch.
    pub(crate) batch: usize,
    /// GRNN's LSTM, the best of its first five mappings.
    pub(crate) lstm_ms: f64,
    /// cuDNN's LSTM, a launch for each step.
    pub(crate) cudnn_traditional_ms: f64,
    /// cuDNN's LSTM, persistent.
    pub(crate) cudnn_persistent_ms: f64,
    /// DeepCPU's LSTM.
    pub(crate) lstm_deepcpu_ms: f64,
    /// GRNN's GRU, whose reset gate comes before the product.
    pub(crate) gru_ms: f64,
    /// DeepCPU's GRU.
    pub(crate) gru_deepcpu_ms: f64,
}

const fn row((hidden, batch): (usize, usize), ms: [f64; 6]) -> Table1 {
    let [
        lstm_ms,
        cudnn_traditional_ms,
        cudnn_persistent_ms,
        lstm_deepcpu_ms,
        gru_ms,
        gru_deepcpu_ms,
    ] = ms;
    Table1 {
        hidden,
        batch,
        lstm_ms,
        cudnn_traditional_ms,
        cudnn_persistent_ms,
        lstm_deepcpu_ms,
        gru_ms,
        gru_deepcpu_ms,
    }
}

/// Table 1.
pub(crate) const TABLE_1: [Table1; 9] = [
    row((64, 1), [0.2, 0.96, 0.19, 0.31, 0.18, 0.7]),
    row((64, 10), [0.23, 1.79, 1.14, 1.1, 0.19, 1.1]),
    row((64, 20), [0.24, 1.8, 2.24, 1.5, 0.2, 1.5]),
    row((256, 1), [0.3, 1.1, 0.21, 0.74, 0.28, 0.9]),
    row((256, 10), [0.38, 1.89, 1.28, 4.4, 0.32, 3.7]),
    row((256, 20), [0.49, 1.98, 2.54, 6.4, 0.43, 5.4]),
    row((1024, 1), [0.63, 4.43, 1.22, 11.0, 0.68, 8.4]),
    row((1024, 10), [4.3, 6.1, 9.07, 42.0, 3.16, 36.0]),
    row((1024, 20), [8.01, 8.51, 18.42, 68.0, 6.32, 60.0]),
];

/// A row of Table 2: a mapping of [`TABLE_2_PROBLEM`] with a tile of 32 units and 2 rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table2 {
    /// Work groups of a block.
    pub(crate) groups: usize,
    /// Threads of a work group.
    pub(crate) lanes: usize,
    /// The measured time.
    pub(crate) ms: f64,
    /// The rank of its predicted cost.
    pub(crate) rank: usize,
}

impl Table2 {
    /// The mapping.
    pub(crate) fn mapping(self) -> Mapping {
        let Self { groups, lanes, .. } = self;
        Mapping { tile_width: 32, tile_height: 2, groups, lanes }
    }
}

/// What Table 2 maps: an LSTM.
pub(crate) const TABLE_2_PROBLEM: Problem = Problem { hidden: 256, gates: 4, rows: 20 };

/// Table 2.
pub(crate) const TABLE_2: [Table2; 5] = [
    Table2 { groups: 128, lanes: 2, ms: 0.57, rank: 17 },
    Table2 { groups: 64, lanes: 4, ms: 0.5, rank: 3 },
    Table2 { groups: 32, lanes: 8, ms: 0.5, rank: 1 },
    Table2 { groups: 16, lanes: 16, ms: 0.6, rank: 14 },
    Table2 { groups: 8, lanes: 32, ms: 0.93, rank: 35 },
];

/// Table 3, in the order of [`TABLE_1`]: milliseconds of a GRU whose reset gate comes before the product, with one barrier a step and with two.
pub(crate) const TABLE_3: [[f64; 2]; 9] = [
    [0.181, 0.28],
    [0.186, 0.285],
    [0.201, 0.307],
    [0.275, 0.372],
    [0.323, 0.411],
    [0.431, 0.498],
    [6.46, 0.683],
    [64.76, 3.162],
    [129.52, 6.324],
];
