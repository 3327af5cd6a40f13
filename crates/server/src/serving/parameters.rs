//! The parameters of a request. Clients send some that have no meaning here, for purposes of their own: these are ignored. Those of the protocol
//! whose meaning is not built are refused by name.

use std::time::Duration;

use batchmaker::{SessionChunk, SessionKey};
use batchmaker_wire::{InferRequest, Parameter, Parameters};

use crate::log::log_detail;
use crate::serving::classification::CLASSIFICATION;
use crate::serving::error::ServeError;

/// The name of the header that may name a session, so that proxies can hash it.
pub(crate) const SESSION: &str = "x-session-id";

/// Bytes of a session's name: it is kept for as long as the session.
const SESSION_NAME_MAX: usize = 256;

/// The most ignored parameters of a request that the log names, and the most characters of a name.
const LOGGED_MAX: usize = 8;
const LOGGED_CHARS_MAX: usize = 64;

/// Parameters of a request that have a meaning.
const KNOWN: [&str; 7] = [
    "priority",
    "timeout",
    "max_steps",
    "force_steps",
    "sequence_id",
    "sequence_start",
    "sequence_end",
];

/// Parameters of tensors that would change the reply, were they built.
const NOT_BUILT: [&str; 3] =
    ["shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"];

/// The scheduling that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// 1 is served first; 0 comes after every other.
    pub(crate) priority: u32,
    /// The time that its client waits, from when the request is complete.
    pub(crate) timeout: Option<Duration>,
    /// The bounds on the steps of a decoder.
    pub(crate) steps: batchmaker::Parameters,
    /// The session's chunk that it brings.
    pub(crate) session: Option<SessionChunk>,
}

/// Reads the parameters of a request, of its inputs and of the outputs that it asks for. A session
/// may be named in the header [`SESSION`] as well.
pub(crate) fn read(
    request: &InferRequest,
    session_header: Option<&str>,
) -> Result<Scheduling, ServeError> {
    for input in &request.inputs {
        check_built("input", &input.name, &input.parameters)?;
    }
    for output in &request.outputs.list {
        check_built("output", &output.name, &output.parameters)?;
    }
    let mut scheduling = Scheduling::default();
    for (name, value) in request.parameters.iter().filter(|(_, value)| !value.is_null()) {
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
                let steps = steps(name, value)?;
                match name.as_str() {
                    "max_steps" => scheduling.steps.max_steps = Some(steps),
                    _ => scheduling.steps.force_steps = Some(steps),
                }
            }
            "sequence_id" | "sequence_start" | "sequence_end" => {}
            _ => {}
        }
    }
    if ignored_names(request).next().is_some() {
        log_detail(|| ignored(request));
    }
    scheduling.session = session(&request.parameters, session_header)?;
    Ok(scheduling)
}

/// The session that the parameters and the header name.
fn session(
    parameters: &Parameters,
    header: Option<&str>,
) -> Result<Option<SessionChunk>, ServeError> {
    let expected = "a number from 0 to 18446744073709551615 or a text";
    let given = |name: &str| parameters.get(name).filter(|value| !value.is_null());
    let of_parameter = match given("sequence_id") {
        None => None,
        Some(id) => {
            let text = id.as_str().map(str::to_owned).or(id.as_u64().map(|id| id.to_string()));
            session_key(&text.ok_or_else(|| wrong("sequence_id", expected, id))?)
        }
    };
    let of_header = header.and_then(session_key);
    let key = match (of_parameter, of_header) {
        (Some(id), Some(other)) if id != other => {
            let text = format!(
                "parameter 'sequence_id' is '{id}', header '{SESSION}' is '{other}': expected the same"
            );
            return Err(ServeError::Invalid(text));
        }
        (id, other) => id.or(other),
    };
    if let Some(SessionKey::Text(text)) = &key
        && text.len() > SESSION_NAME_MAX
    {
        let found = text.len();
        return Err(ServeError::Invalid(format!(
            "parameter 'sequence_id': expected at most {SESSION_NAME_MAX} bytes, got {found}"
        )));
    }
    let flag = |name: &str| match given(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| wrong(name, "true or false", value)),
    };
    let (start, end) = (flag("sequence_start")?, flag("sequence_end")?);
    match key {
        Some(key) => Ok(Some(SessionChunk { key, start, end })),
        None if start || end => {
            let name = if start { "sequence_start" } else { "sequence_end" };
            let text = format!("parameter '{name}' is true, but there is no sequence_id");
            Err(ServeError::Invalid(text))
        }
        None => Ok(None),
    }
}

/// The session that a text names: a number, written as such, is a number. 0 and "" are how a client
/// says that there is none.
fn session_key(text: &str) -> Option<SessionKey> {
    match text.parse::<u64>() {
        Ok(0) if text == "0" => None,
        Ok(number) if number.to_string() == text => Some(SessionKey::Number(number)),
        _ if text.is_empty() => None,
        _ => Some(SessionKey::Text(text.to_owned())),
    }
}

fn wrong(name: &str, expected: &str, value: &Parameter) -> ServeError {
    ServeError::Invalid(format!("parameter '{name}': expected {expected}, got {value}"))
}

/// Checks that a tensor has none of the parameters that are not built.
fn check_built(role: &str, tensor: &str, parameters: &Parameters) -> Result<(), ServeError> {
    let is_set = |name: &&str| parameters.get(*name).is_some_and(|value| !value.is_null());
    match NOT_BUILT.iter().copied().find(is_set) {
        None => Ok(()),
        Some(name) => Err(ServeError::Invalid(format!(
            "{role} '{tensor}': parameter '{name}' is not supported by this server"
        ))),
    }
}

