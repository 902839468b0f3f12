//! Numbers of a whole table for given symbols, and expressions as text.

use std::fmt;

use super::{Expr, ExprOp, ExprTable, UNDEFINED};
use crate::ir::ExprId;

impl ExprTable {
    /// All numbers of the table, given those of its symbols, by expression index.
    ///
    /// Missing symbols and `UNDEFINED` among them are unbound. `out` is cleared first; nothing is
    /// allocated when it has room.
    pub fn eval(&self, symbols: &[i64], out: &mut Vec<i64>) {
        out.clear();
        out.reserve(self.exprs.len());
        for e in &self.exprs {
            let v = apply(e, symbols, out);
            out.push(v);
        }
    }

    /// Text of one expression, in the notation of the text form.
    pub fn show(&self, id: ExprId) -> Shown<'_> {
        Shown { table: self, id }
    }
}

fn apply(e: &Expr, symbols: &[i64], done: &[i64]) -> i64 {
    let of = |id: Option<ExprId>| id.and_then(|i| done.get(i.index())).copied().unwrap_or(UNDEFINED);
    let at = |from: &[i64]| usize::try_from(e.v).ok().and_then(|i| from.get(i)).copied().unwrap_or(UNDEFINED);
    match e.op {
        ExprOp::Const => e.v,
        ExprOp::Symbol => at(symbols),
        ExprOp::Not => match of(e.a) {
            UNDEFINED => UNDEFINED,
            v => i64::from(v == 0),
        },
        ExprOp::Select => match of(e.a) {
            UNDEFINED => UNDEFINED,
            0 => at(done),
            _ => of(e.b),
        },
        op => compute(op, of(e.a), of(e.b)),
    }
}

/// A binary operation on two numbers; [`UNDEFINED`] where there is no answer.
pub(crate) fn compute(op: ExprOp, a: i64, b: i64) -> i64 {
    use ExprOp::*;
    match (op, a, b) {
        (And, 0, _) | (And, _, 0) => return 0,
        (Or, x, _) | (Or, _, x) if x != 0 && x != UNDEFINED => return 1,
        _ if a == UNDEFINED || b == UNDEFINED => return UNDEFINED,
        _ => {}
    }
    let found = match op {
        Add => a.checked_add(b),
        Sub => a.checked_sub(b),
        Mul => a.checked_mul(b),
        Div => floor_div(a, b),
        CeilDiv => a.checked_neg().and_then(|n| floor_div(n, b)).and_then(i64::checked_neg),
        Mod => floor_div(a, b).and_then(|q| q.checked_mul(b)).and_then(|p| a.checked_sub(p)),
        Min => Some(a.min(b)),
        Max => Some(a.max(b)),
        Bcast if a == 1 || a == b => Some(b),
        Bcast if b == 1 => Some(a),
        Bcast => None,
        Eq => Some(i64::from(a == b)),
        Lt => Some(i64::from(a < b)),
        And => Some(1),
        Or => Some(0),
        Const | Symbol | Not | Select => None,
    };
    found.unwrap_or(UNDEFINED)
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    if a % b != 0 && (a < 0) != (b < 0) { q.checked_sub(1) } else { Some(q) }
}

/// An expression as text: `(s0 + 1)`, symbols by the names that the model gives them.
pub struct Shown<'a> {
    table: &'a ExprTable,
    id: ExprId,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = self.table.get(self.id);
        let sub = |id: Option<ExprId>| id.map(|id| self.table.show(id));
        match (e.op, sub(e.a), sub(e.b)) {
            (ExprOp::Const, ..) => write!(f, "{}", e.v),
            (ExprOp::Symbol, ..) => write!(f, "s{}", e.v),
            (ExprOp::Add | ExprOp::Sub | ExprOp::Mul, Some(a), Some(b)) => write!(f, "({a} {} {b})", e.op.name()),
            (ExprOp::Not, Some(a), _) => write!(f, "not({a})"),
            (ExprOp::Select, Some(a), Some(b)) => {
                let other = u32::try_from(e.v).ok().and_then(ExprId::from_index);
                match sub(other) {
                    Some(c) => write!(f, "select({a}, {b}, {c})"),
                    None => write!(f, "select({a}, {b}, ?)"),
                }
            }
            (op, Some(a), Some(b)) => write!(f, "{}({a}, {b})", op.name()),
            (op, ..) => f.write_str(op.name()),
        }
    }
}

impl fmt::Debug for ExprTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExprTable({} expressions, {} symbols)", self.exprs.len(), self.symbols.len())
    }
}
