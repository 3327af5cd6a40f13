//! The values of one request: its inputs, the values between its cells, and its outputs.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use batchmaker_graph::{
    CellGraph, CellTypeId, RowOrder, RowSpec, Rows, RunIndex, Tensor, TensorData, ValueIndex,
};

use super::batch_tensor::{Gathered, data_pointer, scatter};
use super::row_pointers::RowPointers;
use super::slot_arena::HeldSlot;

/// The values of a request in flight. Workers read and write rows through raw pointers; that no
/// row is written while it is read or written elsewhere is what the manager's order of
/// tasks guarantees.
pub(crate) struct RequestMemory {
    pub(crate) graph: Arc<CellGraph>,
    values: Vec<Value>,
    /// The chains that reached their end of sequence.
    ended: Mutex<BTreeSet<RunIndex>>,
    /// The slots that came into use for its chains.
    slots: Mutex<Vec<HeldSlot>>,
}

struct Value {
    /// Its elements, from when somebody finds their place, or all of them are written at once.
    held: OnceLock<Held>,
    row: RowSpec,
    rows: usize,
    /// Whether all of it came with the request.
    is_brought: bool,
    /// For each row, 1 and the token id that it depends on alone, or 0. Empty where no row depends on one.
    token_ids: Box<[AtomicU32]>,
}

/// The elements of a value, at a place where they stay.
struct Held {
    /// Owns the elements. Touched after construction only by `take`.
    data: UnsafeCell<TensorData>,
    first: *mut u8,
}

// SAFETY: the pointer leads into a vector that `data` owns, and that stays where it is until `take`. Rows are accessed in unsafe code
// only, in the order that the manager gives tasks.
unsafe impl Send for Held {}
// SAFETY: rows are accessed in unsafe code only, as for `Send`. `data` is accessed through a shared reference by `take` alone, whose
// caller promises that nobody else accesses the elements.
unsafe impl Sync for Held {}

impl Held {
    fn new(mut data: TensorData) -> Self {
        let first = data_pointer(&mut data);
        Self { data: UnsafeCell::new(data), first }
    }

    /// Takes the elements.
    ///
    /// # Safety
    /// Nobody else accesses the elements from now on.
    unsafe fn take(&self) -> TensorData {
        // SAFETY: the caller's promise.
        unsafe { std::mem::replace(&mut *self.data.get(), TensorData::F32(Vec::new())) }
    }
}

impl Value {
    /// A value of zeros.
    fn zeros(row: &RowSpec, rows: usize) -> Self {
        let (held, token_ids) = (OnceLock::new(), Box::default());
        Self { held, row: row.clone(), rows, is_brought: false, token_ids }
    }

    /// A value that came with the request. Rows that it lacks are zeros.
    fn brought(row: &RowSpec, rows: usize, mut data: TensorData) -> Self {
        let value = Self { is_brought: true, ..Self::zeros(row, rows) };
        assert_eq!(data.element(), row.element, "a value holds another type than its graph says");
        assert!(data.len() <= value.len(), "an input brings more rows than its graph says");
        data.resize(value.len());
        _ = value.held.set(value.holding(data));
        value
    }

    /// The number of its elements.
    fn len(&self) -> usize {
        self.rows * self.row.elements()
    }

    fn row_bytes(&self) -> usize {
        self.row.elements() * self.row.element.bytes()
    }

    /// The address of the first element.
    fn first(&self) -> *mut u8 {
        let zeros = || TensorData::zeros(self.row.element, self.len());
        self.held.get_or_init(|| self.holding(zeros())).first
    }

    /// Holds `data`, which are all elements of the value.
    fn holding(&self, data: TensorData) -> Held {
        assert_eq!(data.element(), self.row.element.stored(), "a value of another type");
        assert_eq!(data.len(), self.len(), "a value holds other rows than its graph says");
        Held::new(data)
    }
}

impl RequestMemory {
    /// The memory of a request of `graph` with its `inputs`; other values are zeros. Nodes of cell types for
    /// which `has_token_ids` is true may set the token ids of the rows that their first output port writes.
    pub(crate) fn new(
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
        has_token_ids: impl Fn(CellTypeId) -> bool,
    ) -> Self {
        assert_eq!(graph.inputs().len(), inputs.len(), "as many tensors as input values");
        let mut given: Vec<Option<Tensor>> = graph.values().iter().map(|_| None).collect();
        for (&value, tensor) in graph.inputs().iter().zip(inputs) {
            given[value.index()] = Some(tensor);
        }
        // No run writes a value that the request brings: the builder of graphs checks that.
        let values = graph.values().iter().zip(given).map(|(spec, given)| match given {
            Some(tensor) => Value::brought(&spec.row, spec.rows as usize, tensor.into_data()),
            None => Value::zeros(&spec.row, spec.rows as usize),
        });
        let mut values: Vec<Value> = values.collect();
        for run in graph.runs().iter().filter(|run| has_token_ids(run.cell_type)) {
            for sink in run.sinks.iter().filter(|sink| sink.port == 0) {
                let value = &mut values[sink.rows.value.index()];
                if !value.token_ids.is_empty() {
                    continue;
                }
                value.token_ids = (0..value.rows).map(|_| AtomicU32::new(0)).collect();
            }
        }
        Self { graph, values, ended: Mutex::default(), slots: Mutex::default() }
    }

