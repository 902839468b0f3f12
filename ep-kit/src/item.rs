//! Values that are no plain tensors: texts, sequences, optionals and maps. Rows marked [`items`](crate::Kernel::items) get
//! them and make them whole. They are owned, and shared by reference counts: what holds tensors can be large.

use crate::element::Element;
use crate::error::Fault;
use crate::node::Ints;
use crate::shapes::count;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw;
use ortolan_ep_abi::view::{Value, ValueInfo};
use std::borrow::Cow;
use std::sync::Arc;

/// A value of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A tensor of anything but texts.
    Tensor(Plain),
    /// A tensor of texts.
    Texts(Texts),
    /// Values of one type.
    Sequence(Vec<Arc<Item>>),
    /// A value, or none.
    Optional(Option<Arc<Item>>),
    /// Keys, which are a tensor, and as many values: a tensor or a sequence.
    Map {
        /// A tensor with one axis.
        keys: Arc<Item>,
        /// A tensor with one axis, or a sequence.
        values: Arc<Item>,
    },
}

/// A tensor that is, or may be, inside another value.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub dims: Ints,
    /// Elements in memory order.
    pub bytes: Vec<u8>,
}

/// A tensor of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    /// Dimensions.
    pub dims: Ints,
    /// As many texts as the dimensions say.
    pub texts: Vec<Box<str>>,
}

impl Plain {
    /// A tensor of some elements.
    ///
    /// # Panics
    /// When their number is not that of the dimensions.
    pub fn new<T: Element>(dims: &[i64], elements: &[T]) -> Plain {
        assert_eq!(count(dims), elements.len(), "{dims:?}");
        Plain { dtype: T::DTYPE, dims: Ints::from_slice(dims), bytes: crate::bytes::of(elements).to_vec() }
    }

    /// Its elements, or what type they are of instead.
    pub fn elements<T: Element>(&self) -> Result<Cow<'_, [T]>, Fault> {
        match self.dtype as u32 == T::DTYPE as u32 {
            true => Ok(crate::bytes::elements(&self.bytes)),
            false => Err(Fault::data(format!("a tensor has elements of {}, {} are needed", self.dtype, T::DTYPE))),
        }
    }
}

impl Texts {
    /// A tensor of some texts.
    ///
    /// # Panics
    /// When their number is not that of the dimensions.
    pub fn new(dims: &[i64], texts: &[&str]) -> Texts {
        assert_eq!(count(dims), texts.len(), "{dims:?}");
        Texts { dims: Ints::from_slice(dims), texts: texts.iter().map(|&text| text.into()).collect() }
    }
}

impl From<Plain> for Item {
    fn from(tensor: Plain) -> Item {
        Item::Tensor(tensor)
    }
}

impl From<Texts> for Item {
    fn from(texts: Texts) -> Item {
        Item::Texts(texts)
    }
}

