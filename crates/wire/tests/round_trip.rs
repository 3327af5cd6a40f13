//! One side reads back what the other wrote: requests and replies of any tensors, in JSON, in
//! binary and in both.

use batchmaker_wire::{
    DataFormat, InferRequest, InferResponse, Parameter, Parameters, RequestedOutput,
    RequestedOutputs, Tensor, TensorData, bf16, decode_request, decode_response, encode_request,
    encode_response, f16,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Elements of any datatype; floats have any bits.
fn data(count: usize) -> impl Strategy<Value = TensorData> {
    fn of<T: std::fmt::Debug + Clone + 'static>(
        element: impl Strategy<Value = T> + 'static,
        count: usize,
    ) -> BoxedStrategy<TensorData>
    where
        TensorData: From<Vec<T>>,
    {
        vec(element, count).prop_map(TensorData::from).boxed()
    }
    prop_oneof![
        of(any::<bool>(), count),
        of(any::<u8>(), count),
        of(any::<u16>(), count),
        of(any::<u32>(), count),
        of(any::<u64>(), count),
        of(any::<i8>(), count),
        of(any::<i16>(), count),
        of(any::<i32>(), count),
        of(any::<i64>(), count),
        of(any::<u16>().prop_map(f16::from_bits), count),
        of(any::<u16>().prop_map(bf16::from_bits), count),
        of(any::<u32>().prop_map(f32::from_bits), count),
        of(any::<u64>().prop_map(f64::from_bits), count),
        of(any::<Vec<u8>>(), count),
        of(any::<String>().prop_map(String::into_bytes), count),
    ]
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let value = prop_oneof![
        any::<bool>().prop_map(Parameter::from),
        any::<i64>().prop_map(Parameter::from),
        any::<u64>().prop_map(Parameter::from),
        prop::num::f64::NORMAL.prop_map(Parameter::from),
        any::<String>().prop_map(Parameter::from),
    ];
    prop::collection::btree_map(any::<String>(), value, 0..3)
}

fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let shape = vec(0usize..4, 0..4);
    let tensor = shape.prop_flat_map(|shape| {
        let data = data(shape.iter().product());
        (Just(shape), data, any::<String>(), parameters())
    });
    let tensors = vec(tensor, 0..4);
    tensors.prop_map(|tensors| {
        let named =
            |(index, (shape, data, name, parameters)): (usize, (_, TensorData, String, _))| {
                let mut tensor = Tensor::new(format!("{index}{name}"), shape, data).unwrap();
                tensor.parameters = parameters;
                tensor
            };
        tensors.into_iter().enumerate().map(named).collect()
    })
}

fn format() -> impl Strategy<Value = DataFormat> {
    prop_oneof![Just(DataFormat::Json), Just(DataFormat::Binary)]
}

/// The same bits, except that in JSON every NaN is one, whatever its bits.
fn assert_same(sent: &[Tensor], came: &[Tensor], format_of: impl Fn(&str) -> DataFormat) {
    assert_eq!(sent.len(), came.len());
    for (sent, came) in sent.iter().zip(came) {
        assert_eq!(
            (&sent.name, sent.shape(), sent.datatype(), &sent.parameters),
            (&came.name, came.shape(), came.datatype(), &came.parameters)
        );
        let bytes = |data: &TensorData| {
            let mut bytes = Vec::new();
            data.append_le_bytes(&mut bytes);
            bytes
        };
        match format_of(&sent.name) {
            DataFormat::Binary => assert_eq!(bytes(sent.data()), bytes(came.data())),
            DataFormat::Json => {
                assert_eq!(bytes(&one_nan(sent.data())), bytes(&one_nan(came.data())));
            }
        }
    }
}

fn one_nan(data: &TensorData) -> TensorData {
    match data.clone() {
        TensorData::Fp16(values) => {
            let one = |value: f16| if value.is_nan() { f16::NAN } else { value };
            values.into_iter().map(one).collect::<Vec<_>>().into()
        }
        TensorData::Bf16(values) => {
            let one = |value: bf16| if value.is_nan() { bf16::NAN } else { value };
            values.into_iter().map(one).collect::<Vec<_>>().into()
        }
        TensorData::Fp32(values) => {
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value };
            values.into_iter().map(one).collect::<Vec<_>>().into()
        }
        TensorData::Fp64(values) => {
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value };
            values.into_iter().map(one).collect::<Vec<_>>().into()
        }
        other => other,
    }
}

