//! What the parameters of a request mean. One that means nothing here is refused by name.

use std::time::Duration;

use batchmaker_wire::{InferRequest, Parameter, Parameters};

use crate::status::ApiError;

/// How a request wants to be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// 1 is served first; 0 comes after every other.
    pub(crate) priority: u32,
    /// How long its client will wait, from the moment that the request is here.
    pub(crate) timeout: Option<Duration>,
    /// What bounds the steps of a decoder.
    pub(crate) steps: batchmaker_engine::Parameters,
}

/// Reads the parameters of a request, of its inputs and of the outputs that it asks for.
pub(crate) fn read(request: &InferRequest) -> Result<Scheduling, ApiError> {
    for input in &request.inputs {
        if let Some(name) = input.parameters.keys().next() {
            return Err(refuse(&format!("input '{}': parameter", input.name), name));
        }
    }
    for output in &request.outputs.list {
        if let Some(name) = output.parameters.keys().next() {
            return Err(refuse(&format!("output '{}': parameter", output.name), name));
        }
    }
    let mut scheduling = Scheduling::default();
    for (name, value) in &request.parameters {
        match name.as_str() {
            "priority" => {
                let priority = value.as_u64().and_then(|value| u32::try_from(value).ok());
                let expected = "an integer from 0 to 4294967295";
                scheduling.priority = priority.ok_or_else(|| wrong(name, expected, value))?;
            }
            "timeout" => {
                let expected = "a number of microseconds";
                let timeout_us = value.as_u64().ok_or_else(|| wrong(name, expected, value))?;
                scheduling.timeout = match timeout_us {
                    0 => None,
                    timeout_us => Some(Duration::from_micros(timeout_us)),
                };
            }
            "max_steps" | "force_steps" => {
                let steps = value.as_u64().and_then(|value| u32::try_from(value).ok());
                let steps = steps.ok_or_else(|| wrong(name, "a number of steps", value))?;
                match name.as_str() {
                    "max_steps" => scheduling.steps.max_steps = Some(steps),
                    _ => scheduling.steps.force_steps = Some(steps),
                }
            }
            "sequence_id" if is_no_sequence(value) => {}
            "sequence_start" | "sequence_end" if !has_sequence(&request.parameters) => {
                match value.as_bool() {
                    Some(false) => {}
                    Some(true) => {
                        return Err(ApiError::Invalid(format!(
                            "parameter '{name}' is true, but there is no sequence_id"
                        )));
                    }
                    None => return Err(wrong(name, "true or false", value)),
                }
            }
            "sequence_id" | "sequence_start" | "sequence_end" => {
                return Err(ApiError::Invalid(
                    "parameter 'sequence_id': sessions are not supported by this server".into(),
                ));
            }
            _ => return Err(refuse("parameter", name)),
        }
    }
    Ok(scheduling)
}

/// 0 and "" are how a client says that there is no sequence.
fn is_no_sequence(id: &Parameter) -> bool {
    id.as_u64() == Some(0) || id.as_str() == Some("")
}

fn has_sequence(parameters: &Parameters) -> bool {
    parameters.get("sequence_id").is_some_and(|id| !is_no_sequence(id))
}

fn wrong(name: &str, expected: &str, value: &Parameter) -> ApiError {
    ApiError::Invalid(format!("parameter '{name}': expected {expected}, got {value}"))
}

fn refuse(place: &str, name: &str) -> ApiError {
    ApiError::Invalid(format!("{place} '{name}' is not supported by this server"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchmaker_wire::decode_request;

    fn parse(members: &str) -> Result<Scheduling, String> {
        let body = format!(r#"{{"inputs": [], {members}}}"#);
        read(&decode_request(body.as_bytes(), None).unwrap()).map_err(|error| error.to_string())
    }

    fn parameters(parameters: &str) -> Result<Scheduling, String> {
        parse(&format!(r#""parameters": {{{parameters}}}"#))
    }

    #[test]
    fn what_is_known_is_read() {
        let read = parameters(r#""priority": 2, "timeout": 1500, "binary_data_output": true"#);
        let timeout = Some(Duration::from_micros(1500));
        assert_eq!(read, Ok(Scheduling { priority: 2, timeout, ..Scheduling::default() }));
        assert_eq!(parameters(r#""priority": 0, "timeout": 0"#), Ok(Scheduling::default()));
        let none = r#""sequence_id": 0, "sequence_start": false, "sequence_end": false"#;
        assert_eq!(parameters(none), Ok(Scheduling::default()));
        assert_eq!(parameters(r#""sequence_id": """#), Ok(Scheduling::default()));
        let format = r#""outputs": [{"name": "y", "parameters": {"binary_data": true}}]"#;
        assert_eq!(parse(format), Ok(Scheduling::default()));
    }

    #[test]
    fn what_is_wrong_or_unknown_is_refused_by_name() {
        let table = [
            (
                r#""priority": "high""#,
                r#"parameter 'priority': expected an integer from 0 to 4294967295, got "high""#,
            ),
            (
                r#""priority": 4294967296"#,
                "parameter 'priority': expected an integer from 0 to 4294967295, got 4294967296",
            ),
            (r#""timeout": -1"#, "parameter 'timeout': expected a number of microseconds, got -1"),
            (r#""speed": 11"#, "parameter 'speed' is not supported by this server"),
            (
                r#""sequence_id": 5, "sequence_start": true"#,
                "parameter 'sequence_id': sessions are not supported by this server",
            ),
            (
                r#""sequence_end": true"#,
                "parameter 'sequence_end' is true, but there is no sequence_id",
            ),
            (r#""sequence_end": 1"#, "parameter 'sequence_end': expected true or false, got 1"),
        ];
        for (text, message) in table {
            assert_eq!(parameters(text), Err(message.to_owned()));
        }
        let error = parse(r#""outputs": [{"name": "y", "parameters": {"classification": 3}}]"#);
        let message = "output 'y': parameter 'classification' is not supported by this server";
        assert_eq!(error, Err(message.to_owned()));
    }
}
