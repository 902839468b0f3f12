//! Tensors of the file → constants: every legal way of writing elements ends in the memory form, or in the map.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use super::external::Files;
use crate::error::{Code, Error, Result};
use crate::ir::{ConstId, Constant, DType, Data, Map, SMALL, Sizes};
use crate::proto::{DATA_EXTERNAL, SparseTensorProto, TensorProto, varints};

/// Makes constants and gives equal ones equal ids.
pub(crate) struct Constants {
    pub(crate) all: Vec<Constant>,
    seen: HashMap<Key, ConstId>,
    model: Arc<Map>,
    files: Files,
    /// Memory that dense forms of sparse tensors may still take.
    dense_budget: u64,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Place { map: usize, at: u64, len: u64, dtype: DType, dims: Sizes },
    Content { bytes: Box<[u8]>, dtype: DType, dims: Sizes },
}

/// Contents are compared up to this size; larger constants are equal when they lie in one place.
const COMPARED: u64 = 4 << 10;

impl Constants {
    /// `folder` is the model's, for external data; without one such data is an error.
    pub(crate) fn new(model: Arc<Map>, folder: Option<&Path>, mmap: bool) -> Constants {
        let size = model.as_slice().len() as u64;
        Constants {
            all: Vec::new(),
            seen: HashMap::new(),
            files: Files::new(folder, mmap),
            dense_budget: crate::proto::budget(size),
            model,
        }
    }

    /// The constant that a tensor message is.
    pub(crate) fn tensor(&mut self, t: TensorProto) -> Result<ConstId> {
        let place = if t.name.is_empty() { "tensor".to_owned() } else { format!("tensor '{}'", t.name) };
        self.read(t).map_err(|e| e.within(place))
    }

    fn read(&mut self, t: TensorProto) -> Result<ConstId> {
        let dtype = dtype(t.data_type)?;
        let (dims, elements) = shape(&t.dims)?;
        if t.segment.is_some() {
            return Err(Error::new(Code::Unsupported, "the tensor is cut into segments, which no known tool writes"));
        }
        let data = if t.data_location == DATA_EXTERNAL {
            self.external(&t, dtype, elements)?
        } else if dtype == DType::String {
            strings(&t, elements)?
        } else if let Some(raw) = &t.raw_data {
            self.raw(raw, dtype, elements)?
        } else {
            self.typed(&t, dtype, elements)?
        };
        self.add(dtype, dims, data)
    }

    fn raw(&self, raw: &Bytes, dtype: DType, elements: u64) -> Result<Data> {
        let expected = byte_count(dtype, elements)?;
        if raw.len() as u64 != expected {
            let message =
                format!("{elements} elements of {dtype} take {expected} bytes, but raw_data has {}", raw.len());
            return Err(Error::new(Code::BadTensor, message));
        }
        Ok(self.keep(raw))
    }

    /// Large blocks stay where they are.
    fn keep(&self, block: &Bytes) -> Data {
        let len = block.len() as u64;
        let base = self.model.as_slice().as_ptr().addr();
        match block.as_ptr().addr().checked_sub(base) {
            Some(at) if len > SMALL && at + block.len() <= self.model.as_slice().len() => {
                Data::Mapped { map: self.model.clone(), at: at as u64, len }
            }
            _ => Data::copied(block),
        }
    }

    fn external(&mut self, t: &TensorProto, dtype: DType, elements: u64) -> Result<Data> {
        let expected = byte_count(dtype, elements)?;
        if t.raw_data.as_ref().is_some_and(|r| !r.is_empty()) {
            return Err(Error::new(Code::BadTensor, "the tensor has its data both in raw_data and in another file"));
        }
        let (map, at) = self.files.find(&t.external_data, expected)?;
        if expected > SMALL {
            return Ok(Data::Mapped { map, at, len: expected });
        }
        let small = Data::Mapped { map, at, len: expected };
        Ok(Data::copied(small.bytes()))
    }

