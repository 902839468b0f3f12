/* An execution provider (EP) in one C file: f32 Softmax, and MatMul of two matrices.
 *
 *     cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I ep-abi/include plain.c -o libortolan_ep_plain.so -lm
 *
 * It shows the least that an EP has to do. It ignores expressions and symbols, because each run hands in the shapes; it
 * has no lanes, because it keeps nothing from one run to the next; and it reads no ONNX.
 */
#include "ortolan_ep.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANK 8
#define MAX_INPUTS 2

static OrtolanEpStr str(const char *text) {
  OrtolanEpStr s = {(const uint8_t *)text, strlen(text)};
  return s;
}

static int equal(OrtolanEpStr a, const char *b) { return a.len == strlen(b) && memcmp(a.ptr, b, a.len) == 0; }

static int32_t fail(const OrtolanEpCall *call, uint32_t node, const char *sentence) {
  return call->host->error(call, ORTOLAN_EP_FAILED, node, str(sentence));
}

/* ---- Kernels: they read and write dense f32 tensors. */

typedef struct Tensor {
  uint32_t rank;
  int64_t shape[MAX_RANK];
  float *data;
} Tensor;

static size_t count(const int64_t *shape, uint32_t from, uint32_t to) {
  size_t n = 1;
  for (uint32_t i = from; i < to; i++) n *= (size_t)shape[i];
  return n;
}

static void softmax(const Tensor *x, Tensor *y, int64_t axis) {
  uint32_t a = (uint32_t)(axis < 0 ? axis + x->rank : axis);
  size_t outer = count(x->shape, 0, a), n = (size_t)x->shape[a], inner = count(x->shape, a + 1, x->rank);
  for (size_t i = 0; i < outer * inner; i++) {
    const float *from = x->data + i / inner * n * inner + i % inner;
    float *to = y->data + (from - x->data);
    float largest = -INFINITY, sum = 0;
    for (size_t k = 0; k < n; k++) largest = fmaxf(largest, from[k * inner]);
    for (size_t k = 0; k < n; k++) sum += to[k * inner] = expf(from[k * inner] - largest);
    for (size_t k = 0; k < n; k++) to[k * inner] /= sum;
  }
}

static void matmul(const Tensor *a, const Tensor *b, Tensor *y) {
  size_t rows = (size_t)y->shape[0], columns = (size_t)y->shape[1], depth = (size_t)a->shape[1];
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < columns; c++) {
      float sum = 0;
      for (size_t k = 0; k < depth; k++) sum += a->data[r * depth + k] * b->data[k * columns + c];
      y->data[r * columns + c] = sum;
    }
}

/* ---- Which nodes can be run: claim and compile both ask here, so they cannot disagree. */

typedef enum Op { SOFTMAX, MATMUL } Op;

static const OrtolanEpType *type_of(const OrtolanEpProgram *p, uint32_t value) {
  return &p->types[p->values[value].ty];
}

/* 0 and the operator, or a reject code and a sentence. */
static uint32_t operator_of(const OrtolanEpProgram *p, const OrtolanEpNode *node, Op *op, char *why, size_t size) {
  const uint32_t *inputs = p->ids + node->inputs.at;
  if (node->domain.len == 0 && equal(node->op, "Softmax")) *op = SOFTMAX;
  else if (node->domain.len == 0 && equal(node->op, "MatMul")) *op = MATMUL;
  else {
    snprintf(why, size, "%.*s is not done, only Softmax and MatMul", (int)node->op.len, (const char *)node->op.ptr);
    return ORTOLAN_EP_REJECT_OPERATOR;
  }
  if (node->version < (*op == SOFTMAX ? 13u : 1u)) {
    snprintf(why, size, "version %u flattens its input, only 13 and later are done", node->version);
    return ORTOLAN_EP_REJECT_VERSION;
  }
  for (uint32_t i = 0; i < node->inputs.len; i++) {
    const OrtolanEpType *type = type_of(p, inputs[i]);
    if (type->dtype != ORTOLAN_EP_DTYPE_F32) {
      snprintf(why, size, "input %u has ONNX type %u, only f32 (1) is done", i, type->dtype);
      return ORTOLAN_EP_REJECT_DTYPE;
    }
    if (*op == MATMUL ? type->rank != 2 : type->rank < 1 || type->rank > MAX_RANK) {
      snprintf(why, size, "input %u has rank %u, MatMul is done for 2 and Softmax for 1 to %d", i, type->rank, MAX_RANK);
      return ORTOLAN_EP_REJECT_RANK;
    }
  }
  return 0;
}

