//! Shaders as text: what every one begins with, and the forms in which elements are stored and computed with.
//!
//! A template under `shaders/` holds the algorithm; what depends on types and attributes is put in its `$name` places.
//! Dimensions are never in the text but in its parameters, so that few shaders serve all shapes.

use ortolan_ep_kit::DType;
use std::fmt::Write;
use std::sync::Arc;

/// Numbers that a dispatch can hand to its shader.
pub const PARAMS: usize = 256;
/// Bytes of them.
pub const PARAM_BYTES: u64 = 4 * PARAMS as u64;

/// How an element lies in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elem {
    /// f32.
    F32,
    /// f16, computed with as f32.
    F16,
    /// i32.
    I32,
    /// u32.
    U32,
    /// A word per element, 0 or 1.
    Bool,
    /// Any 32 bits, only moved.
    Word,
    /// Any 16 bits, only moved.
    Half,
}

impl Elem {
    /// How values of a type lie; `None` for types that have no place on the device.
    pub fn of(dtype: DType) -> Option<Elem> {
        Some(match dtype {
            DType::F32 => Elem::F32,
            DType::F16 => Elem::F16,
            DType::I32 => Elem::I32,
            DType::U32 => Elem::U32,
            DType::Bool => Elem::Bool,
            _ => return None,
        })
    }

    /// The form in which elements are only moved.
    pub fn moved(self) -> Elem {
        if self.bytes() == 2 { Elem::Half } else { Elem::Word }
    }

    /// Bytes of one element in device memory.
    pub fn bytes(self) -> u64 {
        if matches!(self, Elem::F16 | Elem::Half) { 2 } else { 4 }
    }

    /// WGSL type in memory.
    fn stored(self) -> &'static str {
        match self {
            Elem::F32 => "f32",
            Elem::F16 | Elem::Half => "f16",
            Elem::I32 => "i32",
            Elem::U32 | Elem::Bool | Elem::Word => "u32",
        }
    }

    /// WGSL type to compute with.
    pub fn computed(self) -> &'static str {
        match self {
            Elem::F32 | Elem::F16 => "f32",
            Elem::Half => "f16",
            Elem::I32 => "i32",
            Elem::U32 | Elem::Word => "u32",
            Elem::Bool => "bool",
        }
    }

    fn load(self, at: &str) -> String {
        match self {
            Elem::F16 => format!("f32({at})"),
            Elem::Bool => format!("{at} != 0u"),
            _ => at.to_owned(),
        }
    }

    fn save(self, value: &str) -> String {
        match self {
            Elem::F16 => format!("f16({value})"),
            Elem::Bool => format!("select(0u, 1u, {value})"),
            _ => value.to_owned(),
        }
    }
}

/// A shader ready to be compiled.
#[derive(Debug, Clone)]
pub struct Shader {
    /// For messages.
    pub name: &'static str,
    pub text: Arc<str>,
    /// Storage buffers that it binds.
    pub buffers: usize,
}

impl Shader {
    /// A template with its places filled. Buffer k is read by `get<k>(i)` and written by `put<k>(i, value)`.
    pub fn new(name: &'static str, template: &str, buffers: &[Elem], places: &[(&str, &str)]) -> Shader {
        let mut text = String::with_capacity(template.len() + 2048);
        if buffers.iter().any(|e| matches!(e, Elem::F16 | Elem::Half)) {
            text.push_str("enable f16;\n");
        }
        text.push_str(HEAD);
        for (k, elem) in buffers.iter().enumerate() {
            let (stored, computed) = (elem.stored(), elem.computed());
            let (load, save) = (elem.load(&format!("b{k}[i]")), elem.save("v"));
            let written = write!(
                text,
                "@group(0) @binding({}) var<storage, read_write> b{k}: array<{stored}>;\n\
                 fn get{k}(i: u32) -> {computed} {{ return {load}; }}\n\
                 fn put{k}(i: u32, v: {computed}) {{ b{k}[i] = {save}; }}\n",
                k + 1
            );
            debug_assert!(written.is_ok(), "writing to a String does not fail");
        }
        let mut body = template.to_owned();
        for (place, content) in places {
            body = body.replace(&format!("${place}"), content);
        }
        debug_assert!(!body.contains('$'), "a place of {name} was left: {body}");
        text.push_str(&body);
        let shader = Shader { name, text: text.into(), buffers: buffers.len() };
        #[cfg(test)]
        crate::ops::tests::check(&shader);
        shader
    }
}

const HEAD: &str = include_str!("shaders/head.wgsl");

/// A float as WGSL writes it. WGSL has no infinities: the largest numbers stand for them.
pub fn literal(x: f32) -> String {
    let x = x.clamp(f32::MIN, f32::MAX);
    format!("f32({x:?})")
}
