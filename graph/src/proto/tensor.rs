//! [`TensorProto`], whose lists stay in their wire form: 100 MB of `float_data` are a slice, not a vector.
//!
//! Lists may come packed (one block, or several) or one element at a time; either way a field here
//! holds what one packed block would hold.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::DecodeError;
use prost::Message;
use prost::encoding::{self, DecodeContext, WireType};

use super::StringStringEntryProto;

/// `data_location` of a tensor whose data is in another file.
pub const DATA_EXTERNAL: i32 = 1;

/// A tensor's type, dims and elements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorProto {
    /// Dims (field 1).
    pub dims: Vec<i64>,
    /// ONNX number of the element type (2).
    pub data_type: i32,
    /// The part of a larger tensor that this is (3).
    pub segment: Option<tensor_proto::Segment>,
    /// Elements as packed little-endian floats; complex ones as pairs (4).
    pub float_data: Bytes,
    /// Elements of integers and short types as packed varints (5).
    pub int32_data: Bytes,
    /// Elements of a string tensor (6).
    pub string_data: Vec<Bytes>,
    /// `int64` elements as packed varints (7).
    pub int64_data: Bytes,
    /// Name (8).
    pub name: String,
    /// Elements in memory form, instead of the typed lists (9).
    pub raw_data: Option<Bytes>,
    /// Elements as packed little-endian doubles; complex ones as pairs (10).
    pub double_data: Bytes,
    /// `uint32` and `uint64` elements as packed varints (11).
    pub uint64_data: Bytes,
    /// Description (12).
    pub doc_string: String,
    /// Where the data is when `data_location` says so (13).
    pub external_data: Vec<StringStringEntryProto>,
    /// 0 here, [`DATA_EXTERNAL`] in a file (14).
    pub data_location: i32,
    /// Free entries (16).
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// Parts of [`TensorProto`].
pub mod tensor_proto {
    /// A range of elements.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Segment {
        /// First.
        #[prost(int64, tag = "1")]
        pub begin: i64,
        /// One past the last.
        #[prost(int64, tag = "2")]
        pub end: i64,
    }
}

impl TensorProto {
    /// The packed lists with their field numbers and the wire type of a single element.
    fn lists(&self) -> [(u32, &Bytes); 5] {
        [
            (4, &self.float_data),
            (5, &self.int32_data),
            (7, &self.int64_data),
            (10, &self.double_data),
            (11, &self.uint64_data),
        ]
    }
}

impl Message for TensorProto {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::int64::encode_repeated(1, &self.dims, buf);
        if self.data_type != 0 {
            encoding::int32::encode(2, &self.data_type, buf);
        }
        if let Some(segment) = &self.segment {
            encoding::message::encode(3, segment, buf);
        }
        for (tag, list) in self.lists() {
            if !list.is_empty() {
                encoding::bytes::encode(tag, list, buf);
            }
        }
        encoding::bytes::encode_repeated(6, &self.string_data, buf);
        for (tag, text) in [(8, &self.name), (12, &self.doc_string)] {
            if !text.is_empty() {
                encoding::string::encode(tag, text, buf);
            }
        }
        if let Some(raw) = &self.raw_data {
            encoding::bytes::encode(9, raw, buf);
        }
        encoding::message::encode_repeated(13, &self.external_data, buf);
        if self.data_location != 0 {
            encoding::int32::encode(14, &self.data_location, buf);
        }
        encoding::message::encode_repeated(16, &self.metadata_props, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire: WireType,
        buf: &mut impl Buf,
        cx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => encoding::int64::merge_repeated(wire, &mut self.dims, buf, cx),
            2 => encoding::int32::merge(wire, &mut self.data_type, buf, cx),
            3 => encoding::message::merge(wire, self.segment.get_or_insert_default(), buf, cx),
            4 => merge_list(wire, WireType::ThirtyTwoBit, &mut self.float_data, buf, cx),
            5 => merge_list(wire, WireType::Varint, &mut self.int32_data, buf, cx),
            6 => encoding::bytes::merge_repeated(wire, &mut self.string_data, buf, cx),
            7 => merge_list(wire, WireType::Varint, &mut self.int64_data, buf, cx),
            8 => encoding::string::merge(wire, &mut self.name, buf, cx),
            9 => encoding::bytes::merge(wire, self.raw_data.get_or_insert_default(), buf, cx),
            10 => merge_list(wire, WireType::SixtyFourBit, &mut self.double_data, buf, cx),
            11 => merge_list(wire, WireType::Varint, &mut self.uint64_data, buf, cx),
            12 => encoding::string::merge(wire, &mut self.doc_string, buf, cx),
            13 => encoding::message::merge_repeated(wire, &mut self.external_data, buf, cx),
            14 => encoding::int32::merge(wire, &mut self.data_location, buf, cx),
            16 => encoding::message::merge_repeated(wire, &mut self.metadata_props, buf, cx),
            _ => encoding::skip_field(wire, tag, buf, cx),
        }
    }

    fn encoded_len(&self) -> usize {
        let mut len = encoding::int64::encoded_len_repeated(1, &self.dims);
        if self.data_type != 0 {
            len += encoding::int32::encoded_len(2, &self.data_type);
        }
        len += self.segment.as_ref().map_or(0, |s| encoding::message::encoded_len(3, s));
        for (tag, list) in self.lists() {
            if !list.is_empty() {
                len += encoding::bytes::encoded_len(tag, list);
            }
        }
        len += encoding::bytes::encoded_len_repeated(6, &self.string_data);
        for (tag, text) in [(8, &self.name), (12, &self.doc_string)] {
            if !text.is_empty() {
                len += encoding::string::encoded_len(tag, text);
            }
        }
        len += self.raw_data.as_ref().map_or(0, |raw| encoding::bytes::encoded_len(9, raw));
        len += encoding::message::encoded_len_repeated(13, &self.external_data);
        if self.data_location != 0 {
            len += encoding::int32::encoded_len(14, &self.data_location);
        }
        len + encoding::message::encoded_len_repeated(16, &self.metadata_props)
    }

    fn clear(&mut self) {
        *self = TensorProto::default();
    }
}

