//! From arguments to the values of a run: which input gets which file, which gets random numbers, and whether they fit.

use std::path::Path;

use ortolan::error::codes as core;
use ortolan::value::Value;

use crate::args::FeedArgs;
use crate::codes;
use crate::error::{Error, Result, names, nearest};
use crate::files;
use crate::port::{Dim, Port, PortType};
use crate::random;

/// Values for a run, by input name.
pub type Feed = Vec<(String, Value)>;

/// Reads and draws a value for every input that needs one.
pub fn gather(args: &FeedArgs, inputs: &[Port]) -> Result<Feed> {
    let mut feed = Feed::new();
    for text in &args.input {
        let (port, file) = target(text, inputs)?;
        if feed.iter().any(|(name, _)| *name == port.name) {
            return Err(Error::usage(codes::ARGUMENT, format!("--input gives '{}' twice", port.name)));
        }
        let value = files::read(Path::new(file), port)?;
        fits(&value, port).map_err(|(code, why)| {
            let message = format!("input '{}': {file} holds {why}", port.name);
            Error::usage(code, message).try_this(format!("Give it as {}.", port.ty))
        })?;
        feed.push((port.name.clone(), value));
    }
    let missing: Vec<&Port> =
        inputs.iter().filter(|p| !p.optional && !feed.iter().any(|(name, _)| *name == p.name)).collect();
    if !missing.is_empty() && !args.random_inputs {
        let list: Vec<String> = missing.iter().take(12).map(|p| format!("'{}' ({})", p.name, p.ty)).collect();
        let message = format!("no value is given for input {}", list.join(", "));
        return Err(Error::usage(core::INPUT_MISSING, message)
            .try_this("Add --input NAME=FILE for each, or --random-inputs to fill them with seeded random numbers."));
    }
    for port in missing {
        let value = random::value(port, args.seed)
            .map_err(|why| Error::usage(codes::INPUT_FORM, format!("--random-inputs: input '{}': {why}", port.name)))?;
        feed.push((port.name.clone(), value));
    }
    Ok(feed)
}

/// The input and the file that `NAME=FILE` means. Names may hold `=`, so the longest that the model has is taken.
fn target<'a, 't>(text: &'t str, inputs: &'a [Port]) -> Result<(&'a Port, &'t str)> {
    let cuts = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let found = cuts.filter_map(|(name, file)| Some((inputs.iter().find(|p| p.name == name)?, file))).next_back();
    found.ok_or_else(|| {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        let all = || inputs.iter().map(|p| p.name.as_str());
        let hint = nearest(name, all()).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
        let message = format!("--input {text}: the model has no input '{name}', it has {}{hint}", names(all(), 12));
        Error::usage(core::INPUT_UNKNOWN, message)
    })
}

/// Whether a value is one that the port takes; else a code and what the value is against what is wanted.
fn fits(value: &Value, port: &Port) -> Result<(), (ortolan::codes::Code, String)> {
    let PortType::Tensor { dtype, dims } = port.ty.held() else { return Ok(()) };
    let tensor = match value {
        Value::Tensor(tensor) => tensor,
        Value::Optional(Some(held)) => match held.as_tensor() {
            Ok(tensor) => tensor,
            Err(_) => return Ok(()),
        },
        _ => return Ok(()),
    };
    let found = || format!("{} {:?} and the model takes {}", tensor.dtype(), tensor.shape(), port.ty);
    if tensor.dtype() != *dtype {
        return Err((core::INPUT_TYPE, found()));
    }
    let Some(dims) = dims else { return Ok(()) };
    let same = |(dim, &size): (&Dim, &i64)| dim.fixed().is_none_or(|n| n == size);
    if dims.len() != tensor.shape().len() || !dims.iter().zip(tensor.shape()).all(same) {
        return Err((core::INPUT_SHAPE, found()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ortolan::value::Tensor;
    use ortolan_graph::ir::DType;

    fn port(name: &str, dims: &[&str]) -> Port {
        let dim = |d: &&str| d.parse().map_or_else(|_| Dim::Named((*d).to_owned()), Dim::Fixed);
        let ty = PortType::Tensor { dtype: DType::F32, dims: Some(dims.iter().map(dim).collect()) };
        Port { name: name.into(), ty, optional: false }
    }

    #[test]
    fn names_with_equal_signs_are_found() {
        let inputs = [port("a", &[]), port("a=b", &[])];
        for (text, name, file) in [("a=x", "a", "x"), ("a=b=x", "a=b", "x"), ("a=c=x", "a", "c=x"), ("a=b", "a", "b")] {
            let (port, found) = target(text, &inputs).unwrap();
            assert_eq!((port.name.as_str(), found), (name, file), "{text}");
        }
        let error = target("aa=x", &inputs).unwrap_err();
        assert!(error.code == "input-unknown" && error.message.contains("'a' and 'a=b'"), "{error}");
        let error = target("imgae=x.npy", &[port("image", &[])]).unwrap_err();
        assert!(error.message.contains("did you mean 'image'?"), "{error}");
    }

    #[test]
    fn values_are_compared_with_what_the_model_takes() {
        let tensor = |shape: &[i64]| Value::from(Tensor::zeros(DType::F32, shape).unwrap());
        let x = port("x", &["n", "3"]);
        assert!(fits(&tensor(&[7, 3]), &x).is_ok());
        let wrong = |value: &Value| fits(value, &x).unwrap_err();
        assert_eq!(wrong(&tensor(&[7, 4])), (core::INPUT_SHAPE, "float [7, 4] and the model takes float [n,3]".into()));
        assert_eq!(wrong(&tensor(&[3])).0, core::INPUT_SHAPE);
        assert_eq!(wrong(&Value::from(vec![1i64])).0, core::INPUT_TYPE);
        let held = Value::Optional(Some(tensor(&[1, 4]).into()));
        let optional = Port { ty: PortType::Optional(Box::new(x.ty.clone())), ..x.clone() };
        assert_eq!(fits(&held, &optional).unwrap_err().0, core::INPUT_SHAPE);
        assert!(fits(&Value::Optional(None), &optional).is_ok());
    }
}
