//! The suite on a plain device that computes with the reference: each worker has a memory and a thread
//! of its own, reports steps as they are done, and can be lost; values are bounded. So the cases are
//! tested that no CPU plays, and another device of this kind has an example to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use batchmaker_device::conformance::{Instance, Subject, SuiteProgram, run_all, run_program};
use batchmaker_device::reference::{self, Row};
use batchmaker_device::{
    Bell, Capabilities, Chain, Completion, Device, DeviceError, Materialized, Measurement, Origin,
    Plan, Read, Roster, Runner, StatePlace, TaskDone, TaskQueue,
};
use batchmaker_graph::{
    BatchedTask, Cell, CellBody, CellGraph, CellIdentity, CellType, CellTypeId, Item, Join,
    RequestId, RowSpec, Rows, RunIndex, SinkTime, SlotId, StatePlacement, Stopped, Tensor,
    TensorData, ValueIndex, Work, WorkerId,
};

/// Fails a task.
const POISON: i64 = -7;

/// Bytes of all values.
const BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct PlainDevice {
    shared: Mutex<Shared>,
    lost: [AtomicBool; 2],
}

/// Weights and values. States are a worker's own by their key.
#[derive(Default)]
struct Shared {
    cells: BTreeMap<CellTypeId, KnownCell>,
    requests: BTreeMap<RequestId, Request>,
    /// The step that a state is for, and its rows.
    states: BTreeMap<(WorkerId, CellTypeId, SlotId), (u32, Vec<Row>)>,
    bytes: usize,
}

struct KnownCell {
    cell: Arc<Cell>,
    identity: CellIdentity,
    count: usize,
}

struct Request {
    graph: Arc<CellGraph>,
    values: Vec<TensorData>,
    ended: BTreeSet<RunIndex>,
}

/// A chain on a roster, and whether its state is in this worker's memory yet.
struct Member {
    chain: Chain,
    has_state: bool,
}

impl AsRef<Chain> for Member {
    fn as_ref(&self) -> &Chain {
        &self.chain
    }
}

impl PlainDevice {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }
}

impl Request {
    fn elements(&self, value: ValueIndex, rows: Range<usize>) -> Range<usize> {
        let elements = self.graph.values()[value.index()].row.elements();
        rows.start * elements..rows.end * elements
    }

    fn range(&self, rows: &Rows, node: u32) -> Range<usize> {
        let first = rows.row(node);
        self.elements(rows.value, first..first + rows.span as usize)
    }

    fn read(&self, rows: &Rows, node: u32) -> Row {
        Row::of(&self.values[rows.value.index()], self.range(rows, node))
    }

    fn write(&mut self, rows: &Rows, node: u32, row: &Row) {
        let range = self.range(rows, node);
        let value = &mut self.values[rows.value.index()];
        match (row.to_data(value.element()), value) {
            (TensorData::F32(from), TensorData::F32(to)) => to[range].copy_from_slice(&from),
            (TensorData::I64(from), TensorData::I64(to)) => to[range].copy_from_slice(&from),
            (TensorData::I32(from), TensorData::I32(to)) => to[range].copy_from_slice(&from),
            (TensorData::Bool(from), TensorData::Bool(to)) => to[range].copy_from_slice(&from),
            _ => unreachable!("a row of a value is of its type"),
        }
    }
}

/// What a node computes, each element rounded to its type.
fn outputs(cell: &Cell, inputs: &[Row], states: &[Row]) -> Result<Vec<Row>, Arc<str>> {
    if inputs.first() == Some(&Row::Int(vec![POISON])) {
        return Err("poisoned".into());
    }
    let outputs = reference::outputs(cell, inputs, states, &run_program);
    let rounded = |(row, spec): (Row, &RowSpec)| {
        let data = row.to_data(spec.element);
        Row::of(&data, 0..data.len())
    };
    Ok(outputs.ok_or("no such program")?.into_iter().zip(&cell.outputs).map(rounded).collect())
}