    fn typed(&self, t: &TensorProto, dtype: DType, elements: u64) -> Result<Data> {
        use DType::*;
        let (list, per, name): (&Bytes, u64, _) = match dtype {
            F32 => (&t.float_data, 1, "float_data"),
            C64 => (&t.float_data, 2, "float_data"),
            F64 => (&t.double_data, 1, "double_data"),
            C128 => (&t.double_data, 2, "double_data"),
            I64 => return ints(&t.int64_data, elements, 8, "int64_data"),
            U64 => return ints(&t.uint64_data, elements, 8, "uint64_data"),
            U32 => return ints(&t.uint64_data, elements, 4, "uint64_data"),
            I32 => return ints(&t.int32_data, elements, 4, "int32_data"),
            U16 | I16 | F16 | Bf16 => return ints(&t.int32_data, elements, 2, "int32_data"),
            F6E2M3 | F6E3M2 => return six_bits(&t.int32_data, elements),
            // One number holds a whole byte of the packed form.
            U4 | I4 | F4E2M1 => return ints(&t.int32_data, elements.div_ceil(2), 1, "int32_data"),
            U2 | I2 => return ints(&t.int32_data, elements.div_ceil(4), 1, "int32_data"),
            _ => return ints(&t.int32_data, elements, 1, "int32_data"),
        };
        let width = u64::from(dtype.bits()) / 8 / per;
        let found = list.len() as u64 / width;
        if elements.checked_mul(per) != Some(found) || !(list.len() as u64).is_multiple_of(width) {
            return Err(wrong_count(elements.saturating_mul(per), name, found));
        }
        Ok(self.keep(list))
    }

    /// A sparse tensor with zeros filled in.
    pub(crate) fn sparse(&mut self, t: SparseTensorProto) -> Result<ConstId> {
        let values = t.values.unwrap_or_default();
        let place = format!("sparse tensor '{}'", values.name);
        self.densify(values, t.indices.unwrap_or_default(), &t.dims).map_err(|e| e.within(place))
    }

    fn densify(&mut self, values: TensorProto, indices: TensorProto, dims: &[i64]) -> Result<ConstId> {
        let (dims, elements) = shape(dims)?;
        let (values, indices) = (self.read(values)?, self.read(indices)?);
        let (values, indices) = (&self.all[values.index()], &self.all[indices.index()]);
        let fail = |message: String| Error::new(Code::BadTensor, message);
        let width = match (values.dtype.bits(), indices.dtype, values.dims.len()) {
            (bits, DType::I64, 1) if bits >= 8 => bits as usize / 8,
            _ => return Err(fail(format!("{} values with {} indices can't be read", values.dtype, indices.dtype))),
        };
        let count = values.elements();
        let rank = match indices.dims.as_slice() {
            [n] if n.unsigned_abs() == count => 1,
            [n, r] if n.unsigned_abs() == count && *r as usize == dims.len() => dims.len(),
            other => return Err(fail(format!("{count} values have indices of dims {other:?}"))),
        };
        let linear = rank == 1 && indices.dims.len() == 1;
        let size = byte_count(values.dtype, elements)?;
        self.dense_budget = self.dense_budget.checked_sub(size).ok_or_else(|| {
            Error::new(Code::Limit, format!("made dense it would take {size} bytes, far more than the file"))
        })?;
        let mut dense = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        let numbers = indices.bytes().as_chunks::<8>().0;
        for (i, value) in values.bytes().chunks_exact(width).enumerate() {
            let row = &numbers[i * rank..(i + 1) * rank];
            let at = if linear { Some(i64::from_le_bytes(row[0])) } else { linear_index(row, &dims) };
            let at = at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at < elements);
            let at = at.ok_or_else(|| fail(format!("the index of value {i} is outside the tensor")))?;
            let from = at as usize * width;
            dense[from..from + width].copy_from_slice(value);
        }
        let dtype = values.dtype;
        self.add(dtype, dims, Data::copied(&dense))
    }

    /// A constant made here.
    pub(crate) fn add(&mut self, dtype: DType, dims: Sizes, data: Data) -> Result<ConstId> {
        let key = match &data {
            Data::Mapped { map, at, len } => {
                Some(Key::Place { map: Arc::as_ptr(map).addr(), at: *at, len: *len, dtype, dims: dims.clone() })
            }
            Data::Small(b) if b.as_slice().len() as u64 <= COMPARED => {
                Some(Key::Content { bytes: b.as_slice().into(), dtype, dims: dims.clone() })
            }
            _ => None,
        };
        if let Some(id) = key.as_ref().and_then(|k| self.seen.get(k)) {
            return Ok(*id);
        }
        let id = ConstId::next(self.all.len()).ok_or_else(|| Error::new(Code::Limit, "more than 2^32 constants"))?;
        self.all.push(Constant { id, dtype, dims, data });
        if let Some(key) = key {
            self.seen.insert(key, id);
        }
        Ok(id)
    }

    /// A vector of integers.
    pub(crate) fn int_vector(&mut self, list: &[i64]) -> Result<ConstId> {
        let bytes: Vec<u8> = list.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.add(DType::I64, Sizes::from_slice(&[list.len() as i64]), Data::copied(&bytes))
    }

    /// A vector of floats.
    pub(crate) fn float_vector(&mut self, list: &[f32]) -> Result<ConstId> {
        let bytes: Vec<u8> = list.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.add(DType::F32, Sizes::from_slice(&[list.len() as i64]), Data::copied(&bytes))
    }

    /// A vector of strings.
    pub(crate) fn string_vector(&mut self, list: &[Bytes]) -> Result<ConstId> {
        let all = texts(list)?;
        self.add(DType::String, Sizes::from_slice(&[list.len() as i64]), all)
    }

    /// The same elements without dims, of a vector of one.
    pub(crate) fn scalar_of(&mut self, id: ConstId) -> Result<ConstId> {
        let Constant { dtype, data, .. } = self.all[id.index()].clone();
        self.add(dtype, Sizes::new(), data)
    }
}

