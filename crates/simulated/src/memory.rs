//! The memories of a virtual device: the rows of requests in flight and the states in slots, with the
//! task that wrote them and the workers that hold them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchmaker_device::StatePlace;
use batchmaker_graph::{
    CellGraph, CellTypeId, Guard, RequestId, RunIndex, StatePlacement, ValueIndex, WorkerId,
};

use crate::misuse::Misuse;
use crate::progress::{Progress, Stamp};

/// A row's contents; none where they were lost or come from a task that failed.
pub type Datum<R> = Option<R>;

/// The contents of a row of a request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents<R> {
    /// Nobody has written it.
    Unwritten,
    /// Its contents were lost.
    Lost,
    /// Its contents are these.
    Known(R),
}

impl<R> From<Datum<R>> for Contents<R> {
    fn from(datum: Datum<R>) -> Self {
        datum.map_or(Self::Lost, Self::Known)
    }
}

/// See the module's first lines.
#[derive(Debug)]
pub(crate) struct Memory<R> {
    placement: StatePlacement,
    requests: BTreeMap<RequestId, Values<R>>,
    /// One, or one for each worker.
    slots: Vec<Slots<R>>,
    /// Rows and states copied between memories.
    pub(crate) copies: u64,
    /// States among them: those of chains that went on elsewhere than they ran before.
    pub(crate) moved_states: u64,
}

/// The values of a request in flight.
#[derive(Debug)]
pub(crate) struct Values<R> {
    pub(crate) graph: Arc<CellGraph>,
    rows: Vec<Vec<Row<R>>>,
    /// The chains that reached their end of sequence.
    ended: BTreeSet<RunIndex>,
    /// The guards of the runs that write rows, by row; of runs that have one.
    guards: BTreeMap<(ValueIndex, usize), Guard>,
}

#[derive(Clone, Debug)]
enum Row<R> {
    Unwritten,
    Input(R),
    /// `held_by` has a bit for each worker with a copy.
    Written {
        datum: Datum<R>,
        by: Stamp,
        held_by: u64,
    },
}

/// Per cell type and index.
type Slots<R> = BTreeMap<CellTypeId, Vec<Option<Slot<R>>>>;

#[derive(Clone, Debug)]
struct Slot<R> {
    generation: u32,
    /// The step that the state is for: of the next chunk, where a chunk ended.
    step: u32,
    state: Vec<Datum<R>>,
    by: Stamp,
}

impl<R> Values<R> {
    /// The guard of the run that writes a row, if it has one.
    pub(crate) fn guard(&self, place: (ValueIndex, usize)) -> Option<Guard> {
        self.guards.get(&place).copied()
    }

    /// Whether a chain reached its end of sequence.
    pub(crate) fn has_ended(&self, run: RunIndex) -> bool {
        self.ended.contains(&run)
    }
}

impl<R: Clone> Memory<R> {
    pub(crate) fn new(placement: StatePlacement, workers: usize) -> Self {
        let memories = match placement {
            StatePlacement::Shared => 1,
            StatePlacement::PerWorker => workers,
        };
        Self {
            placement,
            requests: BTreeMap::new(),
            slots: std::iter::repeat_with(Slots::new).take(memories).collect(),
            copies: 0,
            moved_states: 0,
        }
    }

    /// Takes a request with the contents of each row of its input values, in their order.
    pub(crate) fn admit(
        &mut self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: impl IntoIterator<Item = Vec<R>>,
    ) {
        let unwritten = |rows: u32| vec![Row::Unwritten; rows as usize];
        let mut rows: Vec<_> = graph.values().iter().map(|value| unwritten(value.rows)).collect();
        for (&value, input) in graph.inputs().iter().zip(inputs) {
            rows[value.index()] = input.into_iter().map(Row::Input).collect();
        }
        let (guards, ended) = (guards(&graph), BTreeSet::new());
        let known = self.requests.insert(request, Values { graph, rows, ended, guards });
        assert!(known.is_none(), "{request:?} is in flight");
    }

    /// Forgets a request, and returns the rows of its output values: none for rows that are lost or that
    /// nobody has written.
    pub(crate) fn retire(&mut self, request: RequestId) -> Result<Vec<Vec<Datum<R>>>, Misuse> {
        let values = self.requests.remove(&request);
        let Values { graph, rows, .. } = values.ok_or_else(|| Misuse::unknown(request))?;
        let datum = |row: &Row<R>| match row {
            Row::Unwritten => None,
            Row::Input(datum) => Some(datum.clone()),
            Row::Written { datum, .. } => datum.clone(),
        };
        let value = |value: &ValueIndex| rows[value.index()].iter().map(datum);
        Ok(graph.outputs().iter().map(|output| value(output).collect()).collect())
    }

