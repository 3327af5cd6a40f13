//! Inference requests and replies as HTTP bodies: JSON, and after it the tensors that travel in
//! binary, in the order of the JSON (Triton's binary tensor data extension).
//!
//! The header [`HEADER_LENGTH`] says where the JSON ends; without it a body is JSON to its end.

use std::collections::HashSet;

use serde::Serialize;

use crate::datatype::Datatype;
use crate::encoded::{Elements, EncodedRequest, EncodedTensor};
use crate::error::{WireError, excerpt, place};
use crate::infer::{DataFormat, InferRequest, InferResponse, RequestedOutput, RequestedOutputs};
use crate::json_data::JsonData;
use crate::json_head::{
    self, Objects, OutputHead, OutputJson, ParametersJson, RequestHead, RequestJson, ResponseHead,
    ResponseJson, TensorHead, TensorJson,
};
use crate::parameter::{Parameter, Parameters};
use crate::tensor::{Tensor, TensorData, parse_shape};

/// The header, in lower case, whose value is [`EncodedBody::header_length`].
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// On a tensor: how many bytes after the JSON are its.
const BINARY_DATA_SIZE: &str = "binary_data_size";
/// On a tensor: the region of shared memory that holds its elements, which no body does.
const SHARED_MEMORY_REGION: &str = "shared_memory_region";
/// On a requested output: whether it is to come in binary.
const BINARY_DATA: &str = "binary_data";
/// On a request: whether the outputs that do not say are to come in binary.
const BINARY_DATA_OUTPUT: &str = "binary_data_output";

/// The most bytes of a request's JSON beside the elements of its tensors.
const FIELDS_BYTES_MAX: usize = 1 << 20;

/// A body and the header that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBody {
    /// The whole body.
    pub bytes: Vec<u8>,
    /// The value of the header [`HEADER_LENGTH`]: the bytes of JSON that the body begins with.
    /// Where it is `None`, the body is all JSON.
    pub header_length: Option<usize>,
}

/// Reads the body of a request. `header_length` is the value of the header [`HEADER_LENGTH`],
/// where there is one.
///
/// # Errors
/// [`WireError::Invalid`], whose message names the tensor, what was expected and what came.
pub fn decode_request(
    body: &[u8],
    header_length: Option<usize>,
) -> Result<InferRequest, WireError> {
    read_request(body, header_length)?.decode()
}

/// Reads the body of a request but for its tensors' elements, which stay as they came: what the request wants, and
/// what its tensors will take, is known before anything is made of them.
///
/// # Errors
/// As for [`decode_request`].
pub fn read_request(
    body: &[u8],
    header_length: Option<usize>,
) -> Result<EncodedRequest<'_>, WireError> {
    let (json, binary) = split(body, header_length)?;
    let head: RequestHead<'_> = json_head::parse(json).map_err(|e| e.within("request"))?;
    check_fields(json, head.inputs.as_ref()).map_err(|e| e.within("request"))?;
    let own = || -> Result<_, WireError> {
        let mut parameters = json_head::parameters(head.parameters)?;
        let default_format = take_format(&mut parameters, BINARY_DATA_OUTPUT)?.unwrap_or_default();
        Ok((json_head::optional(head.id, "id", "a string")?, parameters, default_format))
    };
    let (id, parameters, default_format) = own().map_err(|e| e.within("request"))?;
    let Some(inputs) = head.inputs else {
        return Err(WireError::invalid("request: inputs are missing, expected a list of tensors"));
    };
    let inputs = read_tensors("input", inputs.0, binary)?;
    let list = decode_outputs(head.outputs.map_or_else(Vec::new, |outputs| outputs.0))?;
    let outputs = RequestedOutputs { list, default_format };
    Ok(EncodedRequest { id, parameters, inputs, outputs })
}

