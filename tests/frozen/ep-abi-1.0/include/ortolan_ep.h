/* The C face of Ortolan's EP ABI. Generated from the crate ortolan-ep-abi; do not edit.
 *
 * An EP library exports one constant of type OrtolanEpEntry named ortolan_ep_entry_v1 and carries its manifest and its
 * operator catalogue in the file sections .ortolan and .ortcat, byte for byte what the entry points to.
 * All functions must be safe to call from C and must not throw. Ids are uint32_t; ORTOLAN_EP_NONE is "no such".
 * Call-long: valid until the function that received it returns. */
#ifndef ORTOLAN_EP_H
#define ORTOLAN_EP_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#define ORTOLAN_EP_STATIC_ASSERT(c, m) static_assert(c, m)
#else
#define ORTOLAN_EP_STATIC_ASSERT(c, m) _Static_assert(c, m)
#endif

/* ORTOLAN_EP_TARGET: what a manifest says under "target". */
#if defined(__x86_64__) || defined(_M_X64)
#define ORTOLAN_EP_ARCH "x86_64"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define ORTOLAN_EP_ARCH "aarch64"
#else
#error "no ORTOLAN_EP_ARCH for this processor"
#endif
#if defined(__linux__) && defined(__GLIBC__)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH "-linux-gnu"
#elif defined(__linux__)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH "-linux-musl"
#elif defined(__APPLE__)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH "-macos"
#elif defined(_WIN32)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH "-windows"
#else
#error "no ORTOLAN_EP_TARGET for this system"
#endif

