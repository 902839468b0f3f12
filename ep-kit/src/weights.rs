//! Middle of compile: every constant that a step reads is packed or copied into one slab, the largest first, and the
//! host hears at once which constants will not be read again.

use crate::draft::{Class, Drafts, Request, label};
use crate::error::Fault;
use crate::item::is_item;
use crate::node::Ints;
use crate::pack::{PackCache, PackKey, Packed};
use crate::parallel::Parallel;
use crate::shapes::count;
use crate::slab::{Slab, aligned};
use crate::weight::{Link, Pack, Weight, WeightSource};
use crate::{consteval, split};
use core::cmp::Reverse;
use core::hash::{Hash, Hasher};
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::NONE;
use ortolan_ep_abi::view::{Node, Value};
use std::collections::{HashMap, HashSet};
use std::hash::DefaultHasher;
use std::sync::Arc;

/// What compile asks of the host.
pub(crate) trait CompileHost {
    fn par(&self) -> &dyn Parallel;
    /// This constant will not be read again.
    fn done_with(&self, constant: u32);
    fn is_cancelled(&self) -> bool;
}

/// Who reads a constant: an input of a step, or an output of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    Step(usize, usize),
    Output(usize),
}

/// Where constants ended up.
#[derive(Default)]
pub(crate) struct Weights {
    pub held: Vec<Arc<Packed>>,
    /// Address, and the number of bytes if it is packed.
    pub at: HashMap<Reader, (usize, Option<usize>)>,
}

/// A constant in the form that some readers want.
struct Wish {
    key: PackKey,
    value: u32,
    readers: Vec<Reader>,
    pack: Option<(Pack, usize, usize)>,
    bytes: usize,
    /// Constants of the program that it is made of, the base first.
    constants: Vec<u32>,
}

/// Where a constant value comes from.
struct Source {
    key: (u64, u64),
    chain: Vec<Link>,
    base_dims: Option<Ints>,
    constants: Vec<u32>,
}

/// Resolves all constants of the part.
pub(crate) fn resolve(drafts: &mut Drafts<'_>, cache: &PackCache, host: &dyn CompileHost) -> Result<Weights, Error> {
    let mut weights = Weights::default();
    let mut wishes = Vec::new();
    collect(drafts, &mut weights, &mut wishes)?;
    let mut missing = Vec::new();
    for wish in wishes {
        match cache.get(&wish.key) {
            Some(packed) => weights.hold(&wish, packed),
            None => missing.push(wish),
        }
    }
    missing.sort_by_key(|w| Reverse(w.bytes));
    let filled = fill_all(drafts, &missing, host)?;
    for (wish, packed) in missing.iter().zip(filled) {
        cache.put(wish.key, &packed);
        weights.hold(wish, packed);
    }
    if !drafts.request.once {
        drop_others(drafts, &missing, host)?;
    }
    Ok(weights)
}

/// Constants that were in the cache, or of which kernels have read a few numbers: a part holds none of them.
fn drop_others(drafts: &Drafts<'_>, filled: &[Wish], host: &dyn CompileHost) -> Result<(), Error> {
    let mut done: HashSet<u32> = filled.iter().flat_map(|w| &w.constants).copied().collect();
    for &id in drafts.request.nodes {
        for &value in request_node(&drafts.request, id)?.inputs().iter().filter(|&&v| v != NONE) {
            if let Class::Constant(k) = drafts.class(value)?
                && done.insert(k)
            {
                host.done_with(k);
            }
        }
    }
    Ok(())
}

impl Weights {
    fn hold(&mut self, wish: &Wish, packed: Arc<Packed>) {
        let address = packed.bytes().as_ptr().expose_provenance();
        let size = wish.pack.map(|(pack, ..)| pack.bytes);
        self.at.extend(wish.readers.iter().map(|&reader| (reader, (address, size))));
        self.held.push(packed);
    }
}

/// Every constant that is read, once per form.
fn collect(drafts: &mut Drafts<'_>, weights: &mut Weights, wishes: &mut Vec<Wish>) -> Result<(), Error> {
    let mut readers = Vec::new();
    for (k, step) in drafts.steps.iter().enumerate().filter(|(_, s)| !s.is_view()) {
        let inputs = step.ins.iter().enumerate().filter(|&(i, _)| step.reads(i));
        readers.extend(inputs.map(|(i, &value)| (Reader::Step(k, i), value)));
    }
    let outputs = drafts.request.outputs.iter().enumerate();
    readers.extend(outputs.map(|(j, &value)| (Reader::Output(j), value)));
    let mut by_key: HashMap<PackKey, usize> = HashMap::new();
    for (reader, read) in readers {
        let value = drafts.root(read);
        if is_item(&drafts.value(value)?) {
            continue;
        }
        let class = drafts.class(value)?;
        if !matches!(class, Class::Constant(_) | Class::Weight) {
            continue;
        }
        if let (true, Class::Constant(k)) = (drafts.request.once, class)
            && let Some(address) = in_place(drafts, k)
        {
            weights.at.insert(reader, (address, None));
            continue;
        }
        let wish = wish(drafts, reader, value, value == read)?;
        match by_key.get(&wish.key) {
            Some(&k) => wishes[k].readers.push(reader),
            None => {
                by_key.insert(wish.key, wishes.len());
                wishes.push(wish);
            }
        }
    }
    Ok(())
}

