//! Simplification of sums, products and quotients: the normal forms that make equal dims equal ids.
//!
//! A sum is brought to `Σ coef × atom + constant` with atoms in id order; an atom is anything that
//! is not a sum or a multiple. Sums of more than [`MAX_TERMS`] atoms stay as they were built.

use smallvec::SmallVec;

use super::ExprId;
use super::expr::{ExprOp, ExprTable, UNDEFINED};

/// Longer sums are not worth normalising: shapes never have them, hostile files might.
const MAX_TERMS: usize = 24;

/// `Σ coef × atom + constant`, atoms strictly ascending, no coefficient 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Linear {
    pub(crate) terms: SmallVec<[(ExprId, i64); 4]>,
    pub(crate) constant: i64,
}

impl Linear {
    /// `self + factor × other`; `None` on overflow or when it gets too long.
    pub(crate) fn plus(mut self, other: Linear, factor: i64) -> Option<Linear> {
        self.constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        for (atom, coef) in other.terms {
            self.push(atom, coef.checked_mul(factor)?)?;
        }
        Some(self)
    }

    fn push(&mut self, atom: ExprId, coef: i64) -> Option<()> {
        if coef == 0 {
            return Some(());
        }
        match self.terms.binary_search_by_key(&atom, |t| t.0) {
            Ok(at) => {
                self.terms[at].1 = self.terms[at].1.checked_add(coef)?;
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                }
            }
            Err(at) => self.terms.insert(at, (atom, coef)),
        }
        (self.terms.len() <= MAX_TERMS).then_some(())
    }
}

/// `coef × f1 × f2 …`, factors ascending.
struct Product {
    coef: i64,
    factors: SmallVec<[ExprId; 6]>,
}

impl ExprTable {
    /// The sum that an expression is; `None` when it is too long.
    pub(crate) fn linear(&self, id: ExprId) -> Option<Linear> {
        let mut sum = Linear::default();
        let mut fuel = 4 * MAX_TERMS;
        self.collect(id, 1, &mut sum, &mut fuel)?;
        Some(sum)
    }

    fn collect(&self, id: ExprId, factor: i64, sum: &mut Linear, fuel: &mut usize) -> Option<()> {
        *fuel = fuel.checked_sub(1)?;
        let e = self.get(id);
        match (e.op, e.a, e.b) {
            (ExprOp::Const, ..) => {
                sum.constant = sum.constant.checked_add(e.v.checked_mul(factor)?)?;
                Some(())
            }
            (ExprOp::Add, Some(a), Some(b)) => {
                self.collect(a, factor, sum, fuel)?;
                self.collect(b, factor, sum, fuel)
            }
            (ExprOp::Sub, Some(a), Some(b)) => {
                self.collect(a, factor, sum, fuel)?;
                self.collect(b, factor.checked_neg()?, sum, fuel)
            }
            (ExprOp::Mul, Some(a), Some(b)) => match (self.as_const(a), self.as_const(b)) {
                (Some(c), _) => self.collect(b, factor.checked_mul(c)?, sum, fuel),
                (_, Some(c)) => self.collect(a, factor.checked_mul(c)?, sum, fuel),
                _ => sum.push(id, factor),
            },
            _ => sum.push(id, factor),
        }
    }

    pub(crate) fn linear_bounds(&self, sum: &Linear) -> (i64, i64) {
        let (mut lo, mut hi) = (sum.constant, sum.constant);
        for &(atom, coef) in &sum.terms {
            let (l, h) = self.bounds(atom);
            let (a, b) = (l.saturating_mul(coef), h.saturating_mul(coef));
            lo = lo.saturating_add(a.min(b));
            hi = hi.saturating_add(a.max(b));
        }
        (lo.max(UNDEFINED + 1), hi)
    }

    pub(crate) fn product(&mut self, a: ExprId, b: ExprId) -> ExprId {
        for (c, other) in [(self.as_const(a), b), (self.as_const(b), a)] {
            if let Some(c) = c
                && let Some(sum) = self.linear(other).and_then(|l| Linear::default().plus(l, c))
            {
                return self.make_sum(sum);
            }
        }
        let both = self.factors(a).and_then(|p| {
            let mut q = self.factors(b)?;
            q.coef = q.coef.checked_mul(p.coef)?;
            q.factors.extend(p.factors);
            q.factors.sort_unstable();
            (q.factors.len() <= MAX_TERMS).then_some(q)
        });
        match both {
            Some(p) => self.make_product(&p),
            None => self.commutative(ExprOp::Mul, a, b),
        }
    }

