//! The configuration that an engine is started with, and the limits that can change while it runs.

use std::time::Duration;

use batchmaker_manager::{Config, Policy};

/// The configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The number of workers; each has a thread and a queue of the device.
    pub workers: u16,
    /// The policy that forms batches of requests.
    pub policy: Policy,
    /// The most tasks that are formed for a worker at a time: see [`Config::max_tasks_to_submit`].
    pub max_tasks_to_submit: u32,
    /// The submission window: the most work of a cell type's chains, in time, that is submitted at
    /// once. None: as many steps as `max_tasks_to_submit` allows.
    pub submission_window: Option<Duration>,
    /// The most requests in flight; one more is refused as overload.
    pub max_requests: usize,
    /// The most bytes that the values of all requests in flight may hold: inputs, outputs and
    /// the values between cells.
    pub max_bytes: usize,
    /// The most sessions that may hold state; one more is refused as overload.
    pub max_sessions: usize,
    /// The time that a session may be idle before it ends.
    pub session_idle: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            policy: Policy::Cellular,
            max_tasks_to_submit: Config::MAX_TASKS_TO_SUBMIT,
            submission_window: None,
            max_requests: 4096,
            max_bytes: 4 << 30,
            max_sessions: 4096,
            session_idle: Duration::from_secs(300),
        }
    }
}

/// Limits that can change while an engine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most rows of a batch of each cell type, by id.
    pub batch_max: Vec<u32>,
    /// See [`EngineConfig::submission_window`].
    pub submission_window: Option<Duration>,
}