/// Checks that what surrounds the elements of tensors is short: a field of JSON takes far more memory than its text.
fn check_fields(json: &str, inputs: Option<&Objects<TensorHead<'_>>>) -> Result<(), WireError> {
    let tensors = inputs.map_or(&[][..], |inputs| &inputs.0);
    let data = tensors.iter().filter_map(|tensor| tensor.data).map(|data| data.get().len());
    let around = json.len() - data.sum::<usize>();
    if around <= FIELDS_BYTES_MAX {
        return Ok(());
    }
    Err(WireError::invalid(format!(
        "the JSON around the data of tensors has {around} bytes, expected at most {FIELDS_BYTES_MAX}"
    )))
}

/// Reads the body of a reply, as [`decode_request`] reads a request's.
///
/// # Errors
/// [`WireError::Invalid`] where the server broke the protocol.
pub fn decode_response(
    body: &[u8],
    header_length: Option<usize>,
) -> Result<InferResponse, WireError> {
    let (json, binary) = split(body, header_length)?;
    let head: ResponseHead<'_> = json_head::parse(json).map_err(|e| e.within("response"))?;
    let own = || -> Result<_, WireError> {
        Ok(InferResponse {
            model_name: json_head::required(head.model_name, "model_name", "a string")?,
            model_version: json_head::optional(head.model_version, "model_version", "a string")?
                .unwrap_or_default(),
            id: json_head::optional(head.id, "id", "a string")?,
            parameters: json_head::parameters(head.parameters)?,
            outputs: Vec::new(),
        })
    };
    let mut response = own().map_err(|e| e.within("response"))?;
    let outputs = head.outputs.map_or_else(Vec::new, |outputs| outputs.0);
    let outputs = read_tensors("output", outputs, binary)?;
    response.outputs = outputs.into_iter().map(EncodedTensor::decode).collect::<Result<_, _>>()?;
    Ok(response)
}

/// Writes the body of a request, its inputs all in `format`.
///
/// # Errors
/// [`WireError::Invalid`] where an input of BYTES is not UTF-8 and is to be JSON.
pub fn encode_request(
    request: &InferRequest,
    format: DataFormat,
) -> Result<EncodedBody, WireError> {
    let all_binary = request.outputs.default_format == DataFormat::Binary;
    let json = RequestJson {
        id: request.id.as_deref(),
        parameters: ParametersJson {
            parameters: &request.parameters,
            own: all_binary.then_some((BINARY_DATA_OUTPUT, true.into())),
        },
        inputs: request.inputs.iter().map(|input| tensor_json(input, format)).collect(),
        outputs: request.outputs.list.iter().map(output_json).collect(),
    };
    assemble("input", &json, request.inputs.iter().map(|input| (input, format)))
}

/// Writes the body of a reply, each output in the form that `format_of` gives for its name;
/// [`RequestedOutputs::format_of`] is what the request asked for.
///
/// # Errors
/// [`WireError::Invalid`] where an output of BYTES is not UTF-8 and is to be JSON: its client has
/// to ask for binary.
pub fn encode_response(
    response: &InferResponse,
    format_of: impl Fn(&str) -> DataFormat,
) -> Result<EncodedBody, WireError> {
    let outputs = response.outputs.iter().map(|output| (output, format_of(&output.name)));
    let json = ResponseJson {
        model_name: &response.model_name,
        model_version: &response.model_version,
        id: response.id.as_deref(),
        parameters: ParametersJson { parameters: &response.parameters, own: None },
        outputs: outputs.clone().map(|(output, format)| tensor_json(output, format)).collect(),
    };
    assemble("output", &json, outputs)
}

/// Takes a body apart into its JSON and, where it says how long that is, what follows.
fn split(body: &[u8], header_length: Option<usize>) -> Result<(&str, Option<&[u8]>), WireError> {
    let (json, binary) = match header_length {
        None => (body, None),
        Some(length) => {
            let (json, binary) = body.split_at_checked(length).ok_or_else(|| {
                let got = body.len();
                WireError::invalid(format!(
                    "{HEADER_LENGTH} is {length}, but the body has {got} bytes"
                ))
            })?;
            (json, Some(binary))
        }
    };
    let json = str::from_utf8(json).map_err(|error| {
        let at = error.valid_up_to();
        WireError::invalid(format!("the body's JSON is not UTF-8 at byte {at}"))
    })?;
    Ok((json, binary))
}

