//! Descriptions of the server and its models: metadata, model configuration, repository
//! index and errors, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::datatype::{Datatype, triton_name};

/// The answer to `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// The server's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The protocol extensions that it speaks.
    pub extensions: Vec<String>,
}

/// The answer to `GET /v2/models/M`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// The model's name.
    pub name: String,
    /// The versions that are served.
    #[serde(default)]
    pub versions: Vec<String>,
    /// The kind of model.
    pub platform: String,
    /// The tensors of a request.
    pub inputs: Vec<TensorMetadata>,
    /// The tensors of a reply.
    pub outputs: Vec<TensorMetadata>,
}

/// One tensor of [`ModelMetadata`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMetadata {
    /// The tensor's name.
    pub name: String,
    /// The type of its elements.
    pub datatype: Datatype,
    /// The size of each dimension, -1 where it varies.
    pub shape: Vec<i64>,
}

/// The answer to `GET /v2/models/M/config`: the part of Triton's `ModelConfig` message that its
/// clients read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The model's name.
    pub name: String,
    /// The kind of model.
    pub platform: String,
    /// The backend that runs it.
    pub backend: String,
    /// Which versions are served.
    pub version_policy: VersionPolicy,
    /// The most requests that a client may join along a batch axis of its own; 0 where shapes have
    /// no such axis before the dimensions that are listed. It does not say how the server batches.
    pub max_batch_size: u32,
    /// The tensors of a request.
    pub input: Vec<ConfigInput>,
    /// The tensors of a reply.
    pub output: Vec<ConfigOutput>,
    /// Present where requests may belong to sequences; `perf_analyzer` then sends sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_batching: Option<SequenceBatching>,
    /// Present where the server joins requests in batches, and none belongs to a sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_batching: Option<DynamicBatching>,
    /// The instances of the model.
    #[serde(default)]
    pub instance_group: Vec<InstanceGroup>,
    /// The relation of replies to requests.
    #[serde(default)]
    pub model_transaction_policy: TransactionPolicy,
    /// Whether replies come from a cache.
    #[serde(default)]
    pub response_cache: ResponseCache,
    /// Parameters of the backend.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, ConfigParameter>,
}

/// One of [`ModelConfig`]'s parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigParameter {
    /// Its value.
    pub string_value: String,
}

/// One tensor of a request in [`ModelConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigInput {
    /// The tensor's name.
    pub name: String,
    /// The type of its elements, written as `TYPE_FP32`.
    #[serde(with = "triton_name")]
    pub data_type: Datatype,
    /// The order of an image's axes.
    #[serde(default)]
    pub format: TensorFormat,
    /// The size of each dimension but for the axis of batch, -1 where it varies.
    pub dims: Vec<i64>,
    /// Whether the tensor says how large another one is.
    #[serde(default)]
    pub is_shape_tensor: bool,
    /// Whether requests that differ in shape may be one batch.
    #[serde(default)]
    pub allow_ragged_batch: bool,
    /// Whether a request may leave the input out.
    #[serde(default)]
    pub optional: bool,
}

/// One tensor of a reply in [`ModelConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOutput {
    /// The tensor's name.
    pub name: String,
    /// The type of its elements, written as `TYPE_FP32`.
    #[serde(with = "triton_name")]
    pub data_type: Datatype,
    /// The size of each dimension but for the axis of batch, -1 where it varies.
    pub dims: Vec<i64>,
    /// The file of the names of classes; empty where there is none.
    #[serde(default)]
    pub label_filename: String,
    /// Whether the tensor says how large another one is.
    #[serde(default)]
    pub is_shape_tensor: bool,
}

/// The order of an image's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TensorFormat {
    /// The tensor is no image, or its model does not say.
    #[default]
    #[serde(rename = "FORMAT_NONE")]
    None,
    /// Height, width, channels.
    #[serde(rename = "FORMAT_NHWC")]
    Nhwc,
    /// Channels, height, width.
    #[serde(rename = "FORMAT_NCHW")]
    Nchw,
}

/// Which versions of a model are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionPolicy {
    /// The highest ones.
    Latest {
        /// The number.
        num_versions: u32,
    },
}

impl Default for VersionPolicy {
    /// The highest version alone.
    fn default() -> Self {
        Self::Latest { num_versions: 1 }
    }
}

/// How the server joins requests in batches. Nothing of it is a client's to choose, and no request waits for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DynamicBatching {
    /// Sizes of batches that requests wait for.
    pub preferred_batch_size: Vec<u32>,
    /// The time that requests wait for others, in microseconds.
    pub max_queue_delay_microseconds: u64,
}

/// Instances of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceGroup {
    /// Its name.
    pub name: String,
    /// The kind of processor, such as `KIND_CPU`.
    pub kind: String,
    /// The number of instances.
    pub count: u32,
    /// The GPUs that have instances.
    #[serde(default)]
    pub gpus: Vec<u32>,
}

/// Whether replies come from a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseCache {
    /// They may.
    pub enable: bool,
}

/// The options of sequences of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceBatching {
    /// The time that a sequence may be silent before it is given up, in microseconds.
    pub max_sequence_idle_microseconds: u64,
}

