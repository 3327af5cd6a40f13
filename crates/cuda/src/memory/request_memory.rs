//! The values of a request, on the GPUs that use them.
//!
//! A GPU has the values of a request in one allocation: first those that the request brings and the lists of rows of its runs, which are copied
//! there when its first task comes, then the others, of zeros. Small values that no run reads lie in memory of the host: kernels write them
//! there, and nothing has to be copied for a reply.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use batchmaker_graph::{CellGraph, RowOrder, Rows, SinkTime, Tensor, TensorData, ValueIndex};

use super::host_pool::HostAllocation;
use super::row_holders::RowHolders;
use super::staging::Staged;
use super::tensors::{append_bytes, of_bytes};
use crate::gpu::Allocation;
use crate::kernels::batch::Port;
use crate::lock::lock;

/// Values begin at multiples of this number of bytes.
const ALIGNMENT: usize = 64;

/// The most bytes of a request's values in memory of the host. What is larger comes to the host faster by a copy.
pub(crate) const ON_HOST_BYTES: usize = 1 << 16;

/// The most bytes of the records of a request whose memory may be dropped later than it is retired.
const SMALL_BYTES: usize = 1 << 14;

/// Where the values of a request begin, for kernels of one GPU.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    gpu: u64,
    host: u64,
}

/// The offset of a value.
#[derive(Clone, Copy)]
enum Place {
    Gpu(usize),
    Host(usize),
}

/// The memory of a request in flight.
pub(crate) struct RequestMemory {
    pub(crate) graph: Arc<CellGraph>,
    /// The place of each value, and the bytes of one of its rows.
    values: Vec<(Place, usize)>,
    /// The offset of each list of rows, by its address.
    lists: HashMap<usize, usize>,
    /// Bytes of all values and lists on a GPU.
    bytes: usize,
    /// The bytes of the budget that it holds.
    pub(crate) budget_bytes: usize,
    image_bytes: usize,
    /// The first bytes: inputs and lists.
    image: Mutex<Arc<Vec<u8>>>,
    resident: Mutex<Resident>,
    /// Where rows are, with several workers.
    pub(crate) holders: Option<Mutex<RowHolders>>,
}

/// The values that have a place.
struct Resident {
    /// On each worker's GPU.
    gpus: Vec<Option<Allocation>>,
    host: Option<HostAllocation>,
}

impl Resident {
    fn base(&self, worker: usize) -> Option<Base> {
        let gpu = self.gpus[worker].as_ref()?.at();
        let host = self.host.as_ref().map_or(0, |host| host.range.device_address());
        Some(Base { gpu, host })
    }
}

