//! Statistics of the models, in the JSON that `perf_analyzer` reads (Triton's statistics
//! extension). All counts and times are totals since the model was loaded.

use serde::{Deserialize, Serialize};

/// The answer to `GET /v2/models/stats` and `GET /v2/models/M/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// One element a model and version.
    pub model_stats: Vec<ModelStatistics>,
}

/// The statistics of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStatistics {
    /// The model's name.
    pub name: String,
    /// The version.
    pub version: String,
    /// When the last request came, in milliseconds since the Unix epoch; 0 before the first.
    #[serde(default)]
    pub last_inference: u64,
    /// Requests answered.
    pub inference_count: u64,
    /// Launches that answered them.
    pub execution_count: u64,
    /// The time that requests spent in each phase.
    pub inference_stats: InferenceStatistics,
    /// The time that batches spent in each phase, by batch size.
    #[serde(default)]
    pub batch_stats: Vec<BatchStatistics>,
}

/// The time that requests spent in each phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InferenceStatistics {
    /// Requests answered, from arrival to reply.
    pub success: DurationStatistics,
    /// Requests that failed, from arrival to error.
    pub fail: DurationStatistics,
    /// Waiting for a launch.
    pub queue: DurationStatistics,
    /// Preparing inputs.
    pub compute_input: DurationStatistics,
    /// Running.
    pub compute_infer: DurationStatistics,
    /// Extracting outputs.
    pub compute_output: DurationStatistics,
    /// Answered from a cache.
    pub cache_hit: DurationStatistics,
    /// Looked for in a cache in vain.
    pub cache_miss: DurationStatistics,
}

/// Launches of one batch size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStatistics {
    /// The rows of each launch.
    pub batch_size: u64,
    /// Preparing inputs.
    pub compute_input: DurationStatistics,
    /// Running.
    pub compute_infer: DurationStatistics,
    /// Extracting outputs.
    pub compute_output: DurationStatistics,
}

/// The number of times that something was done, and the total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationStatistics {
    /// The number of times.
    #[serde(default)]
    pub count: u64,
    /// The total time, in nanoseconds.
    #[serde(default)]
    pub ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statistics_have_tritons_shape() {
        let queue = DurationStatistics { count: 2, ns: 300 };
        let none = json!({"count": 0, "ns": 0});
        let statistics = Statistics {
            model_stats: vec![ModelStatistics {
                name: "m".into(),
                version: "1".into(),
                last_inference: 1_700_000_000_000,
                inference_count: 2,
                execution_count: 24,
                inference_stats: InferenceStatistics { queue, ..Default::default() },
                batch_stats: vec![BatchStatistics { batch_size: 4, ..Default::default() }],
            }],
        };
        let json = json!({"model_stats": [{
            "name": "m",
            "version": "1",
            "last_inference": 1_700_000_000_000u64,
            "inference_count": 2,
            "execution_count": 24,
            "inference_stats": {
                "success": none, "fail": none, "queue": {"count": 2, "ns": 300},
                "compute_input": none, "compute_infer": none, "compute_output": none,
                "cache_hit": none, "cache_miss": none,
            },
            "batch_stats": [{
                "batch_size": 4,
                "compute_input": none, "compute_infer": none, "compute_output": none,
            }],
        }]});
        assert_eq!(serde_json::to_value(&statistics).unwrap(), json);
        assert_eq!(serde_json::from_value::<Statistics>(json).unwrap(), statistics);
    }
}
