//! ONNX's values as files: a `TensorProto`, which holds tensors of every type, those that `.npy` lacks among them; a
//! `SequenceProto` or `OptionalProto` where the model takes one.

use ortolan::value::{Tensor, Value};
use ortolan_graph::LoadOptions;
use ortolan_graph::ir::Data;
use ortolan_graph::proto::{
    GraphProto, IR_VERSION, ModelProto, OperatorSetIdProto, OptionalProto, SequenceProto, TensorProto,
};
use prost::Message;

use crate::port::PortType;

/// The value of a type in the bytes of a file; the error is a sentence. An optional may be there as what it holds.
pub fn read_value(file: &[u8], ty: &PortType) -> Result<Value, String> {
    match ty {
        PortType::Sequence(item) => {
            let list = SequenceProto::decode(file).map_err(|e| format!("it is no SequenceProto: {e}"))?;
            sequence(list, item)
        }
        PortType::Optional(item) => match OptionalProto::decode(file) {
            Ok(optional) if is_optional(&optional, item) => self::optional(optional, item),
            _ => Ok(Value::Optional(Some(read_value(file, item)?.into()))),
        },
        PortType::Map(..) => Err("maps are read from .json only".into()),
        PortType::Tensor { .. } | PortType::Unknown => read(file).map(Value::Tensor),
    }
}

/// Whether the bytes mean an optional, and not what it holds, whose fields have the same numbers.
fn is_optional(found: &OptionalProto, item: &PortType) -> bool {
    const TENSOR: i32 = 1;
    match item {
        PortType::Tensor { .. } | PortType::Unknown => found.elem_type == 0 || found.tensor_value.is_some(),
        _ => found.elem_type != TENSOR,
    }
}

fn sequence(list: SequenceProto, item: &PortType) -> Result<Value, String> {
    let items: Result<Vec<Value>, String> = match item {
        PortType::Sequence(inner) => list.sequence_values.into_iter().map(|s| sequence(s, inner)).collect(),
        PortType::Optional(inner) => list.optional_values.into_iter().map(|o| optional(o, inner)).collect(),
        PortType::Map(..) => Err("maps are read from .json only".into()),
        _ => list.tensor_values.into_iter().map(|t| tensor(t).map(Value::Tensor)).collect(),
    };
    items.map(Value::sequence)
}

fn optional(value: OptionalProto, item: &PortType) -> Result<Value, String> {
    let held = match (value.tensor_value, value.sequence_value, value.optional_value, item) {
        (Some(t), ..) => Some(tensor(t).map(Value::Tensor)?),
        (_, Some(s), _, PortType::Sequence(inner)) => Some(sequence(s, inner)?),
        (_, _, Some(o), PortType::Optional(inner)) => Some(optional(*o, inner)?),
        _ => None,
    };
    Ok(Value::Optional(held.map(Into::into)))
}

/// The tensor in the bytes of a file; the error is a sentence.
///
/// It is read as the only constant of a model, so that every form of data that models may have is understood, and checked,
/// by the one reader that there is.
pub fn read(file: &[u8]) -> Result<Tensor, String> {
    tensor(TensorProto::decode(file).map_err(|e| format!("it is no TensorProto: {e}"))?)
}

fn tensor(tensor: TensorProto) -> Result<Tensor, String> {
    if tensor.data_type == 0 {
        return Err("it is no TensorProto: it states no element type".into());
    }
    let graph = GraphProto { initializer: vec![TensorProto { name: "tensor".into(), ..tensor }], ..Default::default() };
    let opset = OperatorSetIdProto { domain: String::new(), version: 21 };
    let model =
        ModelProto { ir_version: IR_VERSION, opset_import: vec![opset], graph: Some(graph), ..Default::default() };
    let graph = ortolan_graph::load_bytes(model.encode_to_vec(), None, &LoadOptions::default())
        .map_err(|e| e.message().to_owned())?;
    let constant = graph.constants().first().ok_or("it holds no tensor")?;
    match &constant.data {
        Data::Strings(texts) => Tensor::strings(&constant.dims, texts),
        data => Tensor::from_bytes(constant.dtype, &constant.dims, data.bytes()),
    }
    .map_err(|e| e.message().to_owned())
}

/// The file's bytes for a tensor that holds no texts; the error is a sentence.
pub fn write(name: &str, tensor: &Tensor) -> Result<Vec<u8>, String> {
    let raw = tensor.bytes().map_err(|e| e.message().to_owned())?;
    let message = TensorProto {
        name: name.to_owned(),
        data_type: tensor.dtype().number(),
        dims: tensor.shape().to_vec(),
        raw_data: Some(raw.to_vec().into()),
        ..Default::default()
    };
    Ok(message.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ortolan_graph::ir::DType;

    #[test]
    fn every_type_comes_back_as_it_was_written() {
        for &dtype in DType::ALL.iter().filter(|&&d| d != DType::String) {
            let bytes = vec![1u8; (5 * dtype.bits() as usize).div_ceil(8)];
            let tensor = Tensor::from_bytes(dtype, &[5, 1], &bytes).unwrap();
            let back = read(&write("x", &tensor).unwrap()).unwrap_or_else(|e| panic!("{dtype}: {e}"));
            assert_eq!((back.dtype(), back.shape(), back.bytes().unwrap().len()), (dtype, &[5i64, 1][..], bytes.len()));
        }
    }

    #[test]
    fn typed_lists_and_texts_are_understood() {
        let floats = TensorProto {
            data_type: DType::F32.number(),
            dims: vec![2],
            float_data: [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>().into(),
            ..Default::default()
        };
        assert_eq!(read(&floats.encode_to_vec()).unwrap().as_slice::<f32>().unwrap(), [1.5, -2.0]);
        let texts = TensorProto {
            data_type: DType::String.number(),
            dims: vec![1],
            string_data: vec!["é".into()],
            ..Default::default()
        };
        assert_eq!(read(&texts.encode_to_vec()).unwrap().texts().unwrap().collect::<Vec<_>>(), ["é"]);
    }

    #[test]
    fn broken_files_are_refused_with_a_reason() {
        let short =
            TensorProto { data_type: 1, dims: vec![2], raw_data: Some(vec![0; 7].into()), ..Default::default() };
        let unknown = TensorProto { data_type: 99, dims: vec![0], ..Default::default() };
        let external = TensorProto { data_type: 1, dims: vec![2], data_location: 1, ..Default::default() };
        for bytes in
            [vec![0xff; 8], Vec::new(), short.encode_to_vec(), unknown.encode_to_vec(), external.encode_to_vec()]
        {
            let error = read(&bytes).unwrap_err();
            assert!(!error.is_empty(), "{bytes:?}");
        }
    }
}
