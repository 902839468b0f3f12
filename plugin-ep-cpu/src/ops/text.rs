//! Texts: joined, cut, normalised, cast, counted. They are owned values, so these kernels allocate.
//!
//! `grams` counts runs of words; `layout` gives texts other dimensions, `pick` takes some of them, `pattern` matches them.

mod grams;
mod layout;
mod pattern;
mod pick;

use super::broadcast::Broadcast;
use core::str::FromStr;
use grams::count_grams;
use layout::rename;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{
    Args, Bool, DType, Fault, Ints, Item, Kernel, NodeView, Op, Plain, Reject, Shapes, Slot, Texts, any,
};
use pattern::full_match;
use pick::{choose, concat as join, gather, transpose};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Cast", (9, 28), "cast", any!(print)).types(&[("T1", PRINTED), ("T2", TEXTS)]).at(ENDS).items(),
    Kernel::new("Cast", (9, 28), "cast", any!(read)).types(&[("T1", TEXTS), ("T2", READ)]).at(ENDS).items(),
    Kernel::new("Concat", (4, 13), "concat", any!(join)).types(&[("T", TEXTS)]).items(),
    Kernel::new("Equal", (19, 19), "equal", any!(equal)).types(&[("T", TEXTS)]).items(),
    Kernel::new("Flatten", (1, 25), "flatten", any!(rename)).types(&[("T", TEXTS)]).items(),
    Kernel::new("Gather", (1, 13), "gather", any!(gather)).types(&[("T", TEXTS)]).items(),
    Kernel::new("RegexFullMatch", (20, 20), "regexfullmatch", any!(full_match)).types(&[("T1", TEXTS)]).items(),
    Kernel::new("Reshape", (5, 25), "reshape", any!(rename)).types(&[("T", TEXTS)]).unread(&[1]).items(),
    Kernel::new("Squeeze", (1, 25), "squeeze", any!(rename)).types(&[("T", TEXTS)]).unread(&[1]).items(),
    Kernel::new("StringConcat", (20, 20), "stringconcat", any!(concat)).types(&[("T", TEXTS)]).items(),
    Kernel::new("StringNormalizer", (10, 10), "stringnormalizer", any!(normalize)).types(&[("T", TEXTS)]).items(),
    Kernel::new("StringSplit", (20, 20), "stringsplit", any!(split)).types(&[("T1", TEXTS)]).items(),
    Kernel::new("TfIdfVectorizer", (9, 9), "tfidfvectorizer", any!(count_grams)).types(&[("T", WORDS)]).items(),
    Kernel::new("Transpose", (1, 25), "transpose", any!(transpose)).types(&[("T", TEXTS)]).items(),
    Kernel::new("Unsqueeze", (1, 25), "unsqueeze", any!(rename)).types(&[("T", TEXTS)]).unread(&[1]).items(),
    Kernel::new("Where", (9, 16), "where", any!(choose)).types(&[("B", BOOLS), ("T", TEXTS)]).items(),
];

const ENDS: &[Slot] = &[Slot::In(0), Slot::Out(0)];
const TEXTS: u64 = set(&[DType::Str]);
const BOOLS: u64 = set(&[DType::Bool]);
const WORDS: u64 = set(&[DType::Str, DType::I32, DType::I64]);
const PRINTED: u64 = set(&[
    DType::F32,
    DType::F64,
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
]);
const READ: u64 = PRINTED & !set(&[DType::Bool]);

type Run = Result<(), Fault>;

/// Most texts that an output has: each takes memory of its own, which no host counts.
const MOST: usize = 1 << 28;

fn few(texts: usize) -> Run {
    match texts <= MOST {
        true => Ok(()),
        false => Err(Fault::Memory(format!("{texts} texts are more than {MOST}"))),
    }
}

fn dims_of<T>(list: &[T]) -> Ints {
    Ints::from_slice(&[i64::try_from(list.len()).unwrap_or(i64::MAX)])
}

/// Two tensors, element by element.
struct Pair;

impl Op for Pair {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(1)?;
        Ok(Pair)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Run {
        bound.bind(shapes.output(0), [shapes.input(0), shapes.input(1)])
    }
}