    /// Holds a slot that came into use for a chain of the request.
    pub(crate) fn hold(&self, slot: HeldSlot) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    /// Takes the slots that the request holds.
    pub(crate) fn take_slots(&self) -> Vec<HeldSlot> {
        std::mem::take(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a chain reached its end of sequence: it may join a roster again before the manager
    /// learns that.
    pub(crate) fn record_end(&self, run: RunIndex) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(run);
    }

    /// Whether a chain reached its end of sequence.
    pub(crate) fn has_ended(&self, run: RunIndex) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(&run)
    }

    /// Records that a node's row depends on `token_id` alone. Whoever reads that does so after it was written,
    /// as for the row itself.
    pub(crate) fn set_token_id(&self, rows: &Rows, node: u32, token_id: usize) {
        let token_ids = &self.values[rows.value.index()].token_ids;
        token_ids[rows.row(node)].store(token_id as u32 + 1, Ordering::Relaxed);
    }

    /// The token id that a node's row depends on alone, if that was recorded.
    pub(crate) fn token_id(&self, rows: &Rows, node: u32) -> Option<usize> {
        let token_ids = &self.values[rows.value.index()].token_ids;
        let recorded = token_ids.get(rows.row(node))?.load(Ordering::Relaxed);
        recorded.checked_sub(1).map(|token_id| token_id as usize)
    }

    /// Whether all of a value came with the request.
    pub(crate) fn is_brought(&self, value: ValueIndex) -> bool {
        self.values[value.index()].is_brought
    }

    /// The rows of a port of a run of this memory's graph. The memory must outlive the pointers.
    pub(crate) fn rows(&self, rows: &Rows) -> RowPointers {
        let value = &self.values[rows.value.index()];
        let row_bytes = value.row_bytes();
        let (first, stride, list) = match &rows.order {
            RowOrder::Strided { first, stride } => (*first as usize, *stride as isize, None),
            RowOrder::Listed(list) => (0, 1, Some(NonNull::from(&**list).cast())),
        };
        assert!(first < value.rows, "row {first} of {:?}, which has {}", rows.value, value.rows);
        // SAFETY: the row is within the value.
        let first = unsafe { value.first().add(first * row_bytes) };
        RowPointers { first, stride: stride * row_bytes as isize, list, row_bytes }
    }

    /// The rows of the span of a run's only node, as those of as many nodes.
    pub(crate) fn span(&self, rows: &Rows) -> RowPointers {
        let mut pointers = self.rows(rows);
        let end = rows.row(0) + rows.span as usize;
        assert!(end <= self.values[rows.value.index()].rows, "a span beyond its value");
        pointers.stride = pointers.row_bytes as isize;
        pointers
    }

    /// Writes rows `skip..skip + count` of a batch's output to the rows that belong to node `first` and to the nodes after it. If these are
    /// all rows of a value, and nobody has found their place before, the value is made of them: of the output itself if it consists of them
    /// alone and is not needed afterwards (`is_needed`), else of a copy.
    ///
    /// # Safety
    /// Nobody else accesses these rows until this returns.
    pub(crate) unsafe fn write(
        &self,
        (output, skip): (&mut TensorData, usize),
        rows: &Rows,
        (first, count): (u32, u32),
        is_needed: bool,
    ) {
        let is_in_line = count == 1 || matches!(rows.order, RowOrder::Strided { stride: 1, .. });
        let is_all = is_in_line
            && rows.row(first) == 0
            && count as usize == self.values[rows.value.index()].rows;
        if !(is_all && self.becomes((output, skip), rows.value, is_needed)) {
            // SAFETY: the caller's promise.
            unsafe { scatter(output, skip, &self.rows(rows), first, count) }
        }
    }

    /// Writes rows of a batch's output, from `skip` on, to the span of a run's only node, as [`Self::write`] does.
    ///
    /// # Safety
    /// Nobody else accesses these rows until this returns.
    pub(crate) unsafe fn write_span(&self, (output, skip): (&mut TensorData, usize), rows: &Rows) {
        let is_all = rows.row(0) == 0 && rows.span as usize == self.values[rows.value.index()].rows;
        if !(is_all && self.becomes((output, skip), rows.value, false)) {
            // SAFETY: the caller's promise.
            unsafe { scatter(output, skip, &self.span(rows), 0, rows.span) }
        }
    }

    /// Makes a value of the rows of an output from `skip` on: of the output itself, or of a copy of these rows. Returns false, and does nothing, if
    /// somebody has found the place of the value's rows before.
    fn becomes(
        &self,
        (output, skip): (&mut TensorData, usize),
        value: ValueIndex,
        is_needed: bool,
    ) -> bool {
        let value = &self.values[value.index()];
        let len = value.len();
        let is_whole = skip == 0 && len > 0 && output.len() == len && output.capacity() == len;
        let mut became = false;
        value.held.get_or_init(|| {
            became = true;
            let first = skip * value.row.elements();
            value.holding(match is_whole && !is_needed {
                true => std::mem::replace(output, TensorData::F32(Vec::new())),
                false => output.slice(first..first + len),
            })
        });
        became
    }