impl Shared {
    fn joining(&self, join: &Join) -> Member {
        let request = &self.requests[&join.request];
        let chain = Chain::joining(&request.graph, join, request.ended.contains(&join.run));
        Member { chain, has_state: false }
    }

    /// Runs the next step of a chain. Nothing is computed for padding.
    fn step(
        &mut self,
        (worker, cell_type): (WorkerId, CellTypeId),
        member: &mut Member,
    ) -> Result<Option<Stopped>, Arc<str>> {
        let chain = &mut member.chain;
        let step = chain.step();
        if !chain.is_running() || chain.is_padding(step) {
            chain.advance(1);
            return Ok(None);
        }
        let cell = self.cells[&cell_type].cell.clone();
        let request = self.requests.get_mut(&chain.request).expect("in flight");
        let graph = request.graph.clone();
        let run = &graph.runs()[chain.run.index()];
        let place = |worker| (worker, cell_type, chain.slot);
        if !std::mem::replace(&mut member.has_state, true) {
            let states = match chain.origin() {
                Origin::Initial => {
                    let initial = run.initial.iter().zip(&cell.states).map(|(rows, spec)| {
                        let row = rows.as_ref().map(|rows| request.read(rows, 0));
                        row.unwrap_or_else(|| Row::zeros(spec, 1))
                    });
                    (step, initial.collect())
                }
                Origin::Slot => self.states[&place(worker)].clone(),
                Origin::Elsewhere(other) => {
                    assert_ne!(other, worker, "a state moves between workers");
                    self.states.remove(&place(other)).expect("it is there")
                }
            };
            self.states.insert(place(worker), states);
        }
        let (known, states) = self.states.get_mut(&place(worker)).expect("a state");
        assert_eq!(*known, step, "the state of {chain:?}");
        let inputs: Vec<Row> = run.inputs.iter().map(|rows| request.read(rows, step)).collect();
        let outputs = outputs(&cell, &inputs, states)?;
        if chain.stop().is_some_and(|stop| outputs[stop.port].ints() == [stop.value]) {
            let end = chain.end();
            request.ended.insert(end.run);
            return Ok(Some(end));
        }
        for sink in &run.sinks {
            if let Some(node) = chain.sink_node(sink.time, step) {
                request.write(&sink.rows, node, &outputs[sink.port]);
            }
        }
        *known = chain.state_step_after(step);
        *states = outputs[..cell.states.len()].to_vec();
        chain.advance(1);
        Ok(None)
    }

    /// Runs an item of a cell without states.
    fn rows(&mut self, cell: &Cell, item: &Item) -> Result<(), Arc<str>> {
        let request = self.requests.get_mut(&item.request).expect("in flight");
        let graph = request.graph.clone();
        let run = &graph.runs()[item.run.index()];
        for node in item.first..run.length.min(item.first + item.count) {
            let inputs: Vec<Row> = run.inputs.iter().map(|rows| request.read(rows, node)).collect();
            let outputs = outputs(cell, &inputs, &[])?;
            for sink in &run.sinks {
                let output = &outputs[sink.port];
                match sink.time {
                    SinkTime::Every => request.write(&sink.rows, node, output),
                    SinkTime::Last if node + 1 == run.length => {
                        request.write(&sink.rows, 0, output)
                    }
                    SinkTime::Last => {}
                }
            }
        }
        Ok(())
    }
}

/// What a queue tells its thread.
enum Order {
    Task(BatchedTask),
    Read(Read),
    Write(StatePlace, Vec<TensorData>),
}

/// The thread of a worker.
struct Runs {
    device: Arc<PlainDevice>,
    worker: WorkerId,
    rosters: BTreeMap<CellTypeId, (CellIdentity, Roster<Member>)>,
    reports: Arc<Mutex<Vec<Completion>>>,
    bell: Arc<Bell>,
}

