//! Numpy's `.npy` files: one array of numbers, booleans or texts, read into and written from tensors.
//!
//! The format has a line of Python for a header; it is read here because the published crates multiply its sizes
//! unchecked and bring a parser generator that cannot be cross-compiled. Big-endian and column-major arrays are brought to
//! the form of tensors. Pickled objects and records are refused: loading the first means running code.

use std::io::{self, Write};

use ortolan::value::Tensor;
use ortolan_graph::ir::DType;

/// Longest header that is read; numpy's own limit.
const HEADER_LIMIT: usize = 10_000;
const MAGIC: &[u8] = b"\x93NUMPY";

/// How one element is written in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Element {
    /// A number or bool; its parts (two for complex numbers) of `part` bytes, swapped if big-endian.
    Plain { dtype: DType, part: usize, swap: bool },
    /// Text of so many UTF-32 units, padded with zeros.
    Utf32 { units: usize, swap: bool },
    /// Text of so many bytes, padded with zeros.
    Bytes { len: usize },
}

/// The file's first line.
#[derive(Debug, PartialEq)]
struct Header {
    element: Element,
    fortran: bool,
    shape: Vec<i64>,
}

/// Whether the format has this element type.
pub fn has(dtype: DType) -> bool {
    descr(dtype).is_some()
}

/// The array in the bytes of a file; the error is a sentence.
pub fn read(file: &[u8]) -> Result<Tensor, String> {
    let (header, data) = split(file)?;
    let count = header.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    let width = header.element.width();
    let want = count.zip(width).and_then(|(n, w)| n.checked_mul(w));
    let (Some(count), Some(width), Some(want)) = (count, width, want) else {
        return Err(format!("an array of shape {:?} is larger than memory", header.shape));
    };
    if data.len() != want {
        return Err(format!("shape {:?} takes {want} bytes of data and the file has {}", header.shape, data.len()));
    }
    let owned;
    let rows = if header.fortran && header.shape.len() > 1 && !data.is_empty() {
        owned = to_row_major(data, &header.shape, width);
        &owned[..]
    } else {
        data
    };
    let tensor = match header.element {
        Element::Plain { dtype, part, swap } if swap && part > 1 => {
            let swapped: Vec<u8> = rows.chunks_exact(part).flat_map(|c| c.iter().rev().copied()).collect();
            Tensor::from_bytes(dtype, &header.shape, &swapped)
        }
        Element::Plain { dtype: DType::Bool, .. } if rows.iter().any(|&b| b > 1) => {
            return Err("a bool is neither 0 nor 1".into());
        }
        Element::Plain { dtype, .. } => Tensor::from_bytes(dtype, &header.shape, rows),
        text => Tensor::strings(&header.shape, &texts(rows, text, width, count)?),
    };
    tensor.map_err(|e| e.message().to_owned())
}

/// Writes a tensor of a type that [`has`] accepts.
pub fn write(out: &mut impl Write, tensor: &Tensor) -> io::Result<()> {
    let invalid = |e: String| io::Error::new(io::ErrorKind::InvalidInput, e);
    let descr = descr(tensor.dtype()).ok_or_else(|| invalid(format!("npy has no {}", tensor.dtype())))?;
    let sizes: Vec<String> = tensor.shape().iter().map(i64::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", sizes.join(", "));
    // Magic, version and length are 10 bytes; the data is to begin at a multiple of 64.
    let total = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64);
    let length = u16::try_from(total - MAGIC.len() - 4).map_err(|_| invalid("too many dims for npy".into()))?;
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&length.to_le_bytes())?;
    writeln!(out, "{text:<width$}", width = usize::from(length) - 1)?;
    out.write_all(tensor.bytes().map_err(|e| invalid(e.to_string()))?)
}

fn descr(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::U32 => "<u4",
        DType::I64 => "<i8",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        _ => return None,
    })
}

