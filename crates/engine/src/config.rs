//! The configuration that an engine is started with, and the limits that can change while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use batchmaker_manager::{Config, Fairness, Policy};

/// The configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The number of workers; each has a thread and a queue of the device.
    pub workers: u16,
    /// The policy that forms batches of requests.
    pub policy: Policy,
    /// The policies of models that have their own, by name. Models that are not served in stages ([`Policy::Staged`]) have one in common.
    pub policies: BTreeMap<String, Policy>,
    /// What is known of the times of stages, for [`Policy::Staged`], by the name of the model: for each stage, sizes of batches, ascending,
    /// each with the nanoseconds that such a batch takes. Stages behind the last are of unknown time. An engine
    /// whose sizes do not rise panics as it starts.
    pub stage_times: BTreeMap<String, Vec<Vec<(u32, u64)>>>,
    /// The rules of fairness beside the policy's own; none: the paper's rules.
    pub fairness: Option<Fairness>,
    /// The most tasks that are formed for a worker at a time: see [`Config::max_tasks_to_submit`].
    pub max_tasks_to_submit: u32,
    /// The submission window: the most work of a cell type's chains, in time, that is submitted at
    /// once. None: as many steps as `max_tasks_to_submit` allows.
    pub submission_window: Option<Duration>,
    /// The most requests in flight; one more is refused as overload.
    pub max_requests: usize,
    /// The most requests of one model in flight. None: `max_requests` where there is one model, and three
    /// quarters of it where there are several, so that none of them takes all places.
    pub max_requests_per_model: Option<usize>,
    /// The most bytes that requests, from their first byte to the last of their replies, and the states of
    /// sessions may hold.
    pub max_memory_bytes: usize,
    /// The most time that a request waits for bytes of these that others hold, each time that it waits.
    pub memory_wait: Duration,
    /// The most sessions that may hold state; one more is refused as overload.
    pub max_sessions: usize,
    /// The time that a session may be idle before it ends.
    pub session_idle: Duration,
    /// The time that a request has which brings no deadline of its own; none: any.
    pub default_timeout: Option<Duration>,
    /// The least time for which a worker's device may report nothing while it has work, or for which a turn of the worker
    /// may take, before it is taken to hang. One whose tasks take long gets 20 times its device's longest silence so far,
    /// which counts for no more than this time.
    pub hung_after: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            policy: Policy::Cellular,
            policies: BTreeMap::new(),
            stage_times: BTreeMap::new(),
            fairness: None,
            max_tasks_to_submit: Config::MAX_TASKS_TO_SUBMIT,
            submission_window: None,
            max_requests: 4096,
            max_requests_per_model: None,
            max_memory_bytes: 4 << 30,
            memory_wait: Duration::from_secs(1),
            max_sessions: 4096,
            session_idle: Duration::from_secs(300),
            default_timeout: None,
            hung_after: Duration::from_secs(60),
        }
    }
}

impl EngineConfig {
    /// The policy of the model of that name.
    pub fn policy_of(&self, model: &str) -> Policy {
        self.policies.get(model).copied().unwrap_or(self.policy)
    }

    /// The most requests of one model in flight, where there are `models`.
    pub(crate) fn max_requests_per_model(&self, models: usize) -> usize {
        let default =
            if models > 1 { self.max_requests.div_ceil(4) * 3 } else { self.max_requests };
        self.max_requests_per_model.unwrap_or(default).min(self.max_requests)
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
