//! Graphs: kernels, what each of them depends on, and the order in which they run.

use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::handles::new_handle;
use crate::launches::KernelLaunch;
use crate::lock::lock;
use crate::queues::Record;
use crate::status::Status;

/// A launch of a kernel as part of a graph.
#[derive(Clone)]
pub(crate) struct Node {
    handle: usize,
    pub(crate) device: usize,
    pub(crate) launch: Arc<KernelLaunch>,
    /// The launch in words.
    pub(crate) what: Arc<str>,
    /// The nodes that it depends on, by their indices in the graph. They come before it there.
    pub(crate) dependencies: Vec<usize>,
}

/// A graph that the host makes, node by node.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: Mutex<Vec<Node>>,
}

impl Graph {
    /// Adds a node after those of some handles, each once, which are nodes of this graph. Returns its handle.
    pub(crate) fn add(
        &self,
        device: usize,
        launch: KernelLaunch,
        dependencies: &[usize],
    ) -> Result<usize, Status> {
        let nodes = &mut *lock(&self.nodes);
        let index = |&handle: &usize| nodes.iter().position(|node| node.handle == handle);
        let indices: Option<Vec<usize>> = dependencies.iter().map(index).collect();
        let mut dependencies = indices.ok_or(Status::InvalidValue)?;
        dependencies.sort_unstable();
        let is_unique = dependencies.windows(2).all(|pair| pair[0] < pair[1]);
        is_unique.then_some(()).ok_or(Status::InvalidValue)?;
        let handle = new_handle();
        let what = format!("a launch of {} by a graph", launch.kernel()).into();
        let launch = Arc::new(launch);
        nodes.push(Node { handle, device, launch, what, dependencies });
        Ok(handle)
    }

    /// A copy of the graph, which streams run.
    pub(crate) fn instantiate(&self) -> ExecutableGraph {
        let nodes = lock(&self.nodes).as_slice().into();
        ExecutableGraph { nodes, last: Mutex::default() }
    }
}

/// A graph that does not change any more.
pub(crate) struct ExecutableGraph {
    pub(crate) nodes: Arc<[Node]>,
    /// The last launch of it, which the next one follows, whatever their streams.
    pub(crate) last: Mutex<Option<Arc<Record>>>,
}

/// Runs the nodes of a graph, by their indices, in a random order in which each comes after those that it depends on. Ends with the first error.
pub(crate) fn run_in_order<'a>(
    count: usize,
    dependencies: impl Fn(usize) -> &'a [usize],
    random: &mut Pcg64Mcg,
    mut run: impl FnMut(usize, &mut Pcg64Mcg) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut waiting: Vec<usize> = (0..count).collect();
    let mut is_over = vec![false; count];
    while !waiting.is_empty() {
        let is_ready = |&at: &usize| dependencies(waiting[at]).iter().all(|&node| is_over[node]);
        let ready: Vec<usize> = (0..waiting.len()).filter(is_ready).collect();
        let node = waiting.swap_remove(ready[random.random_range(0..ready.len())]);
        run(node, random)?;
        is_over[node] = true;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    /// The order in which the nodes of a graph run under a seed, and the result.
    fn order(
        dependencies: &[&[usize]],
        seed: u64,
        fails: Option<usize>,
    ) -> (Vec<usize>, Result<(), Status>) {
        let mut order = Vec::new();
        let result = run_in_order(
            dependencies.len(),
            |node| dependencies[node],
            &mut Pcg64Mcg::seed_from_u64(seed),
            |node, _| {
                order.push(node);
                if fails == Some(node) { Err(Status::LaunchFailed) } else { Ok(()) }
            },
        );
        (order, result)
    }

    /// Two nodes after the first one, a node after both, and one alone: ten orders.
    #[test]
    fn all_orders_occur_that_dependencies_allow() {
        let dependencies: [&[usize]; 5] = [&[], &[0], &[0], &[1, 2], &[]];
        let mut orders = BTreeSet::new();
        for seed in 0..500 {
            let (order, result) = order(&dependencies, seed, None);
            assert_eq!(result, Ok(()));
            let mut place = [usize::MAX; 5];
            order.iter().enumerate().for_each(|(at, &node)| place[node] = at);
            for (node, dependencies) in dependencies.iter().enumerate() {
                assert!(dependencies.iter().all(|&of| place[of] < place[node]), "{order:?}");
            }
            orders.insert(order);
        }
        // Two of the diamond, with the node alone in one of five places.
        assert_eq!(orders.len(), 10, "{orders:?}");
    }

    #[test]
    fn nothing_runs_after_an_error() {
        let chain: [&[usize]; 3] = [&[], &[0], &[1]];
        assert_eq!(order(&chain, 1, Some(1)), (vec![0, 1], Err(Status::LaunchFailed)));
        assert_eq!(order(&[], 1, None), (Vec::new(), Ok(())));
    }
}