impl Element {
    /// Reads numpy's type text, such as `<f4`.
    fn parse(descr: &str) -> Result<Element, String> {
        let refused = || format!("arrays of numpy type '{descr}' have no ONNX type");
        let (order, kind) = descr.split_at_checked(1).ok_or_else(refused)?;
        let swap = match order {
            "<" | "|" => false,
            ">" => true,
            _ => return Err(refused()),
        };
        if kind.starts_with('O') {
            return Err(
                "the array holds pickled Python objects, which are not loaded; save texts with dtype=str".into()
            );
        }
        let sized = |prefix| kind.strip_prefix(prefix).and_then(|n: &str| n.parse::<usize>().ok());
        if let Some(units) = sized("U") {
            return Ok(Element::Utf32 { units, swap });
        }
        if let Some(len) = sized("S").or_else(|| sized("a")) {
            return Ok(Element::Bytes { len });
        }
        let all = DType::ALL.iter().copied();
        let dtype = all.clone().find(|&d| self::descr(d).is_some_and(|text| &text[1..] == kind)).ok_or_else(refused)?;
        let bytes = dtype.bits() as usize / 8;
        let part = if matches!(dtype, DType::C64 | DType::C128) { bytes / 2 } else { bytes };
        Ok(Element::Plain { dtype, part, swap })
    }

    /// Bytes of one element in the file.
    fn width(self) -> Option<usize> {
        match self {
            Element::Plain { dtype, .. } => Some(dtype.bits() as usize / 8),
            Element::Utf32 { units, .. } => units.checked_mul(4),
            Element::Bytes { len } => Some(len),
        }
    }
}

/// Header and data of a file.
fn split(file: &[u8]) -> Result<(Header, &[u8]), String> {
    let rest = file.strip_prefix(MAGIC).ok_or("it does not begin like a .npy file")?;
    let cut = || "it ends inside its header".to_owned();
    let (version, rest) = rest.split_at_checked(2).ok_or_else(cut)?;
    let (length, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest)),
        2 | 3 => rest
            .split_first_chunk::<4>()
            .map(|(n, rest)| (usize::try_from(u32::from_le_bytes(*n)).unwrap_or(usize::MAX), rest)),
        other => return Err(format!("it has version {other} of the .npy format; 1 to 3 are known")),
    }
    .ok_or_else(cut)?;
    if length > HEADER_LIMIT {
        return Err(format!("its header has {length} bytes, more than the {HEADER_LIMIT} that are read"));
    }
    let (text, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let text = std::str::from_utf8(text).map_err(|_| "its header is not text".to_owned())?;
    Ok((Scanner(text).header()?, data))
}

/// Reads the header, a Python dict of three entries.
struct Scanner<'a>(&'a str);

impl<'a> Scanner<'a> {
    fn header(mut self) -> Result<Header, String> {
        let (mut element, mut fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.eat("}") {
            let key = self.quoted()?;
            self.expect(":")?;
            match key {
                "descr" if self.0.trim_start().starts_with('[') => {
                    return Err("the array has records, which have no ONNX type; save each field alone".into());
                }
                "descr" => element = Some(Element::parse(self.quoted()?)?),
                "fortran_order" if self.eat("True") => fortran = Some(true),
                "fortran_order" if self.eat("False") => fortran = Some(false),
                "shape" => shape = Some(self.shape()?),
                other => return Err(format!("its header has an entry '{other}' that cannot be read")),
            }
            if !self.eat(",") && !self.0.trim_start().starts_with('}') {
                return Err(self.wrong("',' or '}'"));
            }
        }
        match (element, fortran, shape) {
            (Some(element), Some(fortran), Some(shape)) => Ok(Header { element, fortran, shape }),
            _ => Err("its header lacks 'descr', 'fortran_order' or 'shape'".into()),
        }
    }

    fn shape(&mut self) -> Result<Vec<i64>, String> {
        self.expect("(")?;
        let mut shape = Vec::new();
        while !self.eat(")") {
            self.0 = self.0.trim_start();
            let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
            let (digits, rest) = self.0.split_at(end);
            shape.push(digits.parse().map_err(|_| self.wrong("a size"))?);
            self.0 = rest.strip_prefix('L').unwrap_or(rest); // Python 2 wrote 3L
            if !self.eat(",") && !self.0.trim_start().starts_with(')') {
                return Err(self.wrong("',' or ')'"));
            }
        }
        Ok(shape)
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        self.0 = self.0.trim_start();
        let mark = if self.0.starts_with('"') { '"' } else { '\'' };
        let found = self.0.strip_prefix(mark).and_then(|rest| rest.split_once(mark));
        let (text, rest) = found.ok_or_else(|| self.wrong("a quoted word"))?;
        self.0 = rest;
        Ok(text)
    }

    fn eat(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.wrong(&format!("'{token}'"))) }
    }

    fn wrong(&self, wanted: &str) -> String {
        let found: String = self.0.chars().take(20).collect();
        format!("its header cannot be read: {wanted} should stand before '{}'", found.escape_debug())
    }
}

