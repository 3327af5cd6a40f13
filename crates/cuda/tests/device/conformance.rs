//! The device conforms, with one GPU and with two.

use std::sync::Arc;

use batchmaker_cuda::{Compile, CudaConfig, CudaDevice, Quantum};
use batchmaker_device::conformance::{self, Instance, Subject};
use batchmaker_graph::Precision;

use crate::emulated::{Emulated, compile_for_cell, config, in_process, quantum};

struct Cuda {
    emulated: &'static Emulated,
    gpus: usize,
    /// What compiles kernels that are made for a cell, if such are used.
    persistent: Option<Compile>,
    /// How long launches run task after task, if such are used.
    quantum: Option<Quantum>,
    /// [`CudaConfig::block_bytes`].
    block_bytes: usize,
}

impl Subject for Cuda {
    fn name(&self) -> String {
        format!("{} emulated GPUs", self.gpus)
    }

    fn make(&self) -> Instance {
        let emulated = self.emulated;
        let lose = move |worker: batchmaker_graph::WorkerId| {
            emulated.configure("lose_device", &worker.index().to_string());
        };
        let Self { persistent, quantum, block_bytes, .. } = *self;
        let config = CudaConfig { persistent, quantum, block_bytes, ..config(self.gpus) };
        let device = Arc::new(CudaDevice::new(config).unwrap());
        Instance { device, lose: Some(Box::new(lose)) }
    }

    fn workers(&self) -> usize {
        self.gpus
    }

    fn precisions(&self) -> &[Precision] {
        &CudaDevice::PRECISIONS
    }

    /// The general executor has integers of 32 bits.
    fn failing_input(&self) -> Option<i64> {
        Some(1 << 40)
    }
}

impl Cuda {
    fn new(emulated: &'static Emulated, gpus: usize) -> Self {
        let block_bytes = config(gpus).block_bytes;
        Self { emulated, gpus, persistent: None, quantum: None, block_bytes }
    }

    /// Runs the cases whose group is chosen, and checks which ones are skipped.
    fn check(&self, is_chosen: fn(&str) -> bool) {
        self.emulated.configure("devices", &self.gpus.to_string());
        let cases = conformance::cases().into_iter().filter(|case| is_chosen(case.name()));
        let summary = conformance::run(self, cases.collect());
        assert!(summary.passed > 0, "no case is chosen");
        let is_expected = |name: &&String| {
            name.starts_with("precisions/int8: ")
                || **name == "streams/steps of a task that goes on"
                || self.persistent.is_none()
                    && **name == "plans/batches run as measured have the same bits"
        };
        let unexpected: Vec<_> = summary.skipped.iter().filter(|name| !is_expected(name)).collect();
        assert!(unexpected.is_empty(), "{unexpected:?} are skipped");
        assert_eq!(self.emulated.reports(), [""; 0]);
    }
}

/// Runs the cases whose group is chosen on some GPUs.
fn check(emulated: &'static Emulated, gpus: usize, is_chosen: fn(&str) -> bool) {
    Cuda::new(emulated, gpus).check(is_chosen);
}

/// The same, with kernels that are made for a cell.
fn check_persistent(emulated: &'static Emulated, gpus: usize, is_chosen: fn(&str) -> bool) {
    let persistent = Some(compile_for_cell as Compile);
    Cuda { persistent, ..Cuda::new(emulated, gpus) }.check(is_chosen);
}

/// The same, with launches that run task after task. In every second process they end soon, so that others go on.
fn check_quanta(emulated: &'static Emulated, gpus: usize, is_chosen: fn(&str) -> bool) {
    let persistent = Some(compile_for_cell as Compile);
    let quantum = Some(quantum(emulated));
    Cuda { persistent, quantum, ..Cuda::new(emulated, gpus) }.check(is_chosen);
}

/// Whether a case needs two workers.
fn is_of_two(name: &str) -> bool {
    name.starts_with("two workers/") || is_loss(name)
}

/// Whether a case is of cells whose weights are rounded.
fn is_of_precisions(name: &str) -> bool {
    name.starts_with("precisions/")
}

/// Whether a case loses a GPU, after which the process has it no more: each has a process of its own.
fn is_loss(name: &str) -> bool {
    name.starts_with("losses/")
}

#[test]
fn one_gpu() {
    let check = |emulated| check(emulated, 1, |name| !is_of_two(name) && !is_of_precisions(name));
    in_process("conformance::one_gpu", 1, check);
}