impl Pair {
    /// Calls with each pair, in order.
    fn each(walk: &Broadcast<2>, args: &Args<'_>, mut f: impl FnMut(&str, &str)) -> Run {
        let (a, b) = (args.item(0)?, args.item(1)?);
        let (a, b) = (&a.texts()?.texts, &b.texts()?.texts);
        few(walk.total)?;
        let mut places = vec![(0, 0); walk.total];
        walk.walk(&ortolan_ep_kit::parallel::Serial, &mut places, usize::MAX, |at, piece| {
            for (k, place) in piece.iter_mut().enumerate() {
                *place = (at[0] + k * walk.inner.step[0], at[1] + k * walk.inner.step[1]);
            }
        })?;
        for (i, j) in places {
            let pair = a.get(i).zip(b.get(j));
            let (a, b) = pair.ok_or_else(|| Fault::data("the texts are fewer than their dimensions say"))?;
            f(a, b);
        }
        Ok(())
    }
}

/// The output of two tensors, whose dimensions are theirs.
fn together(args: &Args<'_>) -> Result<Ints, Fault> {
    let (a, b) = (args.item(0)?, args.item(1)?);
    let (a, b) = (a.dims(), b.dims());
    let rank = a.len().max(b.len());
    let from_end = |of: &[i64], k: usize| (k + of.len()).checked_sub(rank).map_or(1, |at| of[at]);
    Ok((0..rank).map(|k| if from_end(a, k) == 1 { from_end(b, k) } else { from_end(a, k) }).collect())
}

fn concat(_: &Pair, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    let mut texts = Vec::new();
    Pair::each(walk, args, |a, b| texts.push([a, b].concat().into()))?;
    let dims = together(args)?;
    args.give(0, Item::Texts(Texts { dims, texts }))
}

fn equal(_: &Pair, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    let mut same = Vec::new();
    Pair::each(walk, args, |a, b| same.push(Bool::from(a == b)))?;
    let dims = together(args)?;
    args.give(0, Item::Tensor(Plain::new(&dims, &same)))
}

/// Texts from numbers, and back.
struct Cast {
    from: DType,
    to: DType,
}

impl Op for Cast {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Cast { from: node.needs(0)?.dtype(), to: node.out()?.dtype() })
    }
}

fn print(op: &Cast, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let tensor = item.tensor()?;
    macro_rules! all {
        ($t:ty) => {
            tensor.elements::<$t>()?.iter().map(|x| x.to_string().into()).collect()
        };
    }
    let texts: Vec<Box<str>> = match op.from {
        DType::F32 => tensor.elements::<f32>()?.iter().map(|&x| float(x.into(), x.to_string())).collect(),
        DType::F64 => tensor.elements::<f64>()?.iter().map(|&x| float(x, x.to_string())).collect(),
        DType::Bool => {
            tensor.elements::<Bool>()?.iter().map(|x| if x.get() { "True" } else { "False" }.into()).collect()
        }
        DType::I8 => all!(i8),
        DType::I16 => all!(i16),
        DType::I32 => all!(i32),
        DType::I64 => all!(i64),
        DType::U8 => all!(u8),
        DType::U16 => all!(u16),
        DType::U32 => all!(u32),
        DType::U64 => all!(u64),
        other => return Err(Fault::data(format!("there is no kernel that prints {other}"))),
    };
    args.give(0, Item::Texts(Texts { dims: tensor.dims.clone(), texts }))
}

/// As the standard writes them: the shortest digits, NaN and INF.
fn float(x: f64, digits: String) -> Box<str> {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x < 0.0 { "-INF" } else { "INF" }.into();
    }
    digits.into()
}

fn read(op: &Cast, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let texts = item.texts()?;
    macro_rules! all {
        ($t:ty) => {
            Plain::new(&texts.dims, &texts.texts.iter().map(|text| number::<$t>(text)).collect::<Result<Vec<_>, _>>()?)
        };
    }
    let tensor = match op.to {
        DType::F32 => all!(f32),
        DType::F64 => all!(f64),
        DType::I8 => all!(i8),
        DType::I16 => all!(i16),
        DType::I32 => all!(i32),
        DType::I64 => all!(i64),
        DType::U8 => all!(u8),
        DType::U16 => all!(u16),
        DType::U32 => all!(u32),
        DType::U64 => all!(u64),
        other => return Err(Fault::data(format!("there is no kernel that reads {other}"))),
    };
    args.give(0, Item::Tensor(tensor))
}

fn number<T: FromStr>(text: &str) -> Result<T, Fault> {
    text.trim().parse().map_err(|_| Fault::data(format!("'{text}' is no number of that type")))
}

/// Words without some others, in lower or upper case.
struct Normalizer {
    case: Case,
    sensitive: bool,
    stopwords: Vec<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Lower,
    Upper,
    Same,
}