    /// The values of a request in flight; none of another.
    pub(crate) fn known(&self, request: RequestId) -> Option<&Values<R>> {
        self.requests.get(&request)
    }

    pub(crate) fn values(&self, request: RequestId) -> Result<&Values<R>, Misuse> {
        self.known(request).ok_or_else(|| Misuse::unknown(request))
    }

    fn values_mut(&mut self, request: RequestId) -> Result<&mut Values<R>, Misuse> {
        self.requests.get_mut(&request).ok_or_else(|| Misuse::unknown(request))
    }

    /// Notes that a chain reached its end of sequence.
    pub(crate) fn note_end(&mut self, request: RequestId, run: RunIndex) -> Result<(), Misuse> {
        self.values_mut(request)?.ended.insert(run);
        Ok(())
    }

    /// Reads a row for a reply or a stream. The batch that wrote it must be complete.
    pub(crate) fn peek(
        &self,
        progress: &Progress,
        request: RequestId,
        value: ValueIndex,
        row: usize,
    ) -> Result<Datum<R>, Misuse> {
        match &self.values(request)?.rows[value.index()][row] {
            Row::Unwritten => Err(unwritten(value, row)),
            Row::Input(datum) => Ok(Some(datum.clone())),
            Row::Written { by, .. } if !progress.is_complete(*by) => {
                Err(unfinished(value, row, *by))
            }
            Row::Written { datum, .. } => Ok(datum.clone()),
        }
    }

    /// The rows of all output values of a request whose nodes are all complete.
    pub(crate) fn outputs(
        &self,
        progress: &Progress,
        request: RequestId,
    ) -> Result<Vec<Vec<Contents<R>>>, Misuse> {
        let values = self.values(request)?;
        let row = |value: ValueIndex, at: usize| match values.rows[value.index()][at] {
            Row::Unwritten => Ok(Contents::Unwritten),
            _ => self.peek(progress, request, value, at).map(Contents::from),
        };
        let rows = |&value: &ValueIndex| {
            (0..values.rows[value.index()].len()).map(|at| row(value, at)).collect()
        };
        values.graph.outputs().iter().map(rows).collect()
    }

    /// Reads a row for a task of `worker`, and copies it into that worker's memory if it is not there.
    pub(crate) fn read(
        &mut self,
        progress: &Progress,
        worker: WorkerId,
        request: RequestId,
        (value, row): (ValueIndex, usize),
    ) -> Result<Datum<R>, Misuse> {
        let is_copied = self.placement == StatePlacement::PerWorker;
        let (datum, by, held_by) = match &mut self.values_mut(request)?.rows[value.index()][row] {
            Row::Unwritten => return Err(unwritten(value, row)),
            Row::Input(datum) => return Ok(Some(datum.clone())),
            Row::Written { datum, by, held_by } => (datum.clone(), *by, held_by),
        };
        if !progress.is_readable(by, worker) {
            return Err(unfinished(value, row, by));
        }
        let bit = 1 << worker.0;
        if is_copied && *held_by & bit == 0 {
            *held_by |= bit;
            self.copies += 1;
        }
        Ok(datum)
    }

    /// Writes a row, which nobody has written before unless it `may_change`.
    pub(crate) fn write(
        &mut self,
        request: RequestId,
        (value, row): (ValueIndex, usize),
        datum: Datum<R>,
        by: Stamp,
        may_change: bool,
    ) -> Result<(), Misuse> {
        let to = &mut self.values_mut(request)?.rows[value.index()][row];
        if !matches!(to, Row::Unwritten) && !may_change {
            return Err(Misuse(format!("row {row} of {value} is written again, by {by:?}")));
        }
        *to = Row::Written { datum, by, held_by: 1 << by.worker.0 };
        Ok(())
    }

    /// The contents of a slot of a worker's memory, which must be the state for a step.
    pub(crate) fn state(
        &self,
        worker: WorkerId,
        place: StatePlace,
    ) -> Result<Vec<Datum<R>>, Misuse> {
        self.held(worker, place).map(|held| held.state.clone())
    }

