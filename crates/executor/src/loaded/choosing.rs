//! Loads a program in the executor that is wanted, or in the faster one.

use std::time::Duration;

use batchmaker_graph::Program;
use batchmaker_kernels::Precision;
use rten_onnx::onnx::ModelProto;

use super::{Engine, Loaded};
use crate::error::ExecutorError;
use crate::executor_choice::{Executor, ProgramOptions};
use crate::faster::why_own;
use crate::onnx_runtime::{OnnxRuntime, OnnxRuntimeProgram};
use crate::port::Port;
use crate::probe::{Probe, trial_input};
use crate::program_file::read;
use crate::sections::has_byte_products;
use crate::single_row::SingleRow;
use crate::threads::ExecutorThreads;
use crate::working_bytes::WorkingBytes;

/// The factor by which a program that did not take the steps of the probe is tried with more.
const MORE_STEPS: usize = 16;

/// The steps of a sequence whose time is taken, if it takes no more bytes.
const STEPS_OF_REQUEST: usize = 64;
const BYTES_OF_REQUEST: u64 = 256 << 20;

impl Loaded {
    pub(super) fn load(
        program: &Program,
        mut inputs: Vec<Port>,
        mut outputs: Vec<Port>,
        options: &ProgramOptions,
    ) -> Result<Self, ExecutorError> {
        let error =
            |reason: String| ExecutorError::Load { summary: program.summary.clone(), reason };
        let (file, probe) = read(program, &mut inputs, &mut outputs)?;
        let Executor::OnnxRuntime(runtime) = &options.executor else {
            return Self::in_own(program, (file, probe), inputs, outputs, options.packing);
        };
        let is_f32 = options.packing.precision == Precision::F32 || !program.has_products;
        let theirs = match is_f32 {
            true => {
                let ports = [&inputs, &outputs];
                Self::in_onnx_runtime(runtime, program, &file, probe.as_ref(), ports)
            }
            false => Err("its weights are not f32".to_owned()),
        };
        if theirs.is_ok() && !runtime.is_where_faster() {
            return theirs.map_err(error);
        }
        let own = Self::in_own(program, (file, probe), inputs, outputs, options.packing);
        match (theirs, own) {
            (Ok(theirs), Ok(own)) => Ok(Self::faster(own, theirs, runtime)),
            (Ok(theirs), Err(_)) => Ok(theirs),
            (Err(reason), own) => Ok(own?.refused(reason)),
        }
    }

    /// The one that is faster on the threads that `runtime` is to use.
    fn faster(own: Self, theirs: Self, runtime: &OnnxRuntime) -> Self {
        let [all, one] = [runtime.threads_of_all(), runtime.threads_of_one()];
        let steps = own.usual_steps(&one).and(theirs.usual_steps(&one));
        let time = |count: usize| -> Result<[Duration; 2], ExecutorError> {
            let threads = if count == 1 { &all } else { &one };
            let of = |program: &Self| -> Result<Duration, ExecutorError> {
                // As many runs as a batch of them would be.
                let runs = count.div_ceil(program.batch_max(steps));
                Ok(program.time(count / runs, steps, threads)?.0 * runs as u32)
            };
            Ok([of(&own)?, of(&theirs)?])
        };
        match why_own(own.is_batched(), time) {
            Some(reason) => own.refused(reason),
            None => theirs,
        }
    }

    /// The program in ONNX Runtime.
    ///
    /// # Errors
    /// Why another executor is to run it: that does not take it or gives something else than its ports, or it has products of bytes,
    /// which that would compute as FLOAT.
    fn in_onnx_runtime(
        runtime: &OnnxRuntime,
        program: &Program,
        file: &ModelProto,
        probe: Option<&Probe>,
        [inputs, outputs]: [&Vec<Port>; 2],
    ) -> Result<Self, String> {
        if has_byte_products(file) {
            return Err("it multiplies bytes".to_owned());
        }
        let graph = file.graph.as_ref().ok_or("it has no graph")?;
        let mut working_bytes = WorkingBytes::new(graph, probe, &SingleRow::Plain, inputs, outputs);
        if runtime.is_alone() {
            working_bytes.run_alone();
        }
        let loaded = OnnxRuntimeProgram::new(runtime, program.bytes.clone())?;
        let known_steps = probe.map(|probe| probe.span);
        let ports = [inputs.clone(), outputs.clone()];
        let mut loaded = Self::with(Engine::OnnxRuntime(loaded), ports, working_bytes, known_steps);
        let mut usual = None;
        if let Some(probe) = probe {
            // Windows that rten takes may be too long for ONNX Runtime.
            loaded
                .try_one(probe.span)
                .or_else(|reason| loaded.try_one(probe.span * MORE_STEPS).map_err(|_| reason))?;
            let threads = ExecutorThreads::new();
            let time = loaded.time(1, loaded.usual_steps(&threads), &threads);
            usual =
                time.ok().map(|(time, steps)| (time, loaded.bytes(1, &loaded.spans(Some(steps)))));
        }
        if let Engine::OnnxRuntime(program) = &mut loaded.engine {
            program.prepare(usual)?;
        }
        Ok(loaded)
    }

    /// As many steps as sequences of requests may have, to take the time of; none if the program does not take them, or has no steps.
    pub(crate) fn usual_steps(&self, threads: &ExecutorThreads) -> Option<usize> {
        let steps = Some(STEPS_OF_REQUEST);
        let has_steps = self.inputs.iter().any(|port| port.axes.steps);
        let takes = || {
            self.working_bytes.of_one(&self.spans(steps)) <= BYTES_OF_REQUEST
                && self.time(1, steps, threads).is_ok()
        };
        steps.filter(|_| has_steps && takes())
    }

    /// Runs one row or sequence of `span` steps.
    ///
    /// # Errors
    /// It fails.
    fn try_one(&self, span: usize) -> Result<(), String> {
        let spans = self.spans(Some(span));
        let input = |(port, &steps): (&Port, &u32)| {
            trial_input(port, &port.shape(1, steps as usize), steps as usize)
        };
        let inputs = self.inputs.iter().zip(&spans).map(input).collect();
        match self.run(1, &spans, inputs, &ExecutorThreads::new()) {
            // Outputs may have other steps, but not another type.
            Err(ExecutorError::Output { port, got, expected })
                if self.outputs[port].axes.steps
                    && got.split(' ').next() == expected.split(' ').next() =>
            {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
            Ok(_) => Ok(()),
        }
    }
}
