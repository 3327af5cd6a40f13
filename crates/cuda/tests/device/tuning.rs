//! Mappings of persistent kernels: how they are measured, and what plans of them do.

use std::collections::HashMap;
use std::sync::Arc;

use batchmaker_cuda::kernels::persistent::PersistentKernel;
use batchmaker_cuda::kernels::quantum::QuantumKernel;
use batchmaker_cuda::mapping::{CostModel, Limits, Mapping};
use batchmaker_cuda::{Compile, CudaConfig, CudaDevice, KernelTimer};
use batchmaker_device::{BatchSize, Device, DeviceError, ExecutionPlan};
use batchmaker_engine::NamedTensor;
use batchmaker_graph::{
    Cell, CellBody, CellIdentity, CellType, CellTypeId, Precision, RecurrentCell, RecurrentKind,
    RnnActivation,
};

use crate::emulated::{Emulated, compile_for_cell, config, in_process, quantum};
use crate::engine::engine;
use crate::models::{Kind, load_all};

/// The kernels that are made for cells, with a launch for each task or with launches that run task after task.
fn persistent(emulated: Option<&Emulated>) -> CudaConfig {
    let quantum = emulated.map(quantum);
    CudaConfig { persistent: Some(compile_for_cell as Compile), quantum, ..config(1) }
}

/// The emulated GPU's.
fn limits() -> Limits {
    Limits::of(4)
}

fn lstm() -> RecurrentKind {
    RecurrentKind::Lstm { p: None, bytes: None }
}

fn cell(kind: RecurrentKind, hidden_size: usize) -> CellType {
    let gates = kind.gates();
    let numbers = |count: usize| (0..count).map(|at| ((at * 7919) % 997) as f32 / 1e4).collect();
    let cell = Cell::recurrent(RecurrentCell {
        input_size: 3,
        hidden_size,
        w: numbers(gates * hidden_size * 3),
        r: numbers(gates * hidden_size * hidden_size),
        b: Some(numbers(2 * gates * hidden_size)),
        lookup: None,
        kind,
    });
    cell_type(cell)
}

fn cell_type(cell: Cell) -> CellType {
    CellType {
        name: "measured".to_owned(),
        identity: cell.identity(),
        cell: Arc::new(cell),
        stage: 0,
        max_batch_size: 64,
        priorities: Vec::new(),
    }
}

fn plan(mapping: &str) -> ExecutionPlan {
    ExecutionPlan::new(format!("{{\"mapping\":\"{mapping}\"}}"))
}

fn mapping_of(plan: &ExecutionPlan) -> Mapping {
    let text = plan.text().strip_prefix("{\"mapping\":\"").unwrap();
    text.strip_suffix("\"}").unwrap().parse().unwrap()
}

/// Two mappings of the same lanes for a cell: the one that it has without a plan, and another one.
fn mappings(kind: &RecurrentKind, hidden: usize, with_quanta: bool) -> [Mapping; 2] {
    let model = CostModel { multiprocessors: 4.0, ..CostModel::TITAN_V };
    let ranked = |rows: usize| -> Vec<Mapping> {
        let all = PersistentKernel::ranked(kind, (hidden, rows), limits(), &model).into_iter();
        let suits = |of: &PersistentKernel| {
            !with_quanta || QuantumKernel::new(*of).unwrap().fits(rows, limits())
        };
        all.filter(suits).map(|of| of.mapping()).collect()
    };
    let ranked: Vec<Mapping> = [16, 8, 4, 2, 1].into_iter().flat_map(ranked).collect();
    let own = ranked[0];
    let other = ranked.iter().find(|of| of.lanes == own.lanes && **of != own);
    [own, *other.unwrap()]
}

/// A measurement says in which mapping the kernel runs fastest, and the device takes it.
fn measure(emulated: &'static Emulated) {
    // A device measures the constants of the cost model once.
    let [per_task, in_quanta] =
        [None, Some(emulated)].map(|of| CudaDevice::new(persistent(of)).unwrap());
    let kinds = [(lstm(), &per_task), (lstm(), &in_quanta), (reset_before(), &per_task)];
    for (id, (kind, device)) in (0..).map(CellTypeId).zip(kinds) {
        let cell = cell(kind.clone(), 24);
        let mut plans = Vec::new();
        for rows in [1, 5] {
            let measured = device.measure(&cell, BatchSize::rows(rows)).unwrap();
            assert!(measured.ns > 0.0 && measured.steps.is_none(), "{measured:?}");
            let plan = measured.plan.expect("the cell has kernels in mappings");
            assert!(device.describe(&plan).unwrap().contains("groups of"));
            let kernel = PersistentKernel::new(&kind, 24, mapping_of(&plan)).unwrap();
            assert!(kernel.fits(1, limits()), "{plan:?}");
            plans.push((rows, plan));
        }
        device.plan(cell.identity, &plans).unwrap();
        device.materialize(id, &cell).unwrap();
        // A cell that is there takes plans, too.
        device.plan(cell.identity, &plans[..1]).unwrap();
        device.plan(cell.identity, &[]).unwrap();
    }
    // In bfloat16 all plans have the same warps.
    let bf16 = cell_type(Cell { precision: Precision::Bf16, ..(*cell(lstm(), 24).cell).clone() });
    let plan = |rows| per_task.measure(&bf16, BatchSize::rows(rows)).unwrap().plan.unwrap();
    let plans = [1, 9].map(|rows| (rows, plan(rows)));
    let [few, many] = plans.each_ref().map(|(_, plan)| mapping_of(plan).groups);
    assert_eq!(few, many);
    per_task.plan(bf16.identity, &plans).unwrap();
    per_task.materialize(CellTypeId(3), &bf16).unwrap();
    assert_eq!(emulated.reports(), [""; 0]);
}