static int32_t claim(OrtolanEpEp *ep, const OrtolanEpCall *call, const OrtolanEpProgram *p, const OrtolanEpPartDesc *part) {
  (void)ep;
  for (uint32_t i = 0; i < part->node_count; i++) {
    Op op;
    char why[160];
    uint32_t code = operator_of(p, &p->nodes[part->nodes[i]], &op, why, sizeof why);
    if (code != 0) {
      call->host->reject(call, part->nodes[i], code, str(why));
    } else {
      OrtolanEpClaim yes = {&part->nodes[i], 1, 0, NAN}; /* the cost is not known */
      call->host->claim(call, &yes);
    }
  }
  return ORTOLAN_EP_OK;
}

/* ---- Parts: a list of steps, each with the places of what it reads and writes. */

typedef struct Place {
  enum { INPUT, CONSTANT, STEP } kind;
  uint32_t index;
} Place;

typedef struct Step {
  Op op;
  uint32_t node, inputs, output; /* output of the part, or ORTOLAN_EP_NONE */
  int64_t axis;
  Place from[MAX_INPUTS];
} Step;

typedef struct Part {
  uint32_t steps, constants;
  Step *step;
  Tensor *constant;
} Part;

static void part_free(OrtolanEpPart *handle) {
  Part *part = (Part *)handle;
  for (uint32_t i = 0; i < part->constants; i++) free(part->constant[i].data);
  free(part->constant);
  free(part->step);
  free(part);
}

static uint32_t find(const uint32_t *ids, uint32_t n, uint32_t id) {
  for (uint32_t i = 0; i < n; i++)
    if (ids[i] == id) return i;
  return ORTOLAN_EP_NONE;
}

/* Constants have no alignment and go away after compile: copy, then say so. */
static int keep(Part *part, const OrtolanEpCall *call, const OrtolanEpProgram *p, uint32_t index) {
  const OrtolanEpValue *v = &p->constants[index].value;
  Tensor *t = &part->constant[part->constants];
  t->data = malloc(v->bytes + 1);
  if (t->data == NULL) return 0;
  memcpy(t->data, v->data, v->bytes);
  t->rank = v->rank;
  memcpy(t->shape, v->shape, v->rank * sizeof(int64_t));
  part->constants++;
  call->host->done_with(call, index);
  return 1;
}

static int64_t axis_of(const OrtolanEpProgram *p, const OrtolanEpNode *node) {
  for (uint32_t i = 0; i < node->attrs.len; i++) {
    const OrtolanEpAttr *attr = &p->attrs[node->attrs.at + i];
    if (equal(attr->name, "axis") && attr->len == 1) return *(const int64_t *)attr->data;
  }
  return -1;
}

/* Where the value comes from: an earlier node of the part, a constant, or an input of the part. */
static int place(Part *part, const OrtolanEpCall *call, const OrtolanEpProgram *p, const OrtolanEpPartDesc *desc,
                 uint32_t value, Place *to) {
  const OrtolanEpValueInfo *info = &p->values[value];
  if (info->constant != ORTOLAN_EP_NONE) {
    to->kind = CONSTANT;
    to->index = part->constants;
    return keep(part, call, p, info->constant);
  }
  to->kind = INPUT;
  to->index = find(desc->inputs, desc->input_count, value);
  if (to->index == ORTOLAN_EP_NONE) {
    to->kind = STEP;
    to->index = find(desc->nodes, desc->node_count, info->producer);
  }
  return to->index != ORTOLAN_EP_NONE;
}

