//! Numbers that are known before a run, or once its symbols are: dims and small integer values as
//! expressions over symbols.
//!
//! Expressions are hash-consed in one table for the whole model, children before parents, so equal
//! ids mean equal numbers and evaluating the table is one pass. The constructors simplify; what two
//! ids that differ stand for may still be equal. The table knows nothing of tensors or operators.

mod eval;
mod logic;

use hashbrown::DefaultHashBuilder;
use hashbrown::{HashMap, HashTable};
use std::hash::BuildHasher;

use super::simplify::Linear;
use super::{ExprId, Name, SymbolId, ValueId};

pub use eval::Shown;
use eval::compute;

/// What [`ExprTable::eval`] writes for a number that does not exist: an unbound symbol, a division
/// by zero, an overflow, or dims that do not broadcast.
pub const UNDEFINED: i64 = i64::MIN;

/// Largest size that a dim is taken to have when expressions are simplified.
pub const MAX_DIM: i64 = 1 << 48;

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident $text:literal;)*) => {
        /// Operation of an [`Expr`]. Numbers and names are those of the plugin ABI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum ExprOp { $($(#[$doc])* $name,)* }

        impl ExprOp {
            /// Every operation, by number.
            pub const ALL: &'static [ExprOp] = &[$(ExprOp::$name,)*];

            /// Name in the text form.
            pub const fn name(self) -> &'static str {
                match self { $(ExprOp::$name => $text,)* }
            }
        }
    };
}

ops! {
    /// The number `v`.
    Const "const";
    /// The symbol with index `v`.
    Symbol "symbol";
    /// `a + b`
    Add "+";
    /// `a - b`
    Sub "-";
    /// `a × b`
    Mul "*";
    /// `a / b`, rounded down.
    Div "div";
    /// `a / b`, rounded up.
    CeilDiv "ceildiv";
    /// `a - b × div(a, b)`: the sign is that of `b`.
    Mod "mod";
    /// The smaller of `a` and `b`.
    Min "min";
    /// The larger of `a` and `b`.
    Max "max";
    /// `a` and `b` broadcast: the one that is not 1; undefined when they differ and neither is 1.
    Bcast "bcast";
    /// 1 if `a = b`, else 0.
    Eq "eq";
    /// 1 if `a < b`, else 0.
    Lt "lt";
    /// 1 if both are not 0, else 0.
    And "and";
    /// 1 if one is not 0, else 0.
    Or "or";
    /// 1 if `a` is 0, else 0.
    Not "not";
    /// `b` if `a` is not 0, else the expression with index `v`.
    Select "select";
}

/// One entry of the table. Unused operands are `None`, unused `v` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expr {
    /// Operation.
    pub op: ExprOp,
    /// First operand.
    pub a: Option<ExprId>,
    /// Second operand.
    pub b: Option<ExprId>,
    /// The number, the symbol's index, or the third operand's index.
    pub v: i64,
}

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// Dim `at` of the value: never negative.
    Dim,
    /// Element `at` of a small integer value.
    Element,
}

/// A free number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The value that fixes it: a graph input, or what a node makes at run time.
    pub value: ValueId,
    /// Which dim or element.
    pub at: u32,
    /// Dim or element.
    pub kind: SymbolKind,
    /// The name that the model gives the dim, for messages.
    pub name: Option<Name>,
}

/// All expressions and symbols of a model.
#[derive(Clone, Default)]
pub struct ExprTable {
    exprs: Vec<Expr>,
    /// Bounds of each expression, both inclusive.
    bounds: Vec<(i64, i64)>,
    symbols: Vec<Symbol>,
    /// The first symbol of each dim or element, so that inferring again gives the same one.
    owned: HashMap<(ValueId, u32, SymbolKind), ExprId>,
    index: HashTable<ExprId>,
    hasher: DefaultHashBuilder,
}

impl ExprTable {
    /// An empty table.
    pub fn new() -> ExprTable {
        ExprTable::default()
    }

    /// All expressions; operands come before what uses them.
    pub fn exprs(&self) -> &[Expr] {
        &self.exprs
    }

    /// All symbols, in the order in which [`eval`](Self::eval) takes their numbers.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// One expression.
    pub fn get(&self, id: ExprId) -> Expr {
        self.exprs[id.index()]
    }

    /// The number, if it is one.
    pub fn as_const(&self, id: ExprId) -> Option<i64> {
        let e = self.get(id);
        (e.op == ExprOp::Const).then_some(e.v)
    }

