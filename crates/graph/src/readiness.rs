//! The order in which nodes of one run become ready, where some read rows that others write.

use std::collections::VecDeque;

use crate::cell_graph::Sink;
use crate::ids::ValueIndex;
use crate::rows::Rows;

/// For each of the `length` nodes of a run, the nodes of the same run whose rows it reads.
pub(crate) fn own_producers(length: u32, inputs: &[Rows], sinks: &[Sink]) -> Vec<Vec<u32>> {
    let mut writers: Vec<(ValueIndex, Vec<(usize, u32)>)> = Vec::new();
    for Sink { rows, .. } in sinks {
        let mut by_row: Vec<_> = (0..length).map(|node| (rows.row(node), node)).collect();
        by_row.sort_unstable();
        writers.push((rows.value, by_row));
    }
    let of = |node| {
        let mut producers = Vec::new();
        for rows in inputs {
            let row = rows.row(node);
            for (_, by_row) in writers.iter().filter(|(value, _)| *value == rows.value) {
                let found = by_row.binary_search_by_key(&row, |&(row, _)| row);
                producers.extend(found.map(|position| by_row[position].1));
            }
        }
        producers.sort_unstable();
        producers.dedup();
        producers
    };
    (0..length).map(of).collect()
}

/// The nodes in the order in which they become ready if each is taken as soon as it is: Kahn's
/// topological order with a first-in-first-out queue. For each node, in that order, the number of nodes
/// that must come before it, which so never falls. None where nodes depend on each other in a circle.
pub(crate) fn order_of_readiness(producers: &[Vec<u32>]) -> Option<(Vec<u32>, Vec<u32>)> {
    let mut consumers = vec![Vec::new(); producers.len()];
    for (node, producers) in (0..).zip(producers) {
        producers.iter().for_each(|&producer| consumers[producer as usize].push(node));
    }
    let mut pending: Vec<usize> = producers.iter().map(Vec::len).collect();
    let ready = (0..).zip(&pending).filter(|&(_, &pending)| pending == 0);
    let mut ready: VecDeque<(u32, u32)> = ready.map(|(node, _)| (node, 0)).collect();
    let (mut order, mut precedence) = (Vec::new(), Vec::new());
    while let Some((node, before)) = ready.pop_front() {
        order.push(node);
        precedence.push(before);
        for &consumer in &consumers[node as usize] {
            pending[consumer as usize] -= 1;
            if pending[consumer as usize] == 0 {
                ready.push_back((consumer, order.len() as u32));
            }
        }
    }
    (order.len() == producers.len()).then_some((order, precedence))
}