impl Item {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Item::Tensor(_) => "a tensor",
            Item::Texts(_) => "a tensor of texts",
            Item::Sequence(_) => "a sequence",
            Item::Optional(_) => "an optional",
            Item::Map { .. } => "a map",
        }
    }

    fn is_no(&self, what: &str) -> Fault {
        Fault::data(format!("{} is there where {what} is needed", self.kind()))
    }

    /// As a tensor of anything but texts.
    pub fn tensor(&self) -> Result<&Plain, Fault> {
        if let Item::Tensor(tensor) = self { Ok(tensor) } else { Err(self.is_no("a tensor")) }
    }

    /// As a tensor of texts.
    pub fn texts(&self) -> Result<&Texts, Fault> {
        if let Item::Texts(texts) = self { Ok(texts) } else { Err(self.is_no("a tensor of texts")) }
    }

    /// As a sequence.
    pub fn sequence(&self) -> Result<&[Arc<Item>], Fault> {
        if let Item::Sequence(all) = self { Ok(all) } else { Err(self.is_no("a sequence")) }
    }

    /// Dimensions of a tensor; none for other kinds.
    pub fn dims(&self) -> &[i64] {
        match self {
            Item::Tensor(tensor) => &tensor.dims,
            Item::Texts(texts) => &texts.dims,
            _ => &[],
        }
    }

    /// A copy of a value of the host; `None` when it is absent, not in host memory, of an unknown type, or nested deeper
    /// than any real value.
    pub(crate) fn of(value: &Value<'_>) -> Option<Item> {
        Self::of_nested(value, 0)
    }

    fn of_nested(value: &Value<'_>, depth: u32) -> Option<Item> {
        if depth > DEPTH {
            return None;
        }
        let items = || value.items().iter().map(|item| Self::of_nested(item, depth + 1).map(Arc::new));
        Some(match value.kind() {
            raw::VALUE_TENSOR => match value.strings() {
                Some(texts) => {
                    let (dims, texts) = (Ints::from_slice(value.shape()), texts.map(Into::into).collect::<Vec<_>>());
                    (texts.len() == count(&dims)).then_some(Item::Texts(Texts { dims, texts }))?
                }
                None => {
                    let (dtype, dims) = (value.dtype()?, Ints::from_slice(value.shape()));
                    let bytes = value.bytes()?;
                    let bytes = bytes.get(..dtype.bytes(count(&dims))?)?.to_vec();
                    Item::Tensor(Plain { dtype, dims, bytes })
                }
            },
            raw::VALUE_SEQUENCE => Item::Sequence(items().collect::<Option<_>>()?),
            raw::VALUE_OPTIONAL => Item::Optional(match items().next() {
                Some(item) => Some(item?),
                None => None,
            }),
            raw::VALUE_MAP => {
                let mut items = items();
                Item::Map { keys: items.next()??, values: items.next()?? }
            }
            _ => return None,
        })
    }
}

/// How deep values nest at most.
const DEPTH: u32 = 16;

