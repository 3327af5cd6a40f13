//! The values of a request, on the GPUs that use them.
//!
//! A GPU has all values of a request in one allocation: first those that the request brings and the lists of rows of its runs, which are copied
//! there when its first task comes, then the others, of zeros.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use batchmaker_graph::{CellGraph, RowOrder, Rows, SinkTime, Tensor, ValueIndex};

use super::row_holders::RowHolders;
use super::tensors::append_bytes;
use crate::gpu::Allocation;
use crate::kernels::batch::Port;
use crate::lock::lock;

/// Values begin at multiples of this number of bytes.
const ALIGNMENT: usize = 64;

/// The memory of a request in flight.
pub(crate) struct RequestMemory {
    pub(crate) graph: Arc<CellGraph>,
    /// The offset of each value, and the bytes of one of its rows.
    values: Vec<(usize, usize)>,
    /// The offset of each list of rows, by its address.
    lists: HashMap<usize, usize>,
    /// Bytes of all values and lists.
    bytes: usize,
    /// The bytes of the budget that it holds.
    pub(crate) budget_bytes: usize,
    /// The first bytes: inputs and lists.
    image: Mutex<Arc<Vec<u8>>>,
    /// The values on each worker's GPU.
    resident: Mutex<Vec<Option<Allocation>>>,
    /// Where rows are, with several workers.
    pub(crate) holders: Option<Mutex<RowHolders>>,
}

impl RequestMemory {
    /// Memory for a request that was checked.
    pub(crate) fn new(graph: Arc<CellGraph>, inputs: Vec<Tensor>, workers: usize) -> Self {
        let row_bytes = |value: ValueIndex| {
            let row = &graph.values()[value.index()].row;
            row.bytes().expect("a value that was checked has rows")
        };
        let mut values: Vec<Option<(usize, usize)>> = vec![None; graph.values().len()];
        let mut image = Vec::new();
        for (&value, tensor) in graph.inputs().iter().zip(inputs) {
            image.resize(image.len().next_multiple_of(ALIGNMENT), 0);
            let (offset, bytes) = (image.len(), row_bytes(value));
            append_bytes(&mut image, tensor.data());
            let rows = graph.values()[value.index()].rows as usize;
            image.resize(offset + rows * bytes, 0);
            values[value.index()] = Some((offset, bytes));
        }
        let mut lists = HashMap::new();
        for rows in all_rows(&graph) {
            let RowOrder::Listed(list) = &rows.order else { continue };
            lists.entry(list.as_ptr().addr()).or_insert_with(|| {
                image.resize(image.len().next_multiple_of(ALIGNMENT), 0);
                let offset = image.len();
                image.extend(bytemuck::cast_slice::<u32, u8>(list));
                offset
            });
        }
        let mut bytes = image.len();
        for (index, value) in values.iter_mut().enumerate() {
            value.get_or_insert_with(|| {
                let offset = bytes.next_multiple_of(ALIGNMENT);
                let row_bytes = row_bytes(ValueIndex(index as u32));
                bytes = offset + graph.values()[index].rows as usize * row_bytes;
                (offset, row_bytes)
            });
        }
        let resident = std::iter::repeat_with(|| None).take(workers).collect();
        Self {
            values: values.into_iter().flatten().collect(),
            lists,
            bytes,
            budget_bytes: graph.bytes(),
            image: Mutex::new(Arc::new(image)),
            resident: Mutex::new(resident),
            holders: (workers > 1).then(|| Mutex::new(RowHolders::new(&graph))),
            graph,
        }
    }

    /// Bytes of an allocation of it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first bytes of an allocation; zeros follow.
    pub(crate) fn image(&self) -> Arc<Vec<u8>> {
        lock(&self.image).clone()
    }

    /// The address of the values on a worker's GPU, if they are there.
    pub(crate) fn base(&self, worker: usize) -> Option<u64> {
        lock(&self.resident)[worker].as_ref().map(Allocation::at)
    }

    /// The values are on a worker's GPU from now on.
    pub(crate) fn settle(&self, worker: usize, allocation: Allocation) {
        lock(&self.resident)[worker] = Some(allocation);
    }

    /// Frees all values: no task uses them any more.
    pub(crate) fn free(&self) {
        lock(&self.resident).iter_mut().for_each(|resident| drop(resident.take()));
        *lock(&self.image) = Arc::default();
    }

    /// Bytes of a row of a value.
    pub(crate) fn row_bytes(&self, value: ValueIndex) -> usize {
        self.values[value.index()].1
    }

    /// The address of a row where the values begin at `base`.
    pub(crate) fn row(&self, base: u64, value: ValueIndex, row: usize) -> u64 {
        let (offset, row_bytes) = self.values[value.index()];
        base + (offset + row * row_bytes) as u64
    }

    /// Rows as a port of a batch where the values begin at `base`.
    pub(crate) fn port(&self, base: u64, rows: &Rows) -> Port {
        let row_bytes = self.row_bytes(rows.value);
        let (first, list, stride) = match &rows.order {
            RowOrder::Strided { first, stride } => (*first as usize, 0, i64::from(*stride)),
            RowOrder::Listed(list) => (0, base + self.lists[&list.as_ptr().addr()] as u64, 0),
        };
        Port {
            base: self.row(base, rows.value, first),
            list,
            stride: stride * row_bytes as i64,
            bytes: row_bytes as u32,
            sink: 0,
        }
    }

    /// Rows as a sink of an output.
    pub(crate) fn sink(&self, base: u64, rows: &Rows, output: usize, time: SinkTime) -> Port {
        let is_last = u32::from(time == SinkTime::Last);
        Port { sink: 2 * output as u32 + is_last, ..self.port(base, rows) }
    }
}

/// All rows that runs name.
fn all_rows(graph: &CellGraph) -> impl Iterator<Item = &Rows> {
    graph.runs().iter().flat_map(|run| {
        let sinks = run.sinks.iter().map(|sink| &sink.rows);
        run.inputs.iter().chain(run.initial.iter().flatten()).chain(sinks)
    })
}