#define ORTOLAN_EP_V1_FINGERPRINT 0xf5ea977de400c7c7ull
#define ORTOLAN_EP_V1_FINGERPRINT_TEXT "0xf5ea977de400c7c7"
#define ORTOLAN_EP_MAGIC { 'O', 'R', 'T', 'O', 'L', 'E', 'P', 1 }
#define ORTOLAN_EP_V1_ID "ortolan.ep.v1"
#define ORTOLAN_HOST_V1_ID "ortolan.host.v1"
#define ORTOLAN_HOST_FENCE_V1_ID "ortolan.host.fence.v1"
#define ORTOLAN_EP_NONE 0xFFFFFFFFu
#define ORTOLAN_EP_PORT_SHAPE 0xFFFFFFFEu
#define ORTOLAN_EP_UNKNOWN INT64_MIN
#define ORTOLAN_EP_ABI_MAJOR 1u
#define ORTOLAN_EP_ABI_MINOR 0u
#define ORTOLAN_EP_VALUE_ABSENT 0u
#define ORTOLAN_EP_VALUE_TENSOR 1u
#define ORTOLAN_EP_VALUE_SEQUENCE 2u
#define ORTOLAN_EP_VALUE_OPTIONAL 3u
#define ORTOLAN_EP_VALUE_MAP 4u
#define ORTOLAN_EP_VALUE_CONST 1u
#define ORTOLAN_EP_VALUE_DONATED 2u
#define ORTOLAN_EP_INFO_CONST_EXPR 1u
#define ORTOLAN_EP_SYMBOL_DIM 0u
#define ORTOLAN_EP_SYMBOL_ELEMENT 1u
#define ORTOLAN_EP_PART_FREE 1u
#define ORTOLAN_EP_PART_EXACT 2u
#define ORTOLAN_EP_PART_ONCE 4u
#define ORTOLAN_EP_CLAIM_WHOLE 1u
#define ORTOLAN_EP_DEVICE_STATIC_SHAPES 1u
#define ORTOLAN_EP_DEVICE_CPU 0u
#define ORTOLAN_EP_DEVICE_GPU 1u
#define ORTOLAN_EP_DEVICE_NPU 2u
#define ORTOLAN_EP_DEVICE_OTHER 3u
#define ORTOLAN_EP_CALL_PROFILE 1u
#define ORTOLAN_EP_WANT_ANY 0u
#define ORTOLAN_EP_WANT_HOST 1u
#define ORTOLAN_EP_WANT_SHAPE 2u
#define ORTOLAN_EP_EXPR_CONST 0u
#define ORTOLAN_EP_EXPR_SYMBOL 1u
#define ORTOLAN_EP_EXPR_ADD 2u
#define ORTOLAN_EP_EXPR_SUB 3u
#define ORTOLAN_EP_EXPR_MUL 4u
#define ORTOLAN_EP_EXPR_DIV 5u
#define ORTOLAN_EP_EXPR_CEILDIV 6u
#define ORTOLAN_EP_EXPR_MOD 7u
#define ORTOLAN_EP_EXPR_MIN 8u
#define ORTOLAN_EP_EXPR_MAX 9u
#define ORTOLAN_EP_EXPR_BCAST 10u
#define ORTOLAN_EP_EXPR_EQ 11u
#define ORTOLAN_EP_EXPR_LT 12u
#define ORTOLAN_EP_EXPR_AND 13u
#define ORTOLAN_EP_EXPR_OR 14u
#define ORTOLAN_EP_EXPR_NOT 15u
#define ORTOLAN_EP_EXPR_SELECT 16u
#define ORTOLAN_EP_OK (0)
#define ORTOLAN_EP_FAILED (-1)
#define ORTOLAN_EP_CANCELLED (-2)
#define ORTOLAN_EP_MEMORY (-3)
#define ORTOLAN_EP_LOST (-4)
#define ORTOLAN_EP_PANIC (-100)
#define ORTOLAN_EP_REJECT_OPERATOR 1u
#define ORTOLAN_EP_REJECT_VERSION 2u
#define ORTOLAN_EP_REJECT_DTYPE 3u
#define ORTOLAN_EP_REJECT_RANK 4u
#define ORTOLAN_EP_REJECT_SHAPE 5u
#define ORTOLAN_EP_REJECT_ATTRIBUTE 6u
#define ORTOLAN_EP_REJECT_LAYOUT 7u
#define ORTOLAN_EP_REJECT_MEMORY 8u
#define ORTOLAN_EP_REJECT_POLICY 9u
#define ORTOLAN_EP_REJECT_ERROR 10u
#define ORTOLAN_EP_NO_DEVICE_NO_DRIVER 1u
#define ORTOLAN_EP_NO_DEVICE_DRIVER_TOO_OLD 2u
#define ORTOLAN_EP_NO_DEVICE_NO_HARDWARE 3u
#define ORTOLAN_EP_NO_DEVICE_UNSUPPORTED_HARDWARE 4u
#define ORTOLAN_EP_NO_DEVICE_MISSING_LIBRARY 5u
#define ORTOLAN_EP_NO_DEVICE_PERMISSION 6u
#define ORTOLAN_EP_NO_DEVICE_DISABLED 7u
#define ORTOLAN_EP_NO_DEVICE_ERROR 8u
#define ORTOLAN_EP_DTYPE_F32 1u
#define ORTOLAN_EP_DTYPE_U8 2u
#define ORTOLAN_EP_DTYPE_I8 3u
#define ORTOLAN_EP_DTYPE_U16 4u
#define ORTOLAN_EP_DTYPE_I16 5u
#define ORTOLAN_EP_DTYPE_I32 6u
#define ORTOLAN_EP_DTYPE_I64 7u
#define ORTOLAN_EP_DTYPE_STRING 8u
#define ORTOLAN_EP_DTYPE_BOOL 9u
#define ORTOLAN_EP_DTYPE_F16 10u
#define ORTOLAN_EP_DTYPE_F64 11u
#define ORTOLAN_EP_DTYPE_U32 12u
#define ORTOLAN_EP_DTYPE_U64 13u
#define ORTOLAN_EP_DTYPE_COMPLEX64 14u
#define ORTOLAN_EP_DTYPE_COMPLEX128 15u
#define ORTOLAN_EP_DTYPE_BF16 16u
#define ORTOLAN_EP_DTYPE_F8E4M3FN 17u
#define ORTOLAN_EP_DTYPE_F8E4M3FNUZ 18u
#define ORTOLAN_EP_DTYPE_F8E5M2 19u
#define ORTOLAN_EP_DTYPE_F8E5M2FNUZ 20u
#define ORTOLAN_EP_DTYPE_U4 21u
#define ORTOLAN_EP_DTYPE_I4 22u
#define ORTOLAN_EP_DTYPE_F4E2M1 23u
#define ORTOLAN_EP_DTYPE_F8E8M0 24u
#define ORTOLAN_EP_DTYPE_U2 25u
#define ORTOLAN_EP_DTYPE_I2 26u

