//! Text → operators, what they read and the forms in which nodes stood.

use super::*;

impl Parser {
    #[allow(clippy::type_complexity, reason = "the three parts of a call, taken apart at once")]
    pub(super) fn call(&mut self, line: &mut Line<'_>) -> Result<(SmallVec<[Option<ValueId>; 4]>, String, Vec<Attr>)> {
        line.expect("(")?;
        let mut inputs = SmallVec::new();
        while !line.take(")") {
            if !inputs.is_empty() {
                line.expect(",")?;
            }
            inputs.push(self.value(line)?);
        }
        let name = line.text()?;
        let mut attrs: Vec<Attr> = Vec::new();
        while !line.at_end() && !line.peek("from o") {
            let name = line.word()?;
            line.expect("=")?;
            let value = self.attr(line)?;
            attrs.push(Attr { name: name.into(), value });
        }
        Ok((inputs, name, attrs))
    }

    pub(super) fn attr(&mut self, line: &mut Line<'_>) -> Result<AttrValue> {
        if line.peek("\"") {
            return Ok(AttrValue::String(Bytes::from(line.bytes()?)));
        }
        if line.is_float() {
            return Ok(AttrValue::Float(line.float()?));
        }
        if let Some(v) = line.int() {
            return Ok(AttrValue::Int(v));
        }
        if let Some(at) = line.number_after("g")? {
            return Ok(AttrValue::Graph(self.graph_id(line, at)?));
        }
        if line.peek("c") {
            return Ok(AttrValue::Tensor(self.const_id(line)?));
        }
        let kind = line.word()?;
        match kind.as_str() {
            "bigints" => return Ok(AttrValue::BigInts(self.const_id(line)?)),
            "bigfloats" => return Ok(AttrValue::BigFloats(self.const_id(line)?)),
            "type" => return Ok(AttrValue::Type(self.ty(line)?)),
            _ => line.expect("[")?,
        }
        Ok(match kind.as_str() {
            "ints" => AttrValue::Ints(line.list(Line::need_int)?.into()),
            "floats" => AttrValue::Floats(line.list(Line::float)?.into()),
            "strings" => AttrValue::Strings(line.list(|line| Ok(Bytes::from(line.bytes()?)))?.into()),
            "tensors" => AttrValue::Tensors(line.list(|line| self.const_id(line))?.into()),
            "types" => AttrValue::Types(line.list(|line| self.ty(line))?.into()),
            "graphs" => AttrValue::Graphs(
                line.list(|line| match line.number_after("g")? {
                    Some(at) => self.graph_id(line, at),
                    None => line.fail("a graph"),
                })?
                .into(),
            ),
            _ => return line.wrong(format!("'{kind}' is no kind of attribute")),
        })
    }

    pub(super) fn origin(&mut self, line: &mut Line<'_>, at: usize) -> Result<()> {
        let Some(home) = line.number_after("g")?.and_then(|g| self.graphs.get(&g).copied()) else {
            return line.fail("a graph");
        };
        let mut outputs = SmallVec::new();
        while !line.take("=") {
            if !outputs.is_empty() {
                line.expect(",")?;
            }
            outputs.push(self.value(line)?);
        }
        let (domain, op, since) = operator(line)?;
        let (inputs, name, attrs) = self.call(line)?;
        let became = self.became.remove(&at).unwrap_or_default();
        let Some(id) = OriginId::next(self.graph.origins.len()) else { return line.wrong("too many origins") };
        for n in &became {
            self.graph.nodes[n.index()].origin = Some(id);
        }
        self.origins += 1;
        self.graph.origins.push(Origin {
            op: op.into(),
            domain: domain.into(),
            name: name.into(),
            since,
            holds: Holds::ALWAYS,
            graph: home,
            inputs,
            outputs,
            attrs,
            became,
        });
        Ok(())
    }
}

/// `domain::Op-13`
pub(super) fn operator(line: &mut Line<'_>) -> Result<(String, String, u32)> {
    let mut domain = String::new();
    let mut op = line.word()?;
    if line.take("::") {
        domain = op;
        op = line.word()?;
    }
    line.expect("-")?;
    match line.int().and_then(|v| u32::try_from(v).ok()) {
        Some(since) => Ok((domain, op, since)),
        None => line.fail("a version"),
    }
}
