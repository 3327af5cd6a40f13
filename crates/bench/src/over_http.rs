//! A server at the end of a wire as what requests are sent to: the Open Inference Protocol over
//! HTTP/1.1, with binary tensors, on kept connections.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use batchmaker::{
    ElementType, InputLayout, NamedTensor, Slices, Statistics, TensorData, ask_for_slices,
};
use batchmaker_wire as wire;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Runtime;

use crate::driver::{Answer, Service};
use crate::inputs::{Inputs, NoLength};
use crate::shape::Shape;

/// A server that takes longer does not answer at all.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(300);

/// A model of a server.
#[derive(Debug)]
pub struct OverHttp {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
    infer: Uri,
    inputs: Inputs,
}

/// A server that cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is none.
    #[error("'{0}' is no address of a server, like http://127.0.0.1:8000")]
    Url(String),
    /// No connection, or no answer.
    #[error("cannot ask {url}: {reason}; is the server running?")]
    Unreachable {
        /// The address that was asked.
        url: Uri,
        /// Why not.
        reason: String,
    },
    /// The server has no such model, or is not ready.
    #[error("{url}: {status}: {error}")]
    Refused {
        /// The address that was asked.
        url: Uri,
        /// The status of the answer.
        status: StatusCode,
        /// The error that it answered.
        error: String,
    },
    /// An answer that requests cannot be made from.
    #[error("{url}: {reason}")]
    Unknown {
        /// The address that was asked.
        url: Uri,
        /// The part that the answer lacks.
        reason: String,
    },
    /// See [`NoLength`].
    #[error(transparent)]
    NoLength(#[from] NoLength),
    /// No thread for the connections.
    #[error("cannot start the client: {0}")]
    Runtime(#[from] std::io::Error),
}

impl OverHttp {
    /// Asks the server at `url` what requests to `model` hold, and draws that.
    ///
    /// # Errors
    /// If there is no such server or model, or the server does not say which axes of the model's
    /// inputs are batch and time, as BatchMaker does in the parameters of the model's
    /// configuration.
    pub fn new(url: &str, model: &str, seed: u64) -> Result<Self, HttpError> {
        let address = |path: String| -> Result<Uri, HttpError> {
            let url = format!("{}{path}", url.trim_end_matches('/'));
            let uri: Option<Uri> = url.parse().ok();
            let uri = uri.filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
            uri.ok_or(HttpError::Url(url))
        };
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        threads.worker_threads(1).on_thread_start(|| ask_for_slices(Slices::Short));
        let runtime = threads.enable_all().build()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let config = address(format!("/v2/models/{model}/config"))?;
        let (status, body) = runtime
            .block_on(exchange(&client, Request::get(&config), Bytes::new()))
            .map_err(|reason| HttpError::Unreachable { url: config.clone(), reason })?;
        if status != StatusCode::OK {
            return Err(HttpError::Refused { url: config, status, error: error_of(&body) });
        }
        let unknown = |reason: String| HttpError::Unknown { url: config.clone(), reason };
        let read: wire::ModelConfig = serde_json::from_slice(&body)
            .map_err(|error| unknown(format!("not a model's configuration: {error}")))?;
        let tensors = read.input.iter().map(|tensor| {
            let parameter = read.parameters.get(&format!("layout:{}", tensor.name));
            let layout =
                parameter.and_then(|layout| layout.string_value.parse::<InputLayout>().ok());
            let layout = layout.ok_or_else(|| {
                let name = &tensor.name;
                unknown(format!(
                    "the server does not say which axes of '{name}' are batch and time"
                ))
            })?;
            let element = element_of(tensor.data_type)
                .ok_or_else(|| unknown(format!("'{}' is of no type to draw", tensor.name)))?;
            Ok((tensor.name.clone(), element, layout))
        });
        let inputs = Inputs::new(tensors.collect::<Result<_, HttpError>>()?, seed)?;
        let infer = address(format!("/v2/models/{model}/infer"))?;
        Ok(Self { runtime, client, infer, inputs })
    }
}

impl Service for OverHttp {
    type Request = wire::EncodedBody;
    type Answer = Pin<Box<dyn Future<Output = Answer>>>;

    fn arity(&self) -> Option<u32> {
        self.inputs.arity()
    }

    fn prepare(&mut self, index: usize, shape: &Shape) -> wire::EncodedBody {
        let inputs = self.inputs.request(index, shape).into_iter().map(to_wire).collect();
        let mut request = wire::InferRequest { inputs, ..Default::default() };
        request.outputs.default_format = wire::DataFormat::Binary;
        if let Some(target) = shape.target() {
            request.parameters.insert("force_steps".to_owned(), u64::from(target).into());
        }
        wire::encode_request(&request, wire::DataFormat::Binary).expect("a drawn request is valid")
    }

    fn send(&mut self, body: wire::EncodedBody) -> Self::Answer {
        let mut request = Request::builder().method(Method::POST).uri(&self.infer);
        if let Some(length) = body.header_length {
            request = request.header(wire::HEADER_LENGTH, length);
        }
        let client = self.client.clone();
        let answer = self.runtime.spawn(async move {
            let exchange = exchange(&client, request, body.bytes.into());
            let answer = tokio::time::timeout(ANSWER_TIME_MAX, exchange).await;
            match answer.unwrap_or_else(|_| Err(format!("no answer in {ANSWER_TIME_MAX:?}"))) {
                Ok((StatusCode::OK, _)) => {
                    Answer::Reply { at: Instant::now(), queue_and_compute_ns: None }
                }
                Ok((status, body)) => Answer::Error(format!("{status}: {}", error_of(&body))),
                Err(reason) => Answer::Error(reason),
            }
        });
        Box::pin(async { answer.await.unwrap_or_else(|error| Answer::Error(error.to_string())) })
    }

    fn statistics(&self) -> Option<Statistics> {
        None
    }
}

/// Sends a request, and waits for the whole answer.
async fn exchange(
    client: &Client<HttpConnector, Full<Bytes>>,
    request: hyper::http::request::Builder,
    body: Bytes,
) -> Result<(StatusCode, Bytes), String> {
    let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
    let response = client.request(request).await.map_err(|error| chain(&error))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| chain(&error))?;
    Ok((status, body.to_bytes()))
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn error_of(body: &[u8]) -> String {
    let error = serde_json::from_slice::<wire::ErrorBody>(body).map(|body| body.error);
    error.unwrap_or_else(|_| String::from_utf8_lossy(body).chars().take(200).collect())
}

fn element_of(datatype: wire::Datatype) -> Option<ElementType> {
    Some(match datatype {
        wire::Datatype::Fp32 => ElementType::F32,
        wire::Datatype::Int64 => ElementType::I64,
        wire::Datatype::Int32 => ElementType::I32,
        wire::Datatype::Bool => ElementType::Bool,
        wire::Datatype::Bytes => ElementType::Bytes,
        _ => return None,
    })
}

fn to_wire(tensor: NamedTensor) -> wire::Tensor {
    let NamedTensor { name, tensor } = tensor;
    let shape = tensor.shape().to_vec();
    let data: wire::TensorData = match tensor.into_data() {
        TensorData::F32(values) => values.into(),
        TensorData::I64(values) => values.into(),
        TensorData::I32(values) => values.into(),
        TensorData::Bool(values) => values.into(),
        TensorData::Bytes(values) => values.into(),
    };
    wire::Tensor::new(name, shape, data).expect("a drawn tensor is valid")
}