    /// The symbol, if it is nothing but one.
    pub fn as_symbol(&self, id: ExprId) -> Option<SymbolId> {
        let e = self.get(id);
        if e.op != ExprOp::Symbol {
            return None;
        }
        u32::try_from(e.v).ok().and_then(SymbolId::from_index)
    }

    /// Smallest and largest number that it can be, both inclusive.
    pub fn bounds(&self, id: ExprId) -> (i64, i64) {
        self.bounds[id.index()]
    }

    /// A number. `i64::MIN` cannot be told from [`UNDEFINED`]; nothing in ONNX needs it.
    pub fn constant(&mut self, v: i64) -> ExprId {
        self.intern(Expr { op: ExprOp::Const, a: None, b: None, v }, (v, v))
    }

    /// Numbers, one after the other.
    pub fn constants<C: FromIterator<ExprId>>(&mut self, vs: &[i64]) -> C {
        vs.iter().map(|&v| self.constant(v)).collect()
    }

    /// A new symbol and its expression. The caller makes sure that nothing stands for the same number yet.
    pub fn symbol(&mut self, symbol: Symbol) -> ExprId {
        let v = i64::try_from(self.symbols.len()).unwrap_or(i64::MAX);
        let bounds = match symbol.kind {
            SymbolKind::Dim => (0, MAX_DIM),
            SymbolKind::Element => (i64::MIN + 1, i64::MAX),
        };
        let key = (symbol.value, symbol.at, symbol.kind);
        self.symbols.push(symbol);
        let e = self.intern(Expr { op: ExprOp::Symbol, a: None, b: None, v }, bounds);
        self.owned.entry(key).or_insert(e);
        e
    }

    /// The symbol of a dim or element of a value; the same each time.
    pub fn symbol_of(&mut self, value: ValueId, at: u32, kind: SymbolKind) -> ExprId {
        match self.owned.get(&(value, at, kind)) {
            Some(&e) => e,
            None => self.symbol(Symbol { value, at, kind, name: None }),
        }
    }

    /// Says whose dim or element a symbol is.
    pub(crate) fn set_owner(&mut self, e: ExprId, value: ValueId) {
        if let Some(s) = self.as_symbol(e) {
            let symbol = &mut self.symbols[s.index()];
            let old = (symbol.value, symbol.at, symbol.kind);
            if self.owned.get(&old) == Some(&e) {
                self.owned.remove(&old);
            }
            symbol.value = value;
            self.owned.entry((value, symbol.at, symbol.kind)).or_insert(e);
        }
    }

    /// `a + b`
    pub fn add(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match self.linear(a).and_then(|l| self.linear(b)?.plus(l, 1)) {
            Some(sum) => self.make_sum(sum),
            None => self.commutative(ExprOp::Add, a, b),
        }
    }

    /// `a - b`
    pub fn sub(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match self.linear(b).and_then(|l| self.linear(a)?.plus(l, -1)) {
            Some(sum) => self.make_sum(sum),
            None => self.binary(ExprOp::Sub, a, b),
        }
    }

    /// `a × b`
    pub fn mul(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.product(a, b)
    }

    /// The product of all, 1 of none.
    pub fn mul_all(&mut self, all: &[ExprId]) -> ExprId {
        let one = self.constant(1);
        all.iter().fold(one, |p, &d| self.mul(p, d))
    }

    /// `a / b` rounded down.
    pub fn div(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.quotient(ExprOp::Div, a, b)
    }

    /// `a / b` rounded up.
    pub fn ceil_div(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.quotient(ExprOp::CeilDiv, a, b)
    }

    /// `a / b` rounded towards zero, as ONNX's `Div` does for integers.
    pub fn trunc_div(&mut self, a: ExprId, b: ExprId) -> ExprId {
        if let (Some(x), Some(y)) = (self.as_const(a), self.as_const(b))
            && let Some(q) = x.checked_div(y)
        {
            return self.constant(q);
        }
        let (down, up) = (self.div(a, b), self.ceil_div(a, b));
        let zero = self.constant(0);
        let (a_neg, b_neg) = (self.lt(a, zero), self.lt(b, zero));
        let same = self.eq(a_neg, b_neg);
        self.select(same, down, up)
    }

    /// Remainder with the sign of `b`, as ONNX's `Mod` without `fmod`.
    pub fn modulo(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.remainder(a, b)
    }

