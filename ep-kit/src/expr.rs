//! Evaluates the host's expression table. Two users: hints over the whole table in claim and compile, and the compact
//! copy that a part keeps for its bindings.

use ortolan_ep_abi::raw::{Expr, expr};

/// A number that nobody knows yet. It spreads through every operation.
pub use ortolan_ep_abi::raw::UNKNOWN;

/// Numbers of all expressions for some symbols.
pub fn hints(exprs: &[Expr], symbols: &[i64]) -> Vec<i64> {
    let mut numbers = Vec::with_capacity(exprs.len());
    for e in exprs {
        let number = match e.op {
            expr::SYMBOL => symbols.get(e.a as usize).copied().unwrap_or(UNKNOWN),
            _ => eval(e, &numbers),
        };
        numbers.push(number);
    }
    numbers
}

/// The number of an expression that is no symbol; its operands stand in `numbers`. An operand that is not there is
/// unknown.
#[inline]
pub fn eval(e: &Expr, numbers: &[i64]) -> i64 {
    let at = |id: u32| numbers.get(id as usize).copied().unwrap_or(UNKNOWN);
    if e.op == expr::CONST {
        return e.v;
    }
    let (a, b) = (at(e.a), if e.op == expr::NOT { 0 } else { at(e.b) });
    if e.op == expr::SELECT {
        return match u32::try_from(e.v).map(at) {
            Ok(0) => b,
            Ok(c) if c != UNKNOWN => a,
            _ => UNKNOWN,
        };
    }
    if a == UNKNOWN || b == UNKNOWN {
        return UNKNOWN;
    }
    match e.op {
        expr::ADD => a.wrapping_add(b),
        expr::SUB => a.wrapping_sub(b),
        expr::MUL => a.wrapping_mul(b),
        expr::DIV | expr::CEILDIV | expr::MOD if b == 0 => UNKNOWN,
        expr::DIV => floor_div(a, b),
        expr::CEILDIV => floor_div(a.wrapping_neg(), b).wrapping_neg(),
        expr::MOD => a.wrapping_sub(b.wrapping_mul(floor_div(a, b))),
        expr::MIN => a.min(b),
        expr::MAX => a.max(b),
        expr::BCAST if a == b || b == 1 => a,
        expr::BCAST if a == 1 => b,
        expr::BCAST => UNKNOWN,
        expr::EQ => i64::from(a == b),
        expr::LT => i64::from(a < b),
        expr::AND => i64::from(a != 0 && b != 0),
        expr::OR => i64::from(a != 0 || b != 0),
        expr::NOT => i64::from(a == 0),
        _ => UNKNOWN,
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn e(op: u32, a: u32, b: u32, v: i64) -> Expr {
        Expr { op, a, b, pad: 0, v }
    }

    #[test]
    fn operations() {
        use expr::*;
        let cases = [
            (ADD, 3, 4, 7),
            (SUB, 3, 4, -1),
            (MUL, -3, 4, -12),
            (DIV, 7, 2, 3),
            (DIV, -7, 2, -4),
            (DIV, 7, -2, -4),
            (DIV, i64::MIN + 1, 0, UNKNOWN),
            (CEILDIV, 7, 2, 4),
            (CEILDIV, -7, 2, -3),
            (MOD, -7, 3, 2),
            (MOD, 7, -3, -2),
            (MIN, 2, 5, 2),
            (MAX, 2, 5, 5),
            (BCAST, 1, 5, 5),
            (BCAST, 5, 1, 5),
            (BCAST, 0, 1, 0),
            (BCAST, 2, 3, UNKNOWN),
            (EQ, 2, 2, 1),
            (LT, 3, 2, 0),
            (AND, 2, 0, 0),
            (OR, 2, 0, 1),
            (99, 1, 1, UNKNOWN),
            (ADD, UNKNOWN, 1, UNKNOWN),
        ];
        for (op, a, b, want) in cases {
            assert_eq!(eval(&e(op, 0, 1, 0), &[a, b]), want, "op {op} of {a} and {b}");
        }
        assert_eq!(eval(&e(NOT, 0, u32::MAX, 0), &[0]), 1);
        for (c, want) in [(1, 10), (0, 20), (UNKNOWN, UNKNOWN)] {
            assert_eq!(eval(&e(SELECT, 0, 1, 2), &[10, 20, c]), want);
        }
    }

    #[test]
    fn hints_spread_what_is_unknown() {
        let table = [e(expr::SYMBOL, 0, 0, 0), e(expr::SYMBOL, 1, 0, 0), e(expr::MUL, 0, 1, 0), e(expr::ADD, 0, 0, 0)];
        assert_eq!(hints(&table, &[3, UNKNOWN]), [3, UNKNOWN, UNKNOWN, 6]);
        assert_eq!(hints(&table, &[3, -1]), [3, -1, -3, 6], "a negative number is a number");
    }
}
