//! A request whose tensors' elements are still as they came.

use crate::datatype::Datatype;
use crate::error::{WireError, place};
use crate::infer::{InferRequest, RequestedOutputs};
use crate::json_data;
use crate::parameter::Parameters;
use crate::tensor::{Tensor, TensorData, element_count};

/// A request to a model, read but for the elements of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRequest<'a> {
    /// The client's name for the request, which the reply repeats.
    pub id: Option<String>,
    /// Sequence, scheduling and other parameters.
    pub parameters: Parameters,
    /// The input tensors, each of another name.
    pub inputs: Vec<EncodedTensor<'a>>,
    /// The outputs to reply with.
    pub outputs: RequestedOutputs,
}

/// A tensor whose elements are still as they came.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedTensor<'a> {
    /// What the tensor is to the model, for messages.
    pub(crate) role: &'static str,
    /// The tensor's name.
    pub name: String,
    /// The tensor's parameters.
    pub parameters: Parameters,
    pub(crate) shape: Vec<usize>,
    pub(crate) datatype: Datatype,
    pub(crate) elements: Elements<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Elements<'a> {
    /// The text of one JSON value.
    Json(&'a str),
    /// Little-endian bytes.
    Binary(&'a [u8]),
}

impl EncodedRequest<'_> {
    /// An upper bound of the bytes that the decoded tensors take.
    pub fn decoded_bytes(&self) -> usize {
        self.inputs.iter().map(EncodedTensor::decoded_bytes).sum()
    }

    /// Decodes all tensors.
    ///
    /// # Errors
    /// [`WireError::Invalid`], whose message names the tensor, what was expected and what came.
    pub fn decode(self) -> Result<InferRequest, WireError> {
        let Self { id, parameters, inputs, outputs } = self;
        let inputs = inputs.into_iter().map(EncodedTensor::decode).collect::<Result<_, _>>()?;
        Ok(InferRequest { id, parameters, inputs, outputs })
    }
}

impl EncodedTensor<'_> {
    /// The size of each dimension, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Whether the elements came as bytes, not as JSON.
    pub fn is_binary(&self) -> bool {
        matches!(self.elements, Elements::Binary(_))
    }

    /// The bytes of the elements, as they came.
    pub fn encoded_bytes(&self) -> usize {
        match self.elements {
            Elements::Json(text) => text.len(),
            Elements::Binary(bytes) => bytes.len(),
        }
    }

    /// An upper bound of the bytes that the decoded elements take. An element of BYTES is an allocation of its own.
    pub fn decoded_bytes(&self) -> usize {
        const ALLOCATION_BYTES: usize = 32;
        let count = element_count(&self.shape).unwrap_or(usize::MAX);
        let (encoded, count) = match self.elements {
            // An element and what follows it are two bytes at least, three where it has quotes.
            Elements::Json(text) if self.datatype == Datatype::Bytes => {
                (text.len(), count.min(text.len() / 3 + 1))
            }
            Elements::Json(text) => (text.len(), count.min(text.len() / 2 + 1)),
            Elements::Binary(bytes) if self.datatype == Datatype::Bytes => {
                (bytes.len(), count.min(bytes.len() / 4))
            }
            Elements::Binary(bytes) => (bytes.len(), count.min(bytes.len())),
        };
        match self.datatype.size() {
            Some(size) => count.saturating_mul(size),
            None => {
                // A length, or quotes and what follows but for the last. An element without more allocates nothing.
                let around = match self.elements {
                    Elements::Json(_) => (3 * count).saturating_sub(1),
                    Elements::Binary(_) => 4 * count,
                };
                let text = encoded.saturating_sub(around);
                count * size_of::<Vec<u8>>() + count.min(text) * ALLOCATION_BYTES + text
            }
        }
    }

    /// Decodes the elements, and checks them against the shape.
    ///
    /// # Errors
    /// [`WireError::Invalid`], whose message names the tensor, what was expected and what came.
    pub fn decode(self) -> Result<Tensor, WireError> {
        let Self { role, name, parameters, shape, datatype, elements } = self;
        let place = place(role, &name);
        let decode = || {
            let data = match elements {
                Elements::Json(text) => json_data::parse(datatype, &shape, text)?,
                Elements::Binary(bytes) => {
                    TensorData::from_le_bytes(datatype, element_count(&shape)?, bytes)?
                }
            };
            Tensor::new(name, shape, data)
        };
        let mut tensor = decode().map_err(|e| e.within(&place))?;
        tensor.parameters = parameters;
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataFormat, encode_request, read_request};

    /// What the decoded elements take, as [`EncodedTensor::decoded_bytes`] counts.
    fn taken(data: &TensorData) -> usize {
        match data {
            TensorData::Bytes(values) => {
                let of_one =
                    |value: &Vec<u8>| 24 + if value.is_empty() { 0 } else { 32 + value.len() };
                values.iter().map(of_one).sum()
            }
            data => data.len() * data.datatype().size().unwrap(),
        }
    }

    #[test]
    fn what_tensors_will_take_is_known_before_they_are_decoded() {
        let texts = |texts: &[&str]| -> TensorData {
            texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>().into()
        };
        let cases: [TensorData; 6] = [
            vec![0.1f32; 100].into(),
            vec![1i64; 7].into(),
            vec![true; 9].into(),
            texts(&[""; 50]),
            texts(&["a", "", "a longer text"]),
            texts(&["\u{1}\n\"", "e"]),
        ];
        for data in cases {
            for format in [DataFormat::Json, DataFormat::Binary] {
                let tensor = Tensor::new("x", vec![data.len()], data.clone()).unwrap();
                let inputs = vec![tensor];
                let request = InferRequest { inputs, ..InferRequest::default() };
                let body = encode_request(&request, format).unwrap();
                let read = read_request(&body.bytes, body.header_length).unwrap();
                let bound = read.decoded_bytes();
                assert!(bound >= taken(&data), "{bound} {data:?} {format:?}");
                assert!(bound <= 2 * taken(&data) + 64, "{bound} {data:?} {format:?}");
                assert_eq!(read.decode().unwrap(), request);
            }
        }
    }

    #[test]
    fn a_false_shape_takes_no_more_than_its_text() {
        let body = br#"{"inputs": [{"name": "x", "shape": [4000000000], "datatype": "FP64", "data": [1]}]}"#;
        let read = read_request(body, None).unwrap();
        assert_eq!(read.decoded_bytes(), 16);
        assert_eq!(
            read.decode().unwrap_err().to_string(),
            "input 'x': expected 4000000000 elements for shape [4000000000], got 1"
        );
    }
}
