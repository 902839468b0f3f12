//! Text → what nodes share: constants, symbols, expressions, types.

use std::sync::Arc;

use super::*;

impl Parser {
    pub(super) fn constant(&mut self, line: &mut Line<'_>) -> Result<()> {
        let Some(dtype) = DType::from_name(&line.word()?) else { return line.wrong("no such element type") };
        line.expect("[")?;
        let dims: Sizes = line.list(Line::need_int)?.into();
        let mut elements = Some(1u64);
        for d in &dims {
            elements =
                elements.and_then(|e| e.checked_mul(u64::try_from(*d).ok()?)).filter(|e| i64::try_from(*e).is_ok());
        }
        let Some(elements) = elements else { return line.wrong("the dims are negative or too large") };
        let data = self.data(line, dtype, elements)?;
        let Some(id) = ConstId::next(self.graph.constants.len()) else { return line.wrong("too many constants") };
        self.graph.constants.push(Constant { id, dtype, dims, data });
        self.consts.push(id);
        Ok(())
    }

    pub(super) fn data(&mut self, line: &mut Line<'_>, dtype: DType, elements: u64) -> Result<Data> {
        let bytes = dtype.bytes(elements);
        if line.take_word("elided") {
            let len = bytes.unwrap_or(elements.saturating_mul(24));
            let Some(left) = self.elided_left.checked_sub(len) else {
                return Err(Error::new(
                    Code::Limit,
                    format!("elided constants stand for more than {MAX_ELIDED} bytes"),
                ));
            };
            self.elided_left = left;
            return zeros(dtype, elements, len);
        }
        let mut raw = Vec::new();
        let mut count = elements;
        if line.take_word("strings") {
            let mut all = Vec::new();
            while !line.at_end() {
                all.push(line.text()?);
            }
            if dtype != DType::String || all.len() as u64 != elements {
                return line.wrong(format!("{} strings for {elements} elements of {dtype}", all.len()));
            }
            return Ok(Data::Strings(all.into()));
        } else if line.take("=") {
            count = 0;
            while !line.at_end() {
                number(line, dtype, &mut raw)?;
                count += 1;
            }
        } else if line.take("x") {
            let hex = line.atom();
            let byte = |i: usize| hex.get(i..i + 2).and_then(|h| u8::from_str_radix(h, 16).ok());
            let Some(all) = (0..hex.len()).step_by(2).map(byte).collect() else { return line.wrong("not hex digits") };
            raw = all;
        } else {
            return line.fail("data");
        }
        if bytes != Some(raw.len() as u64) || count != elements {
            return line.wrong(format!("{count} numbers or {} bytes for {elements} elements of {dtype}", raw.len()));
        }
        Ok(Data::copied(&raw))
    }

    pub(super) fn symbol(&mut self, line: &mut Line<'_>) -> Result<()> {
        let kind = match line.word()?.as_str() {
            "dim" => SymbolKind::Dim,
            "element" => SymbolKind::Element,
            _ => return line.wrong("a symbol is a dim or an element"),
        };
        let Ok(at) = u32::try_from(line.need_int()?) else { return line.wrong("no such axis") };
        line.expect("of")?;
        let of = line.number_after("%")?;
        if of.is_none() {
            line.expect("_")?;
        }
        let name = if line.at_end() { None } else { Some(line.text()?.into()) };
        // Values come later in the text; they are put in at the end.
        let value = placeholder();
        let e = self.graph.exprs.symbol(Symbol { value, at, kind, name });
        self.symbols.push((e, of));
        Ok(())
    }

    pub(super) fn expr(&mut self, line: &mut Line<'_>) -> Result<ExprId> {
        line.nested(|line| self.expr_here(line))
    }

