//! What the manager is done with, and what takes long to free.

use std::any::Any;
use std::sync::Arc;

use batchmaker_graph::CellGraph;

/// The capacity, in elements, from which on a table of a request that ended is not kept for the next
/// one.
const LARGE: usize = 4_096;

/// Graphs and tables of requests that ended. Whoever drives the manager under a lock drops them after
/// it.
#[derive(Debug, Default)]
#[must_use = "it is to be dropped where nobody waits"]
pub struct Discarded {
    graphs: Vec<Arc<CellGraph>>,
    tables: Vec<Box<dyn Any + Send>>,
}

impl Discarded {
    /// Takes a graph that nobody else may own any more.
    pub(crate) fn add_graph(&mut self, graph: Arc<CellGraph>) {
        if Arc::strong_count(&graph) == 1 {
            self.graphs.push(graph);
        }
    }

    /// Takes the elements out of `table`, of which the memory is kept unless it is large.
    pub(crate) fn clear<T: Send + 'static>(&mut self, table: &mut Vec<T>) {
        if table.capacity() >= LARGE {
            self.tables.push(Box::new(std::mem::take(table)));
        }
        table.clear();
    }

    /// Takes what another has.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.graphs.append(&mut other.graphs);
        self.tables.append(&mut other.tables);
    }

    /// The number of graphs and tables.
    pub fn len(&self) -> usize {
        self.graphs.len() + self.tables.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