fn reset_before() -> RecurrentKind {
    RecurrentKind::Gru { linear_before_reset: false }
}

/// Other cells, and all cells without a compiler, have no plans.
fn nothing_to_plan(_: &'static Emulated) {
    let shared = CudaDevice::new(config(1)).unwrap();
    let f32 = cell(lstm(), 24);
    let without = shared.measure(&f32, BatchSize::rows(2)).unwrap();
    assert_eq!(without.plan, None);
    // A profile may be older than the choice of kernels.
    let [own, _] = mappings(&lstm(), 24, false).map(|of| plan(&of.to_string()));
    shared.plan(f32.identity, &[(1, own)]).unwrap();
    shared.materialize(CellTypeId(0), &f32).unwrap();
}

/// Cells that are materialised later run by their plan, and replies have the bits that they have without.
fn planned(emulated: &'static Emulated, quanta: Option<&'static Emulated>) {
    let (_, registry) = load_all();
    let mut plans: HashMap<CellIdentity, Mapping> = HashMap::new();
    let mut names = Vec::new();
    for of in registry.cell_types() {
        let CellBody::Recurrent(recurrent) = &of.cell.body else { continue };
        if recurrent.hidden_size <= 16 && matches!(recurrent.kind, RecurrentKind::Lstm { .. }) {
            let [own, other] = mappings(&recurrent.kind, recurrent.hidden_size, quanta.is_some());
            let name = |of: Mapping| format!("_lstm_{}_{of}", recurrent.hidden_size);
            names.push([name(own), name(other)]);
            plans.insert(of.identity, other);
        }
    }
    assert!(!plans.is_empty());
    let replies = |device: CudaDevice| -> Vec<Vec<NamedTensor>> {
        let engine = engine(device, 1);
        let kinds = [Kind::Stacked, Kind::Tagged, Kind::Bidirectional];
        let submit = |kind: Kind| engine.submit(kind.model(), kind.request(7, 1)).unwrap();
        let replies = kinds.map(|kind| submit(kind).wait().unwrap().outputs).into();
        engine.shutdown();
        replies
    };
    let new = || CudaDevice::new(persistent(quanta)).unwrap();
    let launched = |name: &String| {
        let made = if quanta.is_some() { "quantum" } else { "persistent" };
        emulated.asked().contains(&format!("a launch of {made}{name}"))
    };
    let without = replies(new());
    let were_launched: Vec<_> = names.iter().map(|of| of.each_ref().map(&launched)).collect();
    assert!(were_launched.contains(&[true, false]), "{names:?}: {:?}", emulated.asked());
    assert!(were_launched.iter().all(|&[_, other]| !other));
    let device = new();
    for (&cell, mapping) in &plans {
        device.plan(cell, &[(1, plan(&mapping.to_string()))]).unwrap();
    }
    assert_eq!(replies(device), without);
    for ([_, other], [own, _]) in names.iter().zip(were_launched) {
        assert_eq!(launched(other), own, "{other}: {:?}", emulated.asked());
    }
    assert_eq!(emulated.reports(), [""; 0]);
}

/// Plans that the device did not write are refused: at once, or where the cell is made whose they are.
fn wrong_plans(_: &'static Emulated) {
    let cell = cell(lstm(), 24);
    let refused = |result: Result<(), DeviceError>, says: &str| match result {
        Err(DeviceError::Resources(reason)) => assert!(reason.contains(says), "{reason}"),
        other => panic!("{says}: {other:?}"),
    };
    let [own, other] = mappings(&lstm(), 24, false);
    let [text, other] = [own, other].map(|of| of.to_string());
    let lanes = own.lanes;
    let device = CudaDevice::new(persistent(None)).unwrap();
    let set = |plans: &[(usize, ExecutionPlan)]| device.plan(cell.identity, plans);
    refused(set(&[(1, ExecutionPlan::new("units"))]), "none of these GPUs");
    refused(set(&[(1, plan("32x2"))]), "one is written as 32x2_16x8");
    refused(set(&[(1, plan("4x1_128x16"))]), "does not fit the GPU");
    let half = Mapping { lanes: lanes / 2, groups: 2 * own.groups, ..own }.to_string();
    let both = [(1, plan(&text)), (4, plan(&half))];
    refused(set(&both), "lanes, where the plan of another batch has");
    // Of no known cell, it may be right.
    for (wrong, says) in [
        (half.as_str(), "where the order of its sums takes"),
        (&Mapping { tile_height: 999, ..own }.to_string(), "does not fit the GPU"),
    ] {
        set(&[(1, plan(wrong))]).unwrap();
        let made = device.materialize(CellTypeId(0), &cell).map(drop);
        refused(made, "the plan of cell measured: ");
        set(&[(1, plan(&text))]).unwrap();
        device.materialize(CellTypeId(0), &cell).unwrap();
        refused(set(&[(1, plan(wrong))]), says);
        device.release(CellTypeId(0));
    }
    // The last plan that was taken holds.
    set(&[(1, plan(&other))]).unwrap();
    device.materialize(CellTypeId(0), &cell).unwrap();
    let tree = load_all().1.cell_types().iter().find_map(|of| match &of.cell.body {
        CellBody::Tree(_) => Some(of.clone()),
        _ => None,
    });
    let tree = tree.unwrap();
    device.plan(tree.identity, &[(1, plan(&text))]).unwrap();
    let made = device.materialize(CellTypeId(1), &tree).map(drop);
    refused(made, "a mapping, where the cell has no kernels that take one");
}