    pub(super) fn expr_here(&mut self, line: &mut Line<'_>) -> Result<ExprId> {
        if let Some(v) = line.int() {
            return Ok(self.graph.exprs.constant(v));
        }
        if let Some(at) = line.number_after("s")? {
            return self.symbols.get(at).map_or_else(|| line.wrong(format!("there is no s{at}")), |s| Ok(s.0));
        }
        if let Some(at) = line.number_after("e")? {
            return self.exprs.get(at).map_or_else(|| line.wrong(format!("there is no e{at}")), |e| Ok(*e));
        }
        if line.take("(") {
            let a = self.expr(line)?;
            let op = [ExprOp::Add, ExprOp::Sub, ExprOp::Mul].into_iter().find(|op| line.take(op.name()));
            let Some(op) = op else { return line.fail("+, - or *") };
            let b = self.expr(line)?;
            line.expect(")")?;
            return Ok(self.graph.exprs.binary(op, a, b));
        }
        let name = line.word()?;
        let Some(op) = ExprOp::ALL.iter().copied().find(|op| op.name() == name) else {
            return line.wrong(format!("there is no operation '{name}'"));
        };
        line.expect("(")?;
        let mut operands: SmallVec<[ExprId; 3]> = SmallVec::new();
        loop {
            operands.push(self.expr(line)?);
            if line.take(")") {
                break;
            }
            line.expect(",")?;
        }
        match (op, operands.as_slice()) {
            (ExprOp::Const | ExprOp::Symbol, _) => line.wrong(format!("'{name}' takes no operands")),
            (ExprOp::Not, [a]) => Ok(self.graph.exprs.not(*a)),
            (ExprOp::Select, [c, a, b]) => Ok(self.graph.exprs.select(*c, *a, *b)),
            (ExprOp::Not | ExprOp::Select, _) => line.wrong(format!("'{name}' takes another number of operands")),
            (op, [a, b]) => Ok(self.graph.exprs.binary(op, *a, *b)),
            _ => line.wrong(format!("'{name}' takes two operands")),
        }
    }

    pub(super) fn ty(&mut self, line: &mut Line<'_>) -> Result<Type> {
        line.nested(|line| {
            let name = line.word()?;
            let item = |p: &mut Self, line: &mut Line<'_>| {
                let item = p.ty(line)?;
                line.expect(")")?;
                Ok(Arc::new(item))
            };
            match name.as_str() {
                "unknown" => return Ok(Type::Unknown),
                "seq" if line.take("(") => return Ok(Type::Sequence(item(self, line)?)),
                "optional" if line.take("(") => return Ok(Type::Optional(item(self, line)?)),
                "map" if line.take("(") => {
                    let Some(key) = DType::from_name(&line.word()?) else { return line.wrong("no such key type") };
                    line.expect(",")?;
                    return Ok(Type::Map(key, item(self, line)?));
                }
                _ => {}
            }
            let Some(dtype) = DType::from_name(&name) else { return line.wrong(format!("'{name}' is no type")) };
            line.expect("[")?;
            if line.take("*") {
                line.expect("]")?;
                return Ok(Type::unranked(dtype));
            }
            let dims: Dims = line.list(|line| self.expr(line))?.into();
            Ok(Type::Tensor(TensorType { dtype, dims: Some(dims) }))
        })
    }
}

/// One element of a constant, in its own width.
fn number(line: &mut Line<'_>, dtype: DType, raw: &mut Vec<u8>) -> Result<()> {
    let atom = line.atom();
    let width = dtype.bits() as usize / 8;
    let bytes = match dtype {
        DType::F32 => atom.parse::<f32>().ok().map(|v| v.to_le_bytes().to_vec()),
        DType::F64 => atom.parse::<f64>().ok().map(|v| v.to_le_bytes().to_vec()),
        _ if dtype.is_int() && width > 0 => atom.parse::<i64>().ok().map(|v| v.to_le_bytes()[..width].to_vec()),
        _ => None,
    };
    match bytes {
        Some(bytes) => {
            raw.extend(bytes);
            Ok(())
        }
        None => line.wrong(format!("'{atom}' is no {dtype}")),
    }
}

fn zeros(dtype: DType, elements: u64, len: u64) -> Result<Data> {
    if dtype == DType::String {
        let count = usize::try_from(elements).unwrap_or(usize::MAX);
        if elements > 1 << 20 {
            return Err(Error::new(Code::Limit, format!("{elements} elided strings are more than can be made up")));
        }
        return Ok(Data::Strings(vec![String::new(); count].into()));
    }
    if len <= crate::ir::SMALL {
        return Ok(Data::copied(&vec![0; usize::try_from(len).unwrap_or(usize::MAX)]));
    }
    let map = Map::zeros(len).map_err(|e| Error::new(Code::Limit, format!("no room for {len} elided bytes: {e}")))?;
    Ok(Data::Mapped { map: Arc::new(map), at: 0, len })
}