/// Requests and slots in memory that others had before, as on a GPU.
#[test]
fn memory_is_used_again() {
    let check = |emulated| {
        let cuda = Cuda { block_bytes: 1 << 18, ..Cuda::new(emulated, 1) };
        cuda.check(|name| name.starts_with("lifetimes/") || name.starts_with("ends/"));
    };
    in_process("conformance::memory_is_used_again", 1, check);
}

/// Chains of cells whose weights stay in registers for all steps of a task.
#[test]
fn persistent_kernels() {
    let check = |emulated| {
        check_persistent(emulated, 1, |name| name.starts_with("chains/"));
        let asked = emulated.asked();
        for cell in ["lstm", "gru_reset_after", "gru_reset_before", "rnn_tanh"] {
            let launch = format!("a launch of persistent_{cell}_");
            assert!(asked.iter().any(|of| of.starts_with(&launch)), "{cell}: {asked:?}");
        }
    };
    in_process("conformance::persistent_kernels", 1, check);
}

/// Mappings that are measured, and cells that run by them.
#[test]
fn plans() {
    let check = |emulated| {
        check_persistent(emulated, 1, |name| name.starts_with("plans/"));
        check_quanta(emulated, 1, |name| name.starts_with("plans/"));
    };
    in_process("conformance::plans", 1, check);
}

#[test]
fn persistent_kernels_on_two_gpus() {
    let check = |emulated| {
        check_persistent(emulated, 2, |name| name.starts_with("two workers/"));
    };
    in_process("conformance::persistent_kernels_on_two_gpus", 1, check);
}

/// Whether a case has chains of cells with kernels that run task after task: of some cells, and of their work among that of others.
fn is_of_quanta(name: &str) -> bool {
    let Some((group, case)) = name.split_once('/') else {
        return false;
    };
    let cells = [
        "lstm: ",
        "lstm over an embedding: ",
        "gru, reset after: ",
        "gru, reset before: ",
        "rnn, tanh: ",
    ];
    match group {
        "chains" | "sessions" | "states" => cells.iter().any(|cell| case.starts_with(cell)),
        _ => {
            ["lifetimes", "mixed", "streams", "failures", "rounds", "computed ids"].contains(&group)
        }
    }
}

/// Chains of cells whose weights stay in registers while the batch changes, among work of other cells.
#[test]
fn quanta() {
    let check = |emulated| {
        check_quanta(emulated, 1, is_of_quanta);
        let asked = emulated.asked();
        for cell in ["lstm", "gru_reset_after", "gru_reset_before", "rnn_tanh"] {
            let launch = format!("a launch of quantum_{cell}_");
            assert!(asked.iter().any(|of| of.starts_with(&launch)), "{cell}: {asked:?}");
        }
    };
    in_process("conformance::quanta", 2, check);
}

#[test]
fn quanta_on_two_gpus() {
    let check = |emulated| check_quanta(emulated, 2, |name| is_of_two(name) && !is_loss(name));
    in_process("conformance::quanta_on_two_gpus", 1, check);
}

#[test]
fn precisions() {
    in_process("conformance::precisions", 1, |emulated| check(emulated, 1, is_of_precisions));
}

/// Cells in bfloat16 whose weights stay in registers, for a task and for many.
#[test]
fn precisions_in_registers() {
    let check = |emulated| {
        let is_of_bf16 = |name: &str| name.starts_with("precisions/bf16: ");
        check_persistent(emulated, 1, is_of_bf16);
        check_quanta(emulated, 1, is_of_bf16);
        let asked = emulated.asked();
        for cell in ["lstm", "gru_reset_after", "gru_reset_before", "rnn_tanh"] {
            for kernel in ["persistent", "quantum"] {
                let launch = format!("a launch of {kernel}_{cell}_bf16_");
                assert!(asked.iter().any(|of| of.starts_with(&launch)), "{launch}: {asked:?}");
            }
        }
    };
    in_process("conformance::precisions_in_registers", 1, check);
}

#[test]
fn two_gpus() {
    let check = |emulated| check(emulated, 2, |name| is_of_two(name) && !is_loss(name));
    in_process("conformance::two_gpus", 1, check);
}

#[test]
fn a_gpu_is_lost() {
    let check = |emulated| check(emulated, 2, |name| name == "losses/the other worker goes on");
    in_process("conformance::a_gpu_is_lost", 3, check);
}

#[test]
fn a_state_is_lost() {
    let check =
        |emulated| check(emulated, 2, |name| name == "losses/a state that is lost with its worker");
    in_process("conformance::a_state_is_lost", 3, check);
}
