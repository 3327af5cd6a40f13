//! Graphs of the driver: launches that it was given once, and that one call submits again.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use super::device::Gpu;
use super::error::GpuError;
use super::launches::Launches;
use super::stream::Stream;

/// The fewest launches that are a graph. On an H200, a graph of one kernel took about as long as a launch (`bench/gpu/README.md`).
const LAUNCHES_MIN: usize = 2;

/// Graphs of launches that came more than once, and the launches that came once, of which the least recently used are forgotten.
pub(crate) struct Graphs {
    graphs_max: usize,
    /// By the hash of their launches.
    known: HashMap<u64, Known>,
    /// The number of times that launches were submitted.
    submitted: u64,
}

struct Known {
    launches: Launches,
    graph: Form,
    /// The number of the last time.
    used: u64,
}

/// The form in which launches are submitted.
enum Form {
    /// One by one: they came once.
    Once,
    /// One by one: the driver had no memory for a graph.
    NoMemory,
    Graph(Graph),
}

impl Graphs {
    /// Room for graphs; 0: launches are submitted one by one.
    pub(crate) fn new(graphs_max: usize) -> Self {
        Self { graphs_max, known: HashMap::new(), submitted: 0 }
    }

    /// Whether there is room for any.
    pub(crate) fn are_kept(&self) -> bool {
        self.graphs_max > 0
    }

    /// Submits launches: as a graph, if they have come before.
    pub(crate) fn submit(&mut self, stream: &Stream, launches: &Launches) -> Result<(), GpuError> {
        if self.graphs_max == 0 || launches.len() < LAUNCHES_MIN {
            return stream.launch_all(launches);
        }
        self.submitted += 1;
        let mut hasher = DefaultHasher::new();
        launches.hash(&mut hasher);
        let hash = hasher.finish();
        let used = self.submitted;
        match self.known.get_mut(&hash).filter(|known| known.launches == *launches) {
            Some(known) => {
                known.used = used;
                if let Form::Once = known.graph {
                    known.graph = match Graph::new(stream.gpu(), launches) {
                        Ok(graph) => Form::Graph(graph),
                        Err(error) if error.is_out_of_memory() => Form::NoMemory,
                        Err(error) => return Err(error),
                    };
                }
                match &known.graph {
                    Form::Graph(graph) => graph.launch(stream),
                    Form::Once | Form::NoMemory => stream.launch_all(launches),
                }
            }
            None => {
                if self.known.len() >= self.graphs_max {
                    let oldest = self.known.iter().min_by_key(|(_, known)| known.used);
                    let oldest = oldest.map(|(&hash, _)| hash);
                    oldest.and_then(|hash| self.known.remove(&hash));
                }
                let launches = launches.clone();
                stream.launch_all(&launches)?;
                self.known.insert(hash, Known { launches, graph: Form::Once, used });
                Ok(())
            }
        }
    }
}

/// A graph that can be launched.
struct Graph {
    gpu: Arc<Gpu>,
    raw: sys::CUgraphExec,
}

// SAFETY: the driver's handles may be used by any thread, by one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// A graph in which each launch waits for the one before.
    fn new(gpu: &Arc<Gpu>, launches: &Launches) -> Result<Self, GpuError> {
        gpu.bind()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the driver writes the handle.
        unsafe { sys::cuGraphCreate(&raw mut graph, 0) }.result()?;
        let raw = Self::instantiate(graph, launches);
        // SAFETY: the graph is used for the last time: what was instantiated is a copy. An error is that of a GPU that is lost.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        Ok(Self { gpu: gpu.clone(), raw: raw? })
    }

    fn instantiate(graph: sys::CUgraph, launches: &Launches) -> Result<sys::CUgraphExec, GpuError> {
        let mut before: Option<sys::CUgraphNode> = None;
        for (launch, argument) in launches.iter() {
            let mut arguments = [argument.as_ptr().cast::<c_void>().cast_mut()];
            let [grid_x, grid_y, grid_z] = launch.grid;
            let [block_x, block_y, block_z] = launch.block;
            let node = sys::CUDA_KERNEL_NODE_PARAMS {
                func: launch.kernel,
                gridDimX: grid_x,
                gridDimY: grid_y,
                gridDimZ: grid_z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: 0,
                kernelParams: arguments.as_mut_ptr(),
                extra: ptr::null_mut(),
                kern: ptr::null_mut(),
                ctx: ptr::null_mut(),
            };
            let mut handle = ptr::null_mut();
            let depends_on = before.as_ref().map_or(ptr::null(), ptr::from_ref);
            let count = usize::from(before.is_some());
            // SAFETY: the driver copies the argument, which has the layout of the kernel's parameter, and writes the handle.
            let added = unsafe {
                sys::cuGraphAddKernelNode_v2(
                    &raw mut handle,
                    graph,
                    depends_on,
                    count,
                    &raw const node,
                )
            };
            added.result()?;
            before = Some(handle);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes the handle.
        unsafe { sys::cuGraphInstantiateWithFlags(&raw mut raw, graph, 0) }.result()?;
        Ok(raw)
    }

    fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        self.gpu.bind()?;
        // SAFETY: both are there, and of this GPU.
        Ok(unsafe { sys::cuGraphLaunch(self.raw, stream.raw()) }.result()?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the graph is used for the last time; the driver keeps it until its launches are over.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}
