//! Text in, text out: a request of text as a request of tensors, and the text of its reply, whole or as
//! it is computed.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use batchmaker::Model;
use batchmaker::{NamedTensor, Pending, Reply, TensorData};
use batchmaker_wire as wire;
use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use wire::{InferRequest, RequestedOutput, RequestedOutputs};

use crate::serving::deadline::Deadline;
use crate::serving::error::{ServeError, cut};
use crate::serving::parameters;

/// The input that text goes to.
const INPUT: &str = "text";

/// The parameter of a request that says how tensors travel; it has no meaning for text.
const BINARY_OUTPUT: &str = "binary_data_output";

/// The name that clients of language models give to `max_steps`.
const MAX_TOKENS: &str = "max_tokens";

/// The most bytes of the JSON of a request's parameters, which take far more memory than their text.
const PARAMETERS_BYTES_MAX: usize = 64 << 10;

/// The most fields of a request.
const FIELDS_MAX: usize = 256;

/// The fields of a request that are no parameters.
const OWN: [&str; 2] = ["id", "text_input"];

/// Reads the body of a request: `{"id"?, "text_input", "parameters"?}`. Other fields are parameters, too.
///
/// # Errors
/// It is something else, or the model takes no text, or gives none.
pub(crate) fn read(model: &Model, body: &[u8]) -> Result<InferRequest, ServeError> {
    let invalid = |error: serde_json::Error| ServeError::Invalid(cut(format!("request: {error}")));
    let Fields(fields) = serde_json::from_slice(body).map_err(invalid)?;
    let of =
        |name: &str| fields.iter().find(|(own, _)| own == name).map_or("null", |of| of.1.get());
    let others = fields.iter().filter(|(name, _)| !OWN.contains(&&**name));
    let id = serde_json::from_str(of("id")).map_err(|error| invalid_field("id", &error))?;
    let text: Option<String> = serde_json::from_str(of("text_input"))
        .map_err(|error| invalid_field("text_input", &error))?;
    let text = text.ok_or_else(|| {
        ServeError::Invalid("request: the field `text_input` is missing".to_owned())
    })?;
    let parameters: Option<wire::Parameters> = serde_json::from_str(of("parameters"))
        .map_err(|error| invalid_field("parameters", &error))?;
    let mut parameters = parameters.unwrap_or_default();
    parameters.retain(|_, value| !value.is_null());
    for (name, value) in others.filter(|(name, _)| name != "parameters") {
        let value: wire::Parameter = serde_json::from_str(value.get()).map_err(invalid)?;
        if !value.is_null() {
            parameters.entry(name.clone().into_owned()).or_insert(value);
        }
    }
    if let Some(most) = parameters.remove(MAX_TOKENS) {
        parameters::steps(MAX_TOKENS, &most)?;
        parameters.entry("max_steps".to_owned()).or_insert(most);
    }
    request(model, id, text, parameters)
}

fn invalid_field(name: &str, error: &serde_json::Error) -> ServeError {
    ServeError::Invalid(cut(format!("request: {name}: {error}")))
}

/// The fields of a JSON object: at most [`FIELDS_MAX`], each once, and of parameters at most [`PARAMETERS_BYTES_MAX`] bytes.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// The name of a field, whose text is borrowed where it has no escape.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Fields<'de>, E> {
                Err(E::invalid_type(Unexpected::Other("a string"), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                let mut bytes = 0;
                while let Some((Name(name), value)) =
                    map.next_entry::<Name<'de>, &'de RawValue>()?
                {
                    if !OWN.contains(&&*name) {
                        bytes += name.len() + value.get().len();
                    }
                    if bytes > PARAMETERS_BYTES_MAX || fields.len() == FIELDS_MAX {
                        return Err(A::Error::custom(format!(
                            "expected at most {FIELDS_MAX} parameters of {PARAMETERS_BYTES_MAX} bytes in all, got more"
                        )));
                    }
                    if fields.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom(format!("duplicate field `{name}`")));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        // Not `deserialize_map`, whose message would hold the whole of a string that comes instead.
        deserializer.deserialize_any(FieldsVisitor)
    }
}

