//! A request to a model, and the session that it may belong to.

use std::time::{Duration, Instant};

use batchmaker_graph::{ElementType, NamedTensor, Parameters, Tensor, TensorData};

/// A request to a model.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Request {
    /// The input tensors, in any order.
    pub tensors: Vec<NamedTensor>,
    /// The bounds on the steps of open chains. Its field `chunk` is ignored: `session` decides it.
    pub parameters: Parameters,
    /// 1 is served first, then 2, …; 0, the default, comes after all of them.
    pub priority: u32,
    /// When nobody waits for the reply any more: the request is given up then. None: after
    /// [`EngineConfig::default_timeout`](crate::EngineConfig::default_timeout), if there is one.
    pub deadline: Option<Instant>,
    /// The session whose sequence the tensors are a chunk of. A last chunk without tensors only ends
    /// the session; its reply has no tensors either.
    pub session: Option<SessionChunk>,
    /// The names of the outputs that the reply holds, in this order; empty: all outputs.
    pub outputs: Vec<String>,
    /// Whether the steps of the reply are wanted as they are computed
    /// ([`Pending::next_steps`](crate::Pending::next_steps)).
    pub stream: bool,
    /// The bytes that the caller holds for each byte of the reply's tensors, for as long as it holds the
    /// [`Reply`](crate::Reply): what it encodes them to. They count in the engine's budget.
    pub reply_factor: usize,
}

impl Request {
    /// A request without tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input tensor.
    #[must_use]
    pub fn input(mut self, name: &str, tensor: Tensor) -> Self {
        self.tensors.push(NamedTensor { name: name.to_owned(), tensor });
        self
    }

    /// Asks for an output; without one, the reply holds all outputs.
    #[must_use]
    pub fn output(mut self, name: &str) -> Self {
        self.outputs.push(name.to_owned());
        self
    }

    /// Sets the priority: 1 is served first, then 2, …; 0 comes after all of them.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    /// Gives the request up if there is no reply after `time` from now on.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.deadline = Instant::now().checked_add(time);
        self
    }

    /// Sets the most steps that an open chain, such as a decoder, may run.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.parameters.max_steps = Some(steps);
        self
    }

    /// Sets how many steps an open chain runs, whatever its output.
    #[must_use]
    pub fn force_steps(mut self, steps: u32) -> Self {
        self.parameters.force_steps = Some(steps);
        self
    }

    /// Sets the bounds on the steps of open chains.
    #[must_use]
    pub fn parameters(mut self, parameters: Parameters) -> Self {
        self.parameters = parameters;
        self
    }

    /// Makes the request a chunk of a session's sequence.
    #[must_use]
    pub fn session(mut self, chunk: SessionChunk) -> Self {
        self.session = Some(chunk);
        self
    }

    /// An upper bound of the bytes of the input tensors, and of the ids that texts among them become.
    pub fn bytes(&self) -> usize {
        let bytes = |tensor: &NamedTensor| {
            let data = tensor.tensor.data();
            match data {
                TensorData::Bytes(texts) => {
                    // An id for each byte at most.
                    let ids = texts.iter().map(|text| text.len() * ElementType::I64.bytes());
                    data.heap_bytes() + ids.sum::<usize>()
                }
                _ => data.heap_bytes(),
            }
        };
        self.tensors.iter().map(bytes).sum()
    }

    /// Asks for the steps of the reply as they are computed.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.stream = true;
        self
    }
}

impl From<Vec<NamedTensor>> for Request {
    /// A request with these input tensors.
    fn from(tensors: Vec<NamedTensor>) -> Self {
        Self { tensors, ..Self::default() }
    }
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
