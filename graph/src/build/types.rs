//! Types that the file states → [`Type`]s.

use hashbrown::HashMap;

use crate::error::{Code, Error, Result};
use crate::ir::{DType, Dims, ExprId, ExprTable, MAX_DIM, Name, Symbol, SymbolKind, TensorType, Type, ValueId};
use crate::load::LoadOptions;
use crate::proto::{DimValue, TensorShapeProto, TypeProto, type_proto};

/// Names of dims on the model's inputs: equal names are equal numbers.
pub(crate) struct DimNames {
    believed: bool,
    fixed: Vec<(String, i64, bool)>,
    known: HashMap<String, ExprId>,
}

/// What exporters write when they mean nothing.
const NAMELESS: &[&str] = &["", "-1", "?", "None", "none", "unk"];

impl DimNames {
    pub(crate) fn new(options: &LoadOptions) -> DimNames {
        let fixed = options.dims.iter().map(|(name, size)| (name.clone(), *size, false)).collect();
        DimNames { believed: options.believe_dim_names, fixed, known: HashMap::new() }
    }

    fn dim(&mut self, exprs: &mut ExprTable, name: &str, value: ValueId, at: u32) -> Result<ExprId> {
        if let Some((_, size, used)) = self.fixed.iter_mut().find(|f| f.0 == name) {
            *used = true;
            return in_range(*size, Code::Dim).map(|size| exprs.constant(size));
        }
        let nameless = NAMELESS.contains(&name);
        if let Some(&e) = self.known.get(name).filter(|_| self.believed && !nameless) {
            return Ok(e);
        }
        let shown: Option<Name> = (!nameless).then(|| name.into());
        let e = exprs.symbol(Symbol { value, at, kind: SymbolKind::Dim, name: shown });
        self.known.entry_ref(name).or_insert(e);
        Ok(e)
    }

    /// Sizes that the caller gave for dims that no input has are an error: the name is probably misspelt.
    pub(crate) fn check_all_used(&self) -> Result<()> {
        let Some((name, ..)) = self.fixed.iter().find(|f| !f.2) else { return Ok(()) };
        let mut names: Vec<&str> = self.known.keys().map(String::as_str).filter(|n| !NAMELESS.contains(n)).collect();
        names.extend(self.fixed.iter().filter(|f| f.2).map(|f| f.0.as_str()));
        names.sort_unstable();
        let known = if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") };
        Err(Error::new(Code::Dim, format!("no input has a dim named '{name}'; named dims of inputs: {known}")))
    }
}

/// The type of one of the model's inputs, with symbols for its free dims.
pub(crate) fn input(exprs: &mut ExprTable, names: &mut DimNames, value: ValueId, t: &TypeProto) -> Result<Type> {
    match t.value.as_ref() {
        Some(type_proto::Value::Tensor(t)) => {
            let dtype = element(t.elem_type)?;
            let dims = t.shape.as_ref().map(|s| dims(exprs, names, value, s)).transpose()?;
            Ok(Type::Tensor(TensorType { dtype, dims }))
        }
        _ => shapeless(t),
    }
}

fn dims(exprs: &mut ExprTable, names: &mut DimNames, value: ValueId, shape: &TensorShapeProto) -> Result<Dims> {
    let mut elements = 1i64;
    let mut dims = Dims::new();
    for (d, at) in shape.dim.iter().zip(0u32..) {
        let dim = match &d.value {
            // -1 is what some exporters write for a free dim.
            Some(DimValue::Size(-1)) | None => names.dim(exprs, "", value, at)?,
            Some(DimValue::Name(name)) => names.dim(exprs, name, value, at)?,
            Some(DimValue::Size(size)) => {
                let size = in_range(*size, Code::BadType)?;
                exprs.constant(size)
            }
        };
        if let Some(size) = exprs.as_const(dim) {
            elements = elements
                .checked_mul(size)
                .ok_or_else(|| Error::new(Code::BadType, "its dims hold more elements than a 64-bit count"))?;
        }
        dims.push(dim);
    }
    Ok(dims)
}

fn in_range(size: i64, code: Code) -> Result<i64> {
    if (0..=MAX_DIM).contains(&size) {
        return Ok(size);
    }
    Err(Error::new(code, format!("a dim of {size} is not between 0 and {MAX_DIM}")))
}

/// A type without the dims that its tensors may state: what bodies, sequences and outputs say of shapes is not relied on.
pub(crate) fn shapeless(t: &TypeProto) -> Result<Type> {
    let inner = |t: &Option<Box<TypeProto>>| match t {
        Some(t) => shapeless(t),
        None => Ok(Type::Unknown),
    };
    Ok(match t.value.as_ref() {
        None => Type::Unknown,
        Some(type_proto::Value::Tensor(t)) => Type::unranked(element(t.elem_type)?),
        Some(type_proto::Value::Sequence(s)) => Type::Sequence(inner(&s.elem_type)?.into()),
        Some(type_proto::Value::Optional(o)) => Type::Optional(inner(&o.elem_type)?.into()),
        Some(type_proto::Value::Map(m)) => Type::Map(element(m.key_type)?, inner(&m.value_type)?.into()),
        Some(type_proto::Value::Sparse(_) | type_proto::Value::Opaque(_)) => {
            return Err(Error::new(Code::Unsupported, "values of sparse tensor and opaque types can't be carried"));
        }
    })
}

fn element(number: i32) -> Result<DType> {
    DType::from_number(number)
        .ok_or_else(|| Error::new(Code::BadType, format!("element type {number} is not one of ONNX's 1 to 28")))
}
