//! Comparisons and choices: what bounds decide is a constant.

use super::{Expr, ExprOp, ExprTable};
use crate::ir::ExprId;

impl ExprTable {
    /// 1 if equal, else 0.
    pub fn eq(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match self.difference(a, b) {
            (0, 0) => self.constant(1),
            (lo, hi) if lo > 0 || hi < 0 => self.constant(0),
            _ => self.commutative(ExprOp::Eq, a, b),
        }
    }

    /// 1 if `a < b`, else 0.
    pub fn lt(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match self.difference(a, b) {
            (_, hi) if hi < 0 => self.constant(1),
            (lo, _) if lo >= 0 => self.constant(0),
            _ => self.binary(ExprOp::Lt, a, b),
        }
    }

    /// 1 if both hold, else 0.
    pub fn and(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match (self.truth(a), self.truth(b)) {
            (Some(false), _) | (_, Some(false)) => self.constant(0),
            (Some(true), Some(true)) => self.constant(1),
            _ => self.commutative(ExprOp::And, a, b),
        }
    }

    /// 1 if one holds, else 0.
    pub fn or(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match (self.truth(a), self.truth(b)) {
            (Some(true), _) | (_, Some(true)) => self.constant(1),
            (Some(false), Some(false)) => self.constant(0),
            _ => self.commutative(ExprOp::Or, a, b),
        }
    }

    /// 1 if it does not hold, else 0.
    pub fn not(&mut self, a: ExprId) -> ExprId {
        match self.truth(a) {
            Some(t) => self.constant(i64::from(!t)),
            None => self.intern(Expr { op: ExprOp::Not, a: Some(a), b: None, v: 0 }, (0, 1)),
        }
    }

    /// `then` if `cond` holds, else `other`.
    pub fn select(&mut self, cond: ExprId, then: ExprId, other: ExprId) -> ExprId {
        if then == other {
            return then;
        }
        if let Some(t) = self.truth(cond) {
            return if t { then } else { other };
        }
        let ((l1, h1), (l2, h2)) = (self.bounds(then), self.bounds(other));
        let e = Expr { op: ExprOp::Select, a: Some(cond), b: Some(then), v: i64::from(other.raw()) };
        self.intern(e, (l1.min(l2), h1.max(h2)))
    }

    /// Whether it is known to hold (not 0) or not to hold.
    pub fn truth(&self, a: ExprId) -> Option<bool> {
        match self.bounds(a) {
            (0, 0) => Some(false),
            (lo, hi) if lo > 0 || hi < 0 => Some(true),
            _ => None,
        }
    }
}