/// Column-major elements of `width` bytes in row-major order.
fn to_row_major(data: &[u8], shape: &[i64], width: usize) -> Vec<u8> {
    let sizes: Vec<usize> = shape.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
    let mut strides = vec![width; sizes.len()];
    for axis in 1..sizes.len() {
        strides[axis] = strides[axis - 1] * sizes[axis - 1];
    }
    let mut index = vec![0usize; sizes.len()];
    let mut at = 0;
    let mut out = Vec::with_capacity(data.len());
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + width]);
        for axis in (0..sizes.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < sizes[axis] {
                break;
            }
            at -= strides[axis] * sizes[axis];
            index[axis] = 0;
        }
    }
    out
}

fn texts(data: &[u8], element: Element, width: usize, count: usize) -> Result<Vec<String>, String> {
    if width == 0 && count > HEADER_LIMIT {
        return Err(format!("it claims {count} empty texts, more than the {HEADER_LIMIT} that are read"));
    }
    if width == 0 {
        return Ok(vec![String::new(); count]);
    }
    data.chunks_exact(width).map(|chunk| text(chunk, element)).collect()
}

fn text(chunk: &[u8], element: Element) -> Result<String, String> {
    let mut text = match element {
        Element::Utf32 { swap, .. } => chunk
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&c| char::from_u32(if swap { u32::from_be_bytes(c) } else { u32::from_le_bytes(c) }))
            .collect::<Option<String>>()
            .ok_or("a text holds a number that is no Unicode character")?,
        _ => std::str::from_utf8(chunk).map_err(|_| "a text of bytes is not UTF-8")?.to_owned(),
    };
    text.truncate(text.trim_end_matches('\0').len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this header line.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut f = [MAGIC, &[1, 0], &u16::try_from(header.len()).unwrap().to_le_bytes()].concat();
        f.extend_from_slice(header.as_bytes());
        f.extend_from_slice(data);
        f
    }

    fn array(descr: &str, shape: &str, data: &[u8]) -> Result<Tensor, String> {
        read(&file(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"), data))
    }

    #[test]
    fn every_type_comes_back_as_it_was_written() {
        let mut seen = 0;
        for &dtype in DType::ALL.iter().filter(|&&d| has(d)) {
            for shape in [&[][..], &[3], &[2, 0, 5], &[3, 5, 1, 7]] {
                let n = shape.iter().product::<i64>() as usize * dtype.bits() as usize / 8;
                let bytes: Vec<u8> = (0..n).map(|i| if dtype == DType::Bool { i as u8 & 1 } else { i as u8 }).collect();
                let tensor = Tensor::from_bytes(dtype, shape, &bytes).unwrap();
                let mut out = Vec::new();
                write(&mut out, &tensor).unwrap();
                assert_eq!((out.len() - n) % 64, 0, "data is not aligned");
                let back = read(&out).unwrap();
                assert_eq!((back.dtype(), back.shape(), back.bytes().unwrap()), (dtype, shape, &bytes[..]));
                seen += 1;
            }
        }
        assert_eq!(seen, 14 * 4);
    }

    #[test]
    fn numpys_own_header_is_written() {
        let mut out = Vec::new();
        write(&mut out, &Tensor::from_slice(&[2], &[1.5f32, -1.0]).unwrap()).unwrap();
        let text = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        assert!(out.starts_with(text) && out[127] == b'\n' && out.len() == 136, "{out:?}");
    }

    #[test]
    fn big_endian_numbers_are_turned() {
        let t = array(">i4", "(2,)", &[0, 0, 1, 2, 255, 255, 255, 254]).unwrap();
        assert_eq!(t.as_slice::<i32>().unwrap(), [258, -2]);
        let c = array(">c8", "()", &[0x3f, 0x80, 0, 0, 0x40, 0, 0, 0]).unwrap();
        assert_eq!(c.bytes().unwrap(), [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat());
    }

    #[test]
    fn columns_become_rows() {
        for shape in [[2, 3, 1], [3, 1, 5], [1, 1, 1], [4, 0, 2], [3, 4, 5]] {
            let [a, b, c] = shape;
            // Element (i, j, k) holds its row-major number; the file has i running fastest.
            let mut data = Vec::new();
            for k in 0..c {
                for j in 0..b {
                    for i in 0..a {
                        data.extend_from_slice(&(((i * b + j) * c + k) as i16).to_le_bytes());
                    }
                }
            }
            let header = format!("{{'descr': '<i2', 'fortran_order': True, 'shape': ({a}, {b}, {c})}}");
            let t = read(&file(&header, &data)).unwrap();
            let want: Vec<u8> = (0..(a * b * c) as i16).flat_map(i16::to_le_bytes).collect();
            assert_eq!(t.bytes().unwrap(), want, "{shape:?}");
        }
    }

    #[test]
    fn texts_are_read_without_their_padding() {
        let utf32 = |s: &str| s.chars().flat_map(|c| (c as u32).to_le_bytes()).collect::<Vec<u8>>();
        let t = array("<U2", "(2,)", &utf32("é\0日本")).unwrap();
        assert_eq!(t.texts().unwrap().collect::<Vec<_>>(), ["é", "日本"]);
        let t = array("|S3", "(2,)", b"ab\0xyz").unwrap();
        assert_eq!(t.texts().unwrap().collect::<Vec<_>>(), ["ab", "xyz"]);
        assert_eq!(array("<U0", "(2,)", &[]).unwrap().texts().unwrap().len(), 2);
    }

    #[test]
    fn older_and_newer_writers_are_understood() {
        let header = "{\"shape\": (3L, 1L), \"fortran_order\": False, \"descr\": \"|u1\"}";
        assert_eq!(read(&file(header, &[1, 2, 3])).unwrap().shape(), [3, 1]);
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }";
        let mut v2 = [MAGIC, &[2, 0], &(header.len() as u32).to_le_bytes()].concat();
        v2.extend_from_slice(header.as_bytes());
        v2.extend_from_slice(&[0; 4]);
        assert_eq!(read(&v2).unwrap().elements(), 1);
    }

    #[test]
    fn broken_files_are_refused_with_a_reason() {
        let cases: &[(Result<Tensor, String>, &str)] = &[
            (read(b""), "does not begin"),
            (read(b"hello world"), "does not begin"),
            (read(b"\x93NUMPY\x01"), "ends inside"),
            (read(b"\x93NUMPY\x01\x00\xff\x00{"), "ends inside"),
            (read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), "more than the 10000"),
            (read(b"\x93NUMPY\x09\x00\x01\x00{"), "version 9"),
            (read(&file("{'descr': '<f4'}", &[])), "lacks"),
            (read(&file(&"(".repeat(9000), &[])), "'{' should stand before"),
            (read(&file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", &[])), "records"),
            (read(&file("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", &[])), "'fortran_order'"),
            (array("|O", "()", &[]), "pickled"),
            (array("|V2", "()", &[]), "no ONNX type"),
            (array("<M8[ns]", "()", &[]), "no ONNX type"),
            (array("<f16", "()", &[]), "no ONNX type"),
            (array("é4", "()", &[]), "no ONNX type"),
            (array("", "()", &[]), "no ONNX type"),
            (array("<f4", "(2,)", &[0; 7]), "takes 8 bytes of data and the file has 7"),
            (array("<f4", "(2,)", &[0; 9]), "the file has 9"),
            (array("<f4", "(-1,)", &[]), "a size"),
            (array("<f4", "(4294967296, 4294967296)", &[]), "larger than memory"),
            (array("<f4", "(99999999999999999999,)", &[]), "a size"),
            (array("<f4", "(1 2)", &[]), "',' or ')'"),
            (array("<U4611686018427387904", "(4,)", &[]), "larger than memory"),
            (array("|b1", "(1,)", &[2]), "neither 0 nor 1"),
            (array("<U1", "()", &[0, 0, 0x11, 0]), "Unicode"),
            (array("|S1", "()", &[0xff]), "UTF-8"),
            (array("<U0", "(1000000000000,)", &[]), "empty texts"),
        ];
        for (result, words) in cases {
            let error = result.as_ref().expect_err(words);
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