/* Handles: only the side that made one looks into it. */
typedef struct OrtolanEpBuffer OrtolanEpBuffer;
typedef struct OrtolanEpCallCtx OrtolanEpCallCtx;
typedef struct OrtolanEpFactory OrtolanEpFactory;
typedef struct OrtolanEpEp OrtolanEpEp;
typedef struct OrtolanEpPart OrtolanEpPart;
typedef struct OrtolanEpLane OrtolanEpLane;
typedef struct OrtolanEpFence OrtolanEpFence;
typedef struct OrtolanEpStr OrtolanEpStr;
typedef struct OrtolanEpKv OrtolanEpKv;
typedef struct OrtolanEpSpan OrtolanEpSpan;
typedef struct OrtolanEpValue OrtolanEpValue;
typedef struct OrtolanEpType OrtolanEpType;
typedef struct OrtolanEpValueInfo OrtolanEpValueInfo;
typedef struct OrtolanEpNode OrtolanEpNode;
typedef struct OrtolanEpAttr OrtolanEpAttr;
typedef struct OrtolanEpGraph OrtolanEpGraph;
typedef struct OrtolanEpExpr OrtolanEpExpr;
typedef struct OrtolanEpSymbol OrtolanEpSymbol;
typedef struct OrtolanEpConstant OrtolanEpConstant;
typedef struct OrtolanEpOpset OrtolanEpOpset;
typedef struct OrtolanEpProgram OrtolanEpProgram;
typedef struct OrtolanEpPartDesc OrtolanEpPartDesc;
typedef struct OrtolanEpClaim OrtolanEpClaim;
typedef struct OrtolanEpDevice OrtolanEpDevice;
typedef struct OrtolanEpEvent OrtolanEpEvent;
typedef struct OrtolanEpCall OrtolanEpCall;
typedef struct OrtolanEpHostV1 OrtolanEpHostV1;
typedef struct OrtolanEpHostFenceV1 OrtolanEpHostFenceV1;
typedef struct OrtolanEpEpV1 OrtolanEpEpV1;
typedef struct OrtolanEpEntry OrtolanEpEntry;

/* UTF-8 text, not terminated. */
struct OrtolanEpStr {
  /* First byte; may be dangling when `len` is 0. */
  const uint8_t *ptr;
  /* Bytes. */
  size_t len;
};

/* A pair of texts. */
struct OrtolanEpKv {
  /* Key. */
  OrtolanEpStr key;
  /* Value. */
  OrtolanEpStr value;
};

/* A run inside `Program.ids` or `Program.attrs`. */
struct OrtolanEpSpan {
  /* First index. */
  uint32_t at;
  /* Count. */
  uint32_t len;
};

/* One tensor, sequence, optional or map. Tensors are dense, row-major, little-endian; strings: `data` is a
   `*const Str`; types below a byte are packed, low bits first. */
struct OrtolanEpValue {
  /* `VALUE_*`. */
  uint32_t kind;
  /* ONNX type number of a tensor. */
  uint32_t dtype;
  /* Dimensions. */
  uint32_t rank;
  /* `VALUE_CONST`, `VALUE_DONATED`. */
  uint32_t flags;
  /* `rank` sizes. */
  const int64_t *shape;
  /* Alignment: host buffers 64, run inputs that of their element, constants none. */
  uint8_t *data;
  /* Size of `data`. */
  uint64_t bytes;
  /* 0 is host memory; in any other space only its owner looks behind `data`. */
  uint32_t space;
  /* Number of items. */
  uint32_t item_count;
  /* Items of a sequence, optional or map. */
  const OrtolanEpValue *items;
  /* The host's counted handle; null: borrowed for the call, cannot be given back. */
  OrtolanEpBuffer *buffer;
};

/* A value's type. The rank is always known; dimensions are expressions. */
struct OrtolanEpType {
  /* `VALUE_*`. */
  uint32_t kind;
  /* ONNX type number of a tensor, key type number of a map. */
  uint32_t dtype;
  /* Dimensions of a tensor. */
  uint32_t rank;
  /* First of `rank` expression ids in `Program.ids`. */
  uint32_t dims;
  /* Type of items, or NONE. */
  uint32_t elem;
};