impl Case {
    fn apply(self, text: &str) -> String {
        match self {
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
            Case::Same => text.to_owned(),
        }
    }
}

impl Op for Normalizer {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let case = match node.text("case_change_action").unwrap_or("NONE") {
            "LOWER" => Case::Lower,
            "UPPER" => Case::Upper,
            "NONE" => Case::Same,
            other => return Err(Reject::attribute(format!("attribute case_change_action = {other} is not known"))),
        };
        let stopwords = node.texts("stopwords").map(|all| all.map(Into::into).collect()).unwrap_or_default();
        Ok(Normalizer { case, sensitive: node.int_if("is_case_sensitive").unwrap_or(0) != 0, stopwords })
    }
}

fn normalize(op: &Normalizer, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let words = item.texts()?;
    let rows = match *words.dims {
        [_] => 1,
        [1, _] => 2,
        _ => return Err(Fault::data(format!("words have dimensions {:?}; [n] or [1, n] is needed", words.dims))),
    };
    let fold = |text: &str| if op.sensitive { text.to_owned() } else { text.to_lowercase() };
    let stopwords: Vec<String> = op.stopwords.iter().map(|word| fold(word)).collect();
    let kept = words.texts.iter().filter(|word| !stopwords.contains(&fold(word)));
    let mut texts: Vec<Box<str>> = kept.map(|word| op.case.apply(word).into()).collect();
    if texts.is_empty() {
        texts.push("".into());
    }
    let mut dims = dims_of(&texts);
    if rows == 2 {
        dims.insert(0, 1);
    }
    args.give(0, Item::Texts(Texts { dims, texts }))
}

/// Texts cut at a delimiter, or at white space.
struct Split {
    delimiter: Box<str>,
    most: Option<usize>,
}

impl Op for Split {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let most = node.int_if("maxsplit").and_then(|n| usize::try_from(n).ok());
        Ok(Split { delimiter: node.text("delimiter").unwrap_or_default().into(), most })
    }
}

impl Split {
    fn cut<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let most = self.most.unwrap_or(usize::MAX);
        if !self.delimiter.is_empty() {
            return if text.is_empty() {
                Vec::new()
            } else {
                text.splitn(most.saturating_add(1), &*self.delimiter).collect()
            };
        }
        let (mut parts, mut rest) = (Vec::new(), text.trim_start());
        while !rest.is_empty() {
            match rest.find(char::is_whitespace).filter(|_| parts.len() < most) {
                Some(end) => {
                    parts.push(&rest[..end]);
                    rest = rest[end..].trim_start();
                }
                None => {
                    parts.push(rest);
                    break;
                }
            }
        }
        parts
    }
}

