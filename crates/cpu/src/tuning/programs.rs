//! Times of programs, run by the executor on inputs that hold any numbers.

use std::time::{Duration, Instant};

use batchmaker_device::{BatchSize, DeviceError, Measurement, OperatorMeasurement};
use batchmaker_executor::{
    ExecutorError, ExecutorThreads, OperatorTime, OperatorTimer, SequenceProgram,
};
use batchmaker_graph::{CellBody, CellType, Operation, OperationBody, RowSpec};

use crate::config::CpuConfig;
use crate::tuning::machine_model::MachineModel;

/// Runs of a batch that are timed at least, and for how long.
const RUNS_MIN: usize = 3;
const TIME: Duration = Duration::from_millis(20);

/// Runs whose operators are timed.
const OPERATOR_RUNS: usize = 15;

/// A cell that takes whole sequences, loaded to be timed.
pub(crate) struct SequenceTimer {
    program: SequenceProgram,
    threads: ExecutorThreads,
}

impl SequenceTimer {
    /// Loads the cell; none if it is of another kind.
    pub(crate) fn new(config: &CpuConfig, cell: &CellType) -> Option<Result<Self, DeviceError>> {
        let CellBody::Sequence(sequence) = &cell.cell.body else { return None };
        let (inputs, outputs) = (&cell.cell.inputs, &cell.cell.outputs);
        let program =
            SequenceProgram::with(sequence, inputs, outputs, &config.program_options(&cell.cell));
        let threads = ExecutorThreads::with_threads(config.threads_per_worker);
        let program = program.map(|program| program.bound_batches(config.batch_bytes_max));
        Some(program.map(|program| Self { program, threads }).map_err(failed(cell)))
    }

    /// The median time of a batch.
    pub(crate) fn measure(
        &self,
        cell: &CellType,
        batch: BatchSize,
    ) -> Result<Measurement, DeviceError> {
        let run = || self.program.time(batch.rows, batch.steps, &self.threads);
        // The first fills caches.
        let (_, steps) = run().map_err(failed(cell))?;
        let (start, mut times) = (Instant::now(), Vec::new());
        while times.len() < RUNS_MIN || start.elapsed() < TIME {
            times.push(run().map_err(failed(cell))?.0);
        }
        times.sort_unstable();
        let ns = times[times.len() / 2].as_secs_f64() * 1e9;
        Ok(Measurement { ns, plan: None, steps: Some(steps) })
    }
}

/// The times of the operators of a cell's programs, by the own executor; none of a cell that has no program.
pub(crate) fn measure_operators(
    config: &CpuConfig,
    machine: &MachineModel,
    cell: &CellType,
    batch: BatchSize,
) -> Result<Vec<OperatorMeasurement>, DeviceError> {
    let (inputs, outputs) = (&cell.cell.inputs, &cell.cell.outputs);
    let packing = config.packing(&cell.cell);
    let timers = match &cell.cell.body {
        CellBody::Program(program) => {
            vec![OperatorTimer::of_rows(program, inputs, outputs, packing)]
        }
        CellBody::Sequence(cell) => {
            vec![OperatorTimer::of_sequences(cell, inputs, outputs, packing)]
        }
        CellBody::Composite(composite) => {
            let row = |&register: &usize| composite.registers[register].clone();
            let rows = |operation: &Operation| -> [Vec<RowSpec>; 2] {
                let reads = operation.reads.iter().flatten().map(row).collect();
                [reads, operation.writes.iter().map(row).collect()]
            };
            let timer = |operation: &Operation| match &operation.body {
                OperationBody::Program(program) => {
                    let [inputs, outputs] = rows(operation);
                    Some(OperatorTimer::of_rows(program, &inputs, &outputs, packing))
                }
                OperationBody::Step(_) | OperationBody::LinearArgMax(_) => None,
            };
            composite.operations.iter().filter_map(timer).collect()
        }
        CellBody::Recurrent(_) | CellBody::Tree(_) => return Ok(Vec::new()),
    };
    let threads = config.threads_per_worker;
    let pool = ExecutorThreads::with_threads(threads);
    let mut times = Vec::new();
    for timer in timers {
        let run = |timer: OperatorTimer| timer.run(batch.rows, batch.steps, OPERATOR_RUNS, &pool);
        times.extend(timer.and_then(run).map_err(failed(cell))?);
    }
    let flops = [config.isa.into(), packing].map(MachineModel::flops);
    let [of_f32, of_reduced] =
        flops.map(|flops| flops.map_err(|error| DeviceError::Resources(error.to_string())));
    let (of_f32, of_reduced) = (of_f32?, of_reduced?);
    let measured = |of: OperatorTime| {
        let bytes = of.bytes as f64 / threads as f64;
        let of_memory =
            if bytes > 0.0 { bytes / machine.bandwidth(bytes, threads > 1) } else { 0.0 };
        let flops = if of.is_reduced { of_reduced } else { of_f32 };
        let of_arithmetic = of.operations as f64 / (flops * threads as f64);
        OperatorMeasurement {
            operators: of.operators,
            output: of.output,
            ns: of.time.as_secs_f64() * 1e9,
            ns_min: of_memory.max(of_arithmetic),
        }
    };
    Ok(times.into_iter().map(measured).collect())
}

fn failed(cell: &CellType) -> impl Fn(ExecutorError) -> DeviceError + use<> {
    let cell = cell.name.clone();
    move |error| DeviceError::Cell { cell: cell.clone(), reason: error.to_string() }
}
