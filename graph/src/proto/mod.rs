//! ONNX messages, written by hand from the field numbers of ONNX's `onnx-ml.proto` (IR version 14).
//!
//! Only the wire form lives here: nothing is checked but what decoding needs. Byte fields are
//! slices of the buffer that was decoded, so data never leaves the file's map. A field that is absent and
//! one that holds its default are the same, but for messages and `oneof`s. Unknown fields are dropped.
//!
//! A pure list, exempt from the length rule.

mod scan;
mod tensor;

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

pub(crate) use scan::budget;
pub(crate) use tensor::varints;
pub use tensor::{DATA_EXTERNAL, TensorProto, tensor_proto};

use crate::error::{Code, Error, Result};
use crate::ir::Map;

/// IR version that these messages are of.
pub const IR_VERSION: i64 = 14;

/// Reads a model out of a file's bytes, without copying data.
///
/// The bytes are walked first, so malformed ones are reported with their place, and so that a
/// file whose messages would take far more memory than its size is refused before anything is allocated.
pub fn decode(map: &Arc<Map>) -> Result<ModelProto> {
    scan::model(map.as_slice())?;
    let bytes = Bytes::from_owner(MapBytes(map.clone()));
    ModelProto::decode(bytes).map_err(|e| Error::new(Code::Malformed, e.to_string()))
}

struct MapBytes(Arc<Map>);

impl AsRef<[u8]> for MapBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// A model: a graph, the operator sets that it uses, and functions of its own.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Tool that wrote the model.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Version of that tool.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// Namespace of the model, in reverse DNS form.
    #[prost(string, tag = "4")]
    pub domain: String,
    /// Version of the model.
    #[prost(int64, tag = "5")]
    pub model_version: i64,
    /// Description.
    #[prost(string, tag = "6")]
    pub doc_string: String,
    /// The graph that runs.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets in use outside functions.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Free entries.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Graphs for training; they play no part in inference.
    #[prost(message, repeated, tag = "20")]
    pub training_info: Vec<TrainingInfoProto>,
    /// Functions that nodes may call like operators.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
    /// Multi-device layouts.
    #[prost(message, repeated, tag = "26")]
    pub configuration: Vec<DeviceConfigurationProto>,
}

/// Nodes, constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Nodes, in topological order by the standard.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants, by name.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Description.
    #[prost(string, tag = "10")]
    pub doc_string: String,
    /// Inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of values inside.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Names of quantization parameters of values.
    #[prost(message, repeated, tag = "14")]
    pub quantization_annotation: Vec<TensorAnnotation>,
    /// Sparse constants; the name is that of `values`.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
    /// Free entries.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A call of an operator or function.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of inputs; empty where an optional one is left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of outputs; empty where one is not wanted.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name, for messages.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Description.
    #[prost(string, tag = "6")]
    pub doc_string: String,
    /// Domain of the operator; empty for the standard one.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which of several functions of one name.
    #[prost(string, tag = "8")]
    pub overload: String,
    /// Free entries.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Placement on several devices.
    #[prost(message, repeated, tag = "10")]
    pub device_configurations: Vec<NodeDeviceConfigurationProto>,
}

/// A named value of one of fourteen kinds.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// `FLOAT`
    #[prost(float, tag = "2")]
    pub f: f32,
    /// `INT`
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// `STRING`
    #[prost(bytes = "bytes", tag = "4")]
    pub s: Bytes,
    /// `TENSOR`
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// `GRAPH`
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// `FLOATS`
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// `INTS`
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// `STRINGS`
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// `TENSORS`
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// `GRAPHS`
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Description.
    #[prost(string, tag = "13")]
    pub doc_string: String,
    /// `TYPE_PROTO`
    #[prost(message, optional, tag = "14")]
    pub tp: Option<TypeProto>,
    /// `TYPE_PROTOS`
    #[prost(message, repeated, tag = "15")]
    pub type_protos: Vec<TypeProto>,
    /// The kind, a number of [`attribute_type`]; 0 in files of IR version 1.
    #[prost(int32, tag = "20")]
    pub r#type: i32,
    /// Inside a function: the attribute of the call whose value this is.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    /// `SPARSE_TENSOR`
    #[prost(message, optional, tag = "22")]
    pub sparse_tensor: Option<SparseTensorProto>,
    /// `SPARSE_TENSORS`
    #[prost(message, repeated, tag = "23")]
    pub sparse_tensors: Vec<SparseTensorProto>,
}

