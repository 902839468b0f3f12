//! Values that stand for others: categories become numbers, texts or ones among zeros.

use ortolan_ep_abi::view;
use ortolan_ep_kit::{Args, DType, Fault, Item, NodeView, Op, Plain, Reject, Texts};
use std::collections::HashMap;

type Run = Result<(), Fault>;

/// A category, comparable. Floats are equal if their bits are; all NaN are one, and so are both zeros.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Int(i64),
    Float(u64),
    Text(Box<str>),
}

fn float_key(x: f64) -> Key {
    let x = if x.is_nan() { f64::NAN } else { x + 0.0 };
    Key::Float(if x == 0.0 { 0 } else { x.to_bits() })
}

/// What categories become.
#[derive(Debug, Clone)]
enum Values {
    Numbers { dtype: DType, all: Vec<f64>, exact: Vec<i64> },
    Texts(Vec<Box<str>>),
}

/// A list in an attribute: whichever of four is there.
fn list(node: &NodeView<'_>, what: &str) -> Result<Option<Values>, Reject> {
    let name = |kind: &str| format!("{what}_{kind}");
    if let Some(texts) = node.texts(&name("strings")).filter(|all| all.len() > 0) {
        return Ok(Some(Values::Texts(texts.map(Into::into).collect())));
    }
    if let Some(ints) = node.long_ints(&name("int64s")).filter(|all| !all.is_empty()) {
        return Ok(Some(Values::ints(&ints)));
    }
    if let Some(floats) = node.long_floats(&name("floats")).filter(|all| !all.is_empty()) {
        return Ok(Some(Values::floats(DType::F32, floats.iter().map(|&x| x.into()).collect())));
    }
    match node.tensor(&name("tensor")) {
        Some(tensor) => tensor_list(&tensor).map(Some),
        None => Ok(None),
    }
}

fn tensor_list(tensor: &view::Value<'_>) -> Result<Values, Reject> {
    if let Some(texts) = tensor.strings() {
        return Ok(Values::Texts(texts.map(Into::into).collect()));
    }
    let dtype = tensor.dtype().unwrap_or(DType::Str);
    let lists = || match dtype {
        DType::I64 => Some(Values::ints(&tensor.to_vec::<i64>()?)),
        DType::I32 => Some(Values::whole(DType::I32, tensor.to_vec::<i32>()?.into_iter().map(i64::from).collect())),
        DType::I16 => Some(Values::whole(DType::I16, tensor.to_vec::<i16>()?.into_iter().map(i64::from).collect())),
        DType::F32 => Some(Values::floats(DType::F32, tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect())),
        DType::F64 => Some(Values::floats(DType::F64, tensor.to_vec::<f64>()?)),
        _ => None,
    };
    lists().ok_or_else(|| Reject::attribute(format!("a list of {dtype} names no categories")))
}

impl Values {
    fn ints(all: &[i64]) -> Values {
        Values::whole(DType::I64, all.to_vec())
    }

    fn whole(dtype: DType, exact: Vec<i64>) -> Values {
        Values::Numbers { dtype, all: exact.iter().map(|&n| n as f64).collect(), exact } // rounds what is not exact anyway
    }

    fn floats(dtype: DType, all: Vec<f64>) -> Values {
        Values::Numbers { dtype, exact: Vec::new(), all }
    }

    fn len(&self) -> usize {
        match self {
            Values::Numbers { all, .. } => all.len(),
            Values::Texts(all) => all.len(),
        }
    }

    fn keys(&self) -> Vec<Key> {
        match self {
            Values::Numbers { exact, all, .. } if exact.len() == all.len() => {
                exact.iter().map(|&n| Key::Int(n)).collect()
            }
            Values::Numbers { all, .. } => all.iter().map(|&x| float_key(x)).collect(),
            Values::Texts(all) => all.iter().cloned().map(Key::Text).collect(),
        }
    }

    /// The values at some positions; the last one is for those that have none.
    fn pick(&self, dims: &[i64], places: &[usize]) -> Item {
        let at = |k: usize| k.min(self.len() - 1);
        match self {
            Values::Texts(all) => {
                Item::Texts(Texts { dims: dims.into(), texts: places.iter().map(|&k| all[at(k)].clone()).collect() })
            }
            Values::Numbers { dtype, all, exact } => {
                let floats = || places.iter().map(|&k| all[at(k)]);
                let ints = || places.iter().map(|&k| exact[at(k)]);
                Item::Tensor(match dtype {
                    DType::F32 => Plain::new(dims, &floats().map(|x| x as f32).collect::<Vec<_>>()), // was f32
                    DType::F64 => Plain::new(dims, &floats().collect::<Vec<_>>()),
                    DType::I32 => Plain::new(dims, &ints().map(|n| n as i32).collect::<Vec<_>>()), // was i32
                    DType::I16 => Plain::new(dims, &ints().map(|n| n as i16).collect::<Vec<_>>()), // was i16
                    _ => Plain::new(dims, &ints().collect::<Vec<_>>()),
                })
            }
        }
    }
}

