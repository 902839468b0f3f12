//! Angles and hyperbolic functions, by the functions of the language, one element at a time; and bits turned round.

use super::super::value::Value;
use super::super::{GRAIN, loops};
use super::Unary;
use ortolan_ep_kit::{Args, Element, Fault, split};

type Run = Result<(), Fault>;

/// f32 and f64.
pub(super) trait Angle: Copy {
    fn acos(self) -> Self;
    fn acosh(self) -> Self;
    fn asin(self) -> Self;
    fn asinh(self) -> Self;
    fn atan(self) -> Self;
    fn atanh(self) -> Self;
    fn cos(self) -> Self;
    fn cosh(self) -> Self;
    fn sin(self) -> Self;
    fn sinh(self) -> Self;
    fn tan(self) -> Self;
}

macro_rules! angles {
    ($($t:ident: $($name:ident)*;)*) => { $(
        impl Angle for $t {
            $(
                #[inline(always)]
                fn $name(self) -> $t {
                    $t::$name(self)
                }
            )*
        }
    )* };
}
angles! {
    f32: acos acosh asin asinh atan atanh cos cosh sin sinh tan;
    f64: acos acosh asin asinh atan atanh cos cosh sin sinh tan;
}

macro_rules! functions {
    ($($name:ident)*) => { $(
        pub(super) fn $name<T: Value<Wide: Angle>>(_: &Unary, (): &(), args: &mut Args<'_>) -> Run {
            each(args, |x: T| T::of(Angle::$name(x.wide())))
        }
    )* };
}
functions!(acos acosh asin asinh atan atanh cos cosh sin sinh tan);

fn each<T: Element + Send + Sync>(args: &mut Args<'_>, f: impl Fn(T) -> T + Sync) -> Run {
    let alias = args.alias(0);
    let (par, y) = (args.par(), args.output::<T>(0));
    let x = if alias.is_none() { Some(args.input::<T>(0)) } else { None };
    Ok(split::rows(par, y, 1, GRAIN / 16, |_, at, y| match x {
        Some(x) => y.iter_mut().zip(&x[at..]).for_each(|(y, &x)| *y = f(x)),
        None => y.iter_mut().for_each(|y| *y = f(*y)),
    })?)
}

/// All bits turned round. Whether they are an integer with a sign makes no difference.
pub(super) fn bitwise_not<T: Element + Send + Sync + core::ops::Not<Output = T>>(
    op: &Unary,
    (): &(),
    args: &mut Args<'_>,
) -> Run {
    if args.alias(0).is_some() {
        return each(args, |x: T| !x);
    }
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, at, y| loops::map(op.isa, |x: T| !x, &x[at..at + y.len()], y))?)
}