/// The element type with an ONNX number.
pub(crate) fn dtype(number: i32) -> Result<DType> {
    DType::from_number(number)
        .ok_or_else(|| Error::new(Code::BadTensor, format!("element type {number} is not one of ONNX's 1 to 28")))
}

fn shape(dims: &[i64]) -> Result<(Sizes, u64)> {
    let mut elements = 1u64;
    for &d in dims {
        let size = u64::try_from(d).map_err(|_| Error::new(Code::BadTensor, format!("dim {d} is negative")))?;
        elements = elements.checked_mul(size).filter(|e| i64::try_from(*e).is_ok()).ok_or_else(|| {
            Error::new(Code::BadTensor, format!("dims {dims:?} hold more elements than a 64-bit count"))
        })?;
    }
    Ok((Sizes::from_slice(dims), elements))
}

fn byte_count(dtype: DType, elements: u64) -> Result<u64> {
    dtype
        .bytes(elements)
        .ok_or_else(|| Error::new(Code::BadTensor, format!("{elements} elements of {dtype} can't stand as raw bytes")))
}

fn wrong_count(expected: u64, field: &str, found: u64) -> Error {
    Error::new(Code::BadTensor, format!("its dims need {expected} entries in {field}, but there are {found}"))
}

/// Decodes varints to elements of `width` bytes each.
fn ints(list: &[u8], elements: u64, width: usize, field: &str) -> Result<Data> {
    let numbers = numbers(list, elements, field)?;
    let mut bytes = Vec::with_capacity(numbers.len() * width);
    for n in numbers {
        bytes.extend_from_slice(&n.to_le_bytes()[..width]);
    }
    Ok(Data::copied(&bytes))
}

fn numbers(list: &[u8], elements: u64, field: &str) -> Result<Vec<u64>> {
    let numbers = varints(list).ok_or_else(|| Error::new(Code::Malformed, format!("{field} ends inside a number")))?;
    if numbers.len() as u64 != elements {
        return Err(wrong_count(elements, field, numbers.len() as u64));
    }
    Ok(numbers)
}

/// One number holds one element of six bits; in memory four elements share three bytes, the first in the lowest bits.
fn six_bits(list: &[u8], elements: u64) -> Result<Data> {
    let numbers = numbers(list, elements, "int32_data")?;
    let mut bytes = vec![0u8; (numbers.len() * 6).div_ceil(8)];
    for (i, n) in numbers.iter().enumerate() {
        let bit = i * 6;
        let wide = (n & 0x3f) << (bit % 8);
        bytes[bit / 8] |= (wide & 0xff) as u8;
        if wide > 0xff {
            bytes[bit / 8 + 1] |= (wide >> 8) as u8;
        }
    }
    Ok(Data::copied(&bytes))
}

fn strings(t: &TensorProto, elements: u64) -> Result<Data> {
    if t.string_data.len() as u64 != elements {
        return Err(wrong_count(elements, "string_data", t.string_data.len() as u64));
    }
    texts(&t.string_data)
}

fn texts(list: &[Bytes]) -> Result<Data> {
    let text = |(i, b): (usize, &Bytes)| {
        String::from_utf8(b.to_vec()).map_err(|_| Error::new(Code::BadTensor, format!("string {i} is not UTF-8")))
    };
    Ok(Data::Strings(list.iter().enumerate().map(text).collect::<Result<_>>()?))
}

fn linear_index(row: &[[u8; 8]], dims: &[i64]) -> Option<i64> {
    let mut at = 0i64;
    for (number, &size) in row.iter().zip(dims) {
        let i = i64::from_le_bytes(*number);
        if i < 0 || i >= size {
            return None;
        }
        at = at.checked_mul(size)?.checked_add(i)?;
    }
    Some(at)
}
