//! Graphs of kernels, which the host makes node by node.
//!
//! A launch of a graph is one operation of its stream. What is behind it follows all nodes; a node follows what precedes the launch, and the nodes
//! that it depends on, and no others. Launches of one executable graph follow each other, whatever their streams.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::devices::device_of;
use super::streams::stream;
use super::{give, status};
use crate::control::settings;
use crate::driver::{current, driver};
use crate::graph::{Graph, run_in_order};
use crate::launches::{KernelLaunch, Shape};
use crate::lock::lock;
use crate::order::{Known, Preceding};
use crate::status::Status;
use crate::watched::run;

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
struct KernelNode {
    function: *mut c_void,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    dynamic_shared: c_uint,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
    /// What is launched, on the device of `context`, where `function` is null.
    kernel: *mut c_void,
    context: *mut c_void,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphCreate(to: *mut *mut c_void, flags: c_uint) -> i32 {
    let create = || {
        let driver = driver()?;
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        Ok(ptr::without_provenance_mut(driver.graphs.add(Graph::default())))
    };
    // SAFETY: the caller's promise.
    unsafe { give(to, create) }
}

/// A graph ends with its nodes. Executable graphs that were made of it stay.
#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: *mut c_void) -> i32 {
    status(|| driver()?.graphs.remove(graph.addr()).map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddKernelNode_v2(
    to: *mut *mut c_void,
    graph: *mut c_void,
    dependencies: *const *mut c_void,
    count: usize,
    node: *const KernelNode,
) -> i32 {
    let add = || {
        let (driver, current) = current()?;
        let graph = driver.graphs.get(graph.addr())?;
        if node.is_null() || (dependencies.is_null() && count > 0) {
            return Err(Status::InvalidValue);
        }
        // SAFETY: the caller's promise.
        let node = unsafe { &*node };
        let KernelNode { grid, block, dynamic_shared, arguments, extra, .. } = *node;
        let (function, device) = match (node.function.is_null(), node.context.is_null()) {
            (false, _) => (node.function, current),
            (true, true) => (node.kernel, current),
            (true, false) => (node.kernel, device_of(node.context)?),
        };
        let function = driver.functions.get(function.addr())?;
        let shape = Shape { grid, block, dynamic_shared, is_cooperative: false };
        // SAFETY: the caller's promise.
        let launch = unsafe { KernelLaunch::new(function, shape, arguments, extra) }?;
        // SAFETY: the caller's promise: as many handles as `count` says.
        let dependency = |at| unsafe { (*dependencies.add(at)).addr() };
        let dependencies: Vec<usize> = (0..count).map(dependency).collect();
        Ok(ptr::without_provenance_mut(graph.add(device, launch, &dependencies)?))
    };
    // SAFETY: the caller's promise.
    unsafe { give(to, add) }
}

/// Makes an executable graph, a copy. Of the flags, those are known that change nothing here.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(
    to: *mut *mut c_void,
    graph: *mut c_void,
    flags: c_ulonglong,
) -> i32 {
    /// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH` and `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`.
    const FLAGS: c_ulonglong = 1 | 8;
    let instantiate = || {
        let driver = driver()?;
        let graph = driver.graphs.get(graph.addr())?;
        if flags & !FLAGS != 0 {
            return Err(Status::InvalidValue);
        }
        Ok(ptr::without_provenance_mut(driver.executable_graphs.add(graph.instantiate())))
    };
    // SAFETY: the caller's promise.
    unsafe { give(to, instantiate) }
}

/// Its launches that are not over run to their end.
#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(graph: *mut c_void) -> i32 {
    status(|| driver()?.executable_graphs.remove(graph.addr()).map(drop))
}

/// Launches a graph, all nodes of which are of the current device: a stream runs no other device's nodes here.
#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(graph: *mut c_void, handle: *mut c_void) -> i32 {
    status(|| {
        let (driver, device) = current()?;
        let graph = driver.executable_graphs.get(graph.addr())?;
        let nodes = graph.nodes.clone();
        if nodes.iter().any(|node| node.device != device) {
            return Err(Status::NotSupported);
        }
        let names: Vec<_> = nodes.iter().map(|node| node.what.clone()).collect();
        let work = move |operation: u32, preceding: &Preceding| {
            let seed = settings().seed ^ u64::from(operation) << 20;
            // What is known to be over once each node is.
            let mut known = vec![Known::default(); nodes.len()];
            let run_node = |at: usize, random: &mut Pcg64Mcg| {
                let node = &nodes[at];
                driver.pause(device, random)?;
                let mut preceding = preceding.clone();
                node.dependencies.iter().for_each(|&of| preceding.known.learn(&known[of]));
                let number = operation + 1 + at as u32;
                known[at] = preceding.and(number);
                run(driver, device, &node.launch, (number, &preceding))
            };
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            run_in_order(nodes.len(), |at| &nodes[at].dependencies, &mut random, run_node)
        };
        let last = &mut *lock(&graph.last);
        let what = ("a graph", &names[..]);
        *last =
            Some(driver.submit_recorded(stream(handle)?, what, last.clone(), Box::new(work))?);
        Ok(())
    })
}
