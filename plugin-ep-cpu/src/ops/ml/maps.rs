//! Maps: made of the columns of a tensor, or made into one.

use ortolan_ep_kit::{Args, DType, Fault, Item, NodeView, Op, Plain, Reject, Texts, size};
use std::sync::Arc;

type Run = Result<(), Fault>;

/// A map per row, from the classes' names to the row's values.
pub(super) struct Zip {
    keys: Arc<Item>,
    count: usize,
}

/// Names of columns as an item, and how many they are; `None` if neither attribute has any.
fn names(node: &NodeView<'_>, ints: &str, texts: &str) -> Option<(Item, usize)> {
    let texts: Vec<Box<str>> = node.texts(texts).map(|all| all.map(Into::into).collect()).unwrap_or_default();
    let dims = |count: usize| [i64::try_from(count).unwrap_or(i64::MAX)];
    if !texts.is_empty() {
        let count = texts.len();
        return Some((Item::Texts(Texts { dims: dims(count).as_slice().into(), texts }), count));
    }
    let ints = node.long_ints(ints).filter(|ints| !ints.is_empty())?;
    Some((Item::Tensor(Plain::new(&dims(ints.len()), &ints)), ints.len()))
}

impl Op for Zip {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        match names(node, "classlabels_int64s", "classlabels_strings") {
            Some((keys, count)) => Ok(Zip { keys: Arc::new(keys), count }),
            None => Err(Reject::attribute("neither classlabels_int64s nor classlabels_strings names a class")),
        }
    }
}

pub(super) fn zip(op: &Zip, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let (columns, values) = (item.dims().last().map_or(1, |&n| size(n)), item.tensor()?.elements::<f32>()?);
    if columns != op.count {
        return Err(Fault::data(format!("{} classes have names, but rows have {columns} values", op.count)));
    }
    let row = |values: &[f32]| {
        let values = Plain::new(&[i64::try_from(columns).unwrap_or(i64::MAX)], values);
        Arc::new(Item::Map { keys: op.keys.clone(), values: Arc::new(Item::Tensor(values)) })
    };
    args.give(0, Item::Sequence(values.chunks_exact(columns.max(1)).map(row).collect()))
}

/// A row with the value of each key, and 0 for keys that the map lacks.
pub(super) struct Vectorizer {
    vocabulary: Item,
    count: usize,
}

impl Op for Vectorizer {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        match names(node, "int64_vocabulary", "string_vocabulary") {
            Some((vocabulary, count)) => Ok(Vectorizer { vocabulary, count }),
            None => Err(Reject::attribute("neither int64_vocabulary nor string_vocabulary has a word")),
        }
    }
}

/// Keys and values of an input that is a map.
fn map(args: &Args<'_>) -> Result<(Arc<Item>, Arc<Item>), Fault> {
    match &*args.item(0)? {
        Item::Map { keys, values } => Ok((keys.clone(), values.clone())),
        other => Err(Fault::data(format!("{} is there where a map is needed", other.kind()))),
    }
}

/// Position of each key of a map in a vocabulary.
fn places(keys: &Item, vocabulary: &Item) -> Result<Vec<Option<usize>>, Fault> {
    match vocabulary {
        Item::Texts(words) => {
            let find = |key: &str| words.texts.iter().position(|word| **word == *key);
            Ok(keys.texts()?.texts.iter().map(|key| find(key)).collect())
        }
        words => {
            let words = words.tensor()?.elements::<i64>()?;
            let keys = keys.tensor()?.elements::<i64>()?;
            Ok(keys.iter().map(|key| words.iter().position(|word| word == key)).collect())
        }
    }
}

