//! What the tests share: libraries of kernels, with bugs or without, the memory of a GPU, and rows that cover what a batch may hold.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batchmaker_cuda::kernels::batch::{Batch, Lookup, NO_OUTPUT, Now, Port, Row};
use batchmaker_cuda::kernels::tiles;
use batchmaker_cuda::kernels::weights::Storage;
use batchmaker_cuda_emulator::{
    DevicePointer, Fault, KernelLibrary, Launch, Memory, Place, Report, Schedule, compile,
    compile_unoptimized, run,
};
use batchmaker_graph::Precision;
use bytemuck::{Pod, Zeroable};

/// Schedules of each shape.
pub(crate) const SEEDS: u64 = 20;

/// The largest difference of cells from their equations in f64.
pub(crate) const TOLERANCE: f64 = 1e-5;

/// The precisions that kernels have.
pub(crate) const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

/// How weights of a precision are stored.
pub(crate) fn storage(precision: Precision) -> Storage {
    Storage::of(precision).unwrap()
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// A library of the kernels of a file, with some text of it or of a header replaced.
pub(crate) fn library(name: &str, file: &str, replaced: Option<[&str; 2]>) -> KernelLibrary {
    library_of(name, file, None, replaced)
}

/// The same of a file whose text is given, if it is none of the folder.
pub(crate) fn library_of(
    name: &str,
    file: &str,
    source: Option<&str>,
    replaced: Option<[&str; 2]>,
) -> KernelLibrary {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut found = 0;
    for entry in std::fs::read_dir(kernels()).unwrap() {
        let path = entry.unwrap().path();
        let of = path.file_name().unwrap();
        if path.extension().is_none_or(|of| of != "cuh") && of != file {
            continue;
        }
        let mut text = std::fs::read_to_string(&path).unwrap();
        if let Some([from, to]) = replaced {
            found += text.matches(from).count();
            text = text.replace(from, to);
        }
        std::fs::write(folder.join(of), text).unwrap();
    }
    if let Some(source) = source {
        std::fs::write(folder.join(file), source).unwrap();
    }
    if let Some([from, _]) = replaced {
        assert_eq!(found, 1, "{from:?} stands once in {file} and the headers");
    }
    let to = folder.join(file).with_extension("so");
    // A library with a planted bug runs little.
    let compile = if replaced.is_some() { compile_unoptimized } else { compile };
    compile(&folder.join(file), &["EMULATED_CUDA"], &to).unwrap();
    KernelLibrary::load(&to).unwrap()
}

/// Numbers between -1 and 1, no two alike nearby. Each fifth is in the middle of two numbers that bfloat16 has.
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at + 131 * seed) as f32 * 0.618_034).fract() * 2.0 - 1.0;
    let middle = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000 | 0x8000);
    (0..count).map(|at| if at % 5 == 4 { middle(number(at)) } else { number(at) }).collect()
}

/// Weights of sums of `inputs` products: they leave gates between 0 and 1.
pub(crate) fn weights(count: usize, seed: usize, inputs: usize) -> Arc<[f32]> {
    let scale = 1.0 / (inputs.max(1) as f32).sqrt();
    numbers(count, seed).iter().map(|x| scale * x).collect()
}

/// Numbers for the equations.
pub(crate) fn wide(of: &[f32]) -> Vec<f64> {
    of.iter().map(|&x| f64::from(x)).collect()
}

/// The bits of numbers.
pub(crate) fn bits(of: &[Vec<f32>]) -> Vec<Vec<u32>> {
    of.iter().map(|of| of.iter().map(|x| x.to_bits()).collect()).collect()
}

/// The largest difference of numbers from the equations; infinite if one is no number.
pub(crate) fn difference(found: &[Vec<f32>], right: &[Vec<f64>]) -> f64 {
    assert!(found.iter().map(Vec::len).eq(right.iter().map(Vec::len)));
    let pairs = found.iter().flatten().zip(right.iter().flatten());
    let differences = pairs.map(|(&found, right)| (f64::from(found) - right).abs());
    differences.map(|of| if of.is_nan() { f64::INFINITY } else { of }).fold(0.0, f64::max)
}

