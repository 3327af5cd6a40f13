//! Graphs of kernels that a host program makes node by node. Takes g++.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError, result, sys};

#[macro_use]
mod common;

use common::{COUNT, Counter, Emulated, Program, error, numbers, printed, scaled};

const ONE_BLOCK: [u32; 6] = [1, 1, 1, 32, 1, 1];

/// Arguments of a kernel that scales x to y.
struct Scaling {
    x: u64,
    y: u64,
    factor: f32,
    count: i32,
}

impl Scaling {
    fn new(program: &Program, x: &CudaSlice<f32>, y: &CudaSlice<f32>, factor: f32) -> Self {
        let [x, y] = [x, y].map(|of| of.device_ptr(&program.stream).0);
        Self { x, y, factor, count: COUNT as i32 }
    }

    /// The parameters of a node that launches the kernel.
    fn node(&self, program: &Program) -> Node {
        let Self { x, y, factor, count } = self;
        let arguments = vec![argument(x), argument(y), argument(factor), argument(count)];
        Node::new(program, "scale", [4, 1, 1, 32, 1, 1], arguments)
    }
}

fn argument<T>(of: &T) -> *mut c_void {
    ptr::from_ref(of).cast_mut().cast()
}

/// A kernel, its shape, and pointers to its arguments, which live longer.
struct Node {
    parameters: sys::CUDA_KERNEL_NODE_PARAMS,
    arguments: Vec<*mut c_void>,
}

impl Node {
    /// A node of a grid and a block, three extents each.
    fn new(program: &Program, kernel: &str, shape: [u32; 6], arguments: Vec<*mut c_void>) -> Self {
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: program.kernel(kernel).cu_function(),
            gridDimX: shape[0],
            gridDimY: shape[1],
            gridDimZ: shape[2],
            blockDimX: shape[3],
            blockDimY: shape[4],
            blockDimZ: shape[5],
            sharedMemBytes: 0,
            kernelParams: ptr::null_mut(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        Self { parameters, arguments }
    }

    /// The node with its arguments where they are now.
    fn parameters(&mut self) -> sys::CUDA_KERNEL_NODE_PARAMS {
        sys::CUDA_KERNEL_NODE_PARAMS {
            kernelParams: self.arguments.as_mut_ptr(),
            ..self.parameters
        }
    }

    /// Launches the kernel without a graph.
    fn launch(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        let of = self.parameters();
        let grid = (of.gridDimX, of.gridDimY, of.gridDimZ);
        let block = (of.blockDimX, of.blockDimY, of.blockDimZ);
        let (shared, stream) = (of.sharedMemBytes, stream.cu_stream());
        // SAFETY: the arguments are those of the kernel.
        unsafe { result::launch_kernel(of.func, grid, block, shared, stream, &mut self.arguments) }
    }
}

/// A graph that is made.
struct Graph(sys::CUgraph);

impl Graph {
    fn new() -> Self {
        let mut graph = ptr::null_mut();
        // SAFETY: the handle is written before it is read.
        unsafe { sys::cuGraphCreate(&raw mut graph, 0) }.result().unwrap();
        Self(graph)
    }

    fn try_add(
        &self,
        mut node: Node,
        after: &[sys::CUgraphNode],
    ) -> Result<sys::CUgraphNode, DriverError> {
        let (mut handle, parameters) = (ptr::null_mut(), node.parameters());
        // SAFETY: the arguments are those of the kernel, and nodes are as many as the call says.
        let result = unsafe {
            let (after, count) = (after.as_ptr(), after.len());
            sys::cuGraphAddKernelNode_v2(
                &raw mut handle,
                self.0,
                after,
                count,
                &raw const parameters,
            )
        };
        result.result().map(|()| handle)
    }

    fn add(&self, node: Node, after: &[sys::CUgraphNode]) -> sys::CUgraphNode {
        self.try_add(node, after).unwrap()
    }

    /// Adds a kernel that counts by a number.
    fn count(
        &self,
        program: &Program,
        kernel: &str,
        (counter, by): (u64, u32),
        after: &[sys::CUgraphNode],
    ) -> sys::CUgraphNode {
        let arguments = vec![argument(&counter), argument(&by)];
        self.add(Node::new(program, kernel, ONE_BLOCK, arguments), after)
    }

    fn instantiate(&self) -> Result<Executable, DriverError> {
        let mut graph = ptr::null_mut();
        // SAFETY: the driver knows its graphs, and refuses others.
        unsafe { sys::cuGraphInstantiateWithFlags(&raw mut graph, self.0, 0) }.result()?;
        Ok(Executable(graph))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        // SAFETY: as above.
        unsafe { sys::cuGraphDestroy(self.0) }.result()
    }
}

/// An executable graph.
struct Executable(sys::CUgraphExec);

impl Executable {
    fn launch(&self, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: the driver knows its graphs, and refuses others.
        unsafe { sys::cuGraphLaunch(self.0, stream.cu_stream()) }.result()
    }

