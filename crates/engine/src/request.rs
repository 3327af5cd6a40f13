//! A request to a model, and the session that it may belong to.

use batchmaker_graph::{NamedTensor, Parameters};

/// A request to a model.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The input tensors, in any order.
    pub tensors: Vec<NamedTensor>,
    /// The bounds on the steps of open chains. Its field `chunk` is ignored: `session` decides it.
    pub parameters: Parameters,
    /// 1 is served first, then 2, …; 0, the default, comes after all of them.
    pub priority: u32,
    /// The session whose sequence the tensors are a chunk of. A last chunk without tensors only ends
    /// the session; its reply has no tensors either.
    pub session: Option<SessionChunk>,
    /// The names of the outputs that the reply holds, in this order; empty: all outputs.
    pub outputs: Vec<String>,
    /// Whether the steps of the reply are wanted as they are computed
    /// ([`Pending::next_steps`](crate::Pending::next_steps)).
    pub stream: bool,
}

/// The name of a session. Each model has its own sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionKey {
    /// A number that a client chose.
    Number(u64),
    /// A text that a client chose.
    Text(String),
    /// A number that the process that holds the session drew, which no client can name.
    Local(u64),
}

impl std::fmt::Display for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) | Self::Local(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// The place of a request in a session's sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionChunk {
    /// The session.
    pub key: SessionKey,
    /// Whether it is the first chunk. A session that runs under this name ends, and another begins.
    pub start: bool,
    /// Whether it is the last chunk.
    pub end: bool,
}