impl RequestMemory {
    /// Memory for a request that was checked. `on_host` is given a number of bytes, and gives memory of the host that is zeros.
    pub(crate) fn new<E>(
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
        workers: usize,
        on_host: impl FnOnce(usize) -> Result<HostAllocation, E>,
    ) -> Result<Self, E> {
        let row_bytes = |value: ValueIndex| {
            let row = &graph.values()[value.index()].row;
            row.bytes().expect("a value that was checked has rows")
        };
        let mut values: Vec<Option<(Place, usize)>> = vec![None; graph.values().len()];
        let mut image = Vec::new();
        for (&value, tensor) in graph.inputs().iter().zip(inputs) {
            image.resize(image.len().next_multiple_of(ALIGNMENT), 0);
            let (offset, bytes) = (image.len(), row_bytes(value));
            append_bytes(&mut image, tensor.data());
            let rows = graph.values()[value.index()].rows as usize;
            image.resize(offset + rows * bytes, 0);
            values[value.index()] = Some((Place::Gpu(offset), bytes));
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
        let (mut bytes, mut host_bytes) = (image.len(), 0);
        for ((index, value), is_read) in values.iter_mut().enumerate().zip(are_read(&graph)) {
            value.get_or_insert_with(|| {
                let row_bytes = row_bytes(ValueIndex(index as u32));
                let of_value = graph.values()[index].rows as usize * row_bytes;
                let [at, host_at] = [bytes, host_bytes].map(|end| end.next_multiple_of(ALIGNMENT));
                if is_read || host_at + of_value > ON_HOST_BYTES {
                    bytes = at + of_value;
                    (Place::Gpu(at), row_bytes)
                } else {
                    host_bytes = host_at + of_value;
                    (Place::Host(host_at), row_bytes)
                }
            });
        }
        let gpus = std::iter::repeat_with(|| None).take(workers).collect();
        let host = (host_bytes > 0).then(|| on_host(host_bytes)).transpose()?;
        Ok(Self {
            values: values.into_iter().flatten().collect(),
            lists,
            bytes,
            budget_bytes: graph.bytes(),
            image_bytes: image.len(),
            image: Mutex::new(Arc::new(image)),
            resident: Mutex::new(Resident { gpus, host }),
            holders: (workers > 1).then(|| Mutex::new(RowHolders::new(&graph))),
            graph,
        })
    }

    /// Bytes of an allocation of it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first bytes of an allocation; zeros follow.
    pub(crate) fn image(&self) -> Arc<Vec<u8>> {
        lock(&self.image).clone()
    }

    /// Where the values begin for a worker's GPU, if they are there.
    pub(crate) fn base(&self, worker: usize) -> Option<Base> {
        lock(&self.resident).base(worker)
    }

    /// The other values are on a worker's GPU from now on. Returns where all begin.
    pub(crate) fn settle(&self, worker: usize, allocation: Allocation) -> Base {
        let mut resident = lock(&self.resident);
        resident.gpus[worker] = Some(allocation);
        resident.base(worker).expect("they were given a place")
    }

    /// Frees all values: no task uses them any more.
    pub(crate) fn free(&self) {
        let mut resident = lock(&self.resident);
        resident.gpus.iter_mut().for_each(|resident| drop(resident.take()));
        resident.host = None;
        drop(resident);
        if !self.is_small() {
            *lock(&self.image) = Arc::default();
        }
    }

    /// Whether its records, which are left once the values are free, have at most [`SMALL_BYTES`].
    pub(crate) fn is_small(&self) -> bool {
        let records = self.image_bytes + self.graph.record_bytes();
        self.holders.is_none() && records <= SMALL_BYTES
    }

    /// The elements of some rows that kernels have written, if they are in memory of the host.
    pub(crate) fn read(&self, value: ValueIndex, rows: Range<usize>) -> Option<TensorData> {
        let (Place::Host(offset), row_bytes) = self.values[value.index()] else { return None };
        let resident = lock(&self.resident);
        let Staged { memory, offset: first } = &resident.host.as_ref()?.range;
        let bytes = memory.read(first + offset + rows.start * row_bytes, rows.len() * row_bytes);
        Some(of_bytes(self.graph.values()[value.index()].row.element, bytes))
    }

    /// A row and those behind it, if they are in memory of the host.
    pub(crate) fn on_host(&self, value: ValueIndex, row: usize) -> Option<Staged> {
        let (Place::Host(offset), row_bytes) = self.values[value.index()] else { return None };
        let range = lock(&self.resident).host.as_ref()?.range.clone();
        Some(Staged { offset: range.offset + offset + row * row_bytes, ..range })
    }

    /// Whether a value is in memory of the host, for all GPUs.
    pub(crate) fn is_on_host(&self, value: ValueIndex) -> bool {
        matches!(self.values[value.index()], (Place::Host(_), _))
    }

    /// The rows of a value.
    pub(crate) fn rows(&self, value: ValueIndex) -> usize {
        self.graph.values()[value.index()].rows as usize
    }

    /// Bytes of a row of a value.
    pub(crate) fn row_bytes(&self, value: ValueIndex) -> usize {
        self.values[value.index()].1
    }

    /// The address of a row where the values begin at `base`.
    pub(crate) fn row(&self, base: Base, value: ValueIndex, row: usize) -> u64 {
        let (place, row_bytes) = self.values[value.index()];
        let of_value = match place {
            Place::Gpu(offset) => base.gpu + offset as u64,
            Place::Host(offset) => base.host + offset as u64,
        };
        of_value + (row * row_bytes) as u64
    }

    /// Rows as a port of a batch where the values begin at `base`.
    pub(crate) fn port(&self, base: Base, rows: &Rows) -> Port {
        let row_bytes = self.row_bytes(rows.value);
        let (first, list, stride) = match &rows.order {
            RowOrder::Strided { first, stride } => (*first as usize, 0, i64::from(*stride)),
            RowOrder::Listed(list) => (0, base.gpu + self.lists[&list.as_ptr().addr()] as u64, 0),
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
    pub(crate) fn sink(&self, base: Base, rows: &Rows, output: usize, time: SinkTime) -> Port {
        let is_last = u32::from(time == SinkTime::Last);
        Port { sink: 2 * output as u32 + is_last, ..self.port(base, rows) }
    }
}

/// Whether a run reads each value.
fn are_read(graph: &CellGraph) -> Vec<bool> {
    let mut are_read = vec![false; graph.values().len()];
    for run in graph.runs() {
        let reads = run.inputs.iter().chain(run.initial.iter().flatten());
        reads.for_each(|rows| are_read[rows.value.index()] = true);
    }
    are_read
}

/// All rows that runs name.
fn all_rows(graph: &CellGraph) -> impl Iterator<Item = &Rows> {
    graph.runs().iter().flat_map(|run| {
        let sinks = run.sinks.iter().map(|sink| &sink.rows);
        run.inputs.iter().chain(run.initial.iter().flatten()).chain(sinks)
    })
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, CellTypeId, ElementType, RowSpec, Sink};

    use super::*;

    #[test]
    fn small_values_that_no_run_reads_lie_in_memory_of_the_host() {
        let mut graph = CellGraphBuilder::new();
        let row = |elements| RowSpec::flat(ElementType::F32, elements);
        let x = graph.input(row(8), 3);
        let [between, first, large, second] = [(8, 3), (5, 3), (ON_HOST_BYTES / 8, 3), (2, 1)]
            .map(|(width, rows)| graph.value(row(width), rows));
        let every = |value| Sink { port: 0, time: SinkTime::Every, rows: Rows::all(value) };
        let none = || vec![None];
        graph.chain(
            CellTypeId(0),
            3,
            vec![Rows::all(x)],
            none(),
            vec![every(between), every(first)],
        );
        let last = Sink { port: 0, time: SinkTime::Last, rows: Rows::all(second) };
        graph.chain(CellTypeId(1), 3, vec![Rows::all(between)], none(), vec![every(large), last]);
        [x, between, first, large, second].into_iter().for_each(|value| graph.output(value));
        let graph = Arc::new(graph.finish().unwrap());
        let x = Tensor::new(vec![3, 8], TensorData::F32(vec![1.0; 24]));
        let asked = RequestMemory::new(graph, vec![x], 1, Err).err();
        // 3 rows of 5 elements and one of 2, at a multiple of 64 bytes.
        assert_eq!(asked, Some(64 + 8));
    }
}