    fn destroy(&self) -> Result<(), DriverError> {
        // SAFETY: as above.
        unsafe { sys::cuGraphExecDestroy(self.0) }.result()
    }
}

/// A word on the device, zero at first.
fn word(program: &Program) -> (CudaSlice<u32>, u64) {
    let word = program.stream.alloc_zeros::<u32>(1).unwrap();
    program.stream.synchronize().unwrap();
    let at = word.device_ptr(&program.stream).0;
    (word, at)
}

/// A race of a node and a copy to the host was reported, whichever came first.
fn assert_race_with_copy(emulated: &Emulated, node: &str) {
    let reports = emulated.reports();
    assert!(reports[0].contains("data race"), "{reports:?}");
    let is_node_first = reports[0].contains("a copy to the host") && reports[0].contains(node);
    let is_copy_first =
        reports[0].starts_with("scale") && reports[0].contains("after a copy to the host");
    assert!(is_node_first || is_copy_first, "{reports:?}");
}

/// A chain, of which the last node writes what the first one reads. What is behind it on its stream, and behind an event there, follows all nodes.
fn a_chain_computes_what_launches_compute(emulated: &Emulated) {
    emulated.configure("pause_us", "200");
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let vectors = || [0; 3].map(|_| stream.clone_htod(&numbers()).unwrap());
    let steps = [(0, 1, 3.0), (1, 2, 5.0), (2, 0, 0.5)];
    let alone = vectors();
    for (from, to, factor) in steps.into_iter().chain(steps) {
        let scaling = Scaling::new(&program, &alone[from], &alone[to], factor);
        scaling.node(&program).launch(&stream).unwrap();
    }
    let (of_graph, graph, mut last) = (vectors(), Graph::new(), Vec::new());
    for (from, to, factor) in steps {
        let scaling = Scaling::new(&program, &of_graph[from], &of_graph[to], factor);
        last = vec![graph.add(scaling.node(&program), &last)];
    }
    let graph = graph.instantiate().unwrap();
    (0..2).for_each(|_| graph.launch(&stream).unwrap());
    other.wait(&stream.record_event(None).unwrap()).unwrap();
    for (alone, of_graph) in alone.iter().zip(&of_graph) {
        let expected = stream.clone_dtoh(alone).unwrap();
        assert_eq!(stream.clone_dtoh(of_graph).unwrap(), expected);
        assert_eq!(other.clone_dtoh(of_graph).unwrap(), expected);
    }
    let expected: Vec<f32> = numbers().iter().map(|x| 56.25 * x).collect();
    assert_eq!(stream.clone_dtoh(&of_graph[0]).unwrap(), expected);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// What the host does with arguments, once their node is there, changes nothing.
fn arguments_are_copied_when_a_node_is_added(emulated: &Emulated) {
    let program = Program::new(0);
    let stream = &program.stream;
    let x = stream.clone_htod(&numbers()).unwrap();
    let y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    let graph = Graph::new();
    let mut scaling = Scaling::new(&program, &x, &y, 3.0);
    graph.add(scaling.node(&program), &[]);
    scaling.factor = 4.0;
    // The compiler cannot know that nobody reads it.
    let scaling = std::hint::black_box(&mut scaling);
    let executable = graph.instantiate().unwrap();
    (scaling.x, scaling.count) = (8, 1000);
    std::hint::black_box(scaling);
    executable.launch(stream).unwrap();
    assert_eq!(stream.clone_dtoh(&y).unwrap(), scaled());
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A graph is destroyed, and changed, before the launch of what was made of it, and the latter while its launch waits: all nodes run that were there.
fn graphs_are_destroyed(emulated: &Emulated) {
    let program = Program::new(0);
    let (word, at) = word(&program);
    let (graph, counter) = (Graph::new(), Counter::new(&program));
    let first = graph.count(&program, "count_up_plainly", (at, 1), &[]);
    let executable = graph.instantiate().unwrap();
    graph.count(&program, "count_up_plainly", (at, 10), &[first]);
    let both = graph.instantiate().unwrap();
    graph.destroy().unwrap();
    counter.launch(&program, "wait_for_host", 1);
    executable.launch(&program.stream).unwrap();
    both.launch(&program.stream).unwrap();
    [&executable, &both].iter().for_each(|of| of.destroy().unwrap());
    let invalid = sys::CUresult::CUDA_ERROR_INVALID_HANDLE;
    assert_eq!(error(executable.launch(&program.stream)), invalid);
    assert_eq!(error(both.destroy()), invalid);
    assert_eq!(error(graph.destroy()), invalid);
    assert_eq!(error(graph.instantiate().map(drop)), invalid);
    assert_eq!(
        error(graph.try_add(Node::new(&program, "scale", ONE_BLOCK, Vec::new()), &[])),
        invalid
    );
    // SAFETY: the kernel loads the four bytes at once.
    unsafe { counter.at.write_volatile(1) };
    assert_eq!(program.stream.clone_dtoh(&word).unwrap(), [12]);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// Nodes that write one word. A dependency orders them, by way of a node between them too; where there is none, the race is reported.
fn nodes_write_one_word(emulated: &Emulated) {
    let program = Program::new(0);
    let ((word, at), (_other, other_at)) = (word(&program), word(&program));
    let (kernel, graph) = ("count_up_plainly", Graph::new());
    let first = graph.count(&program, kernel, (at, 1), &[]);
    let between = graph.count(&program, kernel, (other_at, 1), &[first]);
    graph.count(&program, kernel, (at, 10), &[between]);
    let executable = graph.instantiate().unwrap();
    (0..3).for_each(|_| executable.launch(&program.stream).unwrap());
    assert_eq!(program.stream.clone_dtoh(&word).unwrap(), [33]);
    assert_eq!(emulated.reports(), [""; 0]);
    graph.count(&program, kernel, (at, 100), &[first]);
    graph.instantiate().unwrap().launch(&program.stream).unwrap();
    let failed = sys::CUresult::CUDA_ERROR_LAUNCH_FAILED;
    assert_eq!(error(program.stream.synchronize()), failed);
    let reports = emulated.reports();
    assert!(reports[0].contains("data race: nothing orders a"), "{reports:?}");
    let names = ["node 3 of operation", "node 4 of operation"];
    let is_named = |name| reports[0].contains(&format!("{kernel} by a graph ({name}"));
    assert!(names.into_iter().any(is_named), "{reports:?}");
    assert_eq!(error(executable.launch(&program.stream)), failed);
}

/// Another stream reads what a node writes, without an event.
fn another_stream_does_not_follow_a_graph(emulated: &Emulated) {
    let program = Program::new(0);
    let (stream, other) = (&program.stream, program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    stream.synchronize().unwrap();
    let graph = Graph::new();
    graph.add(Scaling::new(&program, &x, &y, 3.0).node(&program), &[]);
    graph.instantiate().unwrap().launch(stream).unwrap();
    let done = other.clone_dtoh(&y).map(drop).and(stream.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    assert_race_with_copy(emulated, "scale by a graph (node 1 of operation");
}

/// Launches of one executable graph follow each other on two streams; those of two that were made of one graph do not.
fn an_executable_graph_runs_once_at_a_time(emulated: &Emulated) {
    emulated.configure("pause_us", "500");
    let program = Program::new(0);
    let (stream, other) = (&program.stream, program.context.new_stream().unwrap());
    let (word, at) = word(&program);
    let graph = Graph::new();
    graph.count(&program, "count_up_plainly", (at, 1), &[]);
    let [one, two] = [0; 2].map(|_| graph.instantiate().unwrap());
    for _ in 0..5 {
        one.launch(stream).unwrap();
        one.launch(&other).unwrap();
    }
    assert_eq!(other.clone_dtoh(&word).unwrap(), [10]);
    assert_eq!(emulated.reports(), [""; 0]);
    stream.synchronize().unwrap();
    one.launch(stream).unwrap();
    two.launch(&other).unwrap();
    let done = stream.synchronize().and(other.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("data race: nothing orders a"), "{reports:?}");
}

/// Two nodes without an order between them, which need none: now the one is last, now the other.
fn nodes_run_in_any_order(emulated: &Emulated) {
    let program = Program::new(0);
    let (word, at) = word(&program);
    let graph = Graph::new();
    for value in [1, 2] {
        graph.count(&program, "exchange", (at, value), &[]);
    }
    let graph = graph.instantiate().unwrap();
    let last = |_| {
        graph.launch(&program.stream).unwrap();
        program.stream.clone_dtoh(&word).unwrap()[0]
    };
    let mut last: Vec<u32> = (0..20).map(last).collect();
    last.sort_unstable();
    last.dedup();
    assert_eq!(last, [1, 2]);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A host that sees what a node publishes follows this node and those before it, not its graph.
fn a_node_publishes_to_the_host(emulated: &Emulated) {
    emulated.configure("pause_us", "5000");
    let program = Program::new(0);
    let (stream, other) = (&program.stream, program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let vectors = [0; 2].map(|_| stream.alloc_zeros::<f32>(COUNT).unwrap());
    stream.synchronize().unwrap();
    let (graph, counter) = (Graph::new(), Counter::new(&program));
    let [early, late] = vectors.each_ref().map(|y| Scaling::new(&program, &x, y, 3.0));
    let first = graph.add(early.node(&program), &[]);
    let publishes = graph.count(&program, "count_up", (counter.of_device, 1), &[first]);
    graph.add(late.node(&program), &[publishes]);
    graph.instantiate().unwrap().launch(stream).unwrap();
    counter.wait_for(emulated, 1);
    assert_eq!(other.clone_dtoh(&vectors[0]).unwrap(), scaled());
    assert_eq!(emulated.reports(), [""; 0]);
    let done = other.clone_dtoh(&vectors[1]).map(drop).and(stream.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    assert_race_with_copy(emulated, "scale by a graph (node 3 of operation");
}

/// An error that a test asks for counts each node: that of the second node of the second launch comes after four, and fails the device.
fn a_node_fails(emulated: &Emulated) {
    let program = Program::new(0);
    let (graph, counter) = (Graph::new(), Counter::new(&program));
    let mut last = Vec::new();
    for by in [1, 10, 100] {
        last = vec![graph.count(&program, "count_up", (counter.of_device, by), &last)];
    }
    let graph = graph.instantiate().unwrap();
    emulated.configure("fail_launch", "5");
    graph.launch(&program.stream).unwrap();
    program.stream.synchronize().unwrap();
    graph.launch(&program.stream).unwrap();
    let failed = sys::CUresult::CUDA_ERROR_LAUNCH_FAILED;
    for _ in 0..2 {
        assert_eq!(error(program.stream.synchronize()), failed);
    }
    assert_eq!(error(graph.launch(&program.stream)), failed);
    assert_eq!(error(program.stream.clone_htod(&numbers())), failed);
    // SAFETY: nothing runs any more.
    assert_eq!(unsafe { counter.at.read_volatile() }, 112);
}

/// Nodes are refused with the errors of launches that are, and as parts of another graph; what is refused changes nothing.
fn what_is_invalid_is_refused(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [other, program] = [1, 0].map(Program::new);
    let (word, at) = word(&program);
    let stream = &program.stream;
    let [graph, another, destroyed] = [0; 3].map(|_| Graph::new());
    let kernel = "count_up_plainly";
    let [own, of_another, of_destroyed] =
        [&graph, &another, &destroyed].map(|of| of.count(&program, kernel, (at, 1), &[]));
    destroyed.destroy().unwrap();

    let (counter, by) = (at, 10u32);
    let node = |shape: [u32; 6]| {
        Node::new(&program, kernel, shape, vec![argument(&counter), argument(&by)])
    };
    let mut unknown = node(ONE_BLOCK);
    unknown.parameters.func = ptr::without_provenance_mut(0xabc << 12);
    let mut none = node(ONE_BLOCK);
    none.parameters.func = ptr::null_mut();
    let mut too_much_shared = node(ONE_BLOCK);
    too_much_shared.parameters.sharedMemBytes = 1 << 20;
    let refused =
        [[0, 1, 1, 32, 1, 1], [1, 1, 1, 1, 0, 1], [1, 1, 1, 1025, 1, 1], [1, 1, 1 << 16, 1, 1, 1]];
    let refused = refused.map(node).into_iter().chain([unknown, none, too_much_shared]);
    let (value, handle) =
        (sys::CUresult::CUDA_ERROR_INVALID_VALUE, sys::CUresult::CUDA_ERROR_INVALID_HANDLE);
    let expected = [value, value, value, value, handle, handle, value];
    for (mut node, expected) in refused.zip(expected) {
        assert_eq!(error(node.launch(stream)), expected);
        assert_eq!(error(graph.try_add(node, &[])), expected);
    }

    let nothing = ptr::without_provenance_mut(0xabc << 12);
    for unknown in [of_another, of_destroyed, nothing, ptr::null_mut()] {
        assert_eq!(error(graph.try_add(node(ONE_BLOCK), &[unknown])), value);
        assert_eq!(error(graph.try_add(node(ONE_BLOCK), &[own, unknown])), value);
    }
    assert_eq!(error(graph.try_add(node(ONE_BLOCK), &[own, own])), value);
    for unknown in [nothing.cast(), ptr::null_mut(), another.instantiate().unwrap().0.cast()] {
        assert_eq!(error(Graph(unknown).try_add(node(ONE_BLOCK), &[])), handle);
        assert_eq!(error(Graph(unknown).instantiate().map(drop)), handle);
        assert_eq!(error(Graph(unknown).destroy()), handle);
    }
    for unknown in [nothing.cast(), ptr::null_mut(), graph.0.cast()] {
        assert_eq!(error(Executable(unknown).launch(stream)), handle);
        assert_eq!(error(Executable(unknown).destroy()), handle);
    }
    // SAFETY: what is invalid is refused.
    unsafe {
        let mut to = ptr::null_mut();
        assert_eq!(sys::cuGraphCreate(&raw mut to, 1), value);
        let mut to = ptr::null_mut();
        assert_eq!(sys::cuGraphInstantiateWithFlags(&raw mut to, graph.0, 4), value);
    }
    let executable = graph.instantiate().unwrap();
    other.context.bind_to_thread().unwrap();
    let not_supported = sys::CUresult::CUDA_ERROR_NOT_SUPPORTED;
    assert_eq!(error(executable.launch(&other.stream)), not_supported);
    program.context.bind_to_thread().unwrap();
    Graph::new().instantiate().unwrap().launch(stream).unwrap();
    executable.launch(stream).unwrap();
    assert_eq!(stream.clone_dtoh(&word).unwrap(), [1], "the graph has one node");
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A handle of a kernel stands for that of a function where this is null.
fn a_node_names_its_kernel_in_either_way(emulated: &Emulated) {
    let program = Program::new(0);
    let ((word, at), graph) = (word(&program), Graph::new());
    let by = 7u32;
    let arguments = vec![argument(&at), argument(&by)];
    let mut node = Node::new(&program, "count_up_plainly", ONE_BLOCK, arguments);
    node.parameters.kern = node.parameters.func.cast();
    node.parameters.func = ptr::null_mut();
    node.parameters.ctx = program.context.cu_ctx();
    graph.add(node, &[]);
    graph.instantiate().unwrap().launch(&program.stream).unwrap();
    assert_eq!(program.stream.clone_dtoh(&word).unwrap(), [7]);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// Graphs are counted apart from launches without one; kernels that are not to run do nothing in graphs either.
fn graphs_are_counted(emulated: &Emulated) {
    emulated.configure("runs_only", "scale");
    let program = Program::new(0);
    let ((word, at), graph) = (word(&program), Graph::new());
    let x = program.stream.clone_htod(&numbers()).unwrap();
    let y = program.stream.alloc_zeros::<f32>(COUNT).unwrap();
    let scaling = Scaling::new(&program, &x, &y, 3.0);
    let first = graph.add(scaling.node(&program), &[]);
    for by in [1, 10] {
        graph.count(&program, "count_up_plainly", (at, by), &[first]);
    }
    let graph = graph.instantiate().unwrap();
    (0..3).for_each(|_| graph.launch(&program.stream).unwrap());
    scaling.node(&program).launch(&program.stream).unwrap();
    assert_eq!(program.stream.clone_dtoh(&word).unwrap(), [0]);
    assert_eq!(program.stream.clone_dtoh(&y).unwrap(), scaled());
    let name: String = std::thread::current().name().unwrap().chars().take(15).collect();
    let counted = emulated.calls(&name);
    let expected = [
        ("a graph", 3),
        ("a launch of scale by a graph", 3),
        ("a launch of count_up_plainly by a graph", 6),
        ("a launch of scale", 1),
        ("cuGraphLaunch", 3),
        ("cuGraphAddKernelNode_v2", 3),
        ("cuGraphInstantiateWithFlags", 1),
        ("cuLaunchKernel", 1),
    ];
    for (what, count) in expected {
        assert_eq!(counted.get(what), Some(&count), "{what}: {counted:?}");
    }
    let others = ["a launch of count_up_plainly", "an event"];
    assert!(others.iter().all(|&what| !counted.contains_key(what)), "{counted:?}");
}

cases! {
    chain, a_chain_computes_what_launches_compute;
    copied_arguments, arguments_are_copied_when_a_node_is_added;
    destroyed_graphs, graphs_are_destroyed;
    one_word, nodes_write_one_word;
    another_stream, another_stream_does_not_follow_a_graph;
    one_executable_graph, an_executable_graph_runs_once_at_a_time;
    any_order, nodes_run_in_any_order;
    publishing_node, a_node_publishes_to_the_host;
    failing_node, a_node_fails;
    refused_nodes, what_is_invalid_is_refused;
    kernel_handle, a_node_names_its_kernel_in_either_way;
    counted_graphs, graphs_are_counted;
}
