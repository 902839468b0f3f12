//! Files that hold values: the form is told by the file's ending on the way in, and by the value on the way out.

mod json;
mod names;
mod npy;
pub mod pb;
mod picture;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use ortolan::value::{Tensor, Value};

use crate::codes;
use crate::error::{Error, Result, read_file};
use crate::port::{Port, PortType};

/// Reads the value for an input from a file.
pub fn read(path: &Path, port: &Port) -> Result<Value> {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    let place = || format!("input '{}': {}", port.name, path.display());
    if !["npy", "pb", "json", "png", "pgm"].contains(&ending.as_str()) {
        let message = format!("{}: files that end in '.{ending}' are not read", place());
        return Err(Error::usage(codes::INPUT_FORM, message));
    }
    let whole = !matches!(port.ty.held(), PortType::Tensor { .. } | PortType::Unknown);
    if whole && !["json", "pb"].contains(&ending.as_str()) {
        let message = format!("{}: the input takes a {}, which only .json and .pb can hold", place(), port.ty);
        return Err(Error::usage(codes::INPUT_FORM, message));
    }
    let bytes = read_file(path).map_err(|e| e.at(format_args!("input '{}'", port.name)))?;
    let tensor = |t: Result<Tensor, String>| t.map(|t| wrap(t.into(), &port.ty));
    match ending.as_str() {
        "npy" => tensor(npy::read(&bytes)),
        "pb" => pb::read_value(&bytes, &port.ty),
        "json" => json::read(&bytes, &port.ty),
        _ => tensor(picture::read(&bytes, port)),
    }
    .map_err(|sentence| Error::usage(codes::INPUT_FILE, format!("{}: {sentence}", place())))
}

fn wrap(value: Value, ty: &PortType) -> Value {
    match ty {
        PortType::Optional(_) => Value::Optional(Some(value.into())),
        _ => value,
    }
}

/// Writes each value to a file of its own and says where; the folder is made if it is missing.
///
/// `.npy` for tensors of types that numpy has, `.pb` for those that it lacks, `.json` for texts and all other kinds.
pub fn write_all(dir: &Path, outputs: &[(String, Value)]) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, why: String| {
        Error::usage(codes::OUTPUT_FILE, format!("{}: cannot be written: {why}", path.display()))
    };
    std::fs::create_dir_all(dir).map_err(|e| failed(dir, e.to_string()))?;
    let stems = names::stems(outputs.iter().map(|(name, _)| name.as_str()));
    let mut paths = Vec::with_capacity(outputs.len());
    for ((name, value), stem) in outputs.iter().zip(stems) {
        let path = dir.join(format!("{stem}.{}", ending(value)));
        write(&path, name, value).map_err(|e| failed(&path, e.to_string()).at(format_args!("output '{name}'")))?;
        paths.push(path);
    }
    Ok(paths)
}

/// The tensor that is written as an array, if the value is one.
fn array(value: &Value) -> Option<&Tensor> {
    match value {
        Value::Tensor(t) if t.dtype() != ortolan_graph::ir::DType::String => Some(t),
        Value::Optional(Some(held)) => array(held),
        _ => None,
    }
}

fn ending(value: &Value) -> &'static str {
    match array(value) {
        Some(t) if npy::has(t.dtype()) => "npy",
        Some(_) => "pb",
        None => "json",
    }
}