static int32_t compile(OrtolanEpEp *ep, const OrtolanEpCall *call, const OrtolanEpProgram *p,
                       const OrtolanEpPartDesc *desc, OrtolanEpPart **out) {
  (void)ep;
  Part *part = calloc(1, sizeof *part);
  if (part == NULL) return fail(call, ORTOLAN_EP_NONE, "out of memory");
  part->step = calloc(desc->node_count, sizeof *part->step);
  part->constant = calloc(desc->node_count, MAX_INPUTS * sizeof *part->constant);
  int ok = part->step != NULL && part->constant != NULL;
  for (uint32_t i = 0; ok && i < desc->node_count; i++) {
    const OrtolanEpNode *node = &p->nodes[desc->nodes[i]];
    Step *step = &part->step[part->steps++];
    char why[160];
    ok = operator_of(p, node, &step->op, why, sizeof why) == 0;
    step->node = desc->nodes[i];
    step->axis = axis_of(p, node);
    step->output = find(desc->outputs, desc->output_count, p->ids[node->outputs.at]);
    step->inputs = node->inputs.len;
    for (uint32_t k = 0; ok && k < step->inputs; k++)
      ok = place(part, call, p, desc, p->ids[node->inputs.at + k], &step->from[k]);
  }
  if (!ok) {
    part_free((OrtolanEpPart *)part);
    return fail(call, ORTOLAN_EP_NONE, "this part is not what was claimed, or memory is short");
  }
  *out = (OrtolanEpPart *)part;
  return ORTOLAN_EP_OK;
}

/* ---- A run. */

static Tensor tensor_of(const OrtolanEpValue *v) {
  Tensor t = {v->rank, {0}, (float *)(void *)v->data};
  memcpy(t.shape, v->shape, v->rank * sizeof(int64_t));
  return t;
}

/* Memory for a step's result: the host's output, or scratch that is gone after the call. */
static int32_t make(const OrtolanEpCall *call, const Step *step, Tensor *y) {
  if (step->output != ORTOLAN_EP_NONE) {
    OrtolanEpValue value;
    int32_t code = call->host->output(call, step->output, ORTOLAN_EP_DTYPE_F32, y->rank, y->shape, &value);
    if (code == ORTOLAN_EP_OK) y->data = (float *)(void *)value.data;
    return code;
  }
  y->data = (float *)(void *)call->host->alloc(call, (count(y->shape, 0, y->rank) + 1) * sizeof(float));
  return y->data == NULL ? call->host->error(call, ORTOLAN_EP_MEMORY, step->node, str("no scratch")) : ORTOLAN_EP_OK;
}

static int cancelled(const OrtolanEpCall *call) {
  return call->cancel != NULL && __atomic_load_n(call->cancel, __ATOMIC_RELAXED) != 0;
}

static int32_t run(const OrtolanEpPart *handle, OrtolanEpLane **lane, const OrtolanEpCall *call) {
  const Part *part = (const Part *)handle;
  Tensor *made = (Tensor *)(void *)call->host->alloc(call, part->steps * sizeof(Tensor));
  (void)lane;
  if (made == NULL) return call->host->error(call, ORTOLAN_EP_MEMORY, ORTOLAN_EP_NONE, str("no scratch"));
  for (uint32_t i = 0; i < part->steps; i++) {
    const Step *step = &part->step[i];
    Tensor in[MAX_INPUTS], *y = &made[i];
    if (cancelled(call)) return ORTOLAN_EP_CANCELLED;
    for (uint32_t k = 0; k < step->inputs; k++) {
      Place at = step->from[k];
      in[k] = at.kind == INPUT ? tensor_of(&call->inputs[at.index])
                               : at.kind == CONSTANT ? part->constant[at.index] : made[at.index];
    }
    *y = in[0];
    if (step->op == MATMUL) {
      if (in[0].shape[1] != in[1].shape[0]) return fail(call, step->node, "columns of A and rows of B differ");
      y->shape[1] = in[1].shape[1];
    }
    int32_t code = make(call, step, y);
    if (code != ORTOLAN_EP_OK) return code;
    if (step->op == MATMUL) matmul(&in[0], &in[1], y);
    else softmax(&in[0], y, step->axis);
  }
  return ORTOLAN_EP_OK;
}