/* A value of the program. */
struct OrtolanEpValueInfo {
  /* Name, for messages only. */
  OrtolanEpStr name;
  /* Index into `Program.types`. */
  uint32_t ty;
  /* Graph it lives in. */
  uint32_t graph;
  /* Node that makes it, or NONE. */
  uint32_t producer;
  /* Index into `Program.constants`, or NONE. */
  uint32_t constant;
  /* Expression ids of its elements when they are small integers computed from shapes; else empty. */
  OrtolanEpSpan known;
  /* `INFO_CONST_EXPR`. */
  uint32_t flags;
  /* How many inputs read it. */
  uint32_t uses;
};

/* An operator call. */
struct OrtolanEpNode {
  /* Operator type. */
  OrtolanEpStr op;
  /* Domain; the standard one is empty. */
  OrtolanEpStr domain;
  /* Name, for messages only. */
  OrtolanEpStr name;
  /* Since-version of the form in which it is written. */
  uint32_t version;
  /* Graph it stands in. */
  uint32_t graph;
  /* Value ids in `Program.ids`; an absent one is NONE. */
  OrtolanEpSpan inputs;
  /* Value ids in `Program.ids`; an absent one is NONE. */
  OrtolanEpSpan outputs;
  /* In `Program.attrs`; defaults are filled in. */
  OrtolanEpSpan attrs;
};

/* An attribute: always a list, one element long where ONNX has a scalar. */
struct OrtolanEpAttr {
  /* Name. */
  OrtolanEpStr name;
  /* ONNX AttributeType number. */
  uint32_t kind;
  /* Index into `Program.constants` when it is large, else NONE. */
  uint32_t constant;
  /* Elements behind `data`. */
  uint64_t len;
  /* `f32`, `i64`, `Str`, `Value`, or `u32` graph ids, by kind. */
  const void *data;
};

/* Graph 0 is the model; bodies name the node that they belong to. Nodes are in topological order. */
struct OrtolanEpGraph {
  /* Node whose body this is, or NONE. */
  uint32_t parent;
  /* Node ids in `Program.ids`. */
  OrtolanEpSpan nodes;
  /* Value ids in `Program.ids`. */
  OrtolanEpSpan inputs;
  /* Value ids in `Program.ids`. */
  OrtolanEpSpan outputs;
};

/* A hash-consed expression over symbols, children before parents; equal ids are equal numbers. */
struct OrtolanEpExpr {
  /* `expr::*`. */
  uint32_t op;
  /* First operand, or the symbol. */
  uint32_t a;
  /* Second operand. */
  uint32_t b;
  /* Zero. */
  uint32_t pad;
  /* The constant, or the condition of a select. */
  int64_t v;
};

/* A number that is free until a run binds it. */
struct OrtolanEpSymbol {
  /* Value that defines it. */
  uint32_t value;
  /* Dimension or element. */
  uint32_t at;
  /* `SYMBOL_*`. */
  uint32_t kind;
};

/* A constant of the model. */
struct OrtolanEpConstant {
  /* Its bytes; no alignment is promised. */
  OrtolanEpValue value;
  /* The same number is the same bytes for the life of the process, so what is made of them can be shared. */
  uint64_t id;
};

/* An opset import. */
struct OrtolanEpOpset {
  /* Domain. */
  OrtolanEpStr domain;
  /* Version. */
  uint64_t version;
};

/* The model in one dialect: flat, read-only. The same `id` has the same pointers, kept from the first claim to the last compile. */
struct OrtolanEpProgram {
  /* Size of this struct in the host. */
  uint32_t struct_size;
  /* 1. */
  uint32_t version;
  /* Equal ids are equal programs. */
  uint64_t id;
  /* Nodes of all graphs. */
  const OrtolanEpNode *nodes;
  /* Values of all graphs. */
  const OrtolanEpValueInfo *values;
  /* Graph 0 is the model. */
  const OrtolanEpGraph *graphs;
  /* Constants of all graphs. */
  const OrtolanEpConstant *constants;
  /* Expressions, children before parents. */
  const OrtolanEpExpr *exprs;
  /* Symbols. */
  const OrtolanEpSymbol *symbols;
  /* Types. */
  const OrtolanEpType *types;
  /* Attributes of all nodes. */
  const OrtolanEpAttr *attrs;
  /* Lists of ids, addressed by spans. */
  const uint32_t *ids;
  /* The EP's opsets, in which the program is written. */
  const OrtolanEpOpset *opsets;
  /* Count of nodes. */
  uint32_t node_count;
  /* Count of values. */
  uint32_t value_count;
  /* Count of graphs. */
  uint32_t graph_count;
  /* Count of constants. */
  uint32_t constant_count;
  /* Count of expressions. */
  uint32_t expr_count;
  /* Count of symbols. */
  uint32_t symbol_count;
  /* Count of types. */
  uint32_t type_count;
  /* Count of attributes. */
  uint32_t attr_count;
  /* Count of ids. */
  uint32_t id_count;
  /* Count of opsets. */
  uint32_t opset_count;
};

