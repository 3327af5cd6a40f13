//! Measures the time of batches of a cell on this machine, and finds the fastest configuration. It assumes
//! that nothing else runs meanwhile.

use std::sync::Arc;
use std::time::Duration;

use batchmaker_device::{
    BatchSize, CellTimer, Device, DeviceError, Effort, Measurement, OperatorMeasurement, Roofs,
};
use batchmaker_executor::KERNEL_STACK_BYTES;
use batchmaker_graph::{CellBody, CellIdentity, CellType, CellTypeId, Precision, RecurrentCell};
use batchmaker_kernels::KernelError;

use crate::config::CpuConfig;
use crate::strategies::plan::BatchPlan;
use crate::threads::cores::pin;
use crate::tuning::machine_model::MachineModel;
use crate::tuning::performance_model::PerformanceModel;
use crate::tuning::probe::Probe;
use crate::tuning::programs::{SequenceTimer, measure_operators};
use crate::tuning::search::search;
use crate::tuning::trial::Trial;

/// The effort of measuring a cell that has no plans, at each size.
const EFFORT: Effort = Effort { time: Duration::from_millis(20), runs: 4, steps: 6 };

/// The results of earlier measurements that the next one uses: the model of the machine, and the cell at hand,
/// of which batches of other sizes are likely to follow.
#[derive(Default)]
pub(crate) struct Measuring {
    machine: Option<MachineModel>,
    subject: Option<(CellIdentity, Subject)>,
}

/// A cell at hand.
enum Subject {
    /// Its configurations are ranked by the performance model, and the first few are run.
    Ranked(Box<(Trial, Probe)>),
    /// It runs on a device of its own, which tries out how.
    Alone(CellTimer),
    /// It takes whole sequences.
    Sequences(Box<SequenceTimer>),
}

impl Measuring {
    /// See [`Device::measure`]. `new_device` makes a device without cells, for cells that are not recurrent.
    pub(crate) fn measure(
        &mut self,
        config: &CpuConfig,
        new_device: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError>,
        cell: &CellType,
        batch: BatchSize,
    ) -> Result<Measurement, DeviceError> {
        if self.subject.as_ref().is_some_and(|(identity, _)| *identity != cell.identity) {
            self.subject = None;
        }
        // First: the model is that of a machine that does nothing else.
        if matches!(cell.cell.body, CellBody::Recurrent(_)) {
            self.machine(config)?;
        }
        if self.subject.is_none() {
            self.subject = Some((cell.identity, Subject::new(config, new_device, cell)?));
        }
        match (&mut self.subject, &self.machine) {
            (Some((_, Subject::Ranked(ranked))), Some(machine)) => {
                let (trial, probe) = &mut **ranked;
                let shape = trial.shape();
                let model = PerformanceModel { machine, probe, shape: &shape };
                let found = search(&model, trial, batch.rows, config.threads_per_worker);
                let (found, ns) = found.map_err(no_threads)?;
                let plan = BatchPlan { strategy: found.strategy, tiling: found.tiling };
                Ok(Measurement { ns, plan: Some(plan.write()), steps: None })
            }
            (Some((_, Subject::Alone(alone))), _) => {
                let ns = 1e9 * pinned(config, || batch_s(alone, cell, batch.rows))?;
                Ok(Measurement { ns, plan: None, steps: None })
            }
            (Some((_, Subject::Sequences(sequences))), _) => sequences.measure(cell, batch),
            _ => unreachable!(
                "the machine is measured before a trial, and a cell at hand before its batches"
            ),
        }
    }

    /// See [`Device::measure_operators`].
    pub(crate) fn measure_operators(
        &mut self,
        config: &CpuConfig,
        cell: &CellType,
        batch: BatchSize,
    ) -> Result<Vec<OperatorMeasurement>, DeviceError> {
        let machine = self.machine(config)?;
        measure_operators(config, machine, cell, batch)
    }

    /// See [`Device::roofs`].
    pub(crate) fn roofs(&mut self, config: &CpuConfig, cell: &CellType) -> Option<Roofs> {
        let CellBody::Recurrent(RecurrentCell { w, r, .. }) = &cell.cell.body else { return None };
        let (weights, threads) = (w.len() + r.len(), config.threads_per_worker);
        let precision = cell.cell.precision;
        let machine = self.machine(config).ok()?;
        let flops = MachineModel::flops(config.packing(&cell.cell)).ok()?;
        let bytes = match precision {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
            Precision::Int8 => 1,
        };
        let bytes_a_thread = (weights * bytes) as f64 / threads as f64;
        Some(Roofs {
            rows_per_s_max: flops * threads as f64 / (2 * weights) as f64 * 1e9,
            ns_min: bytes_a_thread / machine.bandwidth(bytes_a_thread, threads > 1),
        })
    }

    /// The model of the machine, measured the first time.
    fn machine(&mut self, config: &CpuConfig) -> Result<&MachineModel, DeviceError> {
        if self.machine.is_none() {
            let machine = MachineModel::measure(config.isa, config.threads_per_worker);
            let machine = machine.map_err(|error| DeviceError::Resources(error.to_string()))?;
            self.machine = Some(machine);
        }
        Ok(self.machine.as_ref().expect("it is measured"))
    }
}

impl Subject {
    fn new(
        config: &CpuConfig,
        new_device: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError>,
        cell: &CellType,
    ) -> Result<Self, DeviceError> {
        let failed = |reason: String| DeviceError::Cell { cell: cell.name.clone(), reason };
        let kernel = |error: KernelError| failed(error.to_string());
        if let Some(sequences) = SequenceTimer::new(config, cell) {
            return Ok(Self::Sequences(Box::new(sequences?)));
        }
        match &cell.cell.body {
            CellBody::Recurrent(recurrent) => {
                let packing = config.packing(&cell.cell);
                let probe = Probe::measure(packing, recurrent).map_err(kernel)?;
                let trial = Trial::new(packing, recurrent).map_err(kernel)?;
                Ok(Self::Ranked(Box::new((trial, probe))))
            }
            _ => {
                let device = new_device()?;
                device.materialize(CellTypeId(0), cell)?;
                Ok(Self::Alone(CellTimer::new(device)?))
            }
        }
    }
}

/// Seconds of a batch.
fn batch_s(alone: &mut CellTimer, cell: &CellType, rows: usize) -> Result<f64, DeviceError> {
    alone.batch_s(CellTypeId(0), cell, rows, EFFORT)
}

/// Calls `measure` in a thread that is put on its core.
fn pinned(
    config: &CpuConfig,
    measure: impl FnOnce() -> Result<f64, DeviceError> + Send,
) -> Result<f64, DeviceError> {
    let run = || {
        if config.pin_threads {
            pin(0);
        }
        measure()
    };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("measured".to_owned()).stack_size(KERNEL_STACK_BYTES);
        let thread = thread.spawn_scoped(scope, run).map_err(no_threads)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn no_threads(error: std::io::Error) -> DeviceError {
    DeviceError::Resources(format!("no thread: {error}"))
}
