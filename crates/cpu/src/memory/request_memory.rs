//! The values of one request: what it brought, what stands between cells, the reply.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use batchmaker_graph::{
    CellGraph, CellTypeId, ElementType, RowOrder, RowSpec, Rows, RunIndex, Tensor, TensorData,
    ValueIndex,
};

/// The values of a request in flight. Workers read and write rows through raw pointers; that no
/// row is written while it is read or written elsewhere is what the manager's order of
/// tasks guarantees.
pub(crate) struct RequestMemory {
    pub(crate) graph: Arc<CellGraph>,
    values: Vec<Value>,
    /// The chains that reached their end of sequence.
    ended: Mutex<Vec<RunIndex>>,
}

struct Value {
    /// Owns the elements. Touched after construction only by `take_outputs`.
    data: UnsafeCell<TensorData>,
    elements: *mut u8,
    row_bytes: usize,
    rows: usize,
    /// By row: 0, or the word and 1 that the row is a function of. Empty where no row is.
    words: Box<[AtomicU32]>,
}

// SAFETY: the pointers lead into vectors that the value itself owns, and that stay where they are
// until `take_outputs`; see the type's documentation for who may access them when.
unsafe impl Send for RequestMemory {}
// SAFETY: as for `Send`; `data` is not looked at through a shared reference except by
// `take_outputs`, whose caller promises that nobody else is there.
unsafe impl Sync for RequestMemory {}

impl Value {
    fn new(mut data: TensorData, row: &RowSpec, rows: usize) -> Self {
        assert_eq!(data.element(), row.element, "a value holds another type than it is said to");
        assert_eq!(data.len(), rows * row.elements(), "a value holds other rows than said");
        let elements = data_pointer(&mut data);
        let row_bytes = row.elements() * row.element.bytes();
        Self { data: UnsafeCell::new(data), elements, row_bytes, rows, words: Box::default() }
    }
}

impl RequestMemory {
    /// Takes the inputs; zeroes the rest. Nodes of cell types that are `of_words` may note words
    /// of what their first output port yields.
    pub(crate) fn new(
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
        of_words: impl Fn(CellTypeId) -> bool,
    ) -> Self {
        assert_eq!(graph.inputs().len(), inputs.len(), "as many tensors as input values");
        let mut brought: Vec<Option<Tensor>> = graph.values().iter().map(|_| None).collect();
        for (&value, tensor) in graph.inputs().iter().zip(inputs) {
            brought[value.index()] = Some(tensor);
        }
        let values = graph.values().iter().zip(brought).map(|(spec, brought)| {
            let rows = spec.rows as usize;
            let data = match brought {
                Some(tensor) => {
                    let mut data = tensor.into_data();
                    let elements = rows * spec.row.elements();
                    assert!(data.len() <= elements, "an input brings more rows than said");
                    data.resize(elements);
                    data
                }
                None => TensorData::zeros(spec.row.element, rows * spec.row.elements()),
            };
            Value::new(data, &spec.row, rows)
        });
        let mut values: Vec<Value> = values.collect();
        for run in graph.runs().iter().filter(|run| of_words(run.cell_type)) {
            for sink in run.sinks.iter().filter(|sink| sink.port == 0) {
                let value = &mut values[sink.rows.value.index()];
                value.words = (0..value.rows).map(|_| AtomicU32::new(0)).collect();
            }
        }
        Self { graph, values, ended: Mutex::default() }
    }

    /// Notes that a chain reached its end of sequence: it may join a roster again before the manager
    /// learns that.
    pub(crate) fn note_end(&self, run: RunIndex) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    /// Whether a chain reached its end of sequence.
    pub(crate) fn has_ended(&self, run: RunIndex) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(&run)
    }

    /// Notes that a node's row is a function of `word`. Who reads that comes after who writes it,
    /// as for the row itself.
    pub(crate) fn note_word(&self, rows: &Rows, node: u32, word: usize) {
        let words = &self.values[rows.value.index()].words;
        words[rows.row(node)].store(word as u32 + 1, Ordering::Relaxed);
    }

    /// The word that a node's row is a function of, if that was noted.
    pub(crate) fn word(&self, rows: &Rows, node: u32) -> Option<usize> {
        let words = &self.values[rows.value.index()].words;
        let noted = words.get(rows.row(node))?.load(Ordering::Relaxed);
        noted.checked_sub(1).map(|word| word as usize)
    }

    /// The rows of a run's port: of a run of this memory's graph, which must outlive the pointers.
    pub(crate) fn rows(&self, rows: &Rows) -> RowPointers {
        let value = &self.values[rows.value.index()];
        let row_bytes = value.row_bytes;
        let (first, stride, list) = match &rows.order {
            RowOrder::Strided { first, stride } => (*first as usize, *stride as isize, None),
            RowOrder::Listed(list) => (0, 1, Some(NonNull::from(&**list).cast())),
        };
        assert!(first < value.rows, "row {first} of {:?}, which has {}", rows.value, value.rows);
        // SAFETY: the row is within the value.
        let first = unsafe { value.elements.add(first * row_bytes) };
        RowPointers { first, stride: stride * row_bytes as isize, list, row_bytes }
    }

    /// The rows of a span, as those of as many nodes.
    pub(crate) fn span(&self, rows: &Rows) -> RowPointers {
        let mut pointers = self.rows(rows);
        let end = rows.row(0) + rows.span as usize;
        assert!(end <= self.values[rows.value.index()].rows, "a span beyond its value");
        pointers.stride = pointers.row_bytes as isize;
        pointers
    }

    /// A copy of some rows of a value.
    ///
    /// # Safety
    /// Nobody writes these rows meanwhile.
    pub(crate) unsafe fn copy(&self, value: ValueIndex, rows: Range<usize>) -> TensorData {
        let spec = &self.graph.values()[value.index()].row;
        let value = &self.values[value.index()];
        assert!(rows.end <= value.rows, "rows {rows:?} of {}", value.rows);
        let mut copied = Gathered::with_capacity(spec, rows.len());
        let first = value.elements.wrapping_add(rows.start * value.row_bytes);
        let (stride, row_bytes) = (value.row_bytes as isize, value.row_bytes);
        let from = RowPointers { first, stride, list: None, row_bytes };
        // SAFETY: the rows are the value's; the caller vouches for the rest.
        unsafe { copied.append(&from, 0, rows.len() as u32) };
        copied.finish()
    }

    /// The output values, each flat. Frees the others: a roster may keep the request itself for a
    /// while.
    ///
    /// # Safety
    /// No task that names the request is in flight or comes any more.
    pub(crate) unsafe fn take_outputs(&self) -> Vec<TensorData> {
        let take = |value: &Value| {
            // SAFETY: the caller promises that nobody else accesses the values.
            unsafe { std::mem::replace(&mut *value.data.get(), TensorData::F32(Vec::new())) }
        };
        let output = |&value: &ValueIndex| take(&self.values[value.index()]);
        let outputs = self.graph.outputs().iter().map(output).collect();
        self.values.iter().for_each(|value| drop(take(value)));
        outputs
    }
}