/// Whether a value is seen as an [`Item`]: it is no tensor, or one of texts.
pub(crate) fn is_item(info: &ValueInfo<'_>) -> bool {
    info.kind() != raw::VALUE_TENSOR || info.dtype().is_none_or(|dtype| dtype as u32 == DType::Str as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Model, OpTest, Session};
    use crate::{Args, Kernel, Kit, NodeView, Op, Reject, RejectCode, any};

    /// Texts and a tensor become a sequence; a sequence becomes its first item, and how many it has.
    struct Whole;

    impl Op for Whole {
        type Bound = ();

        fn parse(_: &NodeView<'_>) -> Result<Self, Reject> {
            Ok(Whole)
        }
    }

    fn pair(_: &Whole, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
        let all = vec![args.item(0)?, args.item(1)?];
        args.give(0, Item::Sequence(all))
    }

    fn first(_: &Whole, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
        let all = args.item(0)?;
        let all = all.sequence()?;
        args.output::<i64>(1)[0] = all.len() as i64;
        args.give(0, all[0].clone())
    }

    const KERNELS: &[Kernel] = &[
        Kernel::new("First", (1, 1), "first", any!(first)).types(&[]).items(),
        Kernel::new("Pair", (1, 1), "pair", any!(pair)).types(&[]).items(),
        Kernel::new("Plain", (1, 1), "plain", any!(pair)).types(&[]),
    ];

    #[test]
    fn whole_values_go_through_parts() {
        let texts = Texts::new(&[2], &["a", "bc"]);
        let tensor = Plain::new(&[2, 1], &[1.5f32, 2.0]);
        let both = Item::Sequence(vec![Arc::new(texts.clone().into()), Arc::new(tensor.clone().into())]);
        let case = OpTest::new(&[KERNELS], "Pair", 1).constant_texts(&texts).item(tensor.clone());
        assert_eq!(case.whole_output(raw::VALUE_SEQUENCE).run_items(), core::slice::from_ref(&both));
        // The first item's size is only known to the run.
        let case = OpTest::new(&[KERNELS], "First", 1).item(both).late_output(DType::Str, 1).output(DType::I64, &[1]);
        assert_eq!(case.run_items(), [texts.clone().into(), Plain::new(&[1], &[2i64]).into()]);
        let map = Item::Map { keys: Arc::new(Plain::new(&[1], &[7i64]).into()), values: Arc::new(texts.into()) };
        let all = Item::Sequence(vec![Arc::new(Item::Optional(Some(Arc::new(map.clone())))), Arc::new(map)]);
        let case = OpTest::new(&[KERNELS], "First", 1).item(all.clone()).whole_output(raw::VALUE_OPTIONAL);
        let y = case.output(DType::I64, &[1]).run_items();
        assert_eq!(y[0], *all.sequence().unwrap()[0]);
        // A plain tensor goes to memory.
        let case = OpTest::new(&[KERNELS], "First", 1).item(Item::Sequence(vec![Arc::new(tensor.clone().into())]));
        let y = case.late_output(DType::F32, 2).output(DType::I64, &[1]).run_items();
        assert_eq!(y[0], tensor.into());
    }

    #[test]
    fn values_stay_whole_between_steps() {
        let texts = Texts::new(&[1], &["x"]);
        let mut model = Model::new();
        let (a, b) = (model.input_item(&texts.clone().into()), model.constant_texts(&texts));
        let (pair, y, n) = (
            model.whole("pair", raw::VALUE_SEQUENCE),
            model.value("y", DType::Str, &[1.into()]),
            model.value("n", DType::I64, &[1.into()]),
        );
        model.call("Pair", 1, &[a, b], &[pair]);
        model.call("First", 1, &[pair], &[y, n]);
        model.mark_output(y);
        let session = Session::new(Kit::new(&[KERNELS], "test", ()), model, 1);
        let mut part = session.compile().unwrap();
        for _ in 0..2 {
            part.load_items(&[texts.clone().into()]);
            part.rerun(0, false).unwrap();
            assert_eq!(part.items(), [texts.clone().into()]);
        }
    }

    #[test]
    fn rows_that_take_tensors_are_not_shown_others() {
        let texts: Item = Texts::new(&[1], &["x"]).into();
        let (code, text) = OpTest::new(&[KERNELS], "Plain", 1).item(texts).output(DType::F32, &[1]).rejection();
        assert_eq!((code, &*text), (RejectCode::Dtype, "Plain: input 0 has texts, and the kernel takes none"));
        let case = OpTest::new(&[KERNELS], "Plain", 1).item(Item::Sequence(Vec::new())).output(DType::F32, &[1]);
        let (code, text) = case.rejection();
        assert_eq!(
            (code, &*text),
            (RejectCode::Dtype, "Plain: input 0 is no tensor, and the kernel takes tensors only")
        );
    }

    #[test]
    fn kinds_are_told_apart() {
        let tensor = Item::from(Plain::new(&[2], &[1i64, 2]));
        let texts = Item::from(Texts::new(&[1], &["a"]));
        assert_eq!(tensor.tensor().unwrap().elements::<i64>().unwrap().as_ref(), [1, 2]);
        assert_eq!((tensor.dims(), texts.dims()), (&[2][..], &[1][..]));
        let wrong = [
            (tensor.tensor().unwrap().elements::<f32>().err(), "a tensor has elements of i64, f32 are needed"),
            (tensor.texts().err(), "a tensor is there where a tensor of texts is needed"),
            (texts.sequence().err(), "a tensor of texts is there where a sequence is needed"),
            (Item::Optional(None).tensor().err(), "an optional is there where a tensor is needed"),
        ];
        for (error, want) in wrong {
            assert_eq!(error.unwrap().to_string(), want);
        }
    }
}
