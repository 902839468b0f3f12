//! Field numbers of the messages, and what memory each takes: the messages of `proto` again, which a test compares.

use std::mem::size_of;

use crate::proto::*;

pub(super) struct Desc {
    pub(super) name: &'static str,
    /// Memory of one such message, with what is built from it.
    pub(super) cost: usize,
    pub(super) fields: &'static [Field],
}

pub(super) struct Field {
    pub(super) tag: u32,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Varint,
    Fixed32,

    Text,
    Blob,
    Msg(&'static Desc),
    /// A list of numbers, packed or not, of this memory each.
    Varints(u64),
    Fixed32s(u64),
    Fixed64s(u64),
}

use Kind::*;

const fn field(tag: u32, name: &'static str, kind: Kind) -> Field {
    Field { tag, name, kind }
}

pub(super) static MODEL: Desc = Desc {
    name: "model",
    cost: size_of::<ModelProto>(),
    fields: &[
        field(1, "ir_version", Varint),
        field(2, "producer_name", Text),
        field(3, "producer_version", Text),
        field(4, "domain", Text),
        field(5, "model_version", Varint),
        field(6, "doc_string", Text),
        field(7, "graph", Msg(&GRAPH)),
        field(8, "opset_import", Msg(&OPSET)),
        field(14, "metadata_props", Msg(&ENTRY)),
        field(20, "training_info", Msg(&TRAINING)),
        field(25, "functions", Msg(&FUNCTION)),
        field(26, "configuration", Msg(&DEVICES)),
    ],
};

static GRAPH: Desc = Desc {
    name: "graph",
    cost: size_of::<GraphProto>() + 512,
    fields: &[
        field(1, "node", Msg(&NODE)),
        field(2, "name", Text),
        field(5, "initializer", Msg(&TENSOR)),
        field(10, "doc_string", Text),
        field(11, "input", Msg(&VALUE_INFO)),
        field(12, "output", Msg(&VALUE_INFO)),
        field(13, "value_info", Msg(&VALUE_INFO)),
        field(14, "quantization_annotation", Msg(&ANNOTATION)),
        field(15, "sparse_initializer", Msg(&SPARSE)),
        field(16, "metadata_props", Msg(&ENTRY)),
    ],
};

static NODE: Desc = Desc {
    name: "node",
    cost: size_of::<NodeProto>() * 3 / 2 + size_of::<crate::ir::Node>() * 3 / 2,
    fields: &[
        field(1, "input", Text),
        field(2, "output", Text),
        field(3, "name", Text),
        field(4, "op_type", Text),
        field(5, "attribute", Msg(&ATTRIBUTE)),
        field(6, "doc_string", Text),
        field(7, "domain", Text),
        field(8, "overload", Text),
        field(9, "metadata_props", Msg(&ENTRY)),
        field(10, "device_configurations", Msg(&NODE_DEVICES)),
    ],
};

static ATTRIBUTE: Desc = Desc {
    name: "attribute",
    cost: size_of::<AttributeProto>() * 3 / 2 + size_of::<crate::ir::Attr>() * 2,
    fields: &[
        field(1, "name", Text),
        field(2, "f", Fixed32),
        field(3, "i", Varint),
        field(4, "s", Blob),
        field(5, "t", Msg(&TENSOR)),
        field(6, "g", Msg(&GRAPH)),
        field(7, "floats", Fixed32s(12)),
        field(8, "ints", Varints(24)),
        field(9, "strings", Blob),
        field(10, "tensors", Msg(&TENSOR)),
        field(11, "graphs", Msg(&GRAPH)),
        field(13, "doc_string", Text),
        field(14, "tp", Msg(&TYPE)),
        field(15, "type_protos", Msg(&TYPE)),
        field(20, "type", Varint),
        field(21, "ref_attr_name", Text),
        field(22, "sparse_tensor", Msg(&SPARSE)),
        field(23, "sparse_tensors", Msg(&SPARSE)),
    ],
};

static TENSOR: Desc = Desc {
    name: "tensor",
    cost: size_of::<TensorProto>() * 3 / 2 + size_of::<crate::ir::Constant>() + size_of::<crate::ir::Value>(),
    fields: &[
        field(1, "dims", Varints(24)),
        field(2, "data_type", Varint),
        field(3, "segment", Msg(&SEGMENT)),
        field(4, "float_data", Fixed32s(4)),
        field(5, "int32_data", Varints(12)),
        field(6, "string_data", Blob),
        field(7, "int64_data", Varints(16)),
        field(8, "name", Text),
        field(9, "raw_data", Blob),
        field(10, "double_data", Fixed64s(8)),
        field(11, "uint64_data", Varints(16)),
        field(12, "doc_string", Text),
        field(13, "external_data", Msg(&ENTRY)),
        field(14, "data_location", Varint),
        field(16, "metadata_props", Msg(&ENTRY)),
    ],
};

static SEGMENT: Desc = Desc { name: "segment", cost: 0, fields: &[field(1, "begin", Varint), field(2, "end", Varint)] };

static SPARSE: Desc = Desc {
    name: "sparse tensor",
    cost: size_of::<SparseTensorProto>() * 3 / 2,
    fields: &[field(1, "values", Msg(&TENSOR)), field(2, "indices", Msg(&TENSOR)), field(3, "dims", Varints(24))],
};

static VALUE_INFO: Desc = Desc {
    name: "value",
    cost: size_of::<ValueInfoProto>() * 3 / 2 + size_of::<crate::ir::Value>(),
    fields: &[
        field(1, "name", Text),
        field(2, "type", Msg(&TYPE)),
        field(3, "doc_string", Text),
        field(4, "metadata_props", Msg(&ENTRY)),
    ],
};

static TYPE: Desc = Desc {
    name: "type",
    cost: size_of::<TypeProto>() + 64,
    fields: &[
        field(1, "tensor_type", Msg(&TENSOR_TYPE)),
        field(4, "sequence_type", Msg(&ELEMENT_TYPE)),
        field(5, "map_type", Msg(&MAP_TYPE)),
        field(6, "denotation", Text),
        field(7, "opaque_type", Msg(&OPAQUE_TYPE)),
        field(8, "sparse_tensor_type", Msg(&TENSOR_TYPE)),
        field(9, "optional_type", Msg(&ELEMENT_TYPE)),
    ],
};

static TENSOR_TYPE: Desc =
    Desc { name: "tensor type", cost: 64, fields: &[field(1, "elem_type", Varint), field(2, "shape", Msg(&SHAPE))] };

static ELEMENT_TYPE: Desc = Desc { name: "element type", cost: 64, fields: &[field(1, "elem_type", Msg(&TYPE))] };

static MAP_TYPE: Desc =
    Desc { name: "map type", cost: 64, fields: &[field(1, "key_type", Varint), field(2, "value_type", Msg(&TYPE))] };

static OPAQUE_TYPE: Desc =
    Desc { name: "opaque type", cost: 64, fields: &[field(1, "domain", Text), field(2, "name", Text)] };

static SHAPE: Desc = Desc { name: "shape", cost: 24, fields: &[field(1, "dim", Msg(&DIMENSION))] };

static DIMENSION: Desc = Desc {
    name: "dimension",
    cost: size_of::<Dimension>() * 2,
    fields: &[field(1, "dim_value", Varint), field(2, "dim_param", Text), field(3, "denotation", Text)],
};

static ENTRY: Desc = Desc {
    name: "entry",
    cost: size_of::<StringStringEntryProto>() * 2,
    fields: &[field(1, "key", Text), field(2, "value", Text)],
};

static OPSET: Desc = Desc {
    name: "opset",
    cost: size_of::<OperatorSetIdProto>() * 2,
    fields: &[field(1, "domain", Text), field(2, "version", Varint)],
};

static FUNCTION: Desc = Desc {
    name: "function",
    cost: size_of::<FunctionProto>() * 3 / 2,
    fields: &[
        field(1, "name", Text),
        field(4, "input", Text),
        field(5, "output", Text),
        field(6, "attribute", Text),
        field(7, "node", Msg(&NODE)),
        field(8, "doc_string", Text),
        field(9, "opset_import", Msg(&OPSET)),
        field(10, "domain", Text),
        field(11, "attribute_proto", Msg(&ATTRIBUTE)),
        field(12, "value_info", Msg(&VALUE_INFO)),
        field(13, "overload", Text),
        field(14, "metadata_props", Msg(&ENTRY)),
    ],
};

static ANNOTATION: Desc = Desc {
    name: "annotation",
    cost: size_of::<TensorAnnotation>() * 2,
    fields: &[field(1, "tensor_name", Text), field(2, "quant_parameter_tensor_names", Msg(&ENTRY))],
};

static TRAINING: Desc = Desc {
    name: "training info",
    cost: size_of::<TrainingInfoProto>() * 2,
    fields: &[
        field(1, "initialization", Msg(&GRAPH)),
        field(2, "algorithm", Msg(&GRAPH)),
        field(3, "initialization_binding", Msg(&ENTRY)),
        field(4, "update_binding", Msg(&ENTRY)),
    ],
};

static DEVICES: Desc = Desc {
    name: "device configuration",
    cost: size_of::<DeviceConfigurationProto>() * 2,
    fields: &[field(1, "name", Text), field(2, "num_devices", Varint), field(3, "device", Text)],
};

static NODE_DEVICES: Desc = Desc {
    name: "device configuration",
    cost: size_of::<NodeDeviceConfigurationProto>() * 2,
    fields: &[
        field(1, "configuration_id", Text),
        field(2, "sharding_spec", Msg(&SHARDING)),
        field(3, "pipeline_stage", Varint),
    ],
};

static SHARDING: Desc = Desc {
    name: "sharding",
    cost: size_of::<ShardingSpecProto>() * 2,
    fields: &[
        field(1, "tensor_name", Text),
        field(2, "device", Varints(24)),
        field(3, "index_to_device_group_map", Msg(&GROUP)),
        field(4, "sharded_dim", Msg(&SHARDED_DIM)),
    ],
};

static GROUP: Desc = Desc {
    name: "device group",
    cost: size_of::<IntIntListEntryProto>() * 2,
    fields: &[field(1, "key", Varint), field(2, "value", Varints(24))],
};

static SHARDED_DIM: Desc = Desc {
    name: "sharded dim",
    cost: size_of::<ShardedDimProto>() * 2,
    fields: &[field(1, "axis", Varint), field(2, "simple_sharding", Msg(&SIMPLE_SHARD))],
};

static SIMPLE_SHARD: Desc = Desc {
    name: "shard",
    cost: size_of::<SimpleShardedDimProto>() * 2,
    fields: &[field(1, "dim_value", Varint), field(2, "dim_param", Text), field(3, "num_shards", Varint)],
};
