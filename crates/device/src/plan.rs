//! The results of measuring a cell on a device: times, plans and upper bounds of the speed.

/// The configuration in which a device runs batches of some size of a cell. Only devices of the kind that made
/// it can read it ([`Device::describe`](crate::Device::describe)); others keep it, as JSON whose members may
/// change their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExecutionPlan(String);

impl ExecutionPlan {
    /// A plan that a device wrote as one JSON value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The JSON value.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The time of a batch of a cell on a device, and the plan behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The time of a batch in nanoseconds: of one step, of a chain.
    pub ns: f64,
    /// The plan by which the batch ran; none where the device has only one execution strategy, or
    /// chooses one while it runs.
    pub plan: Option<ExecutionPlan>,
}

/// Upper bounds of the speed of a cell on a device, for every batch size and every plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofs {
    /// Rows a second that the arithmetic allows; of a chain, steps of one row.
    pub rows_per_s_max: f64,
    /// The nanoseconds that it takes to read the weights once: no batch takes less.
    pub ns_min: f64,
}
