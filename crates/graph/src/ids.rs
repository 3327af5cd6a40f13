//! Newtypes for everything that is counted or pointed at.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into a table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

id!(
    /// A cell type: cells of one id may share a batch.
    CellTypeId(u32), "cell"
);
id!(
    /// A loaded model.
    ModelId(u32), "model"
);
id!(
    /// A worker, which owns one device queue.
    WorkerId(u32), "w"
);
id!(
    /// The position of a run in its request's cell graph.
    RunIndex(u32), "run"
);
id!(
    /// The position of a value in its request's cell graph.
    ValueIndex(u32), "value"
);
id!(
    /// The position of a decision in its request's cell graph.
    DecisionIndex(u32), "decision"
);
id!(
    /// The number of a task on its worker: 1 for the first, then rising by one.
    /// A worker that has completed `n` tasks has completed the ids 1 to n.
    TaskId(u64), "task"
);

/// A request in flight: a table position and the generation of its use, so that
/// a late event for an earlier owner of the position is told apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// Position in the tables of requests; small and reused.
    pub index: u32,
    /// The number of earlier uses of the position.
    pub generation: u32,
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.index)?;
        match self.generation {
            0 => Ok(()),
            generation => write!(f, "'{generation}"),
        }
    }
}

/// A place for the state of one chain of one cell type, and the generation of
/// its use: state can never leak to the next owner unnoticed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// Position in the state memory of the cell type.
    pub index: u32,
    /// The number of earlier uses of the position.
    pub generation: u32,
}

impl fmt::Debug for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}'{}", self.index, self.generation)
    }
}

/// A session: the requests that bring one sequence in chunks. A table position and the generation
/// of its use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Position in the tables of sessions; small and reused.
    pub index: u32,
    /// The number of earlier uses of the position.
    pub generation: u32,
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session{}'{}", self.index, self.generation)
    }
}