impl Runs {
    fn report(&self, completion: Completion) {
        self.reports.lock().unwrap().push(completion);
        self.bell.ring();
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = orders.recv_timeout(Duration::from_millis(1));
            if self.device.lost[self.worker.index()].load(Ordering::Acquire) {
                return self.report(Completion::Lost { reason: "it was asked to be".into() });
            }
            match order {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Task(task)) => {
                    let (task, mut ends) = (task, Vec::new());
                    let result = self.task(&task, &mut ends);
                    self.report(Completion::Task(TaskDone { task: task.id, result, ends }));
                }
                Ok(Order::Read(read)) => {
                    let data = Ok(self.read(&read));
                    self.report(Completion::Values { read, data });
                }
                Ok(Order::Write(place, states)) => {
                    let rows = states.iter().map(|data| Row::of(data, 0..data.len())).collect();
                    let at = (self.worker, place.cell_type, place.slot);
                    self.device.shared().states.insert(at, (place.step, rows));
                }
            }
        }
    }

    fn task(&mut self, task: &BatchedTask, ends: &mut Vec<Stopped>) -> Result<(), Arc<str>> {
        let device = self.device.clone();
        let at = (self.worker, task.cell_type);
        let (cell, identity) = {
            let shared = device.shared();
            let known = &shared.cells[&task.cell_type];
            (known.cell.clone(), known.identity)
        };
        match &task.work {
            Work::Rows(items) if cell.states.is_empty() => {
                items.iter().try_for_each(|item| device.shared().rows(&cell, item))
            }
            Work::Rows(items) => items.iter().try_for_each(|item| {
                let &Item { request, run, first: step, slot, moved_from, .. } = item;
                let slot = slot.expect("a chain has a slot");
                let mut shared = device.shared();
                let mut member = shared.joining(&Join { request, run, slot, step, moved_from });
                ends.extend(shared.step(at, &mut member)?);
                Ok(())
            }),
            Work::Roster { leaves, joins, steps } => {
                let mut known = self.rosters.remove(&task.cell_type);
                known.take_if(|(of, _)| *of != identity);
                let mut roster = known.map(|(_, roster)| roster).unwrap_or_default();
                roster.leave(leaves, |_| ()).expect("a roster that has them");
                for join in joins {
                    let member = device.shared().joining(join);
                    roster.join_checked(member).expect("a roster without it");
                }
                let mut result = Ok(());
                for step in 1..=*steps {
                    result = roster.chains.iter_mut().try_for_each(|member| {
                        ends.extend(device.shared().step(at, member)?);
                        Ok(())
                    });
                    if result.is_err() {
                        break;
                    }
                    if step < *steps {
                        self.report(Completion::Steps { task: task.id, steps: step });
                    }
                }
                self.rosters.insert(task.cell_type, (identity, roster));
                result
            }
        }
    }

    fn read(&self, read: &Read) -> Vec<TensorData> {
        let shared = self.device.shared();
        match read {
            Read::Rows { request, values, rows } => {
                let request = &shared.requests[request];
                let rows_of = |&value: &ValueIndex| {
                    let rows = rows.start as usize..rows.end as usize;
                    request.values[value.index()].slice(request.elements(value, rows))
                };
                values.iter().map(rows_of).collect()
            }
            Read::Outputs { request } => {
                let request = &shared.requests[request];
                let outputs = request.graph.outputs().iter();
                outputs.map(|value| request.values[value.index()].clone()).collect()
            }
            Read::State(place) => {
                let (step, states) = &shared.states[&(self.worker, place.cell_type, place.slot)];
                assert_eq!(*step, place.step, "the state in {place:?}");
                let specs = &shared.cells[&place.cell_type].cell.states;
                states.iter().zip(specs).map(|(row, spec)| row.to_data(spec.element)).collect()
            }
        }
    }
}

struct PlainQueue {
    orders: Option<Sender<Order>>,
    reports: Arc<Mutex<Vec<Completion>>>,
    thread: Option<JoinHandle<()>>,
}

impl PlainQueue {
    fn order(&self, order: Order) {
        // Nobody takes orders once the worker is lost.
        let _ = self.orders.as_ref().expect("until it is dropped").send(order);
    }
}

impl TaskQueue for PlainQueue {
    fn submit(&mut self, round: &mut Vec<BatchedTask>) {
        round.drain(..).for_each(|task| self.order(Order::Task(task)));
    }

