//! The tables of `ortolan.ep.v1`: plain C, the whole of what crosses between host and plugin. A pure list, exempt from the
//! length rule.
//!
//! Version 1.0 is frozen: nothing below changes any more, new functions come as new tables by id. What each side may rely
//! on stands in `docs/plugins.md`, rule by rule. What holds for everything below:
//!
//! - All functions are `unsafe extern "C"` and never unwind. Ids are `u32`, [`NONE`] means "no such".
//! - *Call-long* means valid until the function that received it returns. Text is UTF-8 without a terminating NUL.
//! - Nothing that one side allocated is freed by the other.
//! - Functions return [`OK`], or a code after `error` was called; codes above 0 are the EP's own.

use core::ffi::c_void;

/// Major version of the ABI: host and plugin must agree.
pub const ABI_MAJOR: u32 = 1;
/// Minor version of the ABI that this crate describes; equals the crate's minor version.
pub const ABI_MINOR: u32 = 0;
/// First bytes of the entry static.
pub const MAGIC: [u8; 8] = *b"ORTOLEP\x01";
/// Id of the one table that an EP must serve.
pub const EP_V1_ID: &str = "ortolan.ep.v1";
/// Id of the host's main table, as manifests name it under `needs`.
pub const HOST_V1_ID: &str = "ortolan.host.v1";
/// Id of the host's table for runs that finish after `run` has returned.
pub const HOST_FENCE_V1_ID: &str = "ortolan.host.fence.v1";
/// Symbol of the entry static.
pub const ENTRY_SYMBOL: &str = "ortolan_ep_entry_v1";
/// File section of the manifest.
pub const MANIFEST_SECTION: &str = ".ortolan";
/// File section of the operator catalogue.
pub const CATALOGUE_SECTION: &str = ".ortcat";

/// "No such id".
pub const NONE: u32 = 0xFFFF_FFFF;
/// A number that is not known (yet). Every other one is a number.
pub const UNKNOWN: i64 = i64::MIN;
/// `port`: only the input's shape is read, so it may lie anywhere and its data must not be touched.
pub const PORT_SHAPE: u32 = 0xFFFF_FFFE;

/// Done.
pub const OK: i32 = 0;
/// Failed; `error` was called and has the sentence.
pub const FAILED: i32 = -1;
/// Stopped because the call's cancel word was set.
pub const CANCELLED: i32 = -2;
/// A memory limit was reached.
pub const MEMORY: i32 = -3;
/// The device is gone, and with it all that lay on it. The host calls nothing of this EP any more but what frees.
pub const LOST: i32 = -4;
/// A panic was caught at the border.
pub const PANIC: i32 = -100;

/// `Value.kind`: absent optional input.
pub const VALUE_ABSENT: u32 = 0;
/// `Value.kind`: tensor.
pub const VALUE_TENSOR: u32 = 1;
/// `Value.kind`: sequence; `items` are its elements.
pub const VALUE_SEQUENCE: u32 = 2;
/// `Value.kind`: optional with 0 or 1 items.
pub const VALUE_OPTIONAL: u32 = 3;
/// `Value.kind`: map with 2 items: keys and values.
pub const VALUE_MAP: u32 = 4;

/// `Value.flags`: never write to it.
pub const VALUE_CONST: u32 = 1;
/// `Value.flags`: this is the last reader, which may overwrite it or give it back as an output.
pub const VALUE_DONATED: u32 = 2;

/// `ValueInfo.flags`: depends on constants only.
pub const INFO_CONST_EXPR: u32 = 1;

/// `Symbol.kind`: dimension `at` of the value.
pub const SYMBOL_DIM: u32 = 0;
/// `Symbol.kind`: element `at` of a small integer value.
pub const SYMBOL_ELEMENT: u32 = 1;

/// `PartDesc.flags`, claim: which of these nodes?
pub const PART_FREE: u32 = 1;
/// `PartDesc.flags`: these nodes together, with these ends.
pub const PART_EXACT: u32 = 2;
/// `PartDesc.flags`: the part will run once, so packing does not pay.
pub const PART_ONCE: u32 = 4;

/// `Claim.flags`: all nodes of the claim or none.
pub const CLAIM_WHOLE: u32 = 1;

/// `Device.flags`: wants every symbol bound when it compiles.
pub const DEVICE_STATIC_SHAPES: u32 = 1;