/// The request for the text that a model makes of `text`.
///
/// # Errors
/// The model takes no text, or gives none.
fn request(
    model: &Model,
    id: Option<String>,
    text: String,
    mut parameters: wire::Parameters,
) -> Result<InferRequest, ServeError> {
    let name = &model.name;
    if !model.inputs.iter().any(|input| input.name == INPUT) {
        let reason = format!("model '{name}' takes no text: its model.toml has no [inputs.text]");
        return Err(ServeError::Invalid(reason));
    }
    let output = model.text_output().ok_or_else(|| {
        ServeError::Invalid(format!(
            "model '{name}' gives no text: its model.toml has no [outputs]"
        ))
    })?;
    parameters.remove(BINARY_OUTPUT);
    let text = wire::Tensor::new(INPUT, vec![1], vec![text.into_bytes()])?;
    let output = RequestedOutput { name: output.to_owned(), ..RequestedOutput::default() };
    let outputs = RequestedOutputs { list: vec![output], ..RequestedOutputs::default() };
    Ok(InferRequest { id, parameters, inputs: vec![text], outputs })
}

/// The text of a reply to [`request`]; several texts with spaces between.
pub(crate) fn text_of(outputs: Vec<NamedTensor>) -> Result<String, ServeError> {
    let texts = texts_of(outputs);
    let missing = || ServeError::Internal("the model left out its text".to_owned());
    texts.map(|texts| texts.join(" ")).ok_or_else(missing)
}

fn texts_of(mut outputs: Vec<NamedTensor>) -> Option<Vec<String>> {
    let TensorData::Bytes(texts) = outputs.pop()?.tensor.into_data() else { return None };
    Some(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}

/// The text of a reply as it is computed.
#[derive(Debug)]
pub(crate) struct TextStream {
    /// None once the reply is there.
    pending: Option<Pending>,
    deadline: Deadline,
    /// Texts that were computed and not returned.
    texts: VecDeque<String>,
    has_steps: bool,
    /// The reply, until the end is returned.
    reply: Option<Reply>,
}

/// The next part of a stream of text.
#[derive(Debug)]
pub(crate) enum TextPart {
    /// More of the text.
    Text(String),
    /// The reply is there, and all of its text was returned.
    End(Reply),
    /// There will be no reply.
    Failed(ServeError),
}

impl TextStream {
    /// The text of a request that was submitted to be streamed.
    pub(crate) fn new(pending: Pending, deadline: Deadline) -> Self {
        let (texts, has_steps, reply) = (VecDeque::new(), false, None);
        Self { pending: Some(pending), deadline, texts, has_steps, reply }
    }

    /// Waits for the next part; none after the last.
    pub(crate) async fn next(&mut self) -> Option<TextPart> {
        loop {
            if let Some(text) = self.texts.pop_front() {
                return Some(TextPart::Text(text));
            }
            if let Some(reply) = self.reply.take() {
                return Some(TextPart::End(reply));
            }
            let steps = self.deadline.steps(self.pending.as_mut()?).await;
            if let Some(texts) = steps.and_then(texts_of) {
                self.has_steps = true;
                self.texts.extend(texts);
                continue;
            }
            // If the steps came too late, so does the reply, whose error says so.
            let whole = self.deadline.reply(self.pending.take()?).await.and_then(|mut reply| {
                let outputs = std::mem::take(&mut reply.outputs);
                // A text that has no steps is sent whole.
                let text = if self.has_steps { String::new() } else { text_of(outputs)? };
                Ok((text, reply))
            });
            match whole {
                Ok((text, reply)) => {
                    self.texts.extend(Some(text).filter(|text| !text.is_empty()));
                    self.reply = Some(reply);
                }
                Err(error) => return Some(TextPart::Failed(error)),
            }
        }
    }
}