/// Reads the tensors of a list but for their elements; the bytes of these follow each other, and must be all there
/// are.
fn read_tensors<'a>(
    role: &'static str,
    heads: Vec<TensorHead<'a>>,
    mut binary: Option<&'a [u8]>,
) -> Result<Vec<EncodedTensor<'a>>, WireError> {
    let mut tensors = Vec::with_capacity(heads.len());
    for (index, head) in heads.into_iter().enumerate() {
        let name = decode_name(role, index, head.name)?;
        let place = place(role, &name);
        let tensor = read_tensor(role, name, &head, &mut binary);
        tensors.push(tensor.map_err(|e| e.within(&place))?);
    }
    check_names_differ(role, tensors.iter().map(|tensor| &*tensor.name))?;
    match binary {
        Some(rest) if !rest.is_empty() => {
            let over = rest.len();
            Err(WireError::invalid(format!("{over} bytes of the body follow the last {role}'s")))
        }
        _ => Ok(tensors),
    }
}

fn read_tensor<'a>(
    role: &'static str,
    name: String,
    head: &TensorHead<'a>,
    binary: &mut Option<&'a [u8]>,
) -> Result<EncodedTensor<'a>, WireError> {
    let datatype: String = json_head::required(head.datatype, "datatype", "a string")?;
    let datatype: Datatype = datatype.parse()?;
    let shape = parse_shape(&json_head::dimensions(head.shape)?)?;
    let mut parameters = json_head::parameters(head.parameters)?;
    let size = parameters.remove(BINARY_DATA_SIZE).filter(|value| !value.is_null());
    let elements = match (head.data, size) {
        (Some(text), None) => Elements::Json(text.get()),
        (None, Some(size)) => Elements::Binary(take_bytes(binary, &size)?),
        (Some(_), Some(_)) => {
            return Err(WireError::invalid(format!(
                "has both data and {BINARY_DATA_SIZE}, expected one of them"
            )));
        }
        (None, None) if parameters.contains_key(SHARED_MEMORY_REGION) => {
            return Err(WireError::invalid(format!(
                "has {SHARED_MEMORY_REGION}, expected data or {BINARY_DATA_SIZE}"
            )));
        }
        (None, None) => {
            return Err(WireError::invalid(format!(
                "has neither data nor {BINARY_DATA_SIZE}, expected one of them"
            )));
        }
    };
    Ok(EncodedTensor { role, name, parameters, shape, datatype, elements })
}

/// Takes the next `size` bytes of what follows the JSON.
fn take_bytes<'a>(binary: &mut Option<&'a [u8]>, size: &Parameter) -> Result<&'a [u8], WireError> {
    let Some(rest) = *binary else {
        return Err(WireError::invalid(format!(
            "has {BINARY_DATA_SIZE}, expected the header {HEADER_LENGTH} with it"
        )));
    };
    let Some(size) = size.as_u64() else {
        let size = excerpt(&size.to_string());
        return Err(WireError::invalid(format!(
            "{BINARY_DATA_SIZE} is {size}, expected a number of bytes"
        )));
    };
    let taken = usize::try_from(size).ok().and_then(|size| rest.split_at_checked(size));
    let Some((bytes, rest)) = taken else {
        let left = rest.len();
        return Err(WireError::invalid(format!(
            "{BINARY_DATA_SIZE} is {size}, but {left} bytes of the body are left"
        )));
    };
    *binary = Some(rest);
    Ok(bytes)
}