    fn factors(&self, id: ExprId) -> Option<Product> {
        let mut product = Product { coef: 1, factors: SmallVec::new() };
        let mut open: SmallVec<[ExprId; 8]> = SmallVec::new();
        open.push(id);
        while let Some(id) = open.pop() {
            let e = self.get(id);
            match (e.op, e.a, e.b) {
                (ExprOp::Const, ..) => product.coef = product.coef.checked_mul(e.v)?,
                (ExprOp::Mul, Some(a), Some(b)) => open.extend([a, b]),
                _ => product.factors.push(id),
            }
            if product.factors.len() + open.len() > MAX_TERMS {
                return None;
            }
        }
        product.factors.sort_unstable();
        Some(product)
    }

    fn make_product(&mut self, p: &Product) -> ExprId {
        let Some((&first, rest)) = p.factors.split_first() else {
            return self.constant(p.coef);
        };
        let all = rest.iter().fold(first, |m, &f| self.binary(ExprOp::Mul, m, f));
        match p.coef {
            1 => all,
            c => {
                let c = self.constant(c);
                self.commutative(ExprOp::Mul, all, c)
            }
        }
    }

    /// `a / b` rounded down or up.
    pub(crate) fn quotient(&mut self, op: ExprOp, a: ExprId, b: ExprId) -> ExprId {
        match self.as_const(b) {
            Some(1) => return a,
            Some(0) => return self.binary(op, a, b),
            _ if a == b => return self.constant(1),
            _ => {}
        }
        if let Some(whole) = self.exact(a, b) {
            return whole;
        }
        let (Some(c), Some(sum)) = (self.as_const(b).filter(|&c| c > 0), self.linear(a)) else {
            return self.binary(op, a, b);
        };
        // (c·x + r) / c = x + r / c for either rounding.
        let (whole, rest): (SmallVec<[(ExprId, i64); 4]>, SmallVec<_>) =
            sum.terms.iter().copied().partition(|t| t.1 % c == 0);
        let whole = whole.into_iter().map(|(atom, coef)| (atom, coef / c)).collect();
        let (q, r) = (sum.constant.div_euclid(c), sum.constant.rem_euclid(c));
        let whole = self.make_sum(Linear { terms: whole, constant: q });
        let rest = self.make_sum(Linear { terms: rest, constant: r });
        let rest = match self.bounds(rest) {
            (lo, hi) if op == ExprOp::Div && lo >= 0 && hi < c => self.constant(0),
            _ => self.binary(op, rest, b),
        };
        self.add(whole, rest)
    }

    /// Whether `b` certainly divides `a` without rest.
    pub fn divides(&mut self, b: ExprId, a: ExprId) -> bool {
        self.exact(a, b).is_some()
    }

    /// `a / b` when every term of `a` holds all factors of `b`. What `b = 0` would give is left open.
    fn exact(&mut self, a: ExprId, b: ExprId) -> Option<ExprId> {
        let by = self.factors(b)?;
        let sum = self.linear(a)?;
        if sum.constant != 0 && (!by.factors.is_empty() || sum.constant.checked_rem(by.coef)? != 0) {
            return None;
        }
        let mut total = self.constant(sum.constant.checked_div(by.coef)?);
        for (atom, coef) in sum.terms {
            let mut left = self.factors(atom)?;
            left.coef = left.coef.checked_mul(coef)?;
            for f in &by.factors {
                let at = left.factors.iter().position(|g| g == f)?;
                left.factors.remove(at);
            }
            if left.coef.checked_rem(by.coef)? != 0 {
                return None;
            }
            left.coef /= by.coef;
            let term = self.make_product(&left);
            total = self.add(total, term);
        }
        Some(total)
    }

