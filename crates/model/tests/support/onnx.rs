//! ONNX graphs made in the tests.

#![allow(dead_code, reason = "every test uses a part of it")]

use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadError, LoadOptions, Model, load_embedded};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, Dimension, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};

/// A graph with input `x` `[T, B, 3]` and weights for an LSTM of 2 units.
pub(crate) struct Graph {
    pub(crate) graph: GraphProto,
    pub(crate) opset: i64,
}

pub(crate) fn node(operator: &str, name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(operator.to_owned()),
        name: Some(name.to_owned()),
        input: inputs.iter().map(|&name| name.to_owned()).collect(),
        output: outputs.iter().map(|&name| name.to_owned()).collect(),
        ..NodeProto::default()
    }
}

pub(crate) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        i: Some(i),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    }
}

pub(crate) fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        s: Some(s.to_owned()),
        r#type: Some(AttributeType::STRING),
        ..AttributeProto::default()
    }
}

pub(crate) fn info(name: &str, data_type: DataType, shape: &[&str]) -> ValueInfoProto {
    let dim = shape
        .iter()
        .map(|text| match text.parse() {
            Ok(n) => Dimension { dim_value: Some(n), dim_param: None },
            Err(_) => Dimension { dim_value: None, dim_param: Some((*text).to_owned()) },
        })
        .collect();
    let tensor =
        TypeProtoTensor { elem_type: Some(data_type), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }),
    }
}

pub(crate) fn floats(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>();
    TensorProto {
        name: Some(name.to_owned()),
        dims: dims.to_vec(),
        data_type: Some(DataType::FLOAT),
        float_data: (0..count).map(|i| (i % 7) as f32 * 0.1 - 0.3).collect(),
        ..TensorProto::default()
    }
}

pub(crate) fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: vec![values.len() as i64],
        data_type: Some(DataType::INT64),
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}

impl Graph {
    pub(crate) fn new(nodes: Vec<NodeProto>, outputs: &[&str]) -> Self {
        let graph = GraphProto {
            node: nodes,
            input: vec![info("x", DataType::FLOAT, &["T", "B", "3"])],
            output: outputs.iter().map(|name| info(name, DataType::FLOAT, &[])).collect(),
            initializer: vec![
                floats("W", &[1, 8, 3]),
                floats("R", &[1, 8, 2]),
                floats("P", &[1, 6]),
                floats("W2", &[2, 8, 3]),
                floats("R2", &[2, 8, 2]),
                ints("zero", &[0]),
            ],
            value_info: Vec::new(),
        };
        Self { graph, opset: 13 }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let model = ModelProto {
            ir_version: Some(8),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(self.opset) }],
            ..ModelProto::default()
        };
        model.write_buf().unwrap()
    }

    pub(crate) fn load(self, registry: &mut CellRegistry) -> Result<Model, LoadError> {
        load_files(&[("m.onnx", &self.bytes())], TOML, registry)
    }

    /// The lines of the refusal.
    pub(crate) fn refusal(self) -> Vec<String> {
        match self.load(&mut CellRegistry::default()) {
            Err(LoadError::Refused { diagnostics, .. }) => {
                diagnostics.iter().map(ToString::to_string).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) const TOML: &str = "[unfold]\nkind = \"onnx\"\ngraph = \"m.onnx\"\n";

pub(crate) fn load_files(
    files: &[(&str, &[u8])],
    toml: &str,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let mut all = files.to_vec();
    all.push(("model.toml", toml.as_bytes()));
    let options = LoadOptions::new(ModelId(0));
    load_embedded("test", &all, &options, registry)
}