/* Nodes of one graph, with the values that enter and leave. */
struct OrtolanEpPartDesc {
  /* Node ids, in topological order. */
  const uint32_t *nodes;
  /* Value ids that a run hands in, in order. */
  const uint32_t *inputs;
  /* Value ids that a run asks for, in order. */
  const uint32_t *outputs;
  /* Count of nodes. */
  uint32_t node_count;
  /* Count of inputs. */
  uint32_t input_count;
  /* Count of outputs. */
  uint32_t output_count;
  /* `PART_*`. */
  uint32_t flags;
};

/* Nodes that an EP would run. */
struct OrtolanEpClaim {
  /* Node ids. */
  const uint32_t *nodes;
  /* Count of nodes. */
  uint32_t count;
  /* `CLAIM_WHOLE`. */
  uint32_t flags;
  /* Estimated time of all of them for the hinted symbols, in ns; NaN is unknown. */
  double cost_ns;
};

/* A device of a factory. */
struct OrtolanEpDevice {
  /* Name that a person knows it by. */
  OrtolanEpStr name;
  /* Maker. */
  OrtolanEpStr vendor;
  /* `DEVICE_*`. */
  uint32_t kind;
  /* Number to give to `ep_new`. */
  uint32_t ordinal;
  /* Its memory; 0 is unknown. */
  uint64_t memory_bytes;
  /* More about it. */
  const OrtolanEpKv *info;
  /* Count of info pairs. */
  uint32_t info_count;
  /* `DEVICE_STATIC_SHAPES`. */
  uint32_t flags;
  /* A transfer between its memory and the host's, to begin with, in ns. */
  uint64_t transfer_ns;
  /* And bytes per second of a large one; all bits set: it works in host memory. Both 0: not known. */
  uint64_t transfer_bytes_per_s;
};

/* One kernel of a profiled run. */
struct OrtolanEpEvent {
  /* Kernel name. */
  OrtolanEpStr kernel;
  /* Node id. */
  uint32_t node;
  /* Worker, 0 is the caller. */
  uint32_t worker;
  /* On the clock of `now_ns`. */
  uint64_t start_ns;
  /* Duration. */
  uint64_t dur_ns;
  /* Floating-point operations, 0 if not counted. */
  uint64_t flops;
  /* Bytes read and written, 0 if not counted. */
  uint64_t bytes;
};

/* Body of a `parallel_for`: user pointer, worker below the width, begin, end. */
typedef void (*OrtolanEpRangeFn)(void *, uint32_t, size_t, size_t);

/* Frees memory that was given to the host. Called once, on any thread; null means there is nothing to free. */
typedef void (*OrtolanEpReleaseFn)(void *);

/* Every call gets one; it and all it points to are call-long. */
struct OrtolanEpCall {
  /* The host's table; valid for the life of the process. */
  const OrtolanEpHostV1 *host;
  /* The host's side of this call. */
  OrtolanEpCallCtx *ctx;
  /* Run and copy: inputs in the part's order. */
  const OrtolanEpValue *inputs;
  /* Run: `WANT_*` per output. */
  const uint32_t *wants;
  /* Numbers of the program's symbols, or UNKNOWN (claim and compile: hints). */
  const int64_t *symbols;
  /* Equal binding in one lane means equal symbols, so all shape work can be skipped. */
  uint64_t binding;
  /* Not 0 once the call should stop; read it atomically. */
  const uint32_t *cancel;
  /* Count of inputs. */
  uint32_t input_count;
  /* Count of outputs. */
  uint32_t output_count;
  /* Count of symbols. */
  uint32_t symbol_count;
  /* Width of `parallel_for`: bodies that run at once. */
  uint32_t width;
  /* `CALL_PROFILE`. */
  uint32_t flags;
};

/* The host's functions. The first five may be called from any thread at any time; the others inside a call, on
   its thread (`done_with` also inside its `parallel_for`). */