/// The memory of a GPU. Addresses are those that kernels have.
pub(crate) struct Gpu(Memory);

impl Gpu {
    pub(crate) fn new() -> Self {
        Self(Memory::new(64 << 20))
    }

    /// The address of a copy of data.
    pub(crate) fn upload<T: Pod>(&self, data: &[T], name: &str) -> u64 {
        self.0.upload(data, name).unwrap() as u64
    }

    /// The address of bytes that nobody has written yet.
    pub(crate) fn room(&self, bytes: usize, name: &str) -> u64 {
        self.0.allocate(bytes, name, Place::Device).unwrap() as u64
    }

    /// The same in the memory of the host.
    pub(crate) fn room_of_host(&self, bytes: usize, name: &str) -> u64 {
        self.0.allocate(bytes, name, Place::Host).unwrap() as u64
    }

    /// The address of a copy of data in the memory of the host.
    pub(crate) fn upload_to_host<T: Pod>(&self, data: &[T], name: &str) -> u64 {
        let bytes = size_of_val(data);
        let at = self.room_of_host(bytes, name);
        // SAFETY: the memory has room for the data, and nobody else has it yet.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at as *mut T, data.len()) };
        self.0.mark_written(at as *const u8, bytes);
        at
    }

    /// The elements from an address on.
    pub(crate) fn read<T: Pod>(&self, at: u64, count: usize) -> Vec<T> {
        // SAFETY: no kernel runs; any bytes are a value of the type.
        unsafe { self.0.download(at as DevicePointer, count) }
    }

    /// A batch of rows at [`TIME`]; `ended` may be 0.
    pub(crate) fn batch(&self, rows: &[Row], ports: &[Port], ended: u64) -> Batch {
        let (count, time) = (rows.len() as i32, TIME);
        let (rows, ports) = (self.upload(rows, "rows"), self.upload(ports, "ports"));
        Batch { rows, ports, ended, now: 0, count, time }
    }

    /// The same, and the number of rows that launches are for. Of odd seeds kernels find the number of rows and the time as launches of a graph do, which are
    /// for more rows.
    pub(crate) fn batch_of(
        &self,
        rows: &[Row],
        ports: &[Port],
        ended: u64,
        seed: u64,
    ) -> (Batch, usize) {
        let batch = self.batch(rows, ports, ended);
        if seed.is_multiple_of(2) {
            return (batch, rows.len());
        }
        let (rows_max, after) = (rows.len() + 17, seed as u32);
        let now = Now { count: batch.count, time: batch.time.wrapping_sub(after) };
        let now = self.upload(&[now], "now");
        (Batch { now, count: rows_max as i32, time: after, ..batch }, rows_max)
    }

    /// Runs a kernel on its argument, three blocks at a time.
    pub(crate) fn launch(
        &self,
        kernel: (&KernelLibrary, &str),
        shape: [[u32; 3]; 2],
        argument: &impl Pod,
        seed: u64,
    ) -> Vec<Report> {
        self.launch_some(kernel, shape, (3, 0), argument, seed)
    }

    /// The same with at most `resident_blocks_max` blocks at a time, and `dynamic_shared` bytes of dynamic shared memory.
    pub(crate) fn launch_some(
        &self,
        (library, kernel): (&KernelLibrary, &str),
        [grid, block]: [[u32; 3]; 2],
        (resident_blocks_max, dynamic_shared): (usize, usize),
        argument: &impl Pod,
        seed: u64,
    ) -> Vec<Report> {
        let kernel = library.kernel(kernel).unwrap();
        let arguments = vec![bytemuck::bytes_of(argument).to_vec()];
        let launch = Launch { kernel, grid, block, dynamic_shared, resident_blocks_max, arguments };
        // SAFETY: the pointers lead to this memory, which the test alone accesses.
        unsafe { run(&self.0, &launch, Schedule::of_seed(seed)) }.reports
    }