    pub(crate) fn remainder(&mut self, a: ExprId, b: ExprId) -> ExprId {
        if a == b || self.exact(a, b).is_some() {
            return self.constant(0);
        }
        let Some(c) = self.as_const(b).filter(|&c| c > 0) else {
            return self.binary(ExprOp::Mod, a, b);
        };
        let Some(sum) = self.linear(a) else {
            return self.binary(ExprOp::Mod, a, b);
        };
        let rest = sum.terms.iter().copied().filter(|t| t.1 % c != 0).collect();
        let rest = self.make_sum(Linear { terms: rest, constant: sum.constant.rem_euclid(c) });
        match self.bounds(rest) {
            (lo, hi) if lo >= 0 && hi < c => rest,
            _ => self.binary(ExprOp::Mod, rest, b),
        }
    }

    pub(crate) fn bounds_of(&self, op: ExprOp, a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
        use ExprOp::*;
        let any = (UNDEFINED + 1, i64::MAX);
        let corners = |f: fn(i64, i64) -> i64| {
            let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
            all.iter().fold((i64::MAX, i64::MIN), |(lo, hi), &v| (lo.min(v), hi.max(v)))
        };
        let (lo, hi) = match op {
            Add => (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
            Sub => (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0)),
            Mul => corners(i64::saturating_mul),
            Div if b.0 > 0 => corners(i64::div_euclid),
            CeilDiv if b.0 > 0 => corners(|x, y| x.div_euclid(y).saturating_add(i64::from(x % y != 0))),
            // By 0 there is no number to bound.
            Div | CeilDiv if a.0 >= 0 && b.0 == 0 => (0, a.1),
            Mod if b.0 > 0 => (0, b.1 - 1),
            Min => (a.0.min(b.0), a.1.min(b.1)),
            Max => (a.0.max(b.0), a.1.max(b.1)),
            Bcast => (a.0.min(b.0), a.1.max(b.1)),
            Eq | Lt | And | Or | Not => (0, 1),
            _ => any,
        };
        (lo.max(any.0), hi)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ValueId;
    use super::super::expr::{Symbol, SymbolKind};
    use super::*;

    fn table(n: u32) -> (ExprTable, Vec<ExprId>) {
        let mut t = ExprTable::new();
        let value = ValueId::from_index(0).unwrap();
        let dims = (0..n).map(|at| t.symbol(Symbol { value, at, kind: SymbolKind::Dim, name: None })).collect();
        (t, dims)
    }

    #[test]
    fn equal_sums_are_equal_ids() {
        let (mut t, d) = table(2);
        let (x, y) = (d[0], d[1]);
        let one = t.constant(1);
        let two = t.constant(2);
        let a = t.add(x, one);
        let a = t.add(a, y);
        let b = t.add(one, y);
        let b = t.add(b, x);
        assert_eq!(a, b);
        let twice = t.mul(two, x);
        assert_eq!(t.add(x, x), twice);
        assert_eq!(t.sub(twice, x), x);
        assert_eq!(t.sub(a, y), t.add(x, one));
        let zero = t.sub(x, x);
        assert_eq!(t.as_const(zero), Some(0));
        let none = t.constant(0);
        let zero = t.mul(x, none);
        assert_eq!(t.as_const(zero), Some(0));
    }

    #[test]
    fn reshape_arithmetic_cancels() {
        let (mut t, d) = table(2);
        let (n, s) = (d[0], d[1]);
        let (c768, c12, c64) = (t.constant(768), t.constant(12), t.constant(64));
        let all = t.mul_all(&[n, s, c768]);
        let part = t.mul_all(&[n, c12, c64]);
        assert_eq!(t.div(all, part), s);
        let odd = t.mul_all(&[n, s]);
        let seven = t.constant(7);
        let q = t.div(odd, seven);
        assert_eq!(t.get(q).op, ExprOp::Div);
    }

    #[test]
    fn bounds_decide_comparisons() {
        let (mut t, d) = table(2);
        let (x, y) = (d[0], d[1]);
        let zero = t.constant(0);
        assert_eq!(t.max(x, zero), x);
        let one = t.constant(1);
        let more = t.add(x, one);
        assert_eq!(t.min(x, more), x);
        let less = t.lt(x, more);
        assert_eq!(t.as_const(less), Some(1));
        let open = t.lt(x, y);
        assert_eq!(t.truth(open), None);
        let even = t.add(x, x);
        let two = t.constant(2);
        let share = t.div(x, y);
        assert_eq!(t.bounds(share), (0, t.bounds(x).1));
        let m = t.modulo(even, two);
        assert_eq!(t.as_const(m), Some(0));
    }
}