    /// The state before a step of a chain that a task of `worker` runs, `moved_from` another worker if
    /// it is there; none where it is lost. Where it moved from it is undefined from then on.
    pub(crate) fn read_state(
        &mut self,
        progress: &Progress,
        worker: WorkerId,
        place: StatePlace,
        moved_from: Option<WorkerId>,
    ) -> Result<Option<Vec<R>>, Misuse> {
        let slot = place.slot;
        if let (Some(from), StatePlacement::Shared) = (moved_from, self.placement) {
            return Err(Misuse(format!("{slot:?} is moved from {from} in a shared memory")));
        }
        let home = moved_from.unwrap_or(worker);
        let held = self.held(home, place)?;
        if !progress.is_readable(held.by, worker) {
            return Err(Misuse(format!("the state in {slot:?} is unfinished: {:?}", held.by)));
        }
        let state = held.state.iter().cloned().collect();
        if moved_from.is_some() {
            self.copies += 1;
            self.moved_states += 1;
            let memory = self.memory_of(home);
            let slots = self.slots[memory].get_mut(&place.cell_type).expect("it holds the state");
            slots[slot.index as usize] = None;
        }
        Ok(state)
    }

    fn held(&self, worker: WorkerId, place: StatePlace) -> Result<&Slot<R>, Misuse> {
        let StatePlace { cell_type, slot, step } = place;
        let slots = self.slots[self.memory_of(worker)].get(&cell_type);
        let held = slots.and_then(|slots| slots.get(slot.index as usize)?.as_ref());
        let held = held.ok_or_else(|| Misuse(format!("{slot:?} has no state on {worker}")))?;
        if (held.generation, held.step) != (slot.generation, step) {
            let Slot { generation, step, .. } = held;
            return Err(Misuse(format!(
                "{slot:?} on {worker} holds the state of generation {generation}, step {step}"
            )));
        }
        Ok(held)
    }

    /// Sets the state in a slot of the memory of the worker that wrote it.
    pub(crate) fn write_state(&mut self, place: StatePlace, state: Vec<Datum<R>>, by: Stamp) {
        let StatePlace { cell_type, slot, step } = place;
        let memory = self.memory_of(by.worker);
        let slots = self.slots[memory].entry(cell_type).or_default();
        if slots.len() <= slot.index as usize {
            slots.resize_with(slot.index as usize + 1, || None);
        }
        let generation = slot.generation;
        slots[slot.index as usize] = Some(Slot { generation, step, state, by });
    }

    /// Loses the memory of a worker that is lost, if it has its own.
    pub(crate) fn lose(&mut self, worker: WorkerId) {
        if self.placement == StatePlacement::Shared {
            return;
        }
        let slots = self.slots[worker.index()].values_mut().flatten().flatten();
        slots.for_each(|slot| slot.state.fill(None));
        let rows = self.requests.values_mut().flat_map(|request| &mut request.rows).flatten();
        for row in rows {
            if let Row::Written { datum, held_by, .. } = row {
                *held_by &= !(1 << worker.0);
                if *held_by == 0 {
                    *datum = None;
                }
            }
        }
    }

    /// Forgets the states of a cell type.
    pub(crate) fn forget_cell_type(&mut self, cell_type: CellTypeId) {
        self.slots.iter_mut().for_each(|slots| drop(slots.remove(&cell_type)));
    }

    fn memory_of(&self, worker: WorkerId) -> usize {
        match self.placement {
            StatePlacement::Shared => 0,
            StatePlacement::PerWorker => worker.index(),
        }
    }
}

/// The guards of runs that write rows, by row.
fn guards(graph: &CellGraph) -> BTreeMap<(ValueIndex, usize), Guard> {
    let guarded = graph.runs().iter().filter_map(|run| Some((run, run.guard?)));
    let rows = guarded.flat_map(|(run, guard)| {
        let sinks = run.sinks.iter().flat_map(move |sink| {
            let nodes = (0..run.length).filter_map(|node| run.sink_node(sink.time, node));
            nodes.flat_map(|node| {
                let first = sink.rows.row(node);
                (first..first + sink.rows.span as usize).map(|row| (sink.rows.value, row))
            })
        });
        sinks.map(move |place| (place, guard))
    });
    rows.collect()
}

fn unwritten(value: ValueIndex, row: usize) -> Misuse {
    Misuse(format!("row {row} of {value} is not written"))
}

fn unfinished(value: ValueIndex, row: usize, by: Stamp) -> Misuse {
    Misuse(format!("row {row} of {value} is unfinished: {by:?}"))
}