/* ---- The rest: nothing to set up, nothing to keep. Handles must not be null, so they point at this byte. */

static char nothing;

static int32_t factory_new(const OrtolanEpCall *call, OrtolanEpFactory **out) {
  (void)call;
  *out = (OrtolanEpFactory *)&nothing;
  return ORTOLAN_EP_OK;
}

static void factory_free(OrtolanEpFactory *factory) { (void)factory; }

static int32_t devices(OrtolanEpFactory *factory, const OrtolanEpCall *call) {
  OrtolanEpDevice device = {.name = str("any CPU"), .vendor = str("Plain"), .kind = ORTOLAN_EP_DEVICE_CPU};
  (void)factory;
  call->host->device(call, &device);
  return ORTOLAN_EP_OK;
}

static int32_t ep_new(OrtolanEpFactory *factory, const OrtolanEpCall *call, uint32_t device, const OrtolanEpKv *options,
                      size_t n, OrtolanEpEp **out) {
  (void)factory, (void)device, (void)options;
  if (n != 0) return fail(call, ORTOLAN_EP_NONE, "plain has no options");
  *out = (OrtolanEpEp *)&nothing;
  return ORTOLAN_EP_OK;
}

static void ep_free(OrtolanEpEp *ep) { (void)ep; }

static void lane_free(const OrtolanEpPart *part, OrtolanEpLane *lane) { (void)part, (void)lane; }

/* ---- What makes the file an EP. Manifest and catalogue stand in the file and in the entry, byte for byte. The number
 * under "catalogue" is the FNV-1a 64 hash of CATALOGUE; `ortolan ep verify` names the right one if it differs. */

#define CATALOGUE "-\tMatMul\t1\t13\tT=f32\t-\trank=2\n-\tSoftmax\t13\t13\tT=f32\t-\trank=1..8\n"
#define MANIFEST                                                                                                       \
  "{\"format\":1,\"name\":\"plain\",\"version\":\"1.2.0\",\"vendor\":\"Ortolan's tests\","                             \
  "\"abi\":{\"major\":1,\"minor\":0},\"requires_core\":\">=0.1, <2\",\"provides\":[\"" ORTOLAN_EP_V1_ID "\"],"         \
  "\"needs\":[\"" ORTOLAN_HOST_V1_ID "\"],\"fingerprint\":\"" ORTOLAN_EP_V1_FINGERPRINT_TEXT "\","                     \
  "\"target\":\"" ORTOLAN_EP_TARGET "\",\"device_kinds\":[\"cpu\"],\"opset\":{\"\":21},"                               \
  "\"catalogue\":\"0x79dce9e9dbf4c219\"}"

__attribute__((used, section(".ortolan"))) static const uint8_t manifest[sizeof MANIFEST - 1] = MANIFEST;
__attribute__((used, section(".ortcat"))) static const uint8_t catalogue[sizeof CATALOGUE - 1] = CATALOGUE;

static const OrtolanEpEpV1 v1 = {sizeof v1,  1,       factory_new, factory_free, devices,   ep_new, ep_free,
                                 claim,      compile, part_free,   run,          lane_free, NULL,   NULL};

static const void *query(OrtolanEpStr id) { return equal(id, ORTOLAN_EP_V1_ID) ? &v1 : NULL; }

__attribute__((visibility("default"))) const OrtolanEpEntry ortolan_ep_entry_v1 = {
    ORTOLAN_EP_MAGIC,          ORTOLAN_EP_ABI_MAJOR,       ORTOLAN_EP_ABI_MINOR,         sizeof(OrtolanEpEntry), 0,
    ORTOLAN_EP_V1_FINGERPRINT, {manifest, sizeof manifest}, {catalogue, sizeof catalogue}, query};
