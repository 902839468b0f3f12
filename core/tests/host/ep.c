/* A plugin in C that does as little as it can, and one thing wrong when the test defines so. */
#define _GNU_SOURCE
#include "ortolan_ep.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what the manifest says */
#ifndef FORMAT
#define FORMAT "1"
#endif
#ifndef NAME
#define NAME "fixture"
#endif
#ifndef VERSION
#define VERSION "1.0.0"
#endif
#ifndef MAJOR
#define MAJOR 1
#endif
#ifndef MINOR
#define MINOR 0
#endif
#ifndef CORE
#define CORE ">=0.1, <2"
#endif
#ifndef PROVIDES
#define PROVIDES "\"ortolan.ep.v1\""
#endif
#ifndef NEEDS
#define NEEDS "\"ortolan.host.v1\""
#endif
#ifndef TARGET
#define TARGET ORTOLAN_EP_TARGET
#endif
#ifndef FINGERPRINT
#define FINGERPRINT ORTOLAN_EP_V1_FINGERPRINT
#endif
#ifndef EXTRA
#define EXTRA ""
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define MANIFEST                                                                                                       \
  "{\"format\":" FORMAT ",\"name\":\"" NAME "\",\"version\":\"" VERSION "\",\"abi\":{\"major\":" TEXT(MAJOR)           \
  ",\"minor\":" TEXT(MINOR) "},\"requires_core\":\"" CORE "\",\"provides\":[" PROVIDES "],\"needs\":[" NEEDS           \
  "],\"target\":\"" TARGET "\"" EXTRA "}"
__attribute__((used, retain, section(".ortolan"))) static const char manifest[sizeof(MANIFEST) - 1] = MANIFEST;
#ifdef CATALOGUE
__attribute__((used, retain, section(".ortcat"))) static const char catalogue[sizeof(CATALOGUE) - 1] = CATALOGUE;
#define CATALOGUE_STR { (const uint8_t *)catalogue, sizeof(catalogue) }
#else
#define CATALOGUE_STR { 0, 0 }
#endif

/* ---- what it does while it is opened */
#if defined(OPEN_CRASHES)
__attribute__((constructor)) static void on_open(void) {
  (void)!write(2, "about to fail\n", 14);
  *(volatile int *)8 = 1;
}
#elif defined(OPEN_HANGS)
__attribute__((constructor)) static void on_open(void) { for (;;) sleep(1); }
#elif defined(OPEN_EXITS)
__attribute__((constructor)) static void on_open(void) { exit(0); }
#elif defined(OPEN_TOUCHES)
__attribute__((constructor)) static void on_open(void) {
  Dl_info info;
  if (dladdr((void *)manifest, &info)) chmod(info.dli_fname, 0700);
}
#elif defined(OPEN_MISSES)
extern int ortolan_missing_function(void) __attribute__((visibility("default")));
__attribute__((constructor)) static void on_open(void) { (void)ortolan_missing_function(); }
#endif

/* ---- its functions */
static OrtolanEpStr str(const char *text) { return (OrtolanEpStr){ (const uint8_t *)text, strlen(text) }; }

#ifndef FACTORY
#define FACTORY return ORTOLAN_EP_OK;
#endif
static int32_t factory_new(const OrtolanEpCall *call, OrtolanEpFactory **out) {
  *out = (OrtolanEpFactory *)malloc(8);
  (void)call;
  FACTORY
}
static void factory_free(OrtolanEpFactory *factory) { free(factory); }

#define DEVICE(n) call->host->device(call, &(OrtolanEpDevice){ .name = str("nothing"), .vendor = str("test"), .ordinal = n });
#define NO_DEVICE(code, text) call->host->no_device(call, code, str(text));
#ifndef DEVICES
#define DEVICES DEVICE(0)
#endif
static int32_t devices(OrtolanEpFactory *factory, const OrtolanEpCall *call) {
  (void)factory;
  DEVICES
  return ORTOLAN_EP_OK;
}
static int32_t ep_new(OrtolanEpFactory *f, const OrtolanEpCall *c, uint32_t d, const OrtolanEpKv *o, size_t n, OrtolanEpEp **out) {
  (void)f, (void)c, (void)d, (void)o, (void)n;
  *out = (OrtolanEpEp *)malloc(8);
  return ORTOLAN_EP_OK;
}
static void ep_free(OrtolanEpEp *ep) { free(ep); }
static int32_t claim(OrtolanEpEp *e, const OrtolanEpCall *c, const OrtolanEpProgram *p, const OrtolanEpPartDesc *d) {
  (void)e, (void)c, (void)p, (void)d;
  return ORTOLAN_EP_OK;
}
static int32_t compile(OrtolanEpEp *e, const OrtolanEpCall *c, const OrtolanEpProgram *p, const OrtolanEpPartDesc *d, OrtolanEpPart **o) {
  (void)e, (void)c, (void)p, (void)d, (void)o;
  return c->host->error(c, ORTOLAN_EP_FAILED, ORTOLAN_EP_NONE, str("it compiles nothing"));
}
static void part_free(OrtolanEpPart *part) { (void)part; }
static int32_t run(const OrtolanEpPart *p, OrtolanEpLane **l, const OrtolanEpCall *c) {
  (void)p, (void)l, (void)c;
  return ORTOLAN_EP_FAILED;
}
static void lane_free(const OrtolanEpPart *part, OrtolanEpLane *lane) { (void)part, (void)lane; }

#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(OrtolanEpEpV1)
#endif
#ifndef RUN
#define RUN run
#endif
static const OrtolanEpEpV1 v1 = { TABLE_SIZE, 1, factory_new, factory_free, devices, ep_new, ep_free, claim, compile, part_free, RUN, lane_free, NULL, NULL };
static const int extra_table[2] = { sizeof(extra_table), 1 };

static const void *query(OrtolanEpStr id) {
#ifndef NO_TABLE
  if (id.len == 13 && !memcmp(id.ptr, ORTOLAN_EP_V1_ID, 13)) return &v1;
#endif
  if (id.len == 10 && !memcmp(id.ptr, "newer.v1.1", 10)) return extra_table;
  return NULL;
}

#ifndef ENTRY_MAJOR
#define ENTRY_MAJOR MAJOR
#endif
#ifndef ENTRY_SIZE
#define ENTRY_SIZE sizeof(OrtolanEpEntry)
#endif
#ifndef ENTRY_MANIFEST
#define ENTRY_MANIFEST manifest
#endif
#ifndef QUERY
#define QUERY query
#endif
#ifndef MAGIC
#define MAGIC ORTOLAN_EP_MAGIC
#endif
#ifndef NO_ENTRY
__attribute__((visibility("default")))
#endif
const OrtolanEpEntry ortolan_ep_entry_v1 = { MAGIC, ENTRY_MAJOR, MINOR, ENTRY_SIZE, 0, FINGERPRINT,
  { (const uint8_t *)(ENTRY_MANIFEST), sizeof(manifest) }, CATALOGUE_STR, QUERY };

#ifdef OTHER_PROOF
/* What abi_stable 0.10 puts there: its magic with another version. */
__attribute__((visibility("default"), aligned(8))) const char _1as_0lib_1header_0root_bmodule_bloader[64] = "abi stable library for Rust     \0\0\0\0\12";
#endif