fn decode_outputs(heads: Vec<OutputHead<'_>>) -> Result<Vec<RequestedOutput>, WireError> {
    let output = |(index, head): (usize, OutputHead<'_>)| {
        let name = decode_name("output", index, head.name)?;
        let parsed = json_head::parameters(head.parameters).and_then(|mut parameters| {
            let format = take_format(&mut parameters, BINARY_DATA)?;
            Ok((format, parameters))
        });
        let (format, parameters) = parsed.map_err(|e| e.within(&place("output", &name)))?;
        Ok(RequestedOutput { name, format, parameters })
    };
    let outputs: Vec<_> = heads.into_iter().enumerate().map(output).collect::<Result<_, _>>()?;
    check_names_differ("output", outputs.iter().map(|output| &*output.name))?;
    Ok(outputs)
}

fn decode_name(role: &str, index: usize, name: json_head::Field<'_>) -> Result<String, WireError> {
    json_head::required(name, "name", "a string")
        .map_err(|e| e.within(&format!("{role} {index} (from 0)")))
}

fn check_names_differ<'a>(
    role: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), WireError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            let place = place(role, name);
            return Err(WireError::invalid(format!("{place} is there twice, expected once")));
        }
    }
    Ok(())
}

/// Takes out a parameter that says whether something travels in binary.
fn take_format(parameters: &mut Parameters, key: &str) -> Result<Option<DataFormat>, WireError> {
    match parameters.remove(key).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Parameter::Bool(true)) => Ok(Some(DataFormat::Binary)),
        Some(Parameter::Bool(false)) => Ok(Some(DataFormat::Json)),
        Some(other) => {
            let other = excerpt(&other.to_string());
            Err(WireError::invalid(format!("{key} is {other}, expected true or false")))
        }
    }
}

fn output_json(output: &RequestedOutput) -> OutputJson<'_> {
    let RequestedOutput { name, format, parameters } = output;
    let own = format.map(|format| (BINARY_DATA, (format == DataFormat::Binary).into()));
    OutputJson { name, parameters: ParametersJson { parameters, own } }
}

fn tensor_json(tensor: &Tensor, format: DataFormat) -> TensorJson<'_> {
    let (data, own) = match format {
        DataFormat::Json => (Some(JsonData(tensor.data())), None),
        DataFormat::Binary => {
            let size = tensor.data().le_size_bytes() as u64;
            (None, Some((BINARY_DATA_SIZE, size.into())))
        }
    };
    TensorJson {
        name: &tensor.name,
        shape: tensor.shape(),
        datatype: tensor.datatype(),
        parameters: ParametersJson { parameters: &tensor.parameters, own },
        data,
    }
}

/// Writes the JSON and after it the tensors that are in binary.
fn assemble<'a>(
    role: &str,
    json: &impl Serialize,
    tensors: impl Iterator<Item = (&'a Tensor, DataFormat)> + Clone,
) -> Result<EncodedBody, WireError> {
    for (tensor, format) in tensors.clone() {
        if format == DataFormat::Json {
            check_is_text(tensor).map_err(|e| e.within(&place(role, &tensor.name)))?;
        }
    }
    let mut bytes = serde_json::to_vec(json).expect("the text was checked");
    let json_length = bytes.len();
    let mut header_length = None;
    for (tensor, format) in tensors {
        if format == DataFormat::Binary {
            header_length = Some(json_length);
            tensor.data().append_le_bytes(&mut bytes);
        }
    }
    Ok(EncodedBody { bytes, header_length })
}

/// Checks that BYTES can be strings of JSON.
fn check_is_text(tensor: &Tensor) -> Result<(), WireError> {
    match tensor.data() {
        TensorData::Bytes(values) if values.iter().any(|value| str::from_utf8(value).is_err()) => {
            Err(WireError::invalid(
                "BYTES that are not UTF-8 cannot be written as JSON; set binary_data to have \
                 them in binary",
            ))
        }
        _ => Ok(()),
    }
}