/// Where the rows of a run's port lie: node `i`'s `i * stride` bytes from the first, or, where there
/// is a list, `list[i] * stride` bytes.
#[derive(Clone, Copy)]
pub(crate) struct RowPointers {
    first: *mut u8,
    stride: isize,
    list: Option<NonNull<u32>>,
    pub(crate) row_bytes: usize,
}

// SAFETY: only places; what may be done there is said at each access.
unsafe impl Send for RowPointers {}
// SAFETY: as for `Send`.
unsafe impl Sync for RowPointers {}

impl RowPointers {
    /// One row for all nodes.
    pub(crate) fn one(row: *mut u8, row_bytes: usize) -> Self {
        Self { first: row, stride: 0, list: None, row_bytes }
    }

    /// The row of `node`, which is one of the run.
    pub(crate) fn row(&self, node: u32) -> *mut u8 {
        let position = match self.list {
            None => node,
            // SAFETY: a list has an entry for each node of its run, and outlives the pointers.
            Some(list) => unsafe { list.add(node as usize).read() },
        };
        // A builder of graphs checks that the rows of all nodes are within their value.
        self.first.wrapping_offset(self.stride * position as isize)
    }
}

/// Rows brought together as `[rows, ...row]`.
pub(crate) struct Gathered {
    element: ElementType,
    data: TensorData,
    rows: usize,
}

impl Gathered {
    pub(crate) fn with_capacity(spec: &RowSpec, rows: usize) -> Self {
        let data = TensorData::zeros(spec.element, rows * spec.elements());
        Self { element: spec.element, data, rows: 0 }
    }

    /// Copies `count` rows from node `first` on.
    ///
    /// # Safety
    /// Nobody writes these rows meanwhile.
    pub(crate) unsafe fn append(&mut self, from: &RowPointers, first: u32, count: u32) {
        let bytes = from.row_bytes;
        let room = self.data.len() * self.element.bytes() - self.rows * bytes;
        assert!(count as usize * bytes <= room, "more rows than were announced");
        let start = data_pointer(&mut self.data).wrapping_add(self.rows * bytes);
        for i in 0..count {
            // SAFETY: the target was just checked; the caller vouches for the source.
            unsafe {
                let to = start.add(i as usize * bytes);
                std::ptr::copy_nonoverlapping(from.row(first + i), to, bytes);
            }
        }
        self.rows += count as usize;
    }

    /// Leaves `count` rows of zeros.
    pub(crate) fn skip(&mut self, count: u32) {
        self.rows += count as usize;
    }

    pub(crate) fn finish(self) -> TensorData {
        self.data
    }
}

/// Copies rows `skip..skip + count` of `data`, as many as a gathered batch has, to a run's port.
///
/// # Safety
/// Nobody accesses the target rows meanwhile.
pub(crate) unsafe fn scatter(
    data: &mut TensorData,
    skip: usize,
    to: &RowPointers,
    first: u32,
    count: u32,
) {
    let bytes = to.row_bytes;
    let length = data.len() * data.element().bytes();
    assert!((skip + count as usize) * bytes <= length, "fewer rows than asked for");
    let start = data_pointer(data);
    for i in 0..count {
        // SAFETY: the source was just checked; the caller vouches for the target.
        unsafe {
            let from = start.add((skip + i as usize) * bytes);
            std::ptr::copy_nonoverlapping(from, to.row(first + i), bytes);
        }
    }
}

fn data_pointer(data: &mut TensorData) -> *mut u8 {
    match data {
        TensorData::F32(data) => data.as_mut_ptr().cast(),
        TensorData::I64(data) => data.as_mut_ptr().cast(),
        TensorData::I32(data) => data.as_mut_ptr().cast(),
        TensorData::Bool(data) => data.as_mut_ptr().cast(),
        TensorData::Bytes(_) => unreachable!("byte strings end at the edge of the model"),
    }
}