    /// The smaller.
    pub fn min(&mut self, a: ExprId, b: ExprId) -> ExprId {
        let (lo, hi) = self.difference(a, b);
        if hi <= 0 {
            a
        } else if lo >= 0 {
            b
        } else {
            self.commutative(ExprOp::Min, a, b)
        }
    }

    /// The larger.
    pub fn max(&mut self, a: ExprId, b: ExprId) -> ExprId {
        let (lo, hi) = self.difference(a, b);
        if lo >= 0 {
            a
        } else if hi <= 0 {
            b
        } else {
            self.commutative(ExprOp::Max, a, b)
        }
    }

    /// Two dims broadcast; `None` when they can't be: both numbers, different, neither 1.
    ///
    /// A number above 1 against anything else is that number: the caller records what it assumes
    /// ([`crate::ops::InferCx::broadcast`] does).
    pub fn bcast(&mut self, a: ExprId, b: ExprId) -> Option<ExprId> {
        if a == b {
            return Some(a);
        }
        match (self.as_const(a), self.as_const(b)) {
            (Some(1), _) => Some(b),
            (_, Some(1)) => Some(a),
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some(a),
            (None, Some(_)) => Some(b),
            (None, None) => Some(self.commutative(ExprOp::Bcast, a, b)),
        }
    }

    pub(crate) fn binary(&mut self, op: ExprOp, a: ExprId, b: ExprId) -> ExprId {
        if let (Some(x), Some(y)) = (self.as_const(a), self.as_const(b)) {
            let v = compute(op, x, y);
            if v != UNDEFINED {
                return self.constant(v);
            }
        }
        let bounds = self.bounds_of(op, self.bounds(a), self.bounds(b));
        self.intern(Expr { op, a: Some(a), b: Some(b), v: 0 }, bounds)
    }

    pub(crate) fn commutative(&mut self, op: ExprOp, a: ExprId, b: ExprId) -> ExprId {
        self.binary(op, a.min(b), a.max(b))
    }

    /// Bounds of `a - b`.
    fn difference(&self, a: ExprId, b: ExprId) -> (i64, i64) {
        if a == b {
            return (0, 0);
        }
        match self.linear(b).and_then(|l| self.linear(a)?.plus(l, -1)) {
            Some(d) => self.linear_bounds(&d),
            None => {
                let ((al, ah), (bl, bh)) = (self.bounds(a), self.bounds(b));
                (al.saturating_sub(bh), ah.saturating_sub(bl))
            }
        }
    }

    fn intern(&mut self, e: Expr, bounds: (i64, i64)) -> ExprId {
        let hash = self.hasher.hash_one(e);
        if let Some(&id) = self.index.find(hash, |id| self.exprs[id.index()] == e) {
            return id;
        }
        // Four billion expressions do not fit in any memory that a model of 2^32 bytes may take.
        let id = ExprId::next(self.exprs.len()).expect("expression table holds fewer than 2^32 entries");
        self.exprs.push(e);
        self.bounds.push(bounds);
        let (exprs, hasher) = (&self.exprs, &self.hasher);
        self.index.insert_unique(hash, id, |id| hasher.hash_one(exprs[id.index()]));
        id
    }

    pub(crate) fn make_sum(&mut self, sum: Linear) -> ExprId {
        let bounds = self.linear_bounds(&sum);
        let mut plus: Option<ExprId> = None;
        let mut minus: Option<ExprId> = None;
        for &(atom, coef) in &sum.terms {
            let size = self.constant(coef.saturating_abs());
            let term = if coef.abs() == 1 { atom } else { self.commutative(ExprOp::Mul, atom, size) };
            let side = if coef > 0 { &mut plus } else { &mut minus };
            *side = Some(match *side {
                Some(s) => self.binary(ExprOp::Add, s, term),
                None => term,
            });
        }
        let c = self.constant(sum.constant);
        let id = match (plus, minus) {
            (None, None) => c,
            (Some(p), None) if sum.constant == 0 => p,
            (Some(p), None) => self.binary(ExprOp::Add, p, c),
            (None, Some(m)) => self.binary(ExprOp::Sub, c, m),
            (Some(p), Some(m)) => {
                let d = self.binary(ExprOp::Sub, p, m);
                if sum.constant == 0 { d } else { self.binary(ExprOp::Add, d, c) }
            }
        };
        // The sum's own bounds may be tighter than those of its parts (x - y + y).
        let (lo, hi) = &mut self.bounds[id.index()];
        (*lo, *hi) = ((*lo).max(bounds.0), (*hi).min(bounds.1));
        id
    }
}