fn write(path: &Path, name: &str, value: &Value) -> std::io::Result<()> {
    let invalid = |sentence: String| std::io::Error::new(std::io::ErrorKind::InvalidData, sentence);
    let value = value.to_host().map_err(|e| invalid(e.to_string()))?;
    let mut out = BufWriter::new(File::create(path)?);
    match array(&value) {
        Some(t) if npy::has(t.dtype()) => npy::write(&mut out, t)?,
        Some(t) => out.write_all(&pb::write(name, t).map_err(invalid)?)?,
        None => out.write_all(json::write(&value).map_err(invalid)?.as_bytes())?,
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ortolan_graph::ir::DType;

    fn port(ty: PortType) -> Port {
        Port { name: "x".into(), ty, optional: false }
    }

    #[test]
    fn outputs_are_written_in_the_form_that_holds_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made/here");
        let tensor = |dtype, bytes: &[u8]| Value::from(Tensor::from_bytes(dtype, &[1], bytes).unwrap());
        let outputs = [
            ("f".to_owned(), tensor(DType::F32, &1.5f32.to_le_bytes())),
            ("b".to_owned(), tensor(DType::Bf16, &[0x80, 0x3f])),
            ("t".to_owned(), Value::from(Tensor::strings(&[1], &["a"]).unwrap())),
            ("n".to_owned(), Value::Optional(None)),
            ("o".to_owned(), Value::Optional(Some(Value::from(vec![1i64]).into()))),
            ("s/1".to_owned(), Value::sequence([Value::from(vec![true])])),
        ];
        let paths = write_all(&folder, &outputs).unwrap();
        let names: Vec<_> = paths.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["f.npy", "b.pb", "t.json", "n.json", "o.npy", "s_1.json"]);
        assert_eq!(std::fs::read_to_string(&paths[3]).unwrap(), "null\n");
        let tensor = |dtype| PortType::Tensor { dtype, dims: None };
        let back = read(&paths[1], &port(tensor(DType::Bf16))).unwrap();
        assert_eq!(back.as_tensor().unwrap().bytes().unwrap(), [0x80, 0x3f]);
        let back = read(&paths[4], &port(PortType::Optional(Box::new(tensor(DType::I64))))).unwrap();
        assert!(matches!(back, Value::Optional(Some(_))));
        let again = write_all(&paths[0], &outputs).unwrap_err();
        assert!(again.code == "output-file" && again.message.contains("f.npy"), "{again}");
    }

    /// Every cut and every change of one byte of a good file is read or refused.
    #[test]
    fn damaged_files_never_panic() {
        let floats = port(PortType::Tensor { dtype: DType::F32, dims: None });
        let picture = port(PortType::Tensor { dtype: DType::F32, dims: Some(vec![crate::port::Dim::Fixed(2); 2]) });
        let list = port(PortType::Sequence(Box::new(floats.ty.clone())));
        let tensor = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
        let mut array = Vec::new();
        npy::write(&mut array, &tensor).unwrap();
        let mut drawn = Vec::new();
        let mut encoder = png::Encoder::new(&mut drawn, 2, 2);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&[7; 12]).unwrap();
        let text = json::write(&Value::sequence([tensor.clone().into()])).unwrap();
        type Read<'a> = Box<dyn Fn(&[u8]) -> bool + 'a>;
        let cases: [(Vec<u8>, Read<'_>); 5] = [
            (array, Box::new(|b| npy::read(b).is_ok())),
            (pb::write("x", &tensor).unwrap(), Box::new(|b| pb::read(b).is_ok())),
            (text.into_bytes(), Box::new(|b| json::read(b, &list.ty).is_ok())),
            (drawn, Box::new(|b| picture::read(b, &picture).is_ok())),
            (b"P5 2 2 255\n1234".to_vec(), Box::new(|b| picture::read(b, &picture).is_ok())),
        ];
        for (good, read) in &cases {
            assert!(read(good));
            let refused = (0..good.len()).filter(|&len| !read(&good[..len])).count();
            // A picture is complete without its end mark of 12 bytes.
            assert!(refused + 12 >= good.len(), "{refused} of {} cuts were refused", good.len());
            for at in 0..good.len() {
                for byte in [0, 0x30, 0x7f, 0x80, 0xff, good[at] ^ 1] {
                    let mut bad = good.clone();
                    bad[at] = byte;
                    read(&bad);
                }
            }
        }
    }

    #[test]
    fn endings_and_kinds_are_checked_before_the_file() {
        let floats = port(PortType::Tensor { dtype: DType::F32, dims: None });
        let list = port(PortType::Sequence(Box::new(floats.ty.clone())));
        let cases = [
            (&floats, "a.txt", "input-form", "'.txt'"),
            (&floats, "a", "input-form", "'.'"),
            (&list, "a.npy", "input-form", "only .json"),
            (&floats, "none.npy", "file-not-found", "no such file"),
        ];
        for (port, file, code, words) in cases {
            let error = read(Path::new(file), port).unwrap_err();
            assert!(error.code == code && error.message.contains(words), "{file}: {error}");
        }
    }
}