pub(super) fn vectorize(op: &Vectorizer, (): &(), args: &mut Args<'_>) -> Run {
    let (keys, values) = map(args)?;
    let places = places(&keys, &op.vocabulary)?;
    let dims = [1, i64::try_from(op.count).unwrap_or(i64::MAX)];
    if let Item::Texts(values) = &*values {
        let mut row: Vec<Box<str>> = vec!["".into(); op.count];
        let placed = places.iter().zip(&values.texts).filter_map(|(place, value)| Some((*place.as_ref()?, value)));
        placed.for_each(|(place, value)| row[place].clone_from(value));
        return args.give(0, Item::Texts(Texts { dims: dims.as_slice().into(), texts: row }));
    }
    let values = values.tensor()?;
    let width = values.dtype.bits() / 8;
    let mut bytes = vec![0; op.count * width];
    for (place, value) in places.iter().zip(values.bytes.chunks_exact(width.max(1))) {
        if let &Some(place) = place {
            bytes[place * width..(place + 1) * width].copy_from_slice(value);
        }
    }
    args.give(0, Item::Tensor(Plain { dtype: values.dtype, dims: dims.as_slice().into(), bytes }))
}

/// A tensor of a map's values, in the order of its keys.
pub(super) struct Cast {
    to: DType,
    /// Length of the result, in which keys are positions; else values lie side by side.
    sparse: Option<usize>,
}

impl Op for Cast {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let to = match node.text("cast_to").unwrap_or("TO_FLOAT") {
            "TO_FLOAT" => DType::F32,
            "TO_INT64" => DType::I64,
            "TO_STRING" => DType::Str,
            other => return Err(Reject::attribute(format!("attribute cast_to = {other} is not known"))),
        };
        let sparse = match node.text("map_form").unwrap_or("DENSE") {
            "DENSE" => None,
            "SPARSE" => Some(size(node.int_if("max_map").unwrap_or(1))),
            other => return Err(Reject::attribute(format!("attribute map_form = {other} is not known"))),
        };
        Ok(Cast { to, sparse })
    }
}

/// Longest sparse result.
const MOST: usize = 1 << 28;

pub(super) fn cast_map(op: &Cast, (): &(), args: &mut Args<'_>) -> Run {
    let (keys, values) = map(args)?;
    let keys = keys.tensor()?.elements::<i64>()?.into_owned();
    let count: usize = values.dims().iter().map(|&n| size(n)).product();
    if count != keys.len() {
        return Err(Fault::data(format!("the map has {} keys and {count} values", keys.len())));
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&k| keys[k]);
    let places: Vec<Option<usize>> = match op.sparse {
        None => order.iter().copied().map(Some).collect(),
        Some(len) if len > MOST => return Err(Fault::Memory(format!("{len} positions are more than {MOST}"))),
        Some(len) => {
            let mut places = vec![None; len];
            for k in order {
                let place = usize::try_from(keys[k]).ok().and_then(|key| places.get_mut(key));
                *place.ok_or_else(|| Fault::data(format!("key {} is no position among {len}", keys[k])))? = Some(k);
            }
            places
        }
    };
    let dims = [1, i64::try_from(places.len()).unwrap_or(i64::MAX)];
    let texts = |of: &dyn Fn(usize) -> Box<str>| -> Vec<Box<str>> {
        places.iter().map(|place| place.map_or_else(|| "0".into(), of)).collect()
    };
    let numbers = match &*values {
        Item::Texts(values) => match op.to {
            DType::Str => {
                let texts = texts(&|k| values.texts[k].clone());
                return args.give(0, Item::Texts(Texts { dims: dims.as_slice().into(), texts }));
            }
            _ => values
                .texts
                .iter()
                .map(|text| text.trim().parse::<f64>())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|_| Fault::data("a value of the map is no number"))?,
        },
        other => other.tensor()?.elements::<f32>()?.iter().map(|&x| x.into()).collect(),
    };
    let number = |place: &Option<usize>| place.map_or(0.0, |k| numbers[k]);
    let item = match op.to {
        DType::Str => {
            let texts = texts(&|k| numbers[k].to_string().into());
            Item::Texts(Texts { dims: dims.as_slice().into(), texts })
        }
        // Rounds, and cuts towards zero.
        DType::I64 => Plain::new(&dims, &places.iter().map(|p| number(p) as i64).collect::<Vec<_>>()).into(),
        _ => Plain::new(&dims, &places.iter().map(|p| number(p) as f32).collect::<Vec<_>>()).into(),
    };
    args.give(0, item)
}