/// `Device.kind`: CPU.
pub const DEVICE_CPU: u32 = 0;
/// `Device.kind`: GPU.
pub const DEVICE_GPU: u32 = 1;
/// `Device.kind`: NPU.
pub const DEVICE_NPU: u32 = 2;
/// `Device.kind`: anything else.
pub const DEVICE_OTHER: u32 = 3;

/// `Call.flags`: report [`Event`]s with `profile`.
pub const CALL_PROFILE: u32 = 1;

/// `Call.wants`: leave the output where you like.
pub const WANT_ANY: u32 = 0;
/// `Call.wants`: dense host memory.
pub const WANT_HOST: u32 = 1;
/// `Call.wants`: the shape is enough.
pub const WANT_SHAPE: u32 = 2;

/// `Entry.flags`: linked into the host's own binary, sharing its standard library.
pub const ENTRY_STATIC: u32 = 1;

/// `Expr.op`: the operators of the expression table.
pub mod expr {
    /// `v` itself.
    pub const CONST: u32 = 0;
    /// Symbol number `a`.
    pub const SYMBOL: u32 = 1;
    /// a + b, wrapping.
    pub const ADD: u32 = 2;
    /// a - b, wrapping.
    pub const SUB: u32 = 3;
    /// a * b, wrapping.
    pub const MUL: u32 = 4;
    /// a / b rounded towards minus infinity; UNKNOWN when b is 0.
    pub const DIV: u32 = 5;
    /// a / b rounded towards plus infinity; UNKNOWN when b is 0.
    pub const CEILDIV: u32 = 6;
    /// a - b * floor(a / b); UNKNOWN when b is 0.
    pub const MOD: u32 = 7;
    /// The smaller.
    pub const MIN: u32 = 8;
    /// The larger.
    pub const MAX: u32 = 9;
    /// ONNX broadcasting of two dims: the other if one is 1, else both must be equal, or it is UNKNOWN.
    pub const BCAST: u32 = 10;
    /// a == b as 0 or 1.
    pub const EQ: u32 = 11;
    /// a < b as 0 or 1.
    pub const LT: u32 = 12;
    /// Both non-zero, as 0 or 1.
    pub const AND: u32 = 13;
    /// Either non-zero, as 0 or 1.
    pub const OR: u32 = 14;
    /// a is 0, as 0 or 1.
    pub const NOT: u32 = 15;
    /// a if expression `v` is not 0, else b. Here `v` is an expression id.
    pub const SELECT: u32 = 16;
}

opaque! {
    /// A counted buffer of the host.
    Buffer;
    /// The host's side of a running call.
    CallCtx;
    /// One per process and library.
    Factory;
    /// One per session and device.
    Ep;
    /// A compiled part; immutable.
    Part;
    /// What changes while a part runs; one running call at a time.
    Lane;
    /// A run that has not finished yet.
    Fence;
}