fn is_text(tensor: &Tensor) -> bool {
    match tensor.data() {
        TensorData::Bytes(values) => values.iter().all(|value| str::from_utf8(value).is_ok()),
        _ => true,
    }
}

proptest! {
    #[test]
    fn requests_come_back(
        id: Option<String>,
        parameters in parameters(),
        inputs in tensors(),
        format in format(),
        default_format in format(),
        output_formats in vec(prop::option::of(format()), 0..3),
    ) {
        let inputs: Vec<Tensor> = inputs
            .into_iter()
            .filter(|input| format == DataFormat::Binary || is_text(input))
            .collect();
        let output = |(index, format)| RequestedOutput {
            name: format!("y{index}"),
            format,
            parameters: Parameters::new(),
        };
        let list = output_formats.into_iter().enumerate().map(output).collect();
        let outputs = RequestedOutputs { list, default_format };
        let sent = InferRequest { id, parameters, inputs, outputs };

        let body = encode_request(&sent, format).unwrap();
        let any_binary = format == DataFormat::Binary && !sent.inputs.is_empty();
        prop_assert_eq!(body.header_length.is_some(), any_binary);
        let came = decode_request(&body.bytes, body.header_length).unwrap();

        assert_same(&sent.inputs, &came.inputs, |_| format);
        let without_inputs = |request| InferRequest { inputs: vec![], ..request };
        prop_assert_eq!(without_inputs(came), without_inputs(sent));
    }

    #[test]
    fn replies_come_back(
        id: Option<String>,
        parameters in parameters(),
        outputs in tensors(),
        formats in vec(format(), 4),
    ) {
        // A tensor's name begins with its index.
        let chosen = |name: &str| formats[usize::from(name.as_bytes()[0] - b'0')];
        let outputs: Vec<Tensor> = outputs
            .into_iter()
            .filter(|output| chosen(&output.name) == DataFormat::Binary || is_text(output))
            .collect();
        let sent = InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            id,
            parameters,
            outputs,
        };

        let body = encode_response(&sent, chosen).unwrap();
        let any_binary = sent.outputs.iter().any(|output| chosen(&output.name) == DataFormat::Binary);
        prop_assert_eq!(body.header_length.is_some(), any_binary);
        let came = decode_response(&body.bytes, body.header_length).unwrap();

        assert_same(&sent.outputs, &came.outputs, chosen);
        let without_outputs = |response| InferResponse { outputs: vec![], ..response };
        prop_assert_eq!(without_outputs(came), without_outputs(sent));
    }
}

#[test]
fn a_mixed_reply_is_json_and_then_the_binary_outputs() {
    let tensor = |name: &str, values: Vec<i16>| Tensor::new(name, vec![2], values).unwrap();
    let response = InferResponse {
        model_name: "m".into(),
        model_version: "1".into(),
        outputs: vec![tensor("a", vec![1, 2]), tensor("b", vec![3, 4]), tensor("c", vec![5, -1])],
        ..Default::default()
    };
    let outputs = RequestedOutputs {
        list: vec![RequestedOutput {
            name: "b".into(),
            format: Some(DataFormat::Json),
            parameters: Parameters::new(),
        }],
        default_format: DataFormat::Binary,
    };
    let body = encode_response(&response, |name| outputs.format_of(name)).unwrap();
    let (json, binary) = body.bytes.split_at(body.header_length.unwrap());
    assert_eq!(
        str::from_utf8(json).unwrap(),
        concat!(
            r#"{"model_name":"m","model_version":"1","outputs":["#,
            r#"{"name":"a","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}},"#,
            r#"{"name":"b","shape":[2],"datatype":"INT16","data":[3,4]},"#,
            r#"{"name":"c","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}}]}"#
        )
    );
    assert_eq!(binary, [1, 0, 2, 0, 5, 0, 255, 255]);
}
