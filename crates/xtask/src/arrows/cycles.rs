//! Circles of a directed graph, the shortest first.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The nodes that each node points to.
pub(super) type Graph<N> = BTreeMap<N, BTreeSet<N>>;

/// For each node on a circle, a shortest circle through it, each circle once. A circle begins with its least node;
/// each of its nodes points to the next, and the last points to the first.
pub(super) fn shortest_cycles<N: Copy + Ord>(graph: &Graph<N>) -> Vec<Vec<N>> {
    let mut cycles: BTreeSet<(usize, Vec<N>)> = BTreeSet::new();
    for &node in graph.keys() {
        if let Some(mut cycle) = shortest_cycle_through(graph, node) {
            let least = (0..cycle.len()).min_by_key(|&index| cycle[index]).unwrap_or(0);
            cycle.rotate_left(least);
            cycles.insert((cycle.len(), cycle));
        }
    }
    cycles.into_iter().map(|(_, cycle)| cycle).collect()
}

/// The arrows of a circle: from each node to the next, and from the last to the first.
pub(super) fn arrows_of<N: Copy>(cycle: &[N]) -> impl Iterator<Item = (N, N)> {
    let next = cycle.iter().cycle().skip(1);
    cycle.iter().zip(next).map(|(&from, &to)| (from, to))
}

/// Searches breadth first from `start` back to it.
fn shortest_cycle_through<N: Copy + Ord>(graph: &Graph<N>, start: N) -> Option<Vec<N>> {
    let mut reached_from: BTreeMap<N, N> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &next in graph.get(&node).into_iter().flatten() {
            if next == start {
                let back =
                    std::iter::successors(Some(node), |node| reached_from.get(node).copied());
                let mut cycle: Vec<N> = back.collect();
                cycle.reverse();
                return Some(cycle);
            }
            if let Entry::Vacant(first_time) = reached_from.entry(next) {
                first_time.insert(node);
                queue.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_circle_is_found_once_and_the_shortest_first() {
        let arrows = [(1, 2), (2, 3), (3, 1), (3, 4), (5, 4), (4, 5), (6, 1), (7, 7)];
        let mut graph: Graph<u32> = Graph::new();
        for (from, to) in arrows {
            graph.entry(from).or_default().insert(to);
        }
        assert_eq!(shortest_cycles(&graph), [vec![7], vec![4, 5], vec![1, 2, 3]]);
        assert_eq!(arrows_of(&[1, 2, 3]).collect::<Vec<_>>(), [(1, 2), (2, 3), (3, 1)]);
    }
}
