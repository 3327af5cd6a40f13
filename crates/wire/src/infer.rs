//! The inference request and its reply, free of how their tensors travel.

use crate::parameter::Parameters;
use crate::tensor::Tensor;

/// A request to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferRequest {
    /// The client's name for the request, which the reply repeats.
    pub id: Option<String>,
    /// Sequence, scheduling and other parameters.
    pub parameters: Parameters,
    /// The input tensors, each of another name.
    pub inputs: Vec<Tensor>,
    /// The outputs to reply with.
    pub outputs: RequestedOutputs,
}

/// A model's reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferResponse {
    /// The model that answered.
    pub model_name: String,
    /// Its version; empty where a server names none.
    pub model_version: String,
    /// The request's id.
    pub id: Option<String>,
    /// Parameters of the reply.
    pub parameters: Parameters,
    /// The output tensors, each of another name.
    pub outputs: Vec<Tensor>,
}

/// The form of a tensor's elements in an HTTP body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataFormat {
    /// As `data` in the JSON.
    #[default]
    Json,
    /// As little-endian bytes after the JSON.
    Binary,
}

/// The outputs that a request asks for, and the form in which it wants them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestedOutputs {
    /// The outputs by name, each once; where there are none, all of the model's are meant.
    pub list: Vec<RequestedOutput>,
    /// The form of every output that does not ask for one itself: the request's parameter
    /// `binary_data_output`.
    pub default_format: DataFormat,
}

/// One output that a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestedOutput {
    /// The output's name.
    pub name: String,
    /// The form that it asks for: its parameter `binary_data`.
    pub format: Option<DataFormat>,
    /// Its other parameters.
    pub parameters: Parameters,
}

impl RequestedOutputs {
    /// The form in which the output `name` is to be sent.
    pub fn format_of(&self, name: &str) -> DataFormat {
        let requested = self.list.iter().find(|output| output.name == name);
        requested.and_then(|output| output.format).unwrap_or(self.default_format)
    }
}
