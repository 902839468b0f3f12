//! What the file declares of types, against what was inferred.
//!
//! Inferred wins. Declared types serve where nothing is inferred: outputs of operators that no rule
//! describes, and inputs of their bodies.

use super::Walk;
use crate::build::shapeless;
use crate::error::Result;
use crate::ir::{Dims, MAX_DIM, SymbolKind, TensorType, Type, ValueId};
use crate::proto::{DimValue, TypeProto, type_proto};

impl Walk {
    /// The declared type of a value. Sizes count, names of dims do not: they are free.
    pub(super) fn declared_type(&mut self, value: ValueId) -> Result<Option<Type>> {
        let Some(proto) = self.declared.get(&value) else { return Ok(None) };
        let ty = shapeless(proto)?;
        let (Type::Tensor(t), Some(type_proto::Value::Tensor(stated))) = (&ty, &proto.value) else {
            return Ok(Some(ty));
        };
        let dims = stated.shape.as_ref().map(|shape| {
            let stated = shape.dim.iter().zip(0u32..);
            let dim = |(d, at): (&crate::proto::Dimension, u32)| match d.value {
                Some(DimValue::Size(size)) if (0..=MAX_DIM).contains(&size) => self.graph.exprs.constant(size),
                _ => self.graph.exprs.symbol_of(value, at, SymbolKind::Dim),
            };
            stated.map(dim).collect::<Dims>()
        });
        Ok(Some(Type::Tensor(TensorType { dtype: t.dtype, dims })))
    }

    /// Keeps what the file states of outputs whose rank was not found.
    pub(super) fn keep_stated(&mut self) -> Result<()> {
        for v in self.graph.main().outputs.clone() {
            let ranked = matches!(&self.graph.value(v).ty, Some(Type::Tensor(t)) if t.dims.is_some());
            let stated = if ranked { None } else { self.declared_type(v)? };
            self.graph.stated_outputs.push(stated);
        }
        Ok(())
    }

    /// Warns of every declared type that cannot hold.
    pub(super) fn compare_declared(&mut self) {
        let mut declared: Vec<(ValueId, TypeProto)> = self.declared.drain().collect();
        declared.sort_unstable_by_key(|d| d.0);
        for (value, stated) in declared {
            if let Some(message) = self.contradiction(value, &stated) {
                let place = format!("value '{}'", self.graph.value(value).name);
                self.warn(place, message);
            }
        }
    }

    fn contradiction(&self, value: ValueId, stated: &TypeProto) -> Option<String> {
        let found = self.graph.value(value).ty.as_ref()?;
        let declared = match shapeless(stated) {
            Ok(ty) => ty,
            Err(e) => return Some(e.message().to_owned()),
        };
        let names = (declared.kind_name(), found.kind_name());
        let vague = |t: &str| t.contains("unknown");
        if names.0 != names.1 && !vague(&names.0) && !vague(&names.1) {
            return Some(format!("declared as {}, but it is {}", names.0, names.1));
        }
        let (Some(type_proto::Value::Tensor(t)), Type::Tensor(found)) = (&stated.value, found) else { return None };
        let (stated, dims) = (t.shape.as_ref()?, found.dims.as_ref()?);
        let mut sizes = stated.dim.iter().zip(dims).map(|(d, e)| (&d.value, self.graph.exprs.as_const(*e)));
        let differ = |(stated, found): (&Option<DimValue>, Option<i64>)| match (stated, found) {
            (Some(DimValue::Size(a)), Some(b)) => *a != b && *a >= 0,
            _ => false,
        };
        if stated.dim.len() == dims.len() && !sizes.any(differ) {
            return None;
        }
        let text: Vec<String> = stated.dim.iter().map(|d| shown(&d.value)).collect();
        let found: Vec<String> = dims.iter().map(|d| self.graph.exprs.show(*d).to_string()).collect();
        Some(format!("declared with dims [{}], but it has [{}]", text.join(", "), found.join(", ")))
    }
}

fn shown(dim: &Option<DimValue>) -> String {
    match dim {
        Some(DimValue::Size(size)) => size.to_string(),
        Some(DimValue::Name(name)) => name.clone(),
        None => "?".to_owned(),
    }
}