struct OrtolanEpHostV1 {
  /* Size of this struct in the host. */
  uint32_t struct_size;
  /* 1. */
  uint32_t version;
  /* Level (1 error to 5 trace), target: is it wanted? */
  uint32_t (*log_enabled)(uint32_t, OrtolanEpStr);
  /* Level, target, message. */
  void (*log)(uint32_t, OrtolanEpStr, OrtolanEpStr);
  /* The clock of events. */
  uint64_t (*now_ns)(void);
  /* Interns the name of a memory space; the same name is the same memory for every EP. */
  uint32_t (*space)(OrtolanEpStr);
  /* Another host table by id, or null. */
  const void *(*query)(OrtolanEpStr);
  /* Code, node or NONE, sentence. Hands the code back to be returned. */
  int32_t (*error)(const OrtolanEpCall *, int32_t, uint32_t, OrtolanEpStr);
  /* devices: one call each. */
  void (*device)(const OrtolanEpCall *, const OrtolanEpDevice *);
  /* devices: a code of the closed list, and a sentence: why there is none. */
  void (*no_device)(const OrtolanEpCall *, uint32_t, OrtolanEpStr);
  /* claim: these would run here. */
  void (*claim)(const OrtolanEpCall *, const OrtolanEpClaim *);
  /* claim: node, a code of the closed list, a sentence that names the attribute, type or dimension. */
  void (*reject)(const OrtolanEpCall *, uint32_t, uint32_t, OrtolanEpStr);
  /* A part as a serialized ONNX model, made on demand, call-long. Its k-th node, depth first, is the k-th node id. */
  int32_t (*onnx)(const OrtolanEpCall *, const OrtolanEpProgram *, const OrtolanEpPartDesc *, OrtolanEpStr *);
  /* compile: this constant will never be read again, so its pages can go. Not said: kept for the part's life. */
  void (*done_with)(const OrtolanEpCall *, uint32_t);
  /* compile: 0 input or 1 output, index, the space it is wanted or left in (host memory if not called); inputs: or PORT_SHAPE. */
  void (*port)(const OrtolanEpCall *, uint32_t, uint32_t, uint32_t);
  /* run: index (NONE: a loose element), dtype, rank, shape: host memory to write. Again for an index only with the same shape. */
  int32_t (*output)(const OrtolanEpCall *, uint32_t, uint32_t, uint32_t, const int64_t *, OrtolanEpValue *);
  /* run: instead of `output`: own memory with a release, an input's buffer, or a composite. Strings are copied. Released once, also when it is refused. */
  int32_t (*give)(const OrtolanEpCall *, uint32_t, const OrtolanEpValue *, OrtolanEpReleaseFn, void *);
  /* run: scratch, aligned to 64, gone when the call returns; null: a limit was reached. */
  uint8_t *(*alloc)(const OrtolanEpCall *, uint64_t);
  /* n, grain: chunks begin at multiples of grain, at most width at once. CANCELLED: some were not run. */
  int32_t (*parallel_for)(const OrtolanEpCall *, size_t, size_t, OrtolanEpRangeFn, void *);
  /* run: only when CALL_PROFILE is set, once per call. */
  void (*profile)(const OrtolanEpCall *, const OrtolanEpEvent *, size_t);
};

/* The host's table `ortolan.host.fence.v1`: runs that finish later than `run` returns. */
struct OrtolanEpHostFenceV1 {
  /* Size of this struct in the host. */
  uint32_t struct_size;
  /* 1. */
  uint32_t version;
  /* run: the outputs asked for so far are complete only when the fence is; at most once per call. Inputs, outputs and the lane stay untouched until then. */
  int32_t (*defer)(const OrtolanEpCall *, OrtolanEpFence **);
  /* Any thread, once per fence: code and, when it is not OK, a sentence. */
  void (*complete)(OrtolanEpFence *, int32_t, OrtolanEpStr);
  /* Any thread, before `complete`: what `profile` would have said. Only when the run's CALL_PROFILE was set. */
  void (*profile)(OrtolanEpFence *, const OrtolanEpEvent *, size_t);
};