c_struct! {
    /// UTF-8 text, not terminated.
    pub struct Str {
        /// First byte; may be dangling when `len` is 0.
        ptr: *const u8,
        /// Bytes.
        len: usize,
    }
}
c_struct! {
    /// A pair of texts.
    pub struct Kv {
        /// Key.
        key: Str,
        /// Value.
        value: Str,
    }
}
c_struct! {
    /// A run inside `Program.ids` or `Program.attrs`.
    pub struct Span {
        /// First index.
        at: u32,
        /// Count.
        len: u32,
    }
}
c_struct! {
    /// One tensor, sequence, optional or map. Tensors are dense, row-major, little-endian; strings: `data` is a
    /// `*const Str`; types below a byte are packed, low bits first.
    pub struct Value {
        /// `VALUE_*`.
        kind: u32,
        /// ONNX type number of a tensor.
        dtype: u32,
        /// Dimensions.
        rank: u32,
        /// `VALUE_CONST`, `VALUE_DONATED`.
        flags: u32,
        /// `rank` sizes.
        shape: *const i64,
        /// Alignment: host buffers 64, run inputs that of their element, constants none.
        data: *mut u8,
        /// Size of `data`.
        bytes: u64,
        /// 0 is host memory; in any other space only its owner looks behind `data`.
        space: u32,
        /// Number of items.
        item_count: u32,
        /// Items of a sequence, optional or map.
        items: *const Value,
        /// The host's counted handle; null: borrowed for the call, cannot be given back.
        buffer: *mut Buffer,
    }
}
c_struct! {
    /// A value's type. The rank is always known; dimensions are expressions.
    pub struct Type {
        /// `VALUE_*`.
        kind: u32,
        /// ONNX type number of a tensor, key type number of a map.
        dtype: u32,
        /// Dimensions of a tensor.
        rank: u32,
        /// First of `rank` expression ids in `Program.ids`.
        dims: u32,
        /// Type of items, or NONE.
        elem: u32,
    }
}
c_struct! {
    /// A value of the program.
    pub struct ValueInfo {
        /// Name, for messages only.
        name: Str,
        /// Index into `Program.types`.
        ty: u32,
        /// Graph it lives in.
        graph: u32,
        /// Node that makes it, or NONE.
        producer: u32,
        /// Index into `Program.constants`, or NONE.
        constant: u32,
        /// Expression ids of its elements when they are small integers computed from shapes; else empty.
        known: Span,
        /// `INFO_CONST_EXPR`.
        flags: u32,
        /// How many inputs read it.
        uses: u32,
    }
}
c_struct! {
    /// An operator call.
    pub struct Node {
        /// Operator type.
        op: Str,
        /// Domain; the standard one is empty.
        domain: Str,
        /// Name, for messages only.
        name: Str,
        /// Since-version of the form in which it is written.
        version: u32,
        /// Graph it stands in.
        graph: u32,
        /// Value ids in `Program.ids`; an absent one is NONE.
        inputs: Span,
        /// Value ids in `Program.ids`; an absent one is NONE.
        outputs: Span,
        /// In `Program.attrs`; defaults are filled in.
        attrs: Span,
    }
}
c_struct! {
    /// An attribute: always a list, one element long where ONNX has a scalar.
    pub struct Attr {
        /// Name.
        name: Str,
        /// ONNX AttributeType number.
        kind: u32,
        /// Index into `Program.constants` when it is large, else NONE.
        constant: u32,
        /// Elements behind `data`.
        len: u64,
        /// `f32`, `i64`, `Str`, `Value`, or `u32` graph ids, by kind.
        data: *const c_void,
    }
}
c_struct! {
    /// Graph 0 is the model; bodies name the node that they belong to. Nodes are in topological order.
    pub struct Graph {
        /// Node whose body this is, or NONE.
        parent: u32,
        /// Node ids in `Program.ids`.
        nodes: Span,
        /// Value ids in `Program.ids`.
        inputs: Span,
        /// Value ids in `Program.ids`.
        outputs: Span,
    }
}
c_struct! {
    /// A hash-consed expression over symbols, children before parents; equal ids are equal numbers.
    pub struct Expr {
        /// `expr::*`.
        op: u32,
        /// First operand, or the symbol.
        a: u32,
        /// Second operand.
        b: u32,
        /// Zero.
        pad: u32,
        /// The constant, or the condition of a select.
        v: i64,
    }
}
c_struct! {
    /// A number that is free until a run binds it.
    pub struct Symbol {
        /// Value that defines it.
        value: u32,
        /// Dimension or element.
        at: u32,
        /// `SYMBOL_*`.
        kind: u32,
    }
}
c_struct! {
    /// A constant of the model.
    pub struct Constant {
        /// Its bytes; no alignment is promised.
        value: Value,
        /// The same number is the same bytes for the life of the process, so what is made of them can be shared.
        id: u64,
    }
}
c_struct! {
    /// An opset import.
    pub struct Opset {
        /// Domain.
        domain: Str,
        /// Version.
        version: u64,
    }
}
c_struct! {
    /// The model in one dialect: flat, read-only. The same `id` has the same pointers, kept from the first claim to the last compile.
    pub struct Program {
        /// Size of this struct in the host.
        struct_size: u32,
        /// 1.
        version: u32,
        /// Equal ids are equal programs.
        id: u64,
        /// Nodes of all graphs.
        nodes: *const Node,
        /// Values of all graphs.
        values: *const ValueInfo,
        /// Graph 0 is the model.
        graphs: *const Graph,
        /// Constants of all graphs.
        constants: *const Constant,
        /// Expressions, children before parents.
        exprs: *const Expr,
        /// Symbols.
        symbols: *const Symbol,
        /// Types.
        types: *const Type,
        /// Attributes of all nodes.
        attrs: *const Attr,
        /// Lists of ids, addressed by spans.
        ids: *const u32,
        /// The EP's opsets, in which the program is written.
        opsets: *const Opset,
        /// Count of nodes.
        node_count: u32,
        /// Count of values.
        value_count: u32,
        /// Count of graphs.
        graph_count: u32,
        /// Count of constants.
        constant_count: u32,
        /// Count of expressions.
        expr_count: u32,
        /// Count of symbols.
        symbol_count: u32,
        /// Count of types.
        type_count: u32,
        /// Count of attributes.
        attr_count: u32,
        /// Count of ids.
        id_count: u32,
        /// Count of opsets.
        opset_count: u32,
    }
}
c_struct! {
    /// Nodes of one graph, with the values that enter and leave.
    pub struct PartDesc {
        /// Node ids, in topological order.
        nodes: *const u32,
        /// Value ids that a run hands in, in order.
        inputs: *const u32,
        /// Value ids that a run asks for, in order.
        outputs: *const u32,
        /// Count of nodes.
        node_count: u32,
        /// Count of inputs.
        input_count: u32,
        /// Count of outputs.
        output_count: u32,
        /// `PART_*`.
        flags: u32,
    }
}
c_struct! {
    /// Nodes that an EP would run.
    pub struct Claim {
        /// Node ids.
        nodes: *const u32,
        /// Count of nodes.
        count: u32,
        /// `CLAIM_WHOLE`.
        flags: u32,
        /// Estimated time of all of them for the hinted symbols, in ns; NaN is unknown.
        cost_ns: f64,
    }
}
c_struct! {
    /// A device of a factory.
    pub struct Device {
        /// Name that a person knows it by.
        name: Str,
        /// Maker.
        vendor: Str,
        /// `DEVICE_*`.
        kind: u32,
        /// Number to give to `ep_new`.
        ordinal: u32,
        /// Its memory; 0 is unknown.
        memory_bytes: u64,
        /// More about it.
        info: *const Kv,
        /// Count of info pairs.
        info_count: u32,
        /// `DEVICE_STATIC_SHAPES`.
        flags: u32,
        /// A transfer between its memory and the host's, to begin with, in ns.
        transfer_ns: u64,
        /// And bytes per second of a large one; all bits set: it works in host memory. Both 0: not known.
        transfer_bytes_per_s: u64,
    }
}
c_struct! {
    /// One kernel of a profiled run.
    pub struct Event {
        /// Kernel name.
        kernel: Str,
        /// Node id.
        node: u32,
        /// Worker, 0 is the caller.
        worker: u32,
        /// On the clock of `now_ns`.
        start_ns: u64,
        /// Duration.
        dur_ns: u64,
        /// Floating-point operations, 0 if not counted.
        flops: u64,
        /// Bytes read and written, 0 if not counted.
        bytes: u64,
    }
}
callback! {
    /// Body of a `parallel_for`: user pointer, worker below the width, begin, end.
    pub struct RangeFn(unsafe extern "C" fn(*mut c_void, u32, usize, usize))
}
callback! {
    /// Frees memory that was given to the host. Called once, on any thread; null means there is nothing to free.
    pub struct ReleaseFn(Option<unsafe extern "C" fn(*mut c_void)>)
}
c_struct! {
    /// Every call gets one; it and all it points to are call-long.
    pub struct Call {
        /// The host's table; valid for the life of the process.
        host: *const HostV1,
        /// The host's side of this call.
        ctx: *mut CallCtx,
        /// Run and copy: inputs in the part's order.
        inputs: *const Value,
        /// Run: `WANT_*` per output.
        wants: *const u32,
        /// Numbers of the program's symbols, or UNKNOWN (claim and compile: hints).
        symbols: *const i64,
        /// Equal binding in one lane means equal symbols, so all shape work can be skipped.
        binding: u64,
        /// Not 0 once the call should stop; read it atomically.
        cancel: *const u32,
        /// Count of inputs.
        input_count: u32,
        /// Count of outputs.
        output_count: u32,
        /// Count of symbols.
        symbol_count: u32,
        /// Width of `parallel_for`: bodies that run at once.
        width: u32,
        /// `CALL_PROFILE`.
        flags: u32,
    }
}
c_struct! {
    /// The host's functions. The first five may be called from any thread at any time; the others inside a call, on
    /// its thread (`done_with` also inside its `parallel_for`).
    pub struct HostV1 {
        /// Size of this struct in the host.
        struct_size: u32,
        /// 1.
        version: u32,
        /// Level (1 error to 5 trace), target: is it wanted?
        log_enabled: unsafe extern "C" fn(u32, Str) -> u32,
        /// Level, target, message.
        log: unsafe extern "C" fn(u32, Str, Str),
        /// The clock of events.
        now_ns: unsafe extern "C" fn() -> u64,
        /// Interns the name of a memory space; the same name is the same memory for every EP.
        space: unsafe extern "C" fn(Str) -> u32,
        /// Another host table by id, or null.
        query: unsafe extern "C" fn(Str) -> *const c_void,
        /// Code, node or NONE, sentence. Hands the code back to be returned.
        error: unsafe extern "C" fn(*const Call, i32, u32, Str) -> i32,
        /// devices: one call each.
        device: unsafe extern "C" fn(*const Call, *const Device),
        /// devices: a code of the closed list, and a sentence: why there is none.
        no_device: unsafe extern "C" fn(*const Call, u32, Str),
        /// claim: these would run here.
        claim: unsafe extern "C" fn(*const Call, *const Claim),
        /// claim: node, a code of the closed list, a sentence that names the attribute, type or dimension.
        reject: unsafe extern "C" fn(*const Call, u32, u32, Str),
        /// A part as a serialized ONNX model, made on demand, call-long. Its k-th node, depth first, is the k-th node id.
        onnx: unsafe extern "C" fn(*const Call, *const Program, *const PartDesc, *mut Str) -> i32,
        /// compile: this constant will never be read again, so its pages can go. Not said: kept for the part's life.
        done_with: unsafe extern "C" fn(*const Call, u32),
        /// compile: 0 input or 1 output, index, the space it is wanted or left in (host memory if not called); inputs: or PORT_SHAPE.
        port: unsafe extern "C" fn(*const Call, u32, u32, u32),
        /// run: index (NONE: a loose element), dtype, rank, shape: host memory to write. Again for an index only with the same shape.
        output: unsafe extern "C" fn(*const Call, u32, u32, u32, *const i64, *mut Value) -> i32,
        /// run: instead of `output`: own memory with a release, an input's buffer, or a composite. Strings are copied. Released once, also when it is refused.
        give: unsafe extern "C" fn(*const Call, u32, *const Value, ReleaseFn, *mut c_void) -> i32,
        /// run: scratch, aligned to 64, gone when the call returns; null: a limit was reached.
        alloc: unsafe extern "C" fn(*const Call, u64) -> *mut u8,
        /// n, grain: chunks begin at multiples of grain, at most width at once. CANCELLED: some were not run.
        parallel_for: unsafe extern "C" fn(*const Call, usize, usize, RangeFn, *mut c_void) -> i32,
        /// run: only when CALL_PROFILE is set, once per call.
        profile: unsafe extern "C" fn(*const Call, *const Event, usize),
    }
}
c_struct! {
    /// The host's table `ortolan.host.fence.v1`: runs that finish later than `run` returns.
    pub struct HostFenceV1 {
        /// Size of this struct in the host.
        struct_size: u32,
        /// 1.
        version: u32,
        /// run: the outputs asked for so far are complete only when the fence is; at most once per call. Inputs, outputs and the lane stay untouched until then.
        defer: unsafe extern "C" fn(*const Call, *mut *mut Fence) -> i32,
        /// Any thread, once per fence: code and, when it is not OK, a sentence.
        complete: unsafe extern "C" fn(*mut Fence, i32, Str),
        /// Any thread, before `complete`: what `profile` would have said. Only when the run's CALL_PROFILE was set.
        profile: unsafe extern "C" fn(*mut Fence, *const Event, usize),
    }
}
c_struct! {
    /// The EP's one table, frozen as `ortolan.ep.v1`.
    pub struct EpV1 {
        /// Size of this struct in the plugin.
        struct_size: u32,
        /// 1.
        version: u32,
        /// Once per process; starts no device and no thread.
        factory_new: unsafe extern "C" fn(*const Call, *mut *mut Factory) -> i32,
        /// After all its EPs.
        factory_free: unsafe extern "C" fn(*mut Factory),
        /// One or more `device`, or one or more `no_device`.
        devices: unsafe extern "C" fn(*mut Factory, *const Call) -> i32,
        /// One per session and device ordinal; an unknown option is an error.
        ep_new: unsafe extern "C" fn(*mut Factory, *const Call, u32, *const Kv, usize, *mut *mut Ep) -> i32,
        /// After all its parts.
        ep_free: unsafe extern "C" fn(*mut Ep),
        /// Answers every asked node once, with `claim` or `reject`. No memory of earlier calls; must be fast.
        claim: unsafe extern "C" fn(*mut Ep, *const Call, *const Program, *const PartDesc) -> i32,
        /// Constants may be read; nodes whose values are CONST_EXPR are evaluated here.
        compile: unsafe extern "C" fn(*mut Ep, *const Call, *const Program, *const PartDesc, *mut *mut Part) -> i32,
        /// After all its lanes.
        part_free: unsafe extern "C" fn(*mut Part),
        /// Many threads at once, never two with one lane; the lane is null the first time.
        run: unsafe extern "C" fn(*const Part, *mut *mut Lane, *const Call) -> i32,
        /// May come at any time between runs.
        lane_free: unsafe extern "C" fn(*const Part, *mut Lane),
        /// Every input k to output k in the given space, all from one space; required of an EP that owns a space, else null.
        copy: Option<unsafe extern "C" fn(*mut Ep, *const Call, u32) -> i32>,
        /// Lets go of whatever the factory keeps for EPs to come; null: it keeps nothing. Any thread, at any time.
        factory_trim: Option<unsafe extern "C" fn(*mut Factory)>,
    }
}
c_struct! {
    /// Symbol `ortolan_ep_entry_v1`: a static, so that reading it runs no code. Manifest and catalogue are also the
    /// file's sections, byte for byte.
    pub struct Entry {
        /// `MAGIC`.
        magic: [u8; 8],
        /// `ABI_MAJOR` of the plugin.
        abi_major: u32,
        /// `ABI_MINOR` of the plugin.
        abi_minor: u32,
        /// Size of this struct in the plugin.
        struct_size: u32,
        /// `ENTRY_STATIC`.
        flags: u32,
        /// `V1_FINGERPRINT` of the plugin.
        fingerprint: u64,
        /// JSON.
        manifest: Str,
        /// One row a line.
        catalogue: Str,
        /// A table by id, or null.
        query: unsafe extern "C" fn(Str) -> *const c_void,
    }
}