/// Address of a constant that kernels can read where it is.
fn in_place(drafts: &Drafts<'_>, constant: u32) -> Option<usize> {
    let (value, _) = drafts.request.program.constant(constant)?;
    let (bytes, dtype) = (value.bytes()?, value.dtype()?);
    let address = bytes.as_ptr().expose_provenance();
    let whole = bytes.len() >= size_of_tensor(dtype, value.shape())?;
    (whole && (bytes.is_empty() || address.is_multiple_of(dtype.align()))).then_some(address)
}

/// `packs`: the reader reads the value itself, not a view of it under other dimensions.
fn wish(drafts: &mut Drafts<'_>, reader: Reader, value: u32, packs: bool) -> Result<Wish, Error> {
    let info = drafts.value(value)?;
    let bad = || Error::new(format!("constant '{}' is no tensor of fixed size and plain type", info.name()));
    let dtype = info.dtype().filter(|&d| d as u32 != DType::Str as u32).ok_or_else(bad)?;
    let dims = fixed_dims(drafts, value).ok_or_else(bad)?;
    let plain = size_of_tensor(dtype, &dims).ok_or_else(bad)?;
    let source = source(drafts, value)?;
    let mut pack = None;
    if let Reader::Step(step, input) = reader
        && packs
        && !drafts.request.once
    {
        let chain = WeightSource { dtype, dims: &dims, chain: &source.chain, base: source.base_dims.as_deref() };
        pack = drafts.steps[step].op.pack(input, &chain).map(|pack| (pack, step, input));
    }
    let (format, bytes) = pack.map_or((0, plain), |(pack, ..)| (pack.format, pack.bytes));
    let key = PackKey { base: source.key.0, chain: source.key.1, format };
    Ok(Wish { key, value, readers: vec![reader], pack, bytes, constants: source.constants })
}

/// Dimensions of a value, if no symbol is in them.
pub(crate) fn fixed_dims(drafts: &Drafts<'_>, value: u32) -> Option<Ints> {
    let info = drafts.request.program.value(value)?;
    (0..info.rank()).map(|k| info.fixed_dim(k).filter(|&n| n >= 0)).collect()
}

fn size_of_tensor(dtype: DType, dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))?;
    dtype.bytes(count(dims))
}

/// Follows input 0 down to a constant.
fn source(drafts: &Drafts<'_>, value: u32) -> Result<Source, Error> {
    let mut hasher = DefaultHasher::new();
    let mut constants = Vec::new();
    let mut chain = Vec::new();
    let mut at = value;
    while let Class::Weight = drafts.class(at)? {
        let id = drafts.producer(at).unwrap_or(NONE);
        let draft = drafts.draft(id)?;
        let others = draft.ins.iter().skip(1).filter(|&&v| v != NONE);
        let link = if draft.outs.first() == Some(&at) { draft.op.link() } else { Link::Other };
        for &other in others {
            hash_tree(drafts, other, &mut hasher, &mut constants)?;
        }
        hash_node(draft.view.raw(), at, &mut hasher);
        chain.push(link);
        match draft.ins.first() {
            Some(&input) if input != NONE => at = input,
            _ => break,
        }
    }
    let hash = if chain.is_empty() { 0 } else { hasher.finish() | 1 };
    chain.reverse();
    if let Class::Constant(k) = drafts.class(at)? {
        let base = drafts.request.program.constant(k).map_or(0, |(_, id)| id);
        constants.insert(0, k);
        let base_dims = fixed_dims(drafts, at).filter(|_| !chain.contains(&Link::Other));
        return Ok(Source { key: (base, hash), chain, base_dims, constants });
    }
    hash_tree(drafts, at, &mut hasher, &mut constants)?;
    Ok(Source { key: (hasher.finish(), hash), chain, base_dims: None, constants })
}

/// Hashes a constant value with all that it comes from.
fn hash_tree(drafts: &Drafts<'_>, value: u32, to: &mut DefaultHasher, constants: &mut Vec<u32>) -> Result<(), Error> {
    match drafts.class(value)? {
        Class::Constant(k) => {
            constants.push(k);
            drafts.request.program.constant(k).map(|(_, id)| id).hash(to);
        }
        Class::Weight => {
            let draft = drafts.draft(drafts.producer(value).unwrap_or(NONE))?;
            for &input in draft.ins.iter().filter(|&&v| v != NONE) {
                hash_tree(drafts, input, to, constants)?;
            }
            hash_node(draft.view.raw(), value, to);
        }
        _ => {
            let program = drafts.request.program;
            let known = drafts.value(value)?.known();
            known.iter().map(|&id| program.constant_expr(id)).collect::<Vec<_>>().hash(to);
        }
    }
    Ok(())
}