/* The EP's one table, frozen as `ortolan.ep.v1`. */
struct OrtolanEpEpV1 {
  /* Size of this struct in the plugin. */
  uint32_t struct_size;
  /* 1. */
  uint32_t version;
  /* Once per process; starts no device and no thread. */
  int32_t (*factory_new)(const OrtolanEpCall *, OrtolanEpFactory **);
  /* After all its EPs. */
  void (*factory_free)(OrtolanEpFactory *);
  /* One or more `device`, or one or more `no_device`. */
  int32_t (*devices)(OrtolanEpFactory *, const OrtolanEpCall *);
  /* One per session and device ordinal; an unknown option is an error. */
  int32_t (*ep_new)(OrtolanEpFactory *, const OrtolanEpCall *, uint32_t, const OrtolanEpKv *, size_t, OrtolanEpEp **);
  /* After all its parts. */
  void (*ep_free)(OrtolanEpEp *);
  /* Answers every asked node once, with `claim` or `reject`. No memory of earlier calls; must be fast. */
  int32_t (*claim)(OrtolanEpEp *, const OrtolanEpCall *, const OrtolanEpProgram *, const OrtolanEpPartDesc *);
  /* Constants may be read; nodes whose values are CONST_EXPR are evaluated here. */
  int32_t (*compile)(OrtolanEpEp *, const OrtolanEpCall *, const OrtolanEpProgram *, const OrtolanEpPartDesc *, OrtolanEpPart **);
  /* After all its lanes. */
  void (*part_free)(OrtolanEpPart *);
  /* Many threads at once, never two with one lane; the lane is null the first time. */
  int32_t (*run)(const OrtolanEpPart *, OrtolanEpLane **, const OrtolanEpCall *);
  /* May come at any time between runs. */
  void (*lane_free)(const OrtolanEpPart *, OrtolanEpLane *);
  /* Every input k to output k in the given space, all from one space; required of an EP that owns a space, else null. */
  int32_t (*copy)(OrtolanEpEp *, const OrtolanEpCall *, uint32_t);
  /* Lets go of whatever the factory keeps for EPs to come; null: it keeps nothing. Any thread, at any time. */
  void (*factory_trim)(OrtolanEpFactory *);
};

/* Symbol `ortolan_ep_entry_v1`: a static, so that reading it runs no code. Manifest and catalogue are also the
   file's sections, byte for byte. */
struct OrtolanEpEntry {
  /* `MAGIC`. */
  uint8_t magic[8];
  /* `ABI_MAJOR` of the plugin. */
  uint32_t abi_major;
  /* `ABI_MINOR` of the plugin. */
  uint32_t abi_minor;
  /* Size of this struct in the plugin. */
  uint32_t struct_size;
  /* `ENTRY_STATIC`. */
  uint32_t flags;
  /* `V1_FINGERPRINT` of the plugin. */
  uint64_t fingerprint;
  /* JSON. */
  OrtolanEpStr manifest;
  /* One row a line. */
  OrtolanEpStr catalogue;
  /* A table by id, or null. */
  const void *(*query)(OrtolanEpStr);
};

#if UINTPTR_MAX == 0xFFFFFFFFFFFFFFFFu
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpStr) == 16, "OrtolanEpStr");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpKv) == 32, "OrtolanEpKv");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpSpan) == 8, "OrtolanEpSpan");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpValue) == 64, "OrtolanEpValue");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpType) == 20, "OrtolanEpType");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpValueInfo) == 48, "OrtolanEpValueInfo");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpNode) == 80, "OrtolanEpNode");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpAttr) == 40, "OrtolanEpAttr");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpGraph) == 28, "OrtolanEpGraph");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpExpr) == 24, "OrtolanEpExpr");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpSymbol) == 12, "OrtolanEpSymbol");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpConstant) == 72, "OrtolanEpConstant");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpOpset) == 24, "OrtolanEpOpset");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpProgram) == 136, "OrtolanEpProgram");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpPartDesc) == 40, "OrtolanEpPartDesc");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpClaim) == 24, "OrtolanEpClaim");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpDevice) == 80, "OrtolanEpDevice");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpEvent) == 56, "OrtolanEpEvent");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpCall) == 80, "OrtolanEpCall");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpHostV1) == 152, "OrtolanEpHostV1");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpHostFenceV1) == 32, "OrtolanEpHostFenceV1");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpEpV1) == 104, "OrtolanEpEpV1");
ORTOLAN_EP_STATIC_ASSERT(sizeof(OrtolanEpEntry) == 72, "OrtolanEpEntry");
#endif
#ifdef __cplusplus
}
#endif
#endif