/// The relation of replies to requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPolicy {
    /// Whether a request may have any number of replies, rather than one.
    pub decoupled: bool,
}

/// One element of the answer to `POST /v2/repository/index`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryIndexEntry {
    /// The model's name.
    pub name: String,
    /// The version that the state is of; empty where none was read.
    #[serde(default)]
    pub version: String,
    /// Whether it can be asked.
    #[serde(default)]
    pub state: ModelState,
    /// Why it is in that state; empty where there is nothing to say.
    #[serde(default)]
    pub reason: String,
}

/// The state of a model in the repository, spelled in capitals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ModelState {
    /// Never loaded.
    #[default]
    Unknown,
    /// Takes requests.
    Ready,
    /// Takes none: unloaded, or not loadable.
    Unavailable,
    /// Is being loaded.
    Loading,
    /// Is being unloaded.
    Unloading,
}

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The reason.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_have_the_protocols_shape() {
        let metadata = ModelMetadata {
            name: "sst".into(),
            versions: vec!["1".into()],
            platform: "onnx".into(),
            inputs: vec![TensorMetadata {
                name: "token".into(),
                datatype: Datatype::Int64,
                shape: vec![-1],
            }],
            outputs: vec![],
        };
        let json = json!({
            "name": "sst",
            "versions": ["1"],
            "platform": "onnx",
            "inputs": [{"name": "token", "datatype": "INT64", "shape": [-1]}],
            "outputs": [],
        });
        assert_eq!(serde_json::to_value(&metadata).unwrap(), json);
        assert_eq!(serde_json::from_value::<ModelMetadata>(json).unwrap(), metadata);
    }

    #[test]
    fn a_config_has_tritons_shape() {
        let input = |name: &str, data_type, optional| ConfigInput {
            name: name.into(),
            data_type,
            format: TensorFormat::None,
            dims: vec![-1, 64],
            is_shape_tensor: false,
            allow_ragged_batch: false,
            optional,
        };
        let output = ConfigOutput {
            name: "label".into(),
            data_type: Datatype::Bytes,
            dims: vec![-1, 64],
            label_filename: String::new(),
            is_shape_tensor: false,
        };
        let group =
            InstanceGroup { name: "sst".into(), kind: "KIND_CPU".into(), count: 1, gpus: vec![] };
        let config = ModelConfig {
            name: "sst".into(),
            platform: "onnx".into(),
            backend: "batchmaker".into(),
            version_policy: VersionPolicy::default(),
            max_batch_size: 0,
            input: vec![input("x", Datatype::Fp32, false), input("h", Datatype::Fp32, true)],
            output: vec![output],
            sequence_batching: None,
            dynamic_batching: Some(DynamicBatching::default()),
            instance_group: vec![group],
            parameters: BTreeMap::new(),
            model_transaction_policy: TransactionPolicy::default(),
            response_cache: ResponseCache::default(),
        };
        let json = json!({
            "name": "sst",
            "platform": "onnx",
            "backend": "batchmaker",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": 0,
            "input": [
                {
                    "name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [-1, 64],
                    "is_shape_tensor": false, "allow_ragged_batch": false, "optional": false,
                },
                {
                    "name": "h", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [-1, 64],
                    "is_shape_tensor": false, "allow_ragged_batch": false, "optional": true,
                },
            ],
            "output": [{
                "name": "label", "data_type": "TYPE_STRING", "dims": [-1, 64],
                "label_filename": "", "is_shape_tensor": false,
            }],
            "dynamic_batching": {"preferred_batch_size": [], "max_queue_delay_microseconds": 0},
            "instance_group": [{"name": "sst", "kind": "KIND_CPU", "count": 1, "gpus": []}],
            "model_transaction_policy": {"decoupled": false},
            "response_cache": {"enable": false},
        });
        assert_eq!(serde_json::to_value(&config).unwrap(), json);
        assert_eq!(serde_json::from_value::<ModelConfig>(json).unwrap(), config);
    }

    #[test]
    fn every_datatype_has_a_name_in_configs() {
        for data_type in Datatype::ALL {
            let name = serde_json::to_value(ConfigOutput {
                name: "x".into(),
                data_type,
                dims: vec![],
                label_filename: String::new(),
                is_shape_tensor: false,
            });
            let input: ConfigInput = serde_json::from_value(name.unwrap()).unwrap();
            assert_eq!(input.data_type, data_type);
        }
        let json = json!({"name": "x", "data_type": "FP32", "dims": []});
        let error = serde_json::from_value::<ConfigInput>(json).unwrap_err();
        assert_eq!(error.to_string(), "data_type 'FP32' is unknown");
    }

    #[test]
    fn an_index_entry_may_say_its_name_alone() {
        let entry: RepositoryIndexEntry = serde_json::from_str(r#"{"name":"m"}"#).unwrap();
        assert_eq!(entry.state, ModelState::Unknown);
        let entry = RepositoryIndexEntry { state: ModelState::Ready, ..entry };
        let json = r#"{"name":"m","version":"","state":"READY","reason":""}"#;
        assert_eq!(serde_json::to_string(&entry).unwrap(), json);
    }
}
