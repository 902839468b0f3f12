//! Values as JSON, for what is no array of numbers.
//!
//! | value | JSON |
//! |---|---|
//! | sequence | a list |
//! | map | an object, integer keys as decimal text |
//! | tensor, inside of these or of texts | `{"dtype": "float32", "shape": [2], "data": [1, 2]}` in row order; `"string"` for texts |
//! | optional | what it holds, or `null` |
//!
//! Numbers that JSON lacks are written as Python's `json` does: `NaN`, `Infinity`, `-Infinity`.

use std::borrow::Cow;
use std::fmt::Write;

use half::{bf16, f16};
use ortolan::value::{Tensor, Value};
use ortolan_graph::ir::DType;
use serde_json::Value as Json;

use crate::numbers::{self, Number};
use crate::port::PortType;

/// Reads the value that `ty` asks for. The error is a sentence that says where in the file.
pub fn read(file: &[u8], ty: &PortType) -> Result<Value, String> {
    let text = std::str::from_utf8(file).map_err(|_| "it is not UTF-8 text")?;
    let json: Json = serde_json::from_str(&quote_specials(text)).map_err(|e| format!("it is not JSON: {e}"))?;
    value(&json, ty)
}

/// The JSON text of a value in host memory. The error is a sentence.
pub fn write(value: &Value) -> Result<String, String> {
    let mut out = String::new();
    put(value, &mut out)?;
    out.push('\n');
    Ok(out)
}

