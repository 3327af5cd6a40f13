//! Bodies that the stock Python client wrote (`tritonclient/write_bodies.py`) are understood.

use batchmaker_wire::{DataFormat, InferRequest, Parameter, TensorData, decode_request};

fn assert_inputs(request: &InferRequest) {
    let expected: [(&str, &[usize], TensorData); 5] = [
        ("x", &[2, 3], vec![0.1f32, -0.0, 1e-45, f32::MAX, 1.0 / 3.0, 2.0].into()),
        ("id", &[2], vec![i64::MIN, i64::MAX].into()),
        ("big", &[1], vec![u64::MAX].into()),
        ("flag", &[2], vec![true, false].into()),
        ("text", &[2], vec!["é\n".as_bytes().to_vec(), vec![]].into()),
    ];
    assert_eq!(request.inputs.len(), expected.len());
    for (input, (name, shape, data)) in request.inputs.iter().zip(expected) {
        assert_eq!((&*input.name, input.shape(), input.data()), (name, shape, &data));
        assert!(input.parameters.is_empty(), "{:?}", input.parameters);
    }
}

#[test]
fn tensors_in_json() {
    let request = decode_request(include_bytes!("tritonclient/json.body"), None).unwrap();
    assert_inputs(&request);
    assert_eq!(request.id.as_deref(), Some("7"));
    assert!(request.parameters.is_empty());
    let names: Vec<&str> = request.outputs.list.iter().map(|output| &*output.name).collect();
    assert_eq!(names, ["y", "z"]);
    assert_eq!(request.outputs.format_of("y"), DataFormat::Json);
    assert_eq!(request.outputs.format_of("z"), DataFormat::Binary);
    assert_eq!(request.outputs.list[1].parameters["classification"], Parameter::I64(3));
}

#[test]
fn tensors_in_binary() {
    let body = include_bytes!("tritonclient/binary.body");
    let request = decode_request(body, Some(596)).unwrap();
    assert_inputs(&request);
    assert_eq!(request.outputs.list, []);
    assert_eq!(request.outputs.format_of("y"), DataFormat::Binary);
    let parameter = |name: &str| &request.parameters[name];
    assert_eq!(parameter("sequence_id").as_u64(), Some(u64::MAX));
    assert_eq!(parameter("sequence_start").as_bool(), Some(true));
    assert_eq!(parameter("sequence_end").as_bool(), Some(false));
    assert_eq!(parameter("timeout").as_i64(), Some(5000));
    assert_eq!(parameter("max_steps").as_u64(), Some(10));
    assert_eq!(request.parameters.len(), 6);
}