    /// Runs a kernel whose blocks compute tiles of rows and units.
    pub(crate) fn launch_tiles(
        &self,
        kernel: (&KernelLibrary, &str),
        grid: [u32; 3],
        argument: &impl Pod,
        seed: u64,
    ) -> Vec<Report> {
        self.launch(kernel, [grid, tiles::BLOCK], argument, seed)
    }
}

/// The time of batches. Older chains began before time wrapped around.
pub(crate) const TIME: u32 = 2;

/// The nodes of the longest chains.
const NODES: usize = 5;

/// Slots of the states of a batch: more than it has rows.
pub(crate) fn slots(rows: usize) -> usize {
    rows + 3
}

/// A row at a node of a chain. Slots come in another order than rows.
pub(crate) fn row_at(row: usize, rows: usize, [node, length]: [usize; 2]) -> Row {
    Row {
        request: [row as u32 + 100, 7],
        run: row as u32 + 1000,
        slot: (slots(rows) - 1 - row) as u32,
        first: TIME.wrapping_sub(node as u32),
        half: row as u32 / 2 % 2,
        length: length as u32,
        stop_output: NO_OUTPUT,
        ..Row::zeroed()
    }
}

/// Rows at different nodes, each with so many ports. Some are at their last node, and some are padding.
pub(crate) fn rows(count: usize, ports: usize) -> Vec<Row> {
    let row = |row: usize| {
        let node = row % NODES;
        let length = [NODES, NODES, node + 1, 2][row % 4];
        Row { ports: (row * ports) as u32, ..row_at(row, count, [node, length]) }
    };
    (0..count).map(row).collect()
}

/// The node that a row is at.
pub(crate) fn node_of(row: &Row) -> usize {
    TIME.wrapping_sub(row.first) as usize
}

/// Whether a row is past its last node.
pub(crate) fn is_padding(row: &Row) -> bool {
    node_of(row) >= row.length as usize
}

/// The node whose inputs a row has: padding has those of the last one.
pub(crate) fn input_node(row: &Row) -> usize {
    node_of(row).min(row.length as usize - 1)
}

/// The half, among those of all slots, that has the states of a row before the step, or after it.
pub(crate) fn half_of(row: &Row, is_after: bool) -> usize {
    row.slot as usize * 2 + (TIME + row.half + u32::from(is_after)) as usize % 2
}

/// How the rows of nodes lie in a value.
#[derive(Clone, Copy, Debug)]
enum Order {
    Forwards,
    Backwards,
    /// In the places that a list names.
    Listed,
}

/// A value of a request, with a row for each node of a chain.
pub(crate) struct Value {
    at: u64,
    nodes: usize,
    bytes: usize,
    order: Order,
}

impl Value {
    /// Uploads rows, given in order of nodes. Every three values in a row have all orders; a value with one row has it in place 0.
    pub(crate) fn upload<T: Pod>(gpu: &Gpu, number: usize, nodes: usize, rows: &[T]) -> Self {
        let order = [Order::Forwards, Order::Backwards, Order::Listed][number % 3];
        let width = rows.len() / nodes;
        let mut value = Self { at: 0, nodes, bytes: width * size_of::<T>(), order };
        let mut data = rows.to_vec();
        for (node, row) in rows.chunks(width).enumerate() {
            data[value.place(node) * width..][..width].copy_from_slice(row);
        }
        value.at = gpu.upload(&data, "value");
        value
    }

    /// The row of the value that is a node's.
    fn place(&self, node: usize) -> usize {
        match self.order {
            Order::Forwards => node,
            Order::Backwards => self.nodes - 1 - node,
            Order::Listed => (node + 1) % self.nodes,
        }
    }

