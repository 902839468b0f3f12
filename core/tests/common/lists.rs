//! An EP for sequences and optionals: it moves values around by their handles and computes next to nothing.
//!
//! Options: `nodes=A,B` what it claims by node name; all that it knows without.

use std::sync::Arc;

use ortolan_ep_abi::author::{self, Options};
use ortolan_ep_abi::call::{self, Call, ClaimCall, CompileCall, DevicesCall, EMPTY, Error, Result, RunCall};
use ortolan_ep_abi::codes::RejectCode;
use ortolan_ep_abi::raw::{self, NONE};
use ortolan_ep_abi::view::{PartDesc, Program};

use ortolan::SessionEp;
use ortolan::abi::FactoryHandle;

const OPS: &[&str] = &[
    "SequenceConstruct",
    "SequenceInsert",
    "SequenceAt",
    "SequenceLength",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "Neg",
];

pub fn lists(name: &str, nodes: &[&str]) -> SessionEp {
    static V1: raw::EpV1 = author::Table::<Lists, false>::V1;
    // SAFETY: a complete table of this binary.
    let factory = unsafe { FactoryHandle::new(name, &V1, None) }.unwrap();
    let ep = SessionEp::new(Arc::new(factory), "1.0.0", [(String::new(), 21)].into());
    if nodes.is_empty() { ep } else { ep.option("nodes", &nodes.join(",")) }
}

struct Lists;

struct ListsEp {
    nodes: Option<Vec<String>>,
}

struct ListsPart {
    steps: Vec<Step>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
}

struct Step {
    op: String,
    id: u32,
    inputs: Vec<u32>,
    output: u32,
}

impl author::Factory for Lists {
    type Ep = ListsEp;

    fn new(_: &Call<'_>) -> Result<Self> {
        Ok(Lists)
    }

    fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
        call.device(&call::Device { name: "lists", vendor: "test", kind: raw::DEVICE_CPU, ..call::Device::default() });
        Ok(())
    }

    fn create(&self, _: &Call<'_>, _: u32, options: Options<'_>) -> Result<ListsEp> {
        let nodes = options.iter().find(|o| o.0 == "nodes").map(|o| o.1.split(',').map(str::to_owned).collect());
        Ok(ListsEp { nodes })
    }
}

impl author::Ep for ListsEp {
    type Part = ListsPart;

    fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()> {
        for &id in part.nodes() {
            let node = program.node(id).ok_or_else(|| Error::new("there is no such node"))?;
            let mine = self.nodes.as_ref().is_none_or(|n| n.iter().any(|n| n == node.name()));
            if mine && OPS.contains(&node.op()) {
                call.claim(&[id], f64::NAN, false);
            } else {
                call.reject(id, RejectCode::Operator, "not done");
            }
        }
        Ok(())
    }

    fn compile(&self, _: &CompileCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<ListsPart> {
        let step = |&id: &u32| {
            let node = program.node(id)?;
            let (op, inputs, output) = (node.op().to_owned(), node.inputs().to_vec(), node.outputs()[0]);
            Some(Step { op, id, inputs, output })
        };
        let steps = part.nodes().iter().filter_map(step).collect();
        Ok(ListsPart { steps, inputs: part.inputs().to_vec(), outputs: part.outputs().to_vec() })
    }
}

/// Values of one run, by number, and the item lists that they point to.
struct Env<'c> {
    call: &'c RunCall<'c>,
    values: Vec<(u32, raw::Value)>,
    lists: Vec<Box<[raw::Value]>>,
}

impl author::Part for ListsPart {
    type Lane = ();

    fn run(&self, (): &mut (), call: &RunCall<'_>) -> Result<()> {
        let inputs = call.inputs().iter().map(|v| *v.raw());
        let mut env = Env { call, values: self.inputs.iter().copied().zip(inputs).collect(), lists: Vec::new() };
        for step in &self.steps {
            let made = env.step(step).map_err(|e| e.at(step.id))?;
            env.values.push((step.output, made));
        }
        for (at, &output) in (0u32..).zip(&self.outputs) {
            let value = env.of(output)?;
            let none = raw::ReleaseFn { f: None };
            // SAFETY: items are handles of this call's inputs or loose elements; the lists live until the call returns.
            match unsafe { ((*call.raw().host).give)(call.raw(), at, &value, none, std::ptr::null_mut()) } {
                raw::OK => {}
                code => return Err(Error::reported(code)),
            }
        }
        Ok(())
    }
}

