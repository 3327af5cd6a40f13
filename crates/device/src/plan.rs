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

/// The size of a batch to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// Rows, at least 1; of a cell that takes whole sequences, sequences.
    pub rows: usize,
    /// The steps of each sequence of a cell that takes whole ones; as many as the device knows the cell to take, if none.
    pub steps: Option<usize>,
}

impl BatchSize {
    /// As many rows.
    pub fn rows(rows: usize) -> Self {
        Self { rows, steps: None }
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
    /// The steps that each sequence had, of a cell that takes whole ones.
    pub steps: Option<usize>,
}

/// The time of an operator of a program, or of several that run as one.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorMeasurement {
    /// The operators, by their names in ONNX.
    pub operators: String,
    /// The name of the last tensor that they produce.
    pub output: String,
    /// Nanoseconds of a run.
    pub ns: f64,
    /// The nanoseconds that the machine needs at least, by its arithmetic and its memory.
    pub ns_min: f64,
}

/// Upper bounds of the speed of a cell on a device, for every batch size and every plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofs {
    /// Rows a second that the arithmetic allows; of a chain, steps of one row.
    pub rows_per_s_max: f64,
    /// The nanoseconds that it takes to read the weights once: no batch takes less.
    pub ns_min: f64,
}