    /// A copy of some rows of a value.
    ///
    /// # Safety
    /// Nobody writes these rows until this returns, and the values were not taken.
    pub(crate) unsafe fn copy(&self, value: ValueIndex, rows: Range<usize>) -> TensorData {
        let spec = &self.graph.values()[value.index()].row;
        let value = &self.values[value.index()];
        assert!(rows.end <= value.rows, "rows {rows:?} of {}", value.rows);
        let mut copied = Gathered::with_capacity(spec, rows.len());
        let row_bytes = value.row_bytes();
        let first = value.first().wrapping_add(rows.start * row_bytes);
        let stride = row_bytes as isize;
        let from = RowPointers { first, stride, list: None, row_bytes };
        // SAFETY: the rows are the value's; the caller vouches that nobody writes them.
        unsafe { copied.append(&from, 0, rows.len() as u32) };
        copied.finish()
    }

    /// Takes the output values, each flat, and frees the others: a roster may keep the request itself for a
    /// while.
    ///
    /// # Safety
    /// No task that names the request is in flight or comes any more, and nobody else accesses its values from
    /// now on.
    pub(crate) unsafe fn take_outputs(&self) -> Vec<TensorData> {
        // SAFETY: the caller promises that nobody else accesses the values from now on.
        let take = |value: &Value| value.held.get().map(|held| unsafe { held.take() });
        let output = |&value: &ValueIndex| {
            let value = &self.values[value.index()];
            take(value).unwrap_or_else(|| TensorData::zeros(value.row.element, value.len()))
        };
        let outputs = self.graph.outputs().iter().map(output).collect();
        self.values.iter().for_each(|value| drop(take(value)));
        outputs
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, ElementType, Sink, SinkTime};

    use super::*;

    /// A request of one value of four rows of two elements, which a run writes, and its index.
    fn memory() -> (RequestMemory, ValueIndex) {
        let row = RowSpec::flat(ElementType::F32, 2);
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row.clone(), 4), graph.value(row, 4));
        let rows = |value| Rows::strided(value, 0, 1);
        let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: rows(y) }];
        graph.rows(CellTypeId(0), 4, vec![rows(x)], sinks);
        graph.output(y);
        let graph = Arc::new(graph.finish().unwrap());
        let inputs = vec![Tensor::new(vec![4, 2], TensorData::F32(vec![0.0; 8]))];
        (RequestMemory::new(graph, inputs, |_| false), y)
    }

    fn floats(count: usize, capacity: usize) -> TensorData {
        let mut floats = Vec::with_capacity(capacity);
        floats.extend((0..count).map(|n| n as f32));
        TensorData::F32(floats)
    }

    #[test]
    fn an_output_that_is_all_of_a_value_becomes_it() {
        let write = |mut output: TensorData, skip, rows: Range<u32>, is_needed| {
            let (memory, y) = memory();
            let to = Rows::strided(y, 0, 1);
            let from = data_pointer(&mut output);
            let nodes = (rows.start, rows.len() as u32);
            // SAFETY: the test alone accesses the rows.
            let values = unsafe {
                memory.write((&mut output, skip), &to, nodes, is_needed);
                memory.take_outputs()
            };
            let [TensorData::F32(values)] = &values[..] else { unreachable!("one output of F32") };
            (values.as_ptr().cast_mut().cast() == from, values.clone())
        };
        let all: Vec<f32> = (0..8).map(|n| n as f32).collect();
        assert_eq!(write(floats(8, 8), 0, 0..4, false), (true, all.clone()));
        assert_eq!(write(floats(8, 8), 0, 0..4, true), (false, all.clone()), "it is needed");
        assert_eq!(write(floats(8, 64), 0, 0..4, false), (false, all), "it takes more memory");
        let others = write(floats(12, 12), 2, 0..4, false);
        assert_eq!(others, (false, (4..12).map(|n| n as f32).collect()), "rows of others");
        let some = write(floats(4, 4), 0, 1..3, false);
        assert_eq!(some, (false, vec![0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0]), "some rows");
    }

    #[test]
    fn a_value_stays_where_it_was_found() {
        let (memory, y) = memory();
        let rows = Rows::strided(y, 0, 1);
        let (before, mut output) = (memory.rows(&rows), floats(8, 8));
        // SAFETY: the test alone accesses the rows.
        unsafe {
            memory.write((&mut output, 0), &rows, (0, 4), false);
            assert_eq!(*before.row(3).cast::<f32>(), 6.0);
            assert_eq!(memory.take_outputs(), [output]);
        }
    }

    #[test]
    fn an_output_that_nothing_wrote_is_zeros() {
        let (memory, _) = memory();
        // SAFETY: the test alone accesses the rows.
        assert_eq!(unsafe { memory.take_outputs() }, [TensorData::F32(vec![0.0; 8])]);
    }
}
