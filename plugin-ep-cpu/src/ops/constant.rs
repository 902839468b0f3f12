//! Constant. The host folds these nodes into the model's constants; one that reaches an EP is taken all the same.

use super::cost;
use ortolan_ep_kit::element::PLAIN;
use ortolan_ep_kit::{Args, Cost, Fault, Kernel, NodeView, Op, Reject, Slot, any, bytes};

/// Sorted by operator.
pub const KERNELS: &[Kernel] =
    &[Kernel::new("Constant", (1, 25), "constant", any!(constant)).types(&[("T", PLAIN)]).at(&[Slot::Out(0)])];

/// The value's bytes.
struct Constant(Box<[u8]>);

impl Op for Constant {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let scalar = |name: &str| node.float_if(name).map(|x| bytes::of(&[x]).to_vec());
        let value = if let Some(tensor) = node.tensor("value") {
            tensor.bytes().map(<[u8]>::to_vec)
        } else if let Some(x) = node.int_if("value_int") {
            Some(bytes::of(&[x]).to_vec())
        } else if let Some(x) = node.ints("value_ints") {
            Some(bytes::of(x).to_vec())
        } else if let Some(x) = node.floats("value_floats") {
            Some(bytes::of(x).to_vec())
        } else {
            scalar("value_float")
        };
        let value = value.ok_or_else(|| {
            Reject::attribute("none of value, value_int, value_ints, value_float, value_floats holds a dense tensor")
        })?;
        Ok(Constant(value.into()))
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }
}

fn constant(op: &Constant, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let y = args.output::<u8>(0);
    if y.len() != op.0.len() {
        return Err(Fault::data(format!("the value has {} bytes, its type asks for {}", op.0.len(), y.len())));
    }
    y.copy_from_slice(&op.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    #[test]
    fn every_form() {
        let node = || Case::new("Constant", 25);
        let tensor = Tensor::new(&[2, 2], &[1u8, 2, 3, 4]);
        let cases = [
            (node().tensor("value", &tensor), tensor),
            (node().int("value_int", 7), Tensor::new(&[], &[7i64])),
            (node().ints("value_ints", &[7, 8]), Tensor::new(&[2], &[7i64, 8])),
            (node().float("value_float", 0.5), Tensor::new(&[], &[0.5f32])),
            (node().floats("value_floats", &[0.5, 1.5]), Tensor::new(&[2], &[0.5f32, 1.5])),
        ];
        for (case, want) in cases {
            assert_eq!(case.output(want.dtype, &want.dims).run(), [want]);
        }
        let (code, text) = node().text("value_string", "x").output(DType::F32, &[]).rejection();
        assert!(code == RejectCode::Attribute && text.contains("value_floats"), "{text}");
    }
}