fn hash_node(node: Node<'_>, output: u32, to: &mut DefaultHasher) {
    (node.domain(), node.op(), node.version()).hash(to);
    node.outputs().iter().position(|&v| v == output).hash(to);
    for attr in node.attrs() {
        (attr.name(), attr.ints()).hash(to);
        attr.floats().iter().for_each(|f| f.to_bits().hash(to));
        attr.strings().for_each(|s| s.hash(to));
        attr.tensors().iter().chain(attr.constant().as_ref()).for_each(|t| hash_tensor(t, to));
    }
}

fn hash_tensor(tensor: &Value<'_>, to: &mut DefaultHasher) {
    (tensor.shape(), tensor.bytes()).hash(to);
}

/// Packs what no other part has packed, into one slab.
fn fill_all(drafts: &Drafts<'_>, wishes: &[Wish], host: &dyn CompileHost) -> Result<Vec<Arc<Packed>>, Error> {
    let mut ranges = Vec::new();
    let mut end = 0usize;
    for wish in wishes {
        let next = aligned(wish.bytes).and_then(|b| end.checked_add(b)).ok_or_else(|| too_large(wish))?;
        ranges.push(end..end + wish.bytes);
        end = next;
    }
    let mut slab = Slab::new(end).map_err(|f| f.at(NONE, "packing the weights"))?;
    let mut uses: HashMap<u32, usize> = HashMap::new();
    wishes.iter().flat_map(|w| &w.constants).for_each(|&k| *uses.entry(k).or_default() += 1);
    for (wish, range) in wishes.iter().zip(&ranges) {
        if host.is_cancelled() {
            return Err(Error::cancelled());
        }
        fill(drafts, wish, &mut slab.bytes_mut()[range.clone()], host)?;
        for k in &wish.constants {
            if let Some(left) = uses.get_mut(k) {
                *left -= 1;
                if *left == 0 && !drafts.request.once {
                    host.done_with(*k);
                }
            }
        }
    }
    let slab = Arc::new(slab);
    Ok(ranges.into_iter().map(|range| Arc::new(Packed::new(slab.clone(), range))).collect())
}

fn too_large(wish: &Wish) -> Error {
    Error::new(format!("{} bytes of packed weights are more than there is address space", wish.bytes))
}

fn fill(drafts: &Drafts<'_>, wish: &Wish, to: &mut [u8], host: &dyn CompileHost) -> Result<(), Error> {
    let request = &drafts.request;
    let from_base = wish.pack.is_some_and(|(pack, ..)| pack.from_base);
    let base = wish.constants.first().copied();
    let direct = match drafts.class(wish.value)? {
        Class::Constant(k) => Some(k),
        _ => base.filter(|_| from_base),
    };
    let evaluated;
    let weight = match direct.and_then(|k| request.program.constant(k)) {
        Some((value, _)) => {
            let data = value.bytes().ok_or_else(|| Error::new("a constant is not in host memory"))?;
            let dtype = value.dtype().ok_or_else(|| Error::new("a constant has an unknown type"))?;
            Weight { dtype, dims: value.shape(), data }
        }
        None => {
            evaluated = evaluate(drafts, wish.value, host)?;
            let dtype = drafts.value(wish.value)?.dtype().unwrap_or(DType::U8);
            Weight { dtype, dims: &evaluated.0, data: evaluated.1.bytes() }
        }
    };
    let Some((_, step, input)) = wish.pack else { return copy(&weight, to, host) };
    let step = &drafts.steps[step];
    let what = || label(&step.view);
    step.op.fill(input, &weight, to, host.par()).map_err(|f| f.at(step.view.raw().id, &what()))
}

fn copy(weight: &Weight<'_>, to: &mut [u8], host: &dyn CompileHost) -> Result<(), Error> {
    if weight.data.len() < to.len() {
        return Err(Error::new(format!("a constant has {} bytes, its type asks for {}", weight.data.len(), to.len())));
    }
    let copied = split::rows(host.par(), to, 1, 1 << 18, |_, at, chunk: &mut [u8]| {
        chunk.copy_from_slice(&weight.data[at..at + chunk.len()]);
    });
    copied.map_err(|stopped| Fault::from(stopped).at(NONE, ""))
}

/// Computes a constant expression with the part's own kernels.
fn evaluate(drafts: &Drafts<'_>, value: u32, host: &dyn CompileHost) -> Result<(Ints, Slab), Error> {
    let mut nodes = HashSet::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        let Class::Weight = drafts.class(value)? else { continue };
        let id = drafts.producer(value).unwrap_or(NONE);
        if nodes.insert(id) {
            let node = request_node(&drafts.request, id)?;
            open.extend(node.inputs().iter().filter(|&&v| v != NONE));
        }
    }
    let nodes: Vec<u32> = drafts.request.nodes.iter().copied().filter(|id| nodes.contains(id)).collect();
    consteval::evaluate(&drafts.request, &nodes, value, host)
}

fn request_node<'a>(request: &Request<'a>, id: u32) -> Result<Node<'a>, Error> {
    request.program.node(id).ok_or_else(|| Error::new(format!("the program has no node {id}")))
}