    /// The rows in order of nodes.
    pub(crate) fn read<T: Pod>(&self, gpu: &Gpu) -> Vec<T> {
        let width = self.bytes / size_of::<T>();
        let data: Vec<T> = gpu.read(self.at, self.nodes * width);
        let row = |node: usize| &data[self.place(node) * width..][..width];
        (0..self.nodes).flat_map(|node| row(node).to_vec()).collect()
    }

    /// The port of its rows, of a sink if it is one.
    pub(crate) fn port(&self, gpu: &Gpu, sink: u32) -> Port {
        let (bytes, row) = (self.bytes as u32, self.bytes as i64);
        let forwards = Port { base: self.at, list: 0, stride: row, bytes, sink };
        match self.order {
            Order::Forwards => forwards,
            Order::Backwards => {
                let last = self.at + (self.nodes as u64 - 1) * u64::from(bytes);
                Port { base: last, stride: -row, ..forwards }
            }
            Order::Listed => {
                let list: Vec<u32> = (0..self.nodes).map(|node| self.place(node) as u32).collect();
                Port { list: gpu.upload(&list, "list"), stride: 0, ..forwards }
            }
        }
    }
}

/// An embedding.
pub(crate) struct Embedding {
    table: Vec<f32>,
    width: usize,
    argument: Lookup,
}

impl Embedding {
    /// The number of its rows.
    pub(crate) const ROWS: usize = 10;

    pub(crate) fn upload(gpu: &Gpu, width: usize) -> Self {
        Self::of_table(gpu, width, numbers(Self::ROWS * width, 11))
    }

    /// The embedding of a table.
    pub(crate) fn of_table(gpu: &Gpu, width: usize, table: Vec<f32>) -> Self {
        let argument = Lookup {
            table: gpu.upload(&table, "table"),
            failed: gpu.upload(&[0u32], "failed"),
            rows: Self::ROWS as i32,
            width: width as i32,
        };
        Self { table, width, argument }
    }

    /// What a kernel is given.
    pub(crate) fn argument(&self) -> Lookup {
        self.argument
    }

    /// The row of an id; zeros if there is none.
    pub(crate) fn row(&self, id: i64) -> Vec<f32> {
        match usize::try_from(id) {
            Ok(id) if id < Self::ROWS => self.table[id * self.width..][..self.width].to_vec(),
            _ => vec![0.0; self.width],
        }
    }

    /// Whether a kernel has met an id that the table lacks.
    pub(crate) fn has_failed(&self, gpu: &Gpu) -> bool {
        gpu.read::<u32>(self.argument.failed, 1) == [1]
    }
}

/// An id of an embedding for each row and node.
pub(crate) fn known_id(row: usize, node: usize) -> i64 {
    ((row * 7 + node * 3) % Embedding::ROWS) as i64
}

/// What finds a bug.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    By(Fault),
    ByValues,
    ByAnything,
}

impl Found {
    /// Whether reports, or values that are wrong, are what finds the bug.
    pub(crate) fn is_by(self, reports: &[Report], is_wrong: impl FnOnce() -> bool) -> bool {
        match self {
            Self::By(fault) => reports.iter().any(|report| report.fault == fault),
            Self::ByValues => reports.is_empty() && is_wrong(),
            Self::ByAnything => !reports.is_empty() || is_wrong(),
        }
    }
}

/// Tests of planted bugs, each a text of the source and what stands in its place; `$is_found` runs one.
macro_rules! bugs {
    ($is_found:path; $($name:ident: $from:literal => $to:literal, $found:expr;)*) => {
        mod bugs {
            use batchmaker_cuda_emulator::Fault;

            use crate::harness::Found;

            $(#[test] fn $name() {
                $is_found(stringify!($name), [$from, $to], $found);
            })*
        }
    };
}

pub(crate) use bugs;
