//! A walk over a model's wire bytes before they are decoded: every malformed place is found with its
//! path and offset, and memory that decoding would take is counted before any is taken.
//!
//! Data blocks are stepped over, not read. What stands where is said in [`fields`].

mod fields;

use fields::{Desc, Field, Kind, Kind::*, MODEL};

use crate::error::{Code, Error, Result};

/// Messages inside messages; a graph in a graph is three. prost stops at 100.
const MAX_DEPTH: u32 = 96;

/// What a file may take is `RATIO × size + BASE`, the process itself included, for which [`RESERVE`] is set aside.
const RATIO: u64 = 16;
const BASE: u64 = 64 << 20;
const RESERVE: u64 = 24 << 20;

/// Checks the wire form of a whole model.
pub(super) fn model(bytes: &[u8]) -> Result<()> {
    Scan { budget: budget(bytes.len() as u64) }.message(bytes, 0, &MODEL, MAX_DEPTH)
}

/// Memory that everything made from a file of this size may take.
pub(crate) fn budget(size: u64) -> u64 {
    size.saturating_mul(RATIO).saturating_add(BASE - RESERVE)
}

struct Scan {
    budget: u64,
}

impl Scan {
    /// `start` is the offset of `bytes` in the file.
    fn message(&mut self, bytes: &[u8], start: usize, desc: &'static Desc, depth: u32) -> Result<()> {
        if depth == 0 {
            return Err(Error::new(
                Code::TooDeep,
                format!("messages are nested more than {MAX_DEPTH} deep at byte {start}"),
            ));
        }
        self.take(desc.cost as u64, start)?;
        let mut seen = [0u32; 24];
        let mut at = 0;
        while at < bytes.len() {
            let here = start + at;
            let key = varint(bytes, &mut at).ok_or_else(|| cut(here))?;
            let tag = u32::try_from(key >> 3)
                .ok()
                .filter(|t| *t != 0)
                .ok_or_else(|| bad(here, "a field number is out of range"))?;
            let index = desc.fields.iter().position(|f| f.tag == tag);
            let field = index.map(|i| &desc.fields[i]);
            if let Some(i) = index {
                seen[i] += 1;
            }
            self.field(bytes, &mut at, start, (key & 7) as u8, field, depth).map_err(|e| match (field, index) {
                (Some(f), Some(i)) => e.within(format!("{} {}[{}]", desc.name, f.name, seen[i] - 1)),
                _ => e.within(format!("{} field {tag}", desc.name)),
            })?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        start: usize,
        wire: u8,
        field: Option<&Field>,
        depth: u32,
    ) -> Result<()> {
        let here = start + *at;
        let kind = field.map(|f| &f.kind);
        match wire {
            0 => {
                varint(bytes, at).ok_or_else(|| cut(here))?;
            }
            1 => step(bytes, at, 8).ok_or_else(|| cut(here))?,
            5 => step(bytes, at, 4).ok_or_else(|| cut(here))?,
            2 => {
                let len = varint(bytes, at).ok_or_else(|| cut(here))?;
                let from = *at;
                let len = usize::try_from(len).ok().filter(|&len| len <= bytes.len() - from);
                let len = len
                    .ok_or_else(|| bad(here, "it is longer than what it stands in: the file is cut off or damaged"))?;
                *at += len;
                return self.block(&bytes[from..from + len], start + from, kind, depth);
            }
            other => return Err(bad(here, &format!("wire type {other} is not used by ONNX"))),
        }
        match (kind, wire) {
            (None | Some(Varint), 0) | (None, 1) | (None | Some(Fixed32), 5) => Ok(()),
            (Some(Varints(cost)), 0) | (Some(Fixed64s(cost)), 1) | (Some(Fixed32s(cost)), 5) => self.take(*cost, here),
            (None, _) => Ok(()),
            (Some(_), found) => Err(bad(here, &format!("it has wire type {found}, which is not that of the field"))),
        }
    }

    fn block(&mut self, block: &[u8], at: usize, kind: Option<&Kind>, depth: u32) -> Result<()> {
        let len = block.len() as u64;
        match kind {
            None => Ok(()),
            Some(Msg(desc)) => self.message(block, at, desc, depth - 1),
            Some(Text) => match std::str::from_utf8(block) {
                Ok(_) => self.take(len + 64, at),
                Err(e) => Err(bad(at + e.valid_up_to(), "the text is not UTF-8")),
            },
            Some(Blob) => self.take(64, at),
            Some(Varints(cost)) => {
                if block.last().is_some_and(|b| *b >= 0x80) {
                    return Err(cut(at));
                }
                let count = block.iter().filter(|b| **b < 0x80).count() as u64;
                self.take(count.saturating_mul(*cost), at)
            }
            Some(Fixed32s(_)) if !len.is_multiple_of(4) => Err(bad(at, "the list ends inside a number")),
            Some(Fixed64s(_)) if !len.is_multiple_of(8) => Err(bad(at, "the list ends inside a number")),
            // A slice of the file, or as many numbers.
            Some(Fixed32s(_) | Fixed64s(_)) => self.take(64, at),
            Some(Varint | Fixed32) => Err(bad(at, "a block stands where a number belongs")),
        }
    }

    fn take(&mut self, cost: u64, at: usize) -> Result<()> {
        match self.budget.checked_sub(cost) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(Error::new(
                Code::Limit,
                format!(
                    "reading on from byte {at} would take more than {RATIO} times the file's size and {} MB",
                    BASE >> 20
                ),
            )),
        }
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return (shift < 63 || byte < 2).then_some(value);
        }
    }
    None
}