/// The names of the parameters of a request, of its inputs and of its outputs that have no meaning here.
fn ignored_names(request: &InferRequest) -> impl Iterator<Item = &String> + Clone {
    let of_request = request.parameters.keys().filter(|name| !KNOWN.contains(&name.as_str()));
    let of_inputs = request.inputs.iter().flat_map(|input| input.parameters.keys());
    let of_outputs = request.outputs.list.iter().flat_map(|output| output.parameters.keys());
    of_request.chain(of_inputs).chain(of_outputs.filter(|name| *name != CLASSIFICATION))
}

/// The line about the parameters of a request that are ignored.
fn ignored(request: &InferRequest) -> String {
    let names = ignored_names(request);
    let shown = |name: &String| -> String {
        let short: String = name.chars().take(LOGGED_CHARS_MAX).collect();
        format!("'{}'", short.escape_debug())
    };
    let listed: Vec<String> = names.clone().take(LOGGED_MAX).map(shown).collect();
    let more = match names.count().saturating_sub(LOGGED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "a request's parameters that have no meaning here are ignored: {}{more}",
        listed.join(", ")
    )
}

/// The number of steps that a parameter says.
pub(crate) fn steps(name: &str, value: &Parameter) -> Result<u32, ServeError> {
    let steps = value.as_u64().and_then(|value| u32::try_from(value).ok());
    steps.ok_or_else(|| wrong(name, "a number of steps", value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchmaker_wire::decode_request;

    fn parse_under(header: Option<&str>, members: &str) -> Result<Scheduling, String> {
        let body = format!(r#"{{"inputs": [], {members}}}"#);
        let request = decode_request(body.as_bytes(), None).unwrap();
        read(&request, header).map_err(|error| error.to_string())
    }

    fn parse(members: &str) -> Result<Scheduling, String> {
        parse_under(None, members)
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
    fn what_is_unknown_is_ignored() {
        let unknown = r#""speed": 11, "headers": {"a": [1]}, "stream": null"#;
        assert_eq!(parameters(unknown), Ok(Scheduling::default()));
        let nulls = r#""priority": null, "sequence_id": null, "sequence_start": null"#;
        assert_eq!(parameters(nulls), Ok(Scheduling::default()));
        let of_tensors = r#""outputs": [{"name": "y", "parameters": {"content_type": "np"}}]"#;
        assert_eq!(parse(of_tensors), Ok(Scheduling::default()));
        let whole = parameters(r#""priority": 2.0, "max_steps": 3e0"#).unwrap();
        assert_eq!((whole.priority, whole.steps.max_steps), (2, Some(3)));
    }

    #[test]
    fn a_line_names_what_is_ignored() {
        let line = |members: &str| {
            let body = format!(r#"{{"inputs": [], {members}}}"#);
            ignored(&decode_request(body.as_bytes(), None).unwrap())
        };
        let few = r#""parameters": {"priority": 1, "a\nb": 2}, "outputs": [{"name": "y", "parameters": {"c": 3}}]"#;
        let text = "a request's parameters that have no meaning here are ignored: ";
        assert_eq!(line(few), format!("{text}'a\\nb', 'c'"));
        let many: Vec<String> =
            (0..20).map(|at| format!(r#""{at}{}": 1"#, "x".repeat(500))).collect();
        let line = line(&format!(r#""parameters": {{{}}}"#, many.join(",")));
        assert!(line.ends_with("' and 12 more") && line.len() < 1000, "{line}");
    }

    #[test]
    fn what_is_wrong_or_not_built_is_refused_by_name() {
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
            (
                r#""priority": [1]"#,
                "parameter 'priority': expected an integer from 0 to 4294967295, got a list",
            ),
            (
                r#""timeout": 1.5"#,
                "parameter 'timeout': expected a number of microseconds, got 1.5",
            ),
            (
                r#""sequence_id": -5"#,
                "parameter 'sequence_id': expected a number from 0 to 18446744073709551615 or a \
                 text, got -5",
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
        let error =
            parse(r#""outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]"#);
        let message =
            "output 'y': parameter 'shared_memory_region' is not supported by this server";
        assert_eq!(error, Err(message.to_owned()));
    }

    #[test]
    fn a_session_is_named_by_parameter_or_header() {
        let session = |header, text: &str| {
            let read = parse_under(header, &format!(r#""parameters": {{{text}}}"#))?;
            Ok::<_, String>(read.session.map(|chunk| (chunk.key, chunk.start, chunk.end)))
        };
        let five = SessionKey::Number(5);
        let start = r#""sequence_id": 5, "sequence_start": true"#;
        assert_eq!(session(None, start), Ok(Some((five.clone(), true, false))));
        assert_eq!(session(Some("5"), start), Ok(Some((five.clone(), true, false))));
        assert_eq!(session(Some("5"), r#""sequence_end": true"#), Ok(Some((five, false, true))));
        let text = SessionKey::Text("a-05".to_owned());
        assert_eq!(session(None, r#""sequence_id": "a-05""#), Ok(Some((text, false, false))));
        assert_eq!(session(Some(""), r#""sequence_id": 0"#), Ok(None));
        let name = "x".repeat(257);
        let long = session(Some(&name), "").unwrap_err();
        assert!(long.contains("expected at most 256 bytes, got 257"), "{long}");
        let both = session(Some("6"), start).unwrap_err();
        assert!(both.contains("'5'") && both.contains("'6'"), "{both}");
        let largest = r#""sequence_id": 18446744073709551615"#;
        assert_eq!(session(None, largest), Ok(Some((SessionKey::Number(u64::MAX), false, false))));
    }
}