/// Python's `NaN` and infinities outside of texts, made texts; JSON has no form for them.
fn quote_specials(text: &str) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut quoted) = (text, false);
    while let Some(c) = rest.chars().next() {
        let special = ["NaN", "Infinity", "-Infinity"].into_iter().find(|s| !quoted && rest.starts_with(s));
        let taken = match special {
            Some(word) => {
                let _ = write!(out, "\"{word}\"");
                word.len()
            }
            None => {
                let len =
                    if quoted && c == '\\' { rest.chars().take(2).map(char::len_utf8).sum() } else { c.len_utf8() };
                quoted ^= c == '"';
                out.push_str(&rest[..len]);
                len
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

fn value(json: &Json, ty: &PortType) -> Result<Value, String> {
    match (ty, json) {
        (PortType::Optional(_), Json::Null) => Ok(Value::Optional(None)),
        (PortType::Optional(item), json) => Ok(Value::Optional(Some(value(json, item)?.into()))),
        (PortType::Sequence(item), Json::Array(list)) => {
            let items = list.iter().enumerate();
            let items = items.map(|(i, json)| value(json, item).map_err(|e| format!("item {i}: {e}")));
            Ok(Value::sequence(items.collect::<Result<Vec<_>, _>>()?))
        }
        (PortType::Map(key, item), Json::Object(object)) => map(object, *key, item),
        (PortType::Tensor { dtype, .. }, Json::Object(object)) => tensor(object, *dtype).map(Value::Tensor),
        (PortType::Unknown, _) => Err("the type of the input is not known, so its form in JSON is neither".into()),
        (ty, json) => Err(format!("for a {ty} there should be {}, not {}", form(ty), kind(json))),
    }
}

fn form(ty: &PortType) -> &'static str {
    match ty {
        PortType::Sequence(_) => "a list",
        PortType::Map(..) => "an object of keys and values",
        _ => "an object with \"dtype\", \"shape\" and \"data\"",
    }
}

fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a truth value",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

fn map(object: &serde_json::Map<String, Json>, key: DType, item: &PortType) -> Result<Value, String> {
    let count = i64::try_from(object.len()).unwrap_or(i64::MAX);
    let keys = if key == DType::String {
        Tensor::strings(&[count], &object.keys().collect::<Vec<_>>())
    } else {
        let numbers: Vec<Json> = object.keys().map(|k| k.parse().map_or(Json::Null, i64::into)).collect();
        Ok(elements(key, &[count], &numbers).map_err(|e| format!("key {e}"))?)
    };
    let values = match item {
        PortType::Tensor { dtype, .. } => {
            let values: Vec<Json> = object.values().cloned().collect();
            Value::Tensor(elements(*dtype, &[count], &values).map_err(|e| format!("value {e}"))?)
        }
        other => Value::sequence(object.values().map(|json| value(json, other)).collect::<Result<Vec<_>, _>>()?),
    };
    keys.and_then(|keys| Value::map(keys, values)).map_err(|e| e.message().to_owned())
}

fn tensor(object: &serde_json::Map<String, Json>, want: DType) -> Result<Tensor, String> {
    let field = |name| object.get(name).ok_or_else(|| format!("the tensor lacks \"{name}\""));
    let name = field("dtype")?.as_str().ok_or("\"dtype\" should be a text")?;
    let dtype = numbers::from_numpy_name(name).ok_or_else(|| format!("\"dtype\" is \"{name}\", which is no type"))?;
    if dtype != want {
        return Err(format!("the tensor holds {dtype} and the input takes {want}"));
    }
    let sizes = field("shape")?.as_array().ok_or("\"shape\" should be a list of sizes")?;
    let shape: Option<Vec<i64>> = sizes.iter().map(|n| n.as_i64().filter(|&n| n >= 0)).collect();
    let shape = shape.ok_or("\"shape\" should be a list of sizes")?;
    let data = field("data")?.as_array().ok_or("\"data\" should be a list of elements in row order")?;
    elements(dtype, &shape, data).map_err(|e| format!("element {e}"))
}

/// A tensor of these elements; the error begins with the number of the element that is wrong.
fn elements(dtype: DType, shape: &[i64], list: &[Json]) -> Result<Tensor, String> {
    if dtype == DType::String {
        let texts = each(list, dtype, |j| j.as_str())?;
        return Tensor::strings(shape, &texts).map_err(|e| e.message().to_owned());
    }
    let mut bytes = Vec::new();
    macro_rules! int {
        ($t:ty) => {
            each(list, dtype, |j| {
                <$t>::try_from(j.as_i64().map_or_else(|| j.as_u64().map(i128::from), |n| Some(n.into()))?).ok()
            })?
            .iter()
            .for_each(|n| bytes.extend(n.to_le_bytes()))
        };
    }
    macro_rules! float {
        ($f:expr) => {
            each(list, dtype, number)?.iter().for_each(|&n| bytes.extend($f(n).to_le_bytes()))
        };
    }
    match dtype {
        DType::I8 => int!(i8),
        DType::I16 => int!(i16),
        DType::I32 => int!(i32),
        DType::I64 => int!(i64),
        DType::U8 => int!(u8),
        DType::U16 => int!(u16),
        DType::U32 => int!(u32),
        DType::U64 => int!(u64),
        DType::F16 => float!(f16::from_f64),
        DType::Bf16 => float!(bf16::from_f64),
        DType::F32 => float!(|n| n as f32),
        DType::F64 => float!(|n: f64| n),
        DType::Bool => bytes.extend(each(list, dtype, Json::as_bool)?.into_iter().map(u8::from)),
        other => return Err(format!("0: JSON carries no {other}; give a TensorProto as .pb")),
    }
    Tensor::from_bytes(dtype, shape, &bytes).map_err(|e| format!("list: {}", e.message()))
}

fn each<'a, T>(list: &'a [Json], dtype: DType, read: impl Fn(&'a Json) -> Option<T>) -> Result<Vec<T>, String> {
    let items = list.iter().enumerate();
    items.map(|(i, json)| read(json).ok_or_else(|| format!("{i} is {json}, which is no {dtype}"))).collect()
}

fn number(json: &Json) -> Option<f64> {
    match json.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => json.as_f64(),
    }
}

fn put(value: &Value, out: &mut String) -> Result<(), String> {
    match value {
        Value::Optional(None) => out.push_str("null"),
        Value::Optional(Some(held)) => put(held, out)?,
        Value::Sequence(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                put(item, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let keys = numbers::iter(&map.keys)?;
            out.push('{');
            match &map.values {
                Value::Tensor(values) => {
                    for (i, (key, value)) in keys.zip(numbers::iter(values)?).enumerate() {
                        put_key(i, &key, out);
                        put_number(&value, out);
                    }
                }
                Value::Sequence(values) => {
                    for (i, (key, value)) in keys.zip(values.iter()).enumerate() {
                        put_key(i, &key, out);
                        put(value, out)?;
                    }
                }
                other => return Err(format!("a map whose values are a {} has no form in JSON", other.kind_name())),
            }
            out.push('}');
        }
        Value::Tensor(tensor) => {
            let shape = tensor.shape();
            let _ = write!(
                out,
                "{{\"dtype\": \"{}\", \"shape\": {shape:?}, \"data\": [",
                numbers::numpy_name(tensor.dtype())
            );
            for (i, element) in numbers::iter(tensor)?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                put_number(&element, out);
            }
            out.push_str("]}");
        }
    }
    Ok(())
}

fn put_key(i: usize, key: &Number<'_>, out: &mut String) {
    out.push_str(if i > 0 { ", " } else { "" });
    let text = match key {
        Number::Text(text) => (*text).to_owned(),
        other => other.to_string(),
    };
    out.push_str(&Json::String(text).to_string());
    out.push_str(": ");
}

fn put_number(number: &Number<'_>, out: &mut String) {
    match number {
        Number::Text(text) => out.push_str(&Json::from(*text).to_string()),
        Number::Float(x) | Number::Float32(x) if x.is_nan() => out.push_str("NaN"),
        Number::Float(x) | Number::Float32(x) if x.is_infinite() => {
            out.push_str(if *x > 0.0 { "Infinity" } else { "-Infinity" });
        }
        Number::Complex(re, im) => {
            out.push('[');
            put_number(&Number::Float(*re), out);
            out.push_str(", ");
            put_number(&Number::Float(*im), out);
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor_type(dtype: DType) -> PortType {
        PortType::Tensor { dtype, dims: None }
    }

    #[test]
    fn every_kind_comes_back_as_it_was_written() {
        let floats = PortType::Sequence(Box::new(tensor_type(DType::F32)));
        let cases: &[(PortType, &str)] = &[
            (floats.clone(), "[]\n"),
            (
                floats,
                r#"[{"dtype": "float32", "shape": [2], "data": [1.5, NaN]}, {"dtype": "float32", "shape": [], "data": [-Infinity]}]"#,
            ),
            (PortType::Optional(Box::new(tensor_type(DType::I64))), "null"),
            (
                PortType::Optional(Box::new(tensor_type(DType::U64))),
                r#"{"dtype": "uint64", "shape": [1], "data": [18446744073709551615]}"#,
            ),
            (tensor_type(DType::String), r#"{"dtype": "string", "shape": [2, 1], "data": ["NaN \"", "größe"]}"#),
            (tensor_type(DType::Bool), r#"{"dtype": "bool", "shape": [2], "data": [true, false]}"#),
            (PortType::Map(DType::I64, Box::new(tensor_type(DType::F32))), r#"{"-3": 0.25, "7": 1e30}"#),
            (PortType::Map(DType::String, Box::new(tensor_type(DType::I64))), r#"{"a b": 1, "Infinity": -2}"#),
            (
                PortType::Sequence(Box::new(PortType::Map(DType::I64, Box::new(tensor_type(DType::F64))))),
                r#"[{"0": 0.1}, {"0": 0.30000000000000004}]"#,
            ),
        ];
        for (ty, text) in cases {
            let value = read(text.as_bytes(), ty).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(write(&value).unwrap().trim_end(), text.trim_end());
        }
    }

    #[test]
    fn numbers_keep_their_type() {
        let ty = tensor_type(DType::F16);
        let t = read(br#"{"dtype": "float16", "shape": [2], "data": [0.5, 2]}"#, &ty).unwrap();
        assert_eq!(t.as_slice::<f16>().unwrap(), [f16::from_f32(0.5), f16::from_f32(2.0)]);
        let t = read(br#"{"dtype": "float", "shape": [1], "data": [1e300]}"#, &tensor_type(DType::F32)).unwrap();
        assert_eq!(t.as_slice::<f32>().unwrap(), [f32::INFINITY]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        let ints = || Box::new(tensor_type(DType::I64));
        let form = |data: &str| format!(r#"{{"dtype": "int64", "shape": [2], "data": {data}}}"#);
        let cases: &[(PortType, String, &str)] = &[
            (*ints(), "{".into(), "not JSON"),
            (*ints(), "[1]".into(), "not a list"),
            (*ints(), "{}".into(), "lacks \"dtype\""),
            (*ints(), form("[1]"), "list"),
            (*ints(), form("[1, 2.5]"), "element 1 is 2.5"),
            (*ints(), form("[1, \"2\"]"), "element 1 is \"2\""),
            (*ints(), form("[1, 99999999999999999999]"), "element 1"),
            (tensor_type(DType::F32), form("[1, 2]"), "holds int64 and the input takes float"),
            (*ints(), r#"{"dtype": "number", "shape": [], "data": [1]}"#.into(), "no type"),
            (*ints(), r#"{"dtype": "int64", "shape": [-1], "data": []}"#.into(), "list of sizes"),
            (PortType::Sequence(ints()), format!("[{}, 3]", form("[1, 2]")), "item 1"),
            (PortType::Sequence(ints()), "{}".into(), "should be a list"),
            (PortType::Map(DType::I64, ints()), r#"{"x": 1}"#.into(), "key 0"),
            (PortType::Map(DType::I64, ints()), r#"{"1": true}"#.into(), "value 0 is true"),
            (PortType::Unknown, "1".into(), "not known"),
            (*ints(), "[".repeat(100_000), "not JSON"),
        ];
        for (ty, text, words) in cases {
            let error = read(text.as_bytes(), ty).expect_err(words);
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(read(&[0xff], &ints()).unwrap_err().contains("UTF-8"));
    }
}
