//! Attributes of the file → [`AttrValue`]s; and Constant nodes → constants.

use bytes::Bytes;

use super::Builder;
use super::types::shapeless;
use crate::error::{Code, Error, Result};
use crate::ir::{Attr, AttrValue, BIG_LIST, ConstId, NodeId};
use crate::proto::{AttributeProto, attribute_type as kind};

impl Builder {
    /// Attributes by name, ascending. `node` becomes the parent of bodies.
    pub(super) fn attrs(&mut self, node: NodeId, list: Vec<AttributeProto>) -> Result<Vec<Attr>> {
        let mut attrs = Vec::with_capacity(list.len());
        for proto in list {
            let name = self.names.get(&proto.name);
            let place = |e: Error| e.within(format!("attribute '{name}'"));
            let Some(proto) = self.referenced(proto).map_err(place)? else { continue };
            let value = self.attr_value(node, proto).map_err(place)?;
            attrs.push(Attr { name, value });
        }
        attrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        match attrs.windows(2).find(|w| w[0].name == w[1].name) {
            Some(w) => Err(Error::new(Code::BadAttribute, format!("attribute '{}' is given twice", w[0].name))),
            None => Ok(attrs),
        }
    }

    fn attr_value(&mut self, node: NodeId, a: AttributeProto) -> Result<AttrValue> {
        let missing = |what: &str| Error::new(Code::BadAttribute, format!("its kind is {what}, but it holds none"));
        Ok(match kind_of(&a)? {
            kind::FLOAT => AttrValue::Float(a.f),
            kind::INT => AttrValue::Int(a.i),
            kind::STRING => AttrValue::String(a.s),
            kind::FLOATS if a.floats.len() * 4 >= BIG_LIST => {
                AttrValue::BigFloats(self.constants.float_vector(&a.floats)?)
            }
            kind::FLOATS => AttrValue::Floats(a.floats.into()),
            kind::INTS if a.ints.len() * 8 >= BIG_LIST => AttrValue::BigInts(self.constants.int_vector(&a.ints)?),
            kind::INTS => AttrValue::Ints(a.ints.into()),
            kind::STRINGS => AttrValue::Strings(a.strings.into()),
            kind::TENSOR => AttrValue::Tensor(self.constants.tensor(a.t.ok_or_else(|| missing("TENSOR"))?)?),
            kind::SPARSE_TENSOR => {
                AttrValue::Tensor(self.constants.sparse(a.sparse_tensor.ok_or_else(|| missing("SPARSE_TENSOR"))?)?)
            }
            kind::TENSORS => {
                AttrValue::Tensors(a.tensors.into_iter().map(|t| self.constants.tensor(t)).collect::<Result<_>>()?)
            }
            kind::SPARSE_TENSORS => AttrValue::Tensors(
                a.sparse_tensors.into_iter().map(|t| self.constants.sparse(t)).collect::<Result<_>>()?,
            ),
            kind::GRAPH => AttrValue::Graph(self.body(Some(node), a.g.ok_or_else(|| missing("GRAPH"))?)?),
            kind::GRAPHS => {
                AttrValue::Graphs(a.graphs.into_iter().map(|g| self.body(Some(node), g)).collect::<Result<_>>()?)
            }
            kind::TYPE_PROTO => AttrValue::Type(shapeless(&a.tp.ok_or_else(|| missing("TYPE_PROTO"))?)?),
            kind::TYPE_PROTOS => AttrValue::Types(a.type_protos.iter().map(shapeless).collect::<Result<_>>()?),
            other => {
                return Err(Error::new(Code::BadAttribute, format!("its kind {other} is not one of ONNX's 1 to 14")));
            }
        })
    }

    /// The constant that a Constant node stands for; `None` when its attributes don't say one.
    pub(super) fn constant_of(&mut self, attrs: &[Attr]) -> Result<Option<ConstId>> {
        let [Attr { name, value }] = attrs else { return Ok(None) };
        Ok(Some(match (&**name, value) {
            ("value" | "sparse_value", AttrValue::Tensor(id)) => *id,
            ("value_ints", AttrValue::BigInts(id)) | ("value_floats", AttrValue::BigFloats(id)) => *id,
            ("value_ints", AttrValue::Ints(list)) => self.constants.int_vector(list)?,
            ("value_floats", AttrValue::Floats(list)) => self.constants.float_vector(list)?,
            ("value_strings", AttrValue::Strings(list)) => self.constants.string_vector(list)?,
            ("value_int", AttrValue::Int(v)) => {
                let one = self.constants.int_vector(&[*v])?;
                self.constants.scalar_of(one)?
            }
            ("value_float", AttrValue::Float(v)) => {
                let one = self.constants.float_vector(&[*v])?;
                self.constants.scalar_of(one)?
            }
            ("value_string", AttrValue::String(v)) => {
                let one = self.constants.string_vector(std::slice::from_ref::<Bytes>(v))?;
                self.constants.scalar_of(one)?
            }
            _ => return Ok(None),
        }))
    }
}

/// The kind that an attribute states, or, in the oldest files, the one that it holds something of.
fn kind_of(a: &AttributeProto) -> Result<i32> {
    if a.r#type != kind::UNDEFINED {
        return Ok(a.r#type);
    }
    let held = [
        (kind::TENSOR, a.t.is_some()),
        (kind::GRAPH, a.g.is_some()),
        (kind::SPARSE_TENSOR, a.sparse_tensor.is_some()),
        (kind::TYPE_PROTO, a.tp.is_some()),
        (kind::FLOATS, !a.floats.is_empty()),
        (kind::INTS, !a.ints.is_empty()),
        (kind::STRINGS, !a.strings.is_empty()),
        (kind::TENSORS, !a.tensors.is_empty()),
        (kind::GRAPHS, !a.graphs.is_empty()),
        (kind::STRING, !a.s.is_empty()),
        (kind::FLOAT, a.f != 0.0),
        (kind::INT, a.i != 0),
    ];
    let mut kinds = held.iter().filter(|h| h.1).map(|h| h.0);
    match (kinds.next(), kinds.next()) {
        (Some(kind), None) => Ok(kind),
        _ => Err(Error::new(Code::BadAttribute, "it states no kind, and what it holds does not tell one")),
    }
}