/// Numbers of [`AttributeProto::type`](AttributeProto#structfield.type).
#[allow(missing_docs, reason = "the names say it all")]
pub mod attribute_type {
    pub const UNDEFINED: i32 = 0;
    pub const FLOAT: i32 = 1;
    pub const INT: i32 = 2;
    pub const STRING: i32 = 3;
    pub const TENSOR: i32 = 4;
    pub const GRAPH: i32 = 5;
    pub const FLOATS: i32 = 6;
    pub const INTS: i32 = 7;
    pub const STRINGS: i32 = 8;
    pub const TENSORS: i32 = 9;
    pub const GRAPHS: i32 = 10;
    pub const SPARSE_TENSOR: i32 = 11;
    pub const SPARSE_TENSORS: i32 = 12;
    pub const TYPE_PROTO: i32 = 13;
    pub const TYPE_PROTOS: i32 = 14;
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// Description.
    #[prost(string, tag = "3")]
    pub doc_string: String,
    /// Free entries.
    #[prost(message, repeated, tag = "4")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// Type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Which type.
    #[prost(oneof = "type_proto::Value", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<type_proto::Value>,
    /// What the value means, as a standard word.
    #[prost(string, tag = "6")]
    pub denotation: String,
}

/// Parts of [`TypeProto`].
pub mod type_proto {
    use super::TensorShapeProto;

    /// The types there are.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Value {
        /// Dense tensor.
        #[prost(message, tag = "1")]
        Tensor(Tensor),
        /// Sequence.
        #[prost(message, tag = "4")]
        Sequence(Box<Element>),
        /// Map.
        #[prost(message, tag = "5")]
        Map(Box<Map>),
        /// A type that only its domain knows.
        #[prost(message, tag = "7")]
        Opaque(Opaque),
        /// Sparse tensor.
        #[prost(message, tag = "8")]
        Sparse(Tensor),
        /// Value or nothing.
        #[prost(message, tag = "9")]
        Optional(Box<Element>),
    }

    /// Element type and shape.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Tensor {
        /// ONNX number of the element type.
        #[prost(int32, tag = "1")]
        pub elem_type: i32,
        /// Shape; absent when the rank is not known.
        #[prost(message, optional, tag = "2")]
        pub shape: Option<TensorShapeProto>,
    }

    /// What a sequence or optional holds.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Element {
        /// Its type.
        #[prost(message, optional, boxed, tag = "1")]
        pub elem_type: Option<Box<super::TypeProto>>,
    }

    /// Key and value types.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Map {
        /// ONNX number of the key type.
        #[prost(int32, tag = "1")]
        pub key_type: i32,
        /// Type of values.
        #[prost(message, optional, boxed, tag = "2")]
        pub value_type: Option<Box<super::TypeProto>>,
    }

    /// Name of an opaque type.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Opaque {
        /// Domain.
        #[prost(string, tag = "1")]
        pub domain: String,
        /// Name.
        #[prost(string, tag = "2")]
        pub name: String,
    }
}

/// Dims of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// One per axis.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// One dim: a number, a name, or neither.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// Number or name.
    #[prost(oneof = "DimValue", tags = "1, 2")]
    pub value: Option<DimValue>,
    /// What the axis means, as a standard word.
    #[prost(string, tag = "3")]
    pub denotation: String,
}

/// Number or name of a dim.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimValue {
    /// Its size.
    #[prost(int64, tag = "1")]
    Size(i64),
    /// A name; equal names mean equal sizes.
    #[prost(string, tag = "2")]
    Name(String),
}

/// A tensor by its elements that are not 0.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// Those elements, a vector. Its name is the name of the sparse tensor.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they stand: linear indices, or a matrix of one row of indices for each.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Dims of the dense tensor.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A domain and the version of its operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Domain; empty for the standard one.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A function: nodes that a call of its name stands for.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names of its inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of its outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Attributes without default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// Body.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Description.
    #[prost(string, tag = "8")]
    pub doc_string: String,
    /// Operator sets that the body uses.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Domain under which nodes call it.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with default.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Types of values inside.
    #[prost(message, repeated, tag = "12")]
    pub value_info: Vec<ValueInfoProto>,
    /// Which of several functions of one name.
    #[prost(string, tag = "13")]
    pub overload: String,
    /// Free entries.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// Names of quantization parameters of a value.
