//! Every way in which a body can be wrong is answered with what was expected and what came, and
//! none of them panics.

use batchmaker_wire::{
    DataFormat, InferRequest, InferResponse, Tensor, WireError, decode_request, decode_response,
    encode_request, encode_response,
};
use proptest::prelude::*;

fn refusal(body: &str, header_length: Option<usize>) -> String {
    decode_request(body.as_bytes(), header_length).unwrap_err().to_string()
}

/// The refusal of a request whose one input has these fields.
fn input_refusal(fields: &str) -> String {
    refusal(&format!(r#"{{"inputs":[{{{fields}}}]}}"#), None)
}

/// The refusal of a request whose one input has these fields, `bytes` following the JSON.
fn binary_refusal(fields: &str, bytes: &[u8]) -> String {
    let mut body = format!(r#"{{"inputs":[{{"name":"x",{fields}}}]}}"#).into_bytes();
    let length = body.len();
    body.extend_from_slice(bytes);
    decode_request(&body, Some(length)).unwrap_err().to_string()
}

#[test]
fn a_long_string_is_no_part_of_a_message() {
    let long = format!("\"{}\"", "\u{7f}".repeat(100_000));
    for body in [long.clone(), format!("{{\"inputs\":{long}}}"), format!("{{\"inputs\":[{long}]}}")]
    {
        let message = decode_request(body.as_bytes(), None).unwrap_err().to_string();
        assert!(message.contains("a string, expected a") && message.len() < 200, "{message}");
    }
}

#[test]
fn json_that_is_not_a_request() {
    for (body, message) in [
        ("", "request: not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("{\"inputs\":[NaN]}", "request: not valid JSON: expected value at line 1 column 12"),
        ("{\"inputs\":[]} x", "request: not valid JSON: trailing characters at line 1 column 15"),
        ("[[]]", "request: invalid type: sequence, expected an object at line 1 column 1"),
        ("{}", "request: inputs are missing, expected a list of tensors"),
        ("{\"inputs\":null}", "request: inputs are missing, expected a list of tensors"),
        (
            "{\"inputs\":{}}",
            "request: invalid type: map, expected a list of tensors at line 1 column 12",
        ),
        (
            "{\"inputs\":[[\"x\",[1],\"BOOL\",null,[1]]]}",
            "request: invalid type: sequence, expected an object at line 1 column 12",
        ),
        ("{\"inputs\":[],\"inputs\":[]}", "request: duplicate field `inputs` at line 1 column 21"),
        ("{\"id\":5,\"inputs\":[]}", "request: id is 5, expected a string"),
        ("{\"parameters\":[1],\"inputs\":[]}", "request: parameters is [1], expected an object"),
        (
            "{\"parameters\":{\"binary_data_output\":1},\"inputs\":[]}",
            "request: binary_data_output is 1, expected true or false",
        ),
        (
            "{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":\"yes\"}}]}",
            "output 'y': binary_data is \"yes\", expected true or false",
        ),
        (
            "{\"inputs\":[],\"outputs\":[{}]}",
            "output 0 (from 0): name is missing, expected a string",
        ),
        (
            "{\"inputs\":[],\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}]}",
            "output 'y' is there twice, expected once",
        ),
    ] {
        assert_eq!(refusal(body, None), message, "{body}");
    }
}

#[test]
fn json_that_is_not_utf8() {
    let error = decode_request(b"{\"inputs\":[\xff]}", None).unwrap_err();
    assert_eq!(error.to_string(), "the body's JSON is not UTF-8 at byte 11");
}

#[test]
fn inputs_that_are_not_tensors() {
    for (fields, message) in [
        (r#""shape":[1]"#, "input 0 (from 0): name is missing, expected a string"),
        (r#""name":5"#, "input 0 (from 0): name is 5, expected a string"),
        (r#""name":"x""#, "input 'x': datatype is missing, expected a string"),
        (r#""name":"x","datatype":1"#, "input 'x': datatype is 1, expected a string"),
        (
            r#""name":"x","datatype":"BOOL""#,
            "input 'x': shape is missing, expected a list of integers",
        ),
        (
            r#""name":"x","datatype":"BOOL","shape":[2.5]"#,
            "input 'x': shape is [2.5], expected a list of integers",
        ),
        (
            r#""name":"x","datatype":"BOOL","shape":[-1]"#,
            "input 'x': shape [-1] has a dimension that is negative",
        ),
        (
            r#""name":"x","datatype":"BOOL","shape":[4294967296,4294967296],"data":[]"#,
            "input 'x': shape [4294967296, 4294967296] has too many elements",
        ),
        (
            r#""name":"x","datatype":"BYTES","shape":[1000000000000],"data":[]"#,
            "input 'x': expected 1000000000000 elements for shape [1000000000000], got 0",
        ),
        (
            r#""name":"x","datatype":"BOOL","shape":[1]"#,
            "input 'x': has neither data nor binary_data_size, expected one of them",
        ),
        (
            r#""name":"x","datatype":"BOOL","shape":[1],"data":[1],"parameters":{"binary_data_size":1}"#,
            "input 'x': has both data and binary_data_size, expected one of them",
        ),
        (
            r#""name":"x","datatype":"INT32","shape":[2],"data":[1,1.5]"#,
            "input 'x': element 1 is 1.5, expected an integer from -2147483648 to 2147483647",
        ),
        (
            r#""name":"x","datatype":"FP32","shape":[2,1],"data":[[1],[2,3]]"#,
            "input 'x': expected 1 elements in each list along dimension 1 for shape [2, 1], got more",
        ),
        (
            r#""name":"x\n","datatype":"FP32","shape":[1],"data":5"#,
            "input 'x\\n': data has 5 where shape [1] has a list along dimension 0",
        ),
        (
            r#""name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}"#,
            "input 'x': has binary_data_size, expected the header inference-header-content-length \
             with it",
        ),
    ] {
        assert_eq!(input_refusal(fields), message, "{fields}");
    }
    let unknown = input_refusal(r#""name":"x","datatype":"FP8""#);
    assert!(unknown.starts_with("input 'x': datatype 'FP8' is unknown, expected one of BOOL"));
}

#[test]
fn an_input_that_is_there_twice() {
    let x = r#"{"name":"x","datatype":"BOOL","shape":[0],"data":[]}"#;
    let message = refusal(&format!(r#"{{"inputs":[{x},{x}]}}"#), None);
    assert_eq!(message, "input 'x' is there twice, expected once");
}

#[test]
fn binary_data_that_do_not_fit() {
    for (fields, bytes, message) in [
        (
            r#""datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}"#,
            &[0; 7][..],
            "input 'x': binary_data_size is 8, but 7 bytes of the body are left",
        ),
        (
            r#""datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}"#,
            &[0; 9],
            "1 bytes of the body follow the last input's",
        ),
        (
            r#""datatype":"FP32","shape":[2],"parameters":{"binary_data_size":4}"#,
            &[0; 4],
            "input 'x': expected 2 FP32 elements of 4 bytes each, got 4 bytes",
        ),
        (
            r#""datatype":"FP32","shape":[1],"parameters":{"binary_data_size":-4}"#,
            &[0; 4],
            "input 'x': binary_data_size is -4, expected a number of bytes",
        ),
        (
            r#""datatype":"FP32","shape":[1],"parameters":{"binary_data_size":18446744073709551615}"#,
            &[0; 4],
            "input 'x': binary_data_size is 18446744073709551615, but 4 bytes of the body are left",
        ),
        (
            r#""datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}"#,
            &[2, 0, 0, 0, b'a'],
            "input 'x': element 0 has the length 2, but 1 bytes follow",
        ),
        (
            r#""datatype":"BYTES","shape":[1099511627776],"parameters":{"binary_data_size":0}"#,
            &[],
            "input 'x': expected 1099511627776 BYTES elements, got 0 bytes that hold 0",
        ),
        (
            r#""datatype":"BOOL","shape":[1],"parameters":{"binary_data_size":1}"#,
            &[2],
            "input 'x': element 0 is the byte 2, expected a BOOL: 0 or 1",
        ),
    ] {
        assert_eq!(binary_refusal(fields, bytes), message, "{fields}");
    }
    assert_eq!(
        refusal("{}", Some(3)),
        "inference-header-content-length is 3, but the body has 2 bytes"
    );
}

#[test]
fn lists_and_fields_are_bounded() {
    let many = format!(r#"{{"inputs":[{}{{}}]}}"#, "{},".repeat(4096));
    assert!(refusal(&many, None).starts_with("request: expected at most 4096 tensors, got more"));
    let long = format!(r#"{{"inputs":[{{"name":"{}"}}]}}"#, "x".repeat(1 << 20));
    assert_eq!(
        refusal(&long, None),
        "request: the JSON around the data of tensors has 1048600 bytes, expected at most 1048576"
    );
}

#[test]
fn deep_json_is_refused() {
    let deep = "[".repeat(1 << 20);
    let closed = deep.clone() + &"]".repeat(1 << 20);
    for data in [&deep, &closed] {
        let fields = format!(r#""name":"x","datatype":"FP32","shape":[1],"data":{data}"#);
        input_refusal(&fields);
        input_refusal(&format!(r#""name":"x","parameters":{data}"#));
        input_refusal(&format!(r#""unknown":{data}"#));
    }
    refusal(&deep, None);
    refusal(&"{\"inputs\":".repeat(1 << 17), None);
}

#[test]
fn unknown_fields_are_ignored_and_unknown_parameters_kept() {
    let body = r#"{"later":{"a":[1]},"parameters":{"p":1.5},"inputs":[
        {"data":[1],"later":null,"name":"x","parameters":{"q":"r"},"shape":[1],"datatype":"UINT8"}
    ]}"#;
    let request = decode_request(body.as_bytes(), None).unwrap();
    assert_eq!(request.parameters["p"].as_f64(), Some(1.5));
    assert_eq!(request.inputs[0].parameters["q"].as_str(), Some("r"));
}

#[test]
fn bytes_that_are_not_text_need_binary() {
    let output = Tensor::new("y", vec![1], vec![vec![0xffu8]]).unwrap();
    let response = InferResponse { outputs: vec![output.clone()], ..Default::default() };
    let error = encode_response(&response, |_| DataFormat::Json).unwrap_err();
    let message = "output 'y': BYTES that are not UTF-8 cannot be written as JSON; set \
                   binary_data to have them in binary";
    assert_eq!(error, WireError::Invalid(message.into()));
    encode_response(&response, |_| DataFormat::Binary).unwrap();

    let request = InferRequest { inputs: vec![output], ..Default::default() };
    let error = encode_request(&request, DataFormat::Json).unwrap_err().to_string();
    assert!(error.starts_with("input 'y': BYTES that are not UTF-8"), "{error}");
}

#[test]
fn a_reply_that_breaks_the_protocol() {
    let message = |body: &str| decode_response(body.as_bytes(), None).unwrap_err().to_string();
    assert_eq!(message("{}"), "response: model_name is missing, expected a string");
    assert_eq!(
        message(
            r#"{"model_name":"m","outputs":[{"name":"y","datatype":"BOOL","shape":[2],"data":[true]}]}"#
        ),
        "output 'y': expected 2 elements for shape [2], got 1"
    );
}

/// A valid body with every kind of part, and the length of its JSON.
fn valid_body() -> (Vec<u8>, usize) {
    let json = br#"{"id":"a","parameters":{"p":1},"inputs":[
        {"name":"x","shape":[2,1],"datatype":"FP32","data":[[1.5],["NaN"]]},
        {"name":"t","shape":[1],"datatype":"BYTES","data":["\u00e9\\"]},
        {"name":"b","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":10}},
        {"name":"i","shape":[1],"datatype":"INT64","parameters":{"binary_data_size":8}}
    ],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}"#;
    let mut body = json.to_vec();
    body.extend_from_slice(&[1, 0, 0, 0, 7, 1, 0, 0, 0, 9]);
    body.extend_from_slice(&5i64.to_le_bytes());
    (body, json.len())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(body: Vec<u8>, header_length: Option<u8>) {
        let header_length = header_length.map(usize::from);
        let _ = decode_request(&body, header_length);
        let _ = decode_response(&body, header_length);
    }

    #[test]
    fn no_data_make_it_panic(
        data in r#"[\[\],{}:"\\u0-9eE.+ntrfals -]{0,40}"#,
        shape in prop::collection::vec(0usize..4, 0..4),
        datatype in prop::sample::select(&batchmaker_wire::Datatype::ALL),
    ) {
        let body = format!(
            r#"{{"inputs":[{{"name":"x","shape":{shape:?},"datatype":"{datatype}","data":{data}}}]}}"#
        );
        if let Ok(request) = decode_request(body.as_bytes(), None) {
            let input = &request.inputs[0];
            prop_assert_eq!(input.data().len(), input.shape().iter().product::<usize>());
        }
    }

    #[test]
    fn no_mutation_makes_it_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
        moved in -2i64..=2,
    ) {
        let (mut body, length) = valid_body();
        prop_assert!(decode_request(&body, Some(length)).is_ok());
        for (at, byte, kind) in edits {
            let at = at.index(body.len());
            // Half of the bytes are ones that mean something in JSON.
            let byte = if byte < 128 { b"[]{},:\"\\01-.e"[usize::from(byte) % 13] } else { byte };
            match kind {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => drop(body.remove(at)),
            }
        }
        let _ = decode_request(&body, Some(length.saturating_add_signed(moved as isize)));
        let _ = decode_request(&body[..length.min(body.len())], None);
    }
}
