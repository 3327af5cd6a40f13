//! Placeholder for the simulated device.

/// Placeholder.
#[derive(Debug)]
pub struct SimulatedDevice;