/// Steps of all cells have a time; kernels whose blocks do not run at a time have none.
fn steps_are_timed(emulated: &'static Emulated) {
    let timer = KernelTimer::new(&persistent(None)).unwrap();
    assert_eq!(timer.limits().in_registers(), limits());
    let kinds = [
        lstm(),
        RecurrentKind::Gru { linear_before_reset: true },
        reset_before(),
        RecurrentKind::Rnn { activation: RnnActivation::Tanh },
    ];
    for kind in kinds {
        let [own, _] = mappings(&kind, 20, false);
        let kernel = PersistentKernel::new(&kind, 20, own).unwrap();
        for kernel in [Some(kernel), kernel.with_one_barrier()].into_iter().flatten() {
            for (rows, steps) in [(1, 1), (7, 4)] {
                let us = timer.step_us(kernel, rows, steps).unwrap().unwrap();
                assert!(us.is_finite() && us > 0.0, "{}: {us}", kernel.name());
            }
        }
    }
    let wide = Mapping { tile_width: 1, tile_height: 1, groups: 4, lanes: 32 };
    let wide = PersistentKernel::new(&lstm(), 80, wide).unwrap();
    assert_eq!(timer.step_us(wide, 1, 3), Ok(None));
    let none = KernelTimer::new(&config(1)).err().unwrap().to_string();
    assert_eq!(none, "no compiler of the kernels to time");
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A launch that fails is an error, not a time.
fn a_launch_fails(emulated: &'static Emulated) {
    let timer = KernelTimer::new(&persistent(None)).unwrap();
    let [own, _] = mappings(&lstm(), 20, false);
    let kernel = PersistentKernel::new(&lstm(), 20, own).unwrap();
    emulated.configure("fail_launch", "3");
    match timer.step_us(kernel, 2, 3) {
        Err(DeviceError::Lost(reason)) => assert!(reason.contains("LAUNCH_FAILED"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// The micro-benchmarks run, and constants follow from their times.
fn constants_are_fitted(emulated: &'static Emulated) {
    let model = KernelTimer::new(&persistent(None)).unwrap().fit().unwrap();
    println!("{model:?}");
    let CostModel { multiprocessors, schedulers, few_lanes, .. } = model;
    assert_eq!((multiprocessors, schedulers, few_lanes), (4.0, 4, 16));
    let measured = [
        model.l2_bytes,
        model.warps_growth,
        model.part_growth,
        model.full,
        model.full_factor,
        model.shuffle,
        model.sums_growth,
        model.full_sums,
        model.full_sums_power,
    ];
    assert!(measured.iter().all(|of| of.is_finite() && *of > 0.0), "{model:?}");
    assert_eq!(emulated.reports(), [""; 0]);
}

#[test]
fn measured_mappings_are_plans() {
    in_process("tuning::measured_mappings_are_plans", 1, measure);
}

#[test]
fn cells_without_mappings_have_no_plans() {
    in_process("tuning::cells_without_mappings_have_no_plans", 1, nothing_to_plan);
}

#[test]
fn cells_run_by_their_plans() {
    in_process("tuning::cells_run_by_their_plans", 1, |emulated| planned(emulated, None));
}

#[test]
fn quanta_run_by_their_plans() {
    let planned = |emulated| planned(emulated, Some(emulated));
    in_process("tuning::quanta_run_by_their_plans", 1, planned);
}

#[test]
fn plans_of_others_are_refused() {
    in_process("tuning::plans_of_others_are_refused", 1, wrong_plans);
}

#[test]
fn steps_of_all_cells_are_timed() {
    in_process("tuning::steps_of_all_cells_are_timed", 1, steps_are_timed);
}

#[test]
fn a_launch_that_fails_has_no_time() {
    in_process("tuning::a_launch_that_fails_has_no_time", 1, a_launch_fails);
}

#[test]
fn constants_of_the_cost_model() {
    in_process("tuning::constants_of_the_cost_model", 1, constants_are_fitted);
}
