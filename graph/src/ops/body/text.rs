//! The small language in which bodies are written.

use super::BodyCx;
use crate::error::{Code, Error, Result};
use crate::ir::{AttrValue, DType, ValueId};

impl BodyCx<'_> {
    /// Writes nodes from text: statements `name = Op(a, b) attr=1` with `;` between them, or `a b = Op(c)` for several
    /// outputs. A result with the name of an output of the node is that output.
    ///
    /// An operand is
    /// - an input of the node, by its name in the schema, or an earlier result of this or an earlier text;
    /// - `_` for none;
    /// - a number, as a scalar of input 0's element type, or `@alpha`, the node's float attribute as such a scalar;
    /// - `0.5f`, a `float`; `#3`, an `int64`; `[1 2]`, a vector of `int64`.
    ///
    /// Attribute values are integers, floats with a point, `[1,2]`, `"text"`, `@alpha` for the node's own, or `$name` for a
    /// graph.
    pub fn write(&mut self, text: &str) -> Result<()> {
        for statement in text.split(';').map(str::trim).filter(|s| !s.is_empty()) {
            let (made, call) = statement.split_once('=').ok_or_else(|| bad(statement))?;
            let (op, rest) = call.split_once('(').ok_or_else(|| bad(statement))?;
            let (operands, attrs) = rest.split_once(')').ok_or_else(|| bad(statement))?;
            let operands: Vec<Option<ValueId>> = match operands.trim() {
                "" => Vec::new(),
                list => list.split(',').map(|o| self.operand(o.trim())).collect::<Result<_>>()?,
            };
            let attrs = attrs.split_whitespace().map(|a| self.attr_of(a)).collect::<Result<Vec<_>>>()?;
            let made: Vec<&str> = made.split_whitespace().collect();
            let values = self.emit_node(op.trim(), &operands, attrs, made.len())?;
            for (name, value) in made.into_iter().zip(values) {
                self.name(name, value);
            }
        }
        Ok(())
    }

    /// Gives a value a name for later texts. Under the name of an output of the node it becomes that output.
    pub fn name(&mut self, name: &str, value: ValueId) {
        let node = self.walk.graph.node(self.id);
        let schema = self.walk.graph.schema_at(&node.domain, &node.op, node.since);
        if let Some(o) = schema.and_then(|s| s.outputs().position(|p| p.name == name)) {
            self.set_output(o, value);
        }
        self.names.push((name.to_owned(), Some(value)));
    }

    /// The value that texts call so.
    pub fn named(&self, name: &str) -> Option<ValueId> {
        self.names.iter().rev().find(|n| n.0 == name)?.1
    }

    /// The names of the inputs.
    pub(super) fn formals(&mut self) {
        let node = self.walk.graph.node(self.id);
        let schema = self.walk.graph.schema_at(&node.domain, &node.op, node.since);
        let names: Vec<String> = schema.into_iter().flat_map(|s| s.inputs()).map(|p| p.name.to_owned()).collect();
        self.names = names.into_iter().enumerate().map(|(i, name)| (name, self.input(i))).collect();
    }

    fn operand(&mut self, text: &str) -> Result<Option<ValueId>> {
        if text == "_" {
            return Ok(None);
        }
        if let Some((_, value)) = self.names.iter().rev().find(|n| n.0 == text) {
            return Ok(*value);
        }
        if let Some(list) = text.strip_prefix('[') {
            let list: Option<Vec<i64>> =
                list.trim_end_matches(']').split_whitespace().map(|n| n.parse().ok()).collect();
            return self.ints(&list.ok_or_else(|| bad(text))?).map(Some);
        }
        if let Some(n) = text.strip_prefix('#') {
            let n: i64 = n.parse().map_err(|_| bad(text))?;
            return self.constant(DType::I64, &[], &n.to_le_bytes()).map(Some);
        }
        if let Some(n) = text.strip_suffix('f').filter(|n| !n.ends_with("in")) {
            let n: f32 = n.parse().map_err(|_| bad(text))?;
            return self.constant(DType::F32, &[], &n.to_le_bytes()).map(Some);
        }
        let number = match text.strip_prefix('@') {
            Some(attr) => self.view().attr(attr).and_then(AttrValue::as_float).map(f64::from),
            None => text.parse().ok(),
        };
        let (number, like) = (number.ok_or_else(|| bad(text))?, self.input(0).ok_or_else(|| bad(text))?);
        match self.scalar_like(like, number)? {
            Some(value) => Ok(Some(value)),
            None => Err(Error::new(Code::Version, "its element type has no standard body")),
        }
    }

    fn attr_of(&self, text: &str) -> Result<(String, AttrValue)> {
        let (name, value) = text.split_once('=').ok_or_else(|| bad(text))?;
        let value = if let Some(own) = value.strip_prefix('@') {
            self.view().attr(own).cloned().ok_or_else(|| bad(text))?
        } else if let Some(graph) = value.strip_prefix('$') {
            let graph = self.graphs.iter().find(|g| g.0 == graph).ok_or_else(|| bad(text))?;
            AttrValue::Graph(graph.1)
        } else if let Some(list) = value.strip_prefix('[') {
            let number = |n: &str| match n.strip_prefix('@') {
                Some(own) => self.view().int(own),
                None => n.parse().ok(),
            };
            let list: Option<Vec<i64>> = list.trim_end_matches(']').split(',').map(number).collect();
            AttrValue::ints(&list.ok_or_else(|| bad(text))?)
        } else if let Some(word) = value.strip_prefix('"') {
            AttrValue::text(word.trim_end_matches('"'))
        } else if value.contains('.') {
            AttrValue::Float(value.parse().map_err(|_| bad(text))?)
        } else {
            AttrValue::Int(value.parse().map_err(|_| bad(text))?)
        };
        Ok((name.to_owned(), value))
    }
}

fn bad(text: &str) -> Error {
    Error::new(Code::Edit, format!("'{}' in a standard body can't be read", text.trim()))
}