/// Every struct of version 1, in order.
pub const V1_LAYOUT: &[crate::layout::StructLayout] = &[
    Str::LAYOUT,
    Kv::LAYOUT,
    Span::LAYOUT,
    Value::LAYOUT,
    Type::LAYOUT,
    ValueInfo::LAYOUT,
    Node::LAYOUT,
    Attr::LAYOUT,
    Graph::LAYOUT,
    Expr::LAYOUT,
    Symbol::LAYOUT,
    Constant::LAYOUT,
    Opset::LAYOUT,
    Program::LAYOUT,
    PartDesc::LAYOUT,
    Claim::LAYOUT,
    Device::LAYOUT,
    Event::LAYOUT,
    RangeFn::LAYOUT,
    ReleaseFn::LAYOUT,
    Call::LAYOUT,
    HostV1::LAYOUT,
    HostFenceV1::LAYOUT,
    EpV1::LAYOUT,
    Entry::LAYOUT,
];

/// What host and plugin compare: names, layouts and signatures of all of [`V1_LAYOUT`].
pub const V1_FINGERPRINT: u64 = crate::layout::fingerprint(V1_LAYOUT);

macro_rules! shareable {
    ($($n:ident)*) => { $(
        // SAFETY: read-only data behind the pointers; the rules of the ABI make every function callable as documented.
        unsafe impl Send for $n {}
        // SAFETY: as above.
        unsafe impl Sync for $n {}
    )* };
}
shareable!(Str Kv HostV1 HostFenceV1 EpV1 Entry);

impl Str {
    /// A view of `text`.
    pub const fn new(text: &str) -> Self {
        Str { ptr: text.as_ptr(), len: text.len() }
    }

    /// The text; invalid UTF-8 is replaced by a fixed note.
    ///
    /// # Safety
    /// `ptr` and `len` describe memory that lives for `'a`.
    pub unsafe fn as_str<'a>(self) -> &'a str {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.as_bytes() };
        core::str::from_utf8(bytes).unwrap_or("<not UTF-8>")
    }

    /// The bytes.
    ///
    /// # Safety
    /// `ptr` and `len` describe memory that lives for `'a`.
    pub unsafe fn as_bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { slice(self.ptr, self.len) }
    }
}

/// A slice over `len` elements; empty for a null pointer.
///
/// # Safety
/// If not null, `ptr` addresses `len` aligned, initialised elements that live, unchanged, for `'a`.
pub const unsafe fn slice<'a, T>(ptr: *const T, len: usize) -> &'a [T] {
    if len == 0 || ptr.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise; not null and not empty as checked above.
    unsafe { core::slice::from_raw_parts(ptr, len) }
}