    fn read(&mut self, read: Read) {
        self.order(Order::Read(read));
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.order(Order::Write(place, states));
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.reports.lock().unwrap());
    }
}

impl Drop for PlainQueue {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Device for PlainDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            placement: StatePlacement::PerWorker,
            workers_max: Some(2),
            slots_max: Some(90),
            bytes_max: Some(BYTES_MAX),
            lookahead: 1,
            ..Capabilities::default()
        }
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        if let CellBody::Program(program) = &cell.cell.body
            && SuiteProgram::of(program).is_none()
        {
            let reason = "no such program".to_owned();
            return Err(DeviceError::Cell { cell: cell.name.clone(), reason });
        }
        let cells = &mut self.shared().cells;
        let new = || KnownCell { cell: cell.cell.clone(), identity: cell.identity, count: 0 };
        let known = cells.entry(id).or_insert_with(new);
        assert_eq!(known.identity, cell.identity, "{id} stands for another cell");
        known.count += 1;
        Ok(Materialized { runner: Runner::Device, rows_max: None })
    }

    fn release(&self, id: CellTypeId) {
        let mut shared = self.shared();
        let known = shared.cells.get_mut(&id).expect("it was taken");
        known.count -= 1;
        if known.count == 0 {
            shared.cells.remove(&id);
            shared.states.retain(|&(_, cell_type, _), _| cell_type != id);
        }
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        let (orders, taken) = channel();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let rosters = BTreeMap::new();
        let runs = Runs { device: self, worker, rosters, reports: reports.clone(), bell };
        let thread = Some(std::thread::spawn(move || runs.run(&taken)));
        Ok(Box::new(PlainQueue { orders: Some(orders), reports, thread }))
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        let mut shared = self.shared();
        let bytes = graph.bytes();
        if shared.bytes + bytes > BYTES_MAX {
            return Err(DeviceError::Full { bytes });
        }
        shared.bytes += bytes;
        let zeros = graph.values().iter().map(|value| {
            TensorData::zeros(value.row.element, value.rows as usize * value.row.elements())
        });
        let mut values: Vec<TensorData> = zeros.collect();
        for (value, input) in graph.inputs().iter().zip(inputs) {
            let value = &mut values[value.index()];
            let count = value.len();
            *value = input.into_data();
            value.resize(count);
        }
        let new = Request { graph, values, ended: BTreeSet::new() };
        assert!(shared.requests.insert(request, new).is_none(), "{request:?} is in flight");
        Ok(())
    }

    fn retire(&self, request: RequestId) {
        let mut shared = self.shared();
        let retired = shared.requests.remove(&request).expect("it is in flight");
        shared.bytes -= retired.graph.bytes();
    }

    fn measure(&self, _: &CellType, _: usize) -> Result<Measurement, DeviceError> {
        Ok(Measurement { ns: 1.0, plan: Some(Plan::new("\"plain\"")) })
    }

    fn plan(&self, _: CellIdentity, plans: &[(usize, Plan)]) -> Result<(), DeviceError> {
        match plans.iter().all(|(_, plan)| plan.text() == "\"plain\"") {
            true => Ok(()),
            false => Err(DeviceError::Resources("a plan of another device".to_owned())),
        }
    }
}

struct Plain;

impl Subject for Plain {
    fn name(&self) -> String {
        "plain".to_owned()
    }

    fn make(&self) -> Instance {
        let device = Arc::new(PlainDevice::default());
        let loses = device.clone();
        let lose =
            move |worker: WorkerId| loses.lost[worker.index()].store(true, Ordering::Release);
        Instance { device, lose: Some(Box::new(lose)) }
    }

    fn workers(&self) -> usize {
        2
    }

    fn poison(&self) -> Option<i64> {
        Some(POISON)
    }

    fn reports_steps(&self) -> bool {
        true
    }
}

#[test]
fn a_plain_device_passes_all_cases() {
    let summary = run_all(&Plain);
    assert!(summary.skipped.is_empty(), "{:?}", summary.skipped);
}