/// Categories of a tensor's elements.
fn keys(item: &Item) -> Result<Vec<Key>, Fault> {
    if let Item::Texts(texts) = item {
        return Ok(texts.texts.iter().cloned().map(Key::Text).collect());
    }
    let tensor = item.tensor()?;
    Ok(match tensor.dtype {
        DType::F32 => tensor.elements::<f32>()?.iter().map(|&x| float_key(x.into())).collect(),
        DType::F64 => tensor.elements::<f64>()?.iter().map(|&x| float_key(x)).collect(),
        DType::I16 => tensor.elements::<i16>()?.iter().map(|&n| Key::Int(n.into())).collect(),
        DType::I32 => tensor.elements::<i32>()?.iter().map(|&n| Key::Int(n.into())).collect(),
        _ => tensor.elements::<i64>()?.iter().map(|&n| Key::Int(n)).collect(),
    })
}

/// A value for each category, and one for all others.
pub(super) struct Encoder {
    places: HashMap<Key, usize>,
    /// As many as there are categories, and one more.
    values: Values,
}

impl Encoder {
    fn new(keys: &Values, values: Values) -> Encoder {
        let mut places = HashMap::new();
        for (k, key) in keys.keys().into_iter().enumerate() {
            places.entry(key).or_insert(k);
        }
        Encoder { places, values }
    }
}

impl Op for Encoder {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        if node.op() == "CategoryMapper" {
            return mapper(node);
        }
        let missing = |what: &str| Reject::attribute(format!("none of the attributes {what}_* has a list"));
        let keys = list(node, "keys")?.ok_or_else(|| missing("keys"))?;
        let mut values = list(node, "values")?.ok_or_else(|| missing("values"))?;
        if keys.len() != values.len() {
            return Err(Reject::attribute(format!("there are {} keys and {} values", keys.len(), values.len())));
        }
        let given = node.tensor("default_tensor").map(|tensor| tensor_list(&tensor)).transpose()?;
        match &mut values {
            Values::Texts(all) => all.push(match given {
                Some(Values::Texts(given)) => given.into_iter().next().unwrap_or_default(),
                _ => node.text("default_string").unwrap_or("_Unused").into(),
            }),
            Values::Numbers { dtype, all, exact } => {
                let whole = !matches!(dtype, DType::F32 | DType::F64);
                let (float, int) = match given {
                    Some(Values::Numbers { all, exact, .. }) => (all.first().copied(), exact.first().copied()),
                    _ => (node.float_if("default_float").map(f64::from), node.int_if("default_int64")),
                };
                if whole {
                    exact.push(int.unwrap_or(-1));
                }
                all.push(if whole { int.unwrap_or(-1) as f64 } else { float.unwrap_or(-0.0) }); // not looked at if whole
            }
        }
        Ok(Encoder::new(&keys, values))
    }
}

/// Texts become their numbers, or numbers their texts, as the output's type says.
fn mapper(node: &NodeView<'_>) -> Result<Encoder, Reject> {
    let missing = || Reject::attribute("attributes cats_int64s and cats_strings are not both there");
    let texts: Vec<Box<str>> = node.texts("cats_strings").ok_or_else(missing)?.map(Into::into).collect();
    let mut ints = node.long_ints("cats_int64s").ok_or_else(missing)?.into_owned();
    if texts.len() != ints.len() {
        return Err(Reject::attribute(format!("there are {} texts and {} numbers", texts.len(), ints.len())));
    }
    if node.needs(0)?.dtype() as u32 == DType::Str as u32 {
        ints.push(node.int_if("default_int64").unwrap_or(-1));
        return Ok(Encoder::new(&Values::Texts(texts), Values::ints(&ints)));
    }
    let mut values = texts;
    values.push(node.text("default_string").unwrap_or("_Unused").into());
    Ok(Encoder::new(&Values::ints(&ints), Values::Texts(values)))
}

pub(super) fn encode(op: &Encoder, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let places: Vec<usize> = keys(&item)?.iter().map(|key| op.places.get(key).copied().unwrap_or(usize::MAX)).collect();
    args.give(0, op.values.pick(item.dims(), &places))
}

/// A one among zeros, at the place of the category.
pub(super) struct OneHot {
    places: HashMap<Key, usize>,
    count: usize,
    /// Unknown categories are zeros; else they are an error.
    zeros: bool,
}

impl Op for OneHot {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let cats = list(node, "cats")?;
        let cats = cats.ok_or_else(|| Reject::attribute("neither cats_int64s nor cats_strings names a category"))?;
        let places = cats.keys().into_iter().enumerate().map(|(k, key)| (key, k)).collect();
        Ok(OneHot { places, count: cats.len(), zeros: node.int_if("zeros").unwrap_or(1) != 0 })
    }
}

pub(super) fn one_hot(op: &OneHot, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    // Numbers of any type are categories by their whole part.
    let all = keys(&item)?;
    let whole = |key: &Key| match key {
        Key::Float(bits) => Key::Int(f64::from_bits(*bits) as i64), // saturates
        other => other.clone(),
    };
    let count = i64::try_from(op.count).unwrap_or(i64::MAX);
    let dims: Vec<i64> = item.dims().iter().copied().chain([count]).collect();
    let ones = args.emit::<f32>(0, &dims)?;
    ones.fill(0.0);
    for (k, key) in all.iter().enumerate() {
        match op.places.get(&whole(key)) {
            Some(&place) => ones[k * op.count + place] = 1.0,
            None if op.zeros => {}
            None => return Err(Fault::data(format!("element {k} is none of the {} categories", op.count))),
        }
    }
    Ok(())
}