fn step(bytes: &[u8], at: &mut usize, len: usize) -> Option<()> {
    *at += len;
    (*at <= bytes.len()).then_some(())
}

fn cut(at: usize) -> Error {
    bad(at, "the file is cut off or damaged")
}

fn bad(at: usize, what: &str) -> Error {
    Error::new(Code::Malformed, format!("byte {at}: {what}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::proto::*;

    /// A model in which every field of every message holds something.
    fn full() -> ModelProto {
        let entry = || vec![StringStringEntryProto { key: "k".into(), value: "v".into() }];
        let text = || "t".to_owned();
        let names = || vec![text()];
        let tensor = TensorProto {
            dims: vec![1],
            data_type: 1,
            segment: Some(tensor_proto::Segment { begin: 1, end: 2 }),
            float_data: Bytes::from_static(&[0; 4]),
            int32_data: Bytes::from_static(&[1]),
            string_data: vec![Bytes::from_static(b"x")],
            int64_data: Bytes::from_static(&[1]),
            name: text(),
            raw_data: Some(Bytes::from_static(&[1])),
            double_data: Bytes::from_static(&[0; 8]),
            uint64_data: Bytes::from_static(&[1]),
            doc_string: text(),
            external_data: entry(),
            data_location: 1,
            metadata_props: entry(),
        };
        let sparse = SparseTensorProto { values: Some(tensor.clone()), indices: Some(tensor.clone()), dims: vec![1] };
        let dim = |value| Dimension { value: Some(value), denotation: text() };
        let shape = TensorShapeProto { dim: vec![dim(DimValue::Size(1)), dim(DimValue::Name(text()))] };
        let tensor_type = type_proto::Tensor { elem_type: 1, shape: Some(shape) };
        let ty = |value| TypeProto { value: Some(value), denotation: text() };
        let leaf = ty(type_proto::Value::Tensor(tensor_type.clone()));
        let boxed = || Some(Box::new(leaf.clone()));
        let types = vec![
            leaf.clone(),
            ty(type_proto::Value::Sparse(tensor_type)),
            ty(type_proto::Value::Sequence(Box::new(type_proto::Element { elem_type: boxed() }))),
            ty(type_proto::Value::Optional(Box::new(type_proto::Element { elem_type: boxed() }))),
            ty(type_proto::Value::Map(Box::new(type_proto::Map { key_type: 8, value_type: boxed() }))),
            ty(type_proto::Value::Opaque(type_proto::Opaque { domain: text(), name: text() })),
        ];
        let info = |ty: &TypeProto| ValueInfoProto {
            name: text(),
            r#type: Some(ty.clone()),
            doc_string: text(),
            metadata_props: entry(),
        };
        let attribute = |inner: Option<GraphProto>| AttributeProto {
            name: text(),
            f: 1.0,
            i: 1,
            s: Bytes::from_static(b"s"),
            t: Some(tensor.clone()),
            g: inner.clone(),
            floats: vec![1.0],
            ints: vec![1],
            strings: vec![Bytes::from_static(b"s")],
            tensors: vec![tensor.clone()],
            graphs: inner.into_iter().collect(),
            doc_string: text(),
            tp: Some(leaf.clone()),
            type_protos: types.clone(),
            r#type: 1,
            ref_attr_name: text(),
            sparse_tensor: Some(sparse.clone()),
            sparse_tensors: vec![sparse.clone()],
        };
        let shard = |dim| SimpleShardedDimProto { dim: Some(dim), num_shards: 1 };
        let placed = NodeDeviceConfigurationProto {
            configuration_id: text(),
            sharding_spec: vec![ShardingSpecProto {
                tensor_name: text(),
                device: vec![1],
                index_to_device_group_map: vec![IntIntListEntryProto { key: 1, value: vec![1] }],
                sharded_dim: vec![ShardedDimProto {
                    axis: 1,
                    simple_sharding: vec![shard(DimValue::Size(2)), shard(DimValue::Name(text()))],
                }],
            }],
            pipeline_stage: 1,
        };
        let node = |inner| NodeProto {
            input: names(),
            output: names(),
            name: text(),
            op_type: text(),
            attribute: vec![attribute(inner)],
            doc_string: text(),
            domain: text(),
            overload: text(),
            metadata_props: entry(),
            device_configurations: vec![placed.clone()],
        };
        let graph = |inner| GraphProto {
            node: vec![node(inner)],
            name: text(),
            initializer: vec![tensor.clone()],
            doc_string: text(),
            input: types.iter().map(info).collect(),
            output: vec![info(&leaf)],
            value_info: vec![info(&leaf)],
            quantization_annotation: vec![TensorAnnotation {
                tensor_name: text(),
                quant_parameter_tensor_names: entry(),
            }],
            sparse_initializer: vec![sparse.clone()],
            metadata_props: entry(),
        };
        let opset = || vec![OperatorSetIdProto { domain: text(), version: 1 }];
        ModelProto {
            ir_version: 1,
            producer_name: text(),
            producer_version: text(),
            domain: text(),
            model_version: 1,
            doc_string: text(),
            graph: Some(graph(Some(graph(None)))),
            opset_import: opset(),
            metadata_props: entry(),
            training_info: vec![TrainingInfoProto {
                initialization: Some(graph(None)),
                algorithm: Some(graph(None)),
                initialization_binding: entry(),
                update_binding: entry(),
            }],
            functions: vec![FunctionProto {
                name: text(),
                input: names(),
                output: names(),
                attribute: names(),
                node: vec![node(None)],
                doc_string: text(),
                opset_import: opset(),
                domain: text(),
                attribute_proto: vec![attribute(None)],
                value_info: vec![info(&leaf)],
                overload: text(),
                metadata_props: entry(),
            }],
            configuration: vec![DeviceConfigurationProto { name: text(), num_devices: 1, device: names() }],
        }
    }

    type Seen = BTreeSet<(&'static str, u32)>;

    fn walk(bytes: &[u8], desc: &'static Desc, seen: &mut Seen) {
        let mut at = 0;
        while at < bytes.len() {
            let key = varint(bytes, &mut at).unwrap();
            let tag = (key >> 3) as u32;
            let field = desc.fields.iter().find(|f| f.tag == tag);
            let field = field.unwrap_or_else(|| panic!("{} has no field {tag} in the tables", desc.name));
            seen.insert((desc.name, tag));
            match key & 7 {
                0 => drop(varint(bytes, &mut at)),
                1 => at += 8,
                5 => at += 4,
                _ => {
                    let len = varint(bytes, &mut at).unwrap() as usize;
                    if let Msg(inner) = field.kind {
                        walk(&bytes[at..at + len], inner, seen);
                    }
                    at += len;
                }
            }
        }
    }

    fn every(desc: &'static Desc, all: &mut Seen) {
        for f in desc.fields {
            if all.insert((desc.name, f.tag))
                && let Msg(inner) = f.kind
            {
                every(inner, all);
            }
        }
    }

    #[test]
    fn tables_and_messages_have_the_same_fields() {
        let wire = full().encode_to_vec();
        let (mut seen, mut all) = (Seen::new(), Seen::new());
        walk(&wire, &MODEL, &mut seen);
        every(&MODEL, &mut all);
        assert_eq!(seen, all);
        model(&wire).unwrap();
        assert_eq!(ModelProto::decode(wire.as_slice()), Ok(full()));
    }

    #[test]
    fn cut_and_flipped_files_get_an_answer() {
        let wire = full().encode_to_vec();
        for len in (0..wire.len()).step_by(5) {
            let scanned = model(&wire[..len]).is_ok();
            assert_eq!(scanned, ModelProto::decode(&wire[..len]).is_ok(), "cut at {len}");
        }
        for at in (0..wire.len()).step_by(7) {
            let mut bad = wire.clone();
            bad[at] ^= 0x15;
            // What the walk lets through, the decoder takes as well.
            if model(&bad).is_ok() {
                ModelProto::decode(bad.as_slice()).unwrap_or_else(|e| panic!("flip at {at}: {e}"));
            }
        }
    }

    #[test]
    fn errors_name_the_path_and_the_byte() {
        let mut wire = ModelProto::default().encode_to_vec();
        let node = NodeProto { op_type: "Xx".into(), ..NodeProto::default() };
        let graph = GraphProto { node: vec![node.clone(), node], ..GraphProto::default() };
        wire.extend(ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec());
        *wire.last_mut().unwrap() = 0xff;
        let e = model(&wire).unwrap_err();
        assert_eq!(
            e.to_string(),
            "model graph[0]: graph node[1]: node op_type[0]: byte 13: the text is not UTF-8 [malformed]"
        );
    }

    #[test]
    fn small_files_cannot_take_big_memory() {
        let graph = GraphProto { node: vec![NodeProto::default(); 1_000_000], ..GraphProto::default() };
        let wire = ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec();
        assert_eq!(model(&wire).unwrap_err().code(), Code::Limit);
    }

    #[test]
    fn deep_files_are_refused() {
        let mut graph = GraphProto::default();
        for _ in 0..40 {
            let attribute = vec![AttributeProto { g: Some(graph), ..AttributeProto::default() }];
            let node = vec![NodeProto { attribute, ..NodeProto::default() }];
            graph = GraphProto { node, ..GraphProto::default() };
        }
        let wire = ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec();
        assert_eq!(model(&wire).unwrap_err().code(), Code::TooDeep);
    }
}