/// Adds a packed block, or one element in the wire type `single`, to a list.
fn merge_list(
    wire: WireType,
    single: WireType,
    list: &mut Bytes,
    buf: &mut impl Buf,
    cx: DecodeContext,
) -> Result<(), DecodeError> {
    if wire == WireType::LengthDelimited {
        let mut block = Bytes::new();
        encoding::bytes::merge(wire, &mut block, buf, cx)?;
        if list.is_empty() {
            *list = block;
        } else {
            extend(list, |all| all.extend_from_slice(&block));
        }
        return Ok(());
    }
    encoding::check_wire_type(single, wire)?;
    let mut element = 0u64;
    match single {
        WireType::ThirtyTwoBit => {
            let mut v = 0;
            encoding::fixed32::merge(wire, &mut v, buf, cx)?;
            extend(list, |all| all.put_u32_le(v));
        }
        WireType::SixtyFourBit => {
            encoding::fixed64::merge(wire, &mut element, buf, cx)?;
            extend(list, |all| all.put_u64_le(element));
        }
        _ => {
            encoding::uint64::merge(wire, &mut element, buf, cx)?;
            extend(list, |all| encoding::encode_varint(element, all));
        }
    }
    Ok(())
}

fn extend(list: &mut Bytes, add: impl FnOnce(&mut BytesMut)) {
    // Owned by this list alone after the first element, so that growing is amortised.
    let mut all = std::mem::take(list).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    add(&mut all);
    *list = all.freeze();
}

/// The numbers of a packed varint list; `None` when it ends inside one.
pub(crate) fn varints(mut list: &[u8]) -> Option<Vec<u64>> {
    let count = list.iter().filter(|b| **b < 0x80).count();
    let mut all = Vec::with_capacity(count);
    while !list.is_empty() {
        all.push(encoding::decode_varint(&mut list).ok()?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_and_split_lists_read_as_one_block() {
        let mut wire = vec![0x25];
        wire.extend(1.5f32.to_le_bytes());
        wire.extend([0x22, 4]);
        wire.extend(2.5f32.to_le_bytes());
        wire.extend([0x25]);
        wire.extend((-1f32).to_le_bytes());
        wire.extend([0x38, 0x96, 0x01, 0x3a, 2, 1, 2]);
        let t = TensorProto::decode(wire.as_slice()).unwrap();
        let floats: Vec<f32> = t.float_data.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect();
        assert_eq!(floats, [1.5, 2.5, -1.0]);
        assert_eq!(varints(&t.int64_data), Some(vec![150, 1, 2]));
    }

    #[test]
    fn what_is_written_reads_back() {
        let t = TensorProto {
            dims: vec![2, 3],
            data_type: 1,
            segment: Some(tensor_proto::Segment { begin: 1, end: 9 }),
            float_data: Bytes::from_static(&[0, 0, 128, 63]),
            int32_data: Bytes::from_static(&[3]),
            string_data: vec![Bytes::from_static(b"a"), Bytes::new()],
            int64_data: Bytes::from_static(&[5]),
            name: "w".into(),
            raw_data: Some(Bytes::new()),
            double_data: Bytes::from_static(&[0; 8]),
            uint64_data: Bytes::from_static(&[6]),
            doc_string: "d".into(),
            external_data: vec![StringStringEntryProto { key: "k".into(), value: "v".into() }],
            data_location: 1,
            metadata_props: vec![StringStringEntryProto { key: "m".into(), value: "n".into() }],
        };
        let wire = t.encode_to_vec();
        assert_eq!(wire.len(), t.encoded_len());
        assert_eq!(TensorProto::decode(wire.as_slice()), Ok(t));
    }

    #[test]
    fn a_list_that_ends_inside_a_number_is_no_list() {
        assert_eq!(varints(&[1, 0x80]), None);
        assert_eq!(varints(&[]), Some(vec![]));
    }
}