fn split(op: &Split, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let all = item.texts()?;
    let parts: Vec<Vec<&str>> = all.texts.iter().map(|text| op.cut(text)).collect();
    let most = parts.iter().map(Vec::len).max().unwrap_or(0);
    few(most.saturating_mul(parts.len()))?;
    let counts: Vec<i64> = parts.iter().map(|parts| i64::try_from(parts.len()).unwrap_or(i64::MAX)).collect();
    let padded = parts.iter().flat_map(|parts| (0..most).map(|k| parts.get(k).copied().unwrap_or("").into()));
    let mut dims = all.dims.clone();
    dims.push(i64::try_from(most).unwrap_or(i64::MAX));
    args.give(0, Item::Texts(Texts { dims, texts: padded.collect() }))?;
    if args.wants(1) {
        args.give(1, Item::Tensor(Plain::new(&all.dims, &counts)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::testing::OpTest;
    use ortolan_ep_kit::{Bool, DType, Item, Plain, RejectCode, Texts};

    fn texts(dims: &[i64], texts: &[&str]) -> Item {
        Texts::new(dims, texts).into()
    }

    fn text_out(case: OpTest, rank: usize) -> Item {
        case.late_output(DType::Str, rank).run_items().remove(0)
    }

    #[test]
    fn joined_and_compared() {
        let (a, b) = (texts(&[2, 1], &["a", "b"]), texts(&[2], &["x", "b"]));
        let case = Case::new("StringConcat", 20).item(a.clone()).item(b.clone()).output(DType::Str, &[2, 2]);
        assert_eq!(case.run_items(), [texts(&[2, 2], &["ax", "ab", "bx", "bb"])]);
        let case = Case::new("Equal", 19).item(a).constant_texts(b.texts().unwrap()).output(DType::Bool, &[2, 2]);
        assert_eq!(case.run_items(), [Plain::new(&[2, 2], &[0, 0, 0, 1].map(Bool)).into()]);
    }

    #[test]
    fn normalised() {
        let days = texts(&[1, 3], &["Monday", "tuesday", "MONDAY"]);
        let case =
            Case::new("StringNormalizer", 10).text("case_change_action", "UPPER").texts("stopwords", &["monday"]);
        assert_eq!(text_out(case.int("is_case_sensitive", 0).item(days.clone()), 2), texts(&[1, 1], &["TUESDAY"]));
        let case =
            Case::new("StringNormalizer", 10).text("case_change_action", "LOWER").texts("stopwords", &["MONDAY"]);
        let want = texts(&[1, 2], &["monday", "tuesday"]);
        assert_eq!(text_out(case.int("is_case_sensitive", 1).item(days), 2), want);
        let case = Case::new("StringNormalizer", 10).texts("stopwords", &["a"]).item(texts(&[1], &["A"]));
        assert_eq!(text_out(case, 1), texts(&[1], &[""]));
        let case = Case::new("StringNormalizer", 10).text("case_change_action", "x").item(texts(&[1], &["A"]));
        let (code, text) = case.late_output(DType::Str, 1).rejection();
        assert_eq!(
            (code, &*text),
            (RejectCode::Attribute, "StringNormalizer: attribute case_change_action = x is not known")
        );
    }

    #[test]
    fn cut() {
        // Delimiter, most cuts, text, parts.
        let cases: &[(&str, Option<i64>, &str, &[&str])] = &[
            ("", None, "  a bc  d ", &["a", "bc", "d"]),
            ("", Some(1), " a bc  d ", &["a", "bc  d "]),
            (",", None, "a,,b", &["a", "", "b"]),
            (",", Some(1), "a,b,c", &["a", "b,c"]),
            (",", None, "", &[]),
        ];
        for &(delimiter, most, text, parts) in cases {
            let case = Case::new("StringSplit", 20).text("delimiter", delimiter);
            let case = if let Some(most) = most { case.int("maxsplit", most) } else { case };
            let y = case.item(texts(&[1], &[text])).late_output(DType::Str, 2).output(DType::I64, &[1]).run_items();
            assert_eq!(y[0], texts(&[1, parts.len() as i64], parts), "{text}");
            assert_eq!(y[1], Plain::new(&[1], &[parts.len() as i64]).into());
        }
        let case = Case::new("StringSplit", 20).item(texts(&[2], &["a b", "c"])).late_output(DType::Str, 2);
        assert_eq!(case.output(DType::I64, &[2]).run_items()[0], texts(&[2, 2], &["a", "b", "c", ""]));
    }

    #[test]
    fn printed_and_read() {
        let x: Item = Plain::new(&[4], &[1.5f32, -0.25, f32::NAN, f32::NEG_INFINITY]).into();
        let case = Case::new("Cast", 28).int("to", 8).item(x).output(DType::Str, &[4]);
        assert_eq!(case.run_items(), [texts(&[4], &["1.5", "-0.25", "NaN", "-INF"])]);
        let case = Case::new("Cast", 28).int("to", 8).item(Plain::new(&[2], &[7i64, -8])).output(DType::Str, &[2]);
        assert_eq!(case.run_items(), [texts(&[2], &["7", "-8"])]);
        let case = Case::new("Cast", 28).int("to", 1).item(texts(&[4], &["1.5", "-INF", " 3 ", "1e2"]));
        let want = Plain::new(&[4], &[1.5, f32::NEG_INFINITY, 3.0, 100.0]);
        assert_eq!(case.output(DType::F32, &[4]).run_items(), [want.into()]);
        let case = Case::new("Cast", 28).int("to", 7).item(texts(&[1], &["x"])).output(DType::I64, &[1]);
        assert!(case.try_items().unwrap_err().contains("'x' is no number of that type"));
    }

    #[test]
    fn other_dimensions() {
        let x = texts(&[2, 1], &["a", "b"]);
        for (op, dims) in [("Flatten", &[2i64, 1][..]), ("Reshape", &[1, 2]), ("Squeeze", &[2])] {
            let case = Case::new(op, 25).item(x.clone());
            let case = if op == "Reshape" { case.item(Plain::new(&[2], &[1i64, 2])) } else { case };
            assert_eq!(case.output(DType::Str, dims).run_items(), [texts(dims, &["a", "b"])], "{op}");
        }
    }
}
