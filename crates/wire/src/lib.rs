//! The Open Inference Protocol (KServe v2) over HTTP, with Triton's binary tensors: types and
//! codecs, for servers and for clients.
//!
//! A body becomes a request by [`decompress`] and [`decode_request`], and a reply becomes a body
//! by [`encode_response`] and [`compress`]; a client does the opposite with [`encode_request`]
//! and [`decode_response`]. Tensors come out typed, checked against their shapes and free of how
//! they travelled; whether a model wants them is for its server to say. There are no sockets here,
//! no gRPC messages and no status codes: [`WireError`] says who must change what.
//!
//! ```
//! use batchmaker_wire::{DataFormat, InferResponse, Tensor, decode_request, encode_response};
//!
//! let body = br#"{"id": "7", "inputs": [
//!     {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, "NaN"]]}
//! ]}"#;
//! let request = decode_request(body, None)?;
//! assert_eq!(request.inputs[0].shape(), [2, 2]);
//!
//! let response = InferResponse {
//!     model_name: "m".into(),
//!     model_version: "1".into(),
//!     id: request.id,
//!     outputs: vec![Tensor::new("y", vec![2], vec![0.1f32, 0.2])?],
//!     ..Default::default()
//! };
//! let body = encode_response(&response, |name| request.outputs.format_of(name))?;
//! assert_eq!(body.header_length, None);
//! assert!(body.bytes.ends_with(br#""data":[0.1,0.2]}]}"#));
//! # Ok::<(), batchmaker_wire::WireError>(())
//! ```

#![forbid(unsafe_code)]

mod body;
mod datatype;
mod encoded;
mod encoding;
mod error;
mod infer;
mod json_data;
mod json_element;
mod json_head;
mod metadata;
mod parameter;
mod raw_data;
mod statistics;
mod tensor;

pub use half::{bf16, f16};

pub use body::{
    EncodedBody, HEADER_LENGTH, decode_request, decode_response, encode_request, encode_response,
    read_request,
};
pub use datatype::Datatype;
pub use encoded::{EncodedRequest, EncodedTensor};
pub use encoding::{ContentEncoding, compress, decompress};
pub use error::WireError;
pub use infer::{DataFormat, InferRequest, InferResponse, RequestedOutput, RequestedOutputs};
pub use metadata::{
    ConfigInput, ConfigOutput, ConfigParameter, DynamicBatching, ErrorBody, InstanceGroup,
    ModelConfig, ModelMetadata, ModelState, RepositoryIndexEntry, ResponseCache, SequenceBatching,
    ServerMetadata, TensorFormat, TensorMetadata, TransactionPolicy, VersionPolicy,
};
pub use parameter::{OtherValue, Parameter, Parameters};
pub use statistics::{
    BatchStatistics, DurationStatistics, InferenceStatistics, ModelStatistics, Statistics,
};
pub use tensor::{RANK_MAX, Tensor, TensorData, element_count, parse_shape};