impl Env<'_> {
    fn of(&self, id: u32) -> Result<raw::Value> {
        let found = self.values.iter().rev().find(|v| v.0 == id);
        found.map(|v| v.1).ok_or_else(|| Error::new(format!("value {id} is not there")))
    }

    fn step(&mut self, step: &Step) -> Result<raw::Value> {
        let ins = step.inputs.iter().map(|&id| self.of(id)).collect::<Result<Vec<_>>>()?;
        match step.op.as_str() {
            "SequenceConstruct" => self.whole(raw::VALUE_SEQUENCE, &ins),
            "Optional" => self.whole(raw::VALUE_OPTIONAL, &ins),
            "SequenceInsert" => {
                let mut all = items(&ins[0]).to_vec();
                all.push(ins[1]);
                self.whole(raw::VALUE_SEQUENCE, &all)
            }
            "SequenceAt" => {
                let at = longs(&ins[1])[0];
                let found = usize::try_from(at).ok().and_then(|at| items(&ins[0]).get(at).copied());
                found.ok_or_else(|| Error::new(format!("there is no item {at}")).with_code(3))
            }
            "OptionalGetElement" => {
                items(&ins[0]).first().copied().ok_or_else(|| Error::new("it is empty").with_code(3))
            }
            "SequenceLength" => self.loose(7, &[], &(items(&ins[0]).len() as i64).to_ne_bytes()),
            "OptionalHasElement" => self.loose(9, &[], &[u8::from(!items(&ins[0]).is_empty())]),
            _ => {
                // SAFETY: a tensor of f32 in host memory.
                let (shape, data) = unsafe { (raw::slice(ins[0].shape, ins[0].rank as usize), bytes(&ins[0])) };
                let negated: Vec<u8> =
                    data.as_chunks::<4>().0.iter().flat_map(|&b| (-f32::from_ne_bytes(b)).to_ne_bytes()).collect();
                self.loose(1, shape, &negated)
            }
        }
    }

    /// A value of several; memory that was only lent is copied.
    fn whole(&mut self, kind: u32, all: &[raw::Value]) -> Result<raw::Value> {
        let mut list = Vec::new();
        for item in all {
            list.push(match item.kind == raw::VALUE_TENSOR && item.buffer.is_null() {
                // SAFETY: a tensor in host memory.
                true => unsafe { self.loose(item.dtype, raw::slice(item.shape, item.rank as usize), bytes(item))? },
                false => *item,
            });
        }
        let list: Box<[raw::Value]> = list.into();
        let made = raw::Value { kind, items: list.as_ptr(), item_count: list.len() as u32, ..EMPTY };
        self.lists.push(list);
        Ok(made)
    }

    fn loose(&self, dtype: u32, shape: &[i64], data: &[u8]) -> Result<raw::Value> {
        let (raw, mut made) = (self.call.raw(), EMPTY);
        // SAFETY: the host's call; the shape and the place for the value live over it.
        match unsafe { ((*raw.host).output)(raw, NONE, dtype, shape.len() as u32, shape.as_ptr(), &mut made) } {
            // SAFETY: the host gave memory for as many bytes.
            raw::OK => unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), made.data, data.len()) },
            code => return Err(Error::reported(code)),
        }
        Ok(made)
    }
}

fn items(value: &raw::Value) -> &[raw::Value] {
    // SAFETY: the host's value, or one made above.
    unsafe { raw::slice(value.items, value.item_count as usize) }
}

/// # Safety
/// A tensor in host memory.
unsafe fn bytes(value: &raw::Value) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { raw::slice(value.data.cast_const(), value.bytes as usize) }
}

fn longs(value: &raw::Value) -> Vec<i64> {
    // SAFETY: a tensor of int64 in host memory, as the model says.
    unsafe { bytes(value) }.as_chunks::<8>().0.iter().map(|&b| i64::from_ne_bytes(b)).collect()
}