#[derive(Clone, PartialEq, Message)]
pub struct TensorAnnotation {
    /// The value.
    #[prost(string, tag = "1")]
    pub tensor_name: String,
    /// Role and name of each parameter.
    #[prost(message, repeated, tag = "2")]
    pub quant_parameter_tensor_names: Vec<StringStringEntryProto>,
}

/// Graphs that train a model.
#[derive(Clone, PartialEq, Message)]
pub struct TrainingInfoProto {
    /// Makes first values of state.
    #[prost(message, optional, tag = "1")]
    pub initialization: Option<GraphProto>,
    /// One step of training.
    #[prost(message, optional, tag = "2")]
    pub algorithm: Option<GraphProto>,
    /// State that `initialization` sets.
    #[prost(message, repeated, tag = "3")]
    pub initialization_binding: Vec<StringStringEntryProto>,
    /// State that `algorithm` sets.
    #[prost(message, repeated, tag = "4")]
    pub update_binding: Vec<StringStringEntryProto>,
}

/// A named group of devices.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceConfigurationProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of devices.
    #[prost(int32, tag = "2")]
    pub num_devices: i32,
    /// Their names.
    #[prost(string, repeated, tag = "3")]
    pub device: Vec<String>,
}

/// Placement of a node in a group of devices.
#[derive(Clone, PartialEq, Message)]
pub struct NodeDeviceConfigurationProto {
    /// The group.
    #[prost(string, tag = "1")]
    pub configuration_id: String,
    /// How values are split.
    #[prost(message, repeated, tag = "2")]
    pub sharding_spec: Vec<ShardingSpecProto>,
    /// Stage of a pipeline.
    #[prost(int32, tag = "3")]
    pub pipeline_stage: i32,
}

/// How a value is split over devices.
#[derive(Clone, PartialEq, Message)]
pub struct ShardingSpecProto {
    /// The value.
    #[prost(string, tag = "1")]
    pub tensor_name: String,
    /// Devices or groups of them.
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub device: Vec<i64>,
    /// The groups.
    #[prost(message, repeated, tag = "3")]
    pub index_to_device_group_map: Vec<IntIntListEntryProto>,
    /// Axes that are split.
    #[prost(message, repeated, tag = "4")]
    pub sharded_dim: Vec<ShardedDimProto>,
}

/// A number and a list of numbers.
#[derive(Clone, PartialEq, Message)]
pub struct IntIntListEntryProto {
    /// The number.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The list.
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub value: Vec<i64>,
}

/// How one axis is split.
#[derive(Clone, PartialEq, Message)]
pub struct ShardedDimProto {
    /// The axis.
    #[prost(int64, tag = "1")]
    pub axis: i64,
    /// Its shards.
    #[prost(message, repeated, tag = "2")]
    pub simple_sharding: Vec<SimpleShardedDimProto>,
}

/// A number of shards of a dim.
#[derive(Clone, PartialEq, Message)]
pub struct SimpleShardedDimProto {
    /// Number or name of the dim.
    #[prost(oneof = "DimValue", tags = "1, 2")]
    pub dim: Option<DimValue>,
    /// Number of shards.
    #[prost(int64, tag = "3")]
    pub num_shards: i64,
}

/// A list of values as a file of its own, as the standard's test data has them.
#[derive(Clone, PartialEq, Message)]
pub struct SequenceProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What kind the items are of: 1 tensors, 3 sequences, 4 maps, 5 optionals.
    #[prost(int32, tag = "2")]
    pub elem_type: i32,
    /// Items that are tensors.
    #[prost(message, repeated, tag = "3")]
    pub tensor_values: Vec<TensorProto>,
    /// Items that are sequences.
    #[prost(message, repeated, tag = "5")]
    pub sequence_values: Vec<SequenceProto>,
    /// Items that are optionals.
    #[prost(message, repeated, tag = "7")]
    pub optional_values: Vec<OptionalProto>,
}

/// A value or none, as a file of its own.
#[derive(Clone, PartialEq, Message)]
pub struct OptionalProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What kind the value is of; 0 for none.
    #[prost(int32, tag = "2")]
    pub elem_type: i32,
    /// A tensor.
    #[prost(message, optional, tag = "3")]
    pub tensor_value: Option<TensorProto>,
    /// A sequence.
    #[prost(message, optional, tag = "5")]
    pub sequence_value: Option<SequenceProto>,
    /// An optional.
    #[prost(message, optional, boxed, tag = "7")]
    pub optional_value: Option<Box<OptionalProto>>,
}
