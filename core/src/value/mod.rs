//! Values that go into and come out of a run: tensors, sequences, optionals and maps.
//!
//! Values are immutable and counted; a clone shares memory. This module knows nothing of graphs, plans or EPs; memory of
//! an EP is reached through `Lender` only.

mod buffer;
mod element;
mod tensor;

use std::sync::Arc;

pub(crate) use buffer::Lender;
pub use buffer::{ALIGN, Buffer, SpaceId};
pub use element::Element;
pub(crate) use element::align_of_dtype;
pub(crate) use tensor::byte_len;
pub use tensor::{Shape, Tensor, TensorView};

use crate::error::{Error, Result, codes};

/// A value of any kind.
#[derive(Clone, Debug)]
pub enum Value {
    /// A dense tensor.
    Tensor(Tensor),
    /// Any number of values of one type.
    Sequence(Arc<[Value]>),
    /// A value or nothing.
    Optional(Option<Arc<Value>>),
    /// Keys and as many values.
    Map(Arc<Map>),
}

/// A map: a vector of keys (strings or integers), and its values in the same order.
#[derive(Clone, Debug)]
pub struct Map {
    /// Keys.
    pub keys: Tensor,
    /// Values: a tensor with one element per key, or a sequence.
    pub values: Value,
}

/// What is handed to a run.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The caller's memory for the time of the run. It is never kept and never written.
    View(TensorView<'a>),
    /// Counted: may be kept, is never written while the caller has it.
    Shared(&'a Value),
    /// Given away: may be overwritten by its last reader when nobody else shares it.
    Moved(Value),
}

impl Value {
    /// The tensor, or an error that says what it is instead.
    pub fn as_tensor(&self) -> Result<&Tensor> {
        match self {
            Value::Tensor(t) => Ok(t),
            other => Err(Error::new(codes::VALUE_KIND, format!("the value is a {}, not a tensor", other.kind_name()))),
        }
    }

    /// The elements of a tensor of this type in host memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.as_tensor()?.as_slice()
    }

    /// The shape of a tensor, empty for other kinds.
    pub fn shape(&self) -> &[i64] {
        self.as_tensor().map_or(&[], |t| t.shape())
    }

    /// `tensor`, `sequence`, `optional` or `map`.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Tensor(_) => "tensor",
            Value::Sequence(_) => "sequence",
            Value::Optional(_) => "optional",
            Value::Map(_) => "map",
        }
    }

    /// The same with everything in host memory.
    pub fn to_host(&self) -> Result<Value> {
        Ok(match self {
            Value::Tensor(t) => Value::Tensor(t.to_host()?),
            Value::Sequence(s) => Value::Sequence(s.iter().map(Value::to_host).collect::<Result<_>>()?),
            Value::Optional(None) => Value::Optional(None),
            Value::Optional(Some(v)) => Value::Optional(Some(Arc::new(v.to_host()?))),
            Value::Map(m) => Value::Map(Arc::new(Map { keys: m.keys.to_host()?, values: m.values.to_host()? })),
        })
    }

    /// A sequence.
    pub fn sequence(items: impl IntoIterator<Item = Value>) -> Value {
        Value::Sequence(items.into_iter().collect())
    }

    /// A map; there must be as many values as keys.
    pub fn map(keys: Tensor, values: Value) -> Result<Value> {
        let count = match &values {
            Value::Tensor(t) => t.elements(),
            Value::Sequence(s) => s.len(),
            _ => return Err(Error::new(codes::VALUE_KIND, "the values of a map are a tensor or a sequence")),
        };
        if keys.shape().len() != 1 || keys.elements() != count {
            let text = format!("a map has {} keys and {count} values", keys.elements());
            return Err(Error::new(codes::BAD_VALUE, text));
        }
        Ok(Value::Map(Arc::new(Map { keys, values })))
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl<T: Element> From<Vec<T>> for Value {
    /// A vector becomes a tensor of one dimension, without a copy.
    fn from(data: Vec<T>) -> Value {
        let shape = [i64::try_from(data.len()).unwrap_or(i64::MAX)];
        Value::Tensor(
            Tensor::new(&shape, data).expect("a vector is as long as itself and shorter than isize::MAX bytes"),
        )
    }
}

impl<'a> From<TensorView<'a>> for Input<'a> {
    fn from(view: TensorView<'a>) -> Input<'a> {
        Input::View(view)
    }
}

impl<'a> From<&'a Value> for Input<'a> {
    fn from(value: &'a Value) -> Input<'a> {
        Input::Shared(value)
    }
}

impl From<Value> for Input<'_> {
    fn from(value: Value) -> Self {
        Input::Moved(value)
    }
}

impl From<Tensor> for Input<'_> {
    fn from(tensor: Tensor) -> Self {
        Input::Moved(Value::Tensor(tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_need_as_many_values_as_keys() {
        let keys = Tensor::strings(&[2], &["a", "b"]).unwrap();
        let two = Value::from(vec![1.0f32, 2.0]);
        let Value::Map(m) = Value::map(keys.clone(), two.clone()).unwrap() else { panic!("not a map") };
        assert_eq!(m.values.as_slice::<f32>().unwrap(), [1.0, 2.0]);
        assert!(Value::map(keys.clone(), Value::sequence([two.clone()])).unwrap_err().is(codes::BAD_VALUE));
        assert!(Value::map(keys, Value::Optional(None)).unwrap_err().is(codes::VALUE_KIND));
        assert_eq!(Value::sequence([two]).as_tensor().unwrap_err().message(), "the value is a sequence, not a tensor");
    }
}
