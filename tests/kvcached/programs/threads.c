/* Two thousand random operations of eight threads on one context: never over the limit, exact at the end. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { kThreads = 8, kOperations = 250, kHeld = 12, kBlockBytes = 24 << 10 };
static const size_t kMaxLimit = 24 * MIB, kMinLimit = 6 * MIB, kSlack = 6 * MIB;

typedef struct {
  char* memory; /* or NULL */
  size_t size;
  int64_t blocks[8];
  size_t num_blocks;
  char mark;
} held_t;

static kvcached_ctx_t ctx;
static kvcached_pool_t pool;
static char* base;
static atomic_int is_done;
static atomic_size_t num_refused, num_deferred, num_samples;
static size_t resident_before;
static pthread_mutex_t limit_mutex = PTHREAD_MUTEX_INITIALIZER; /* held while a limit is set and watched */

static unsigned next_random(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* Some bytes of every page. */
static void mark(char* memory, size_t size, char value) {
  for (size_t i = 0; i < size; i += 1024) memory[i] = value;
  memory[size - 1] = value;
}

static void check_mark(const char* memory, size_t size, char value) {
  for (size_t i = 0; i < size; i += 1024) CHECK(memory[i] == value);
  CHECK(memory[size - 1] == value);
}

static void take(held_t* held, unsigned* random) {
  held->mark = (char)(1 + next_random(random) % 100);
  if (next_random(random) % 2) {
    held->size = 1 + next_random(random) % (2 * MIB);
    held->memory = kvcached_alloc(ctx, held->size);
    if (held->memory != NULL) mark(held->memory, held->size, held->mark);
  } else {
    held->num_blocks = 1 + next_random(random) % 8;
    if (kvcached_pool_alloc(pool, held->num_blocks, held->blocks) != KVCACHED_OK) held->num_blocks = 0;
    for (size_t i = 0; i < held->num_blocks; ++i)
      mark(base + held->blocks[i] * kBlockBytes, kBlockBytes, held->mark);
  }
  if (held->memory == NULL && held->num_blocks == 0) {
    CHECK(kvcached_last_error() == KVCACHED_ERR_LIMIT || kvcached_last_error() == KVCACHED_ERR_NO_BLOCKS);
    ++num_refused;
  }
}

static void give(held_t* held) {
  if (held->memory != NULL) {
    check_mark(held->memory, held->size, held->mark);
    kvcached_free(ctx, held->memory);
    CHECK_OK();
  }
  for (size_t i = 0; i < held->num_blocks; ++i)
    check_mark(base + held->blocks[i] * kBlockBytes, kBlockBytes, held->mark);
  CHECK(kvcached_pool_free(pool, held->blocks, held->num_blocks) == KVCACHED_OK);
  memset(held, 0, sizeof *held);
}

/* While this limit stands, what is committed does not grow beyond it, and if above it, does not grow. */
static void set_limit(size_t limit) {
  pthread_mutex_lock(&limit_mutex);
  kvcached_set_limit(ctx, limit);
  CHECK(kvcached_last_error() >= 0);
  if (kvcached_last_error() == KVCACHED_DEFERRED) ++num_deferred;
  size_t bound = SIZE_MAX;
  for (int i = 0; i < 50; ++i) {
    const kvcached_stats_t stats = stats_of(ctx);
    CHECK(stats.limit_bytes == limit && stats.committed_bytes <= bound);
    bound = stats.committed_bytes > limit ? stats.committed_bytes : limit;
  }
  pthread_mutex_unlock(&limit_mutex);
}

static void* work(void* argument) {
  unsigned random = 12345u + 1000003u * (unsigned)(size_t)argument;
  held_t held[kHeld] = {{0}};
  for (int i = 0; i < kOperations; ++i) {
    held_t* slot = &held[next_random(&random) % kHeld];
    if (next_random(&random) % 10 == 0)
      set_limit(kMinLimit + next_random(&random) % (kMaxLimit - kMinLimit));
    else if (slot->memory == NULL && slot->num_blocks == 0)
      take(slot, &random);
    else
      give(slot);
  }
  for (int i = 0; i < kHeld; ++i) give(&held[i]);
  return NULL;
}

static void* watch(void* unused) {
  (void)unused;
  while (!is_done) {
    const kvcached_stats_t stats = stats_of(ctx);
    CHECK(stats.committed_bytes <= kMaxLimit && stats.peak_committed_bytes <= kMaxLimit);
    CHECK(resident_bytes() < resident_before + kMaxLimit + kSlack);
    ++num_samples;
    usleep(500);
  }
  return NULL;
}

int main(void) {
  ctx = kvcached_init(0);
  kvcached_set_limit(ctx, kMaxLimit);
  pool = kvcached_pool_create(ctx, 0, kBlockBytes);
  base = kvcached_pool_base(pool);
  CHECK(base != NULL);
  resident_before = resident_bytes();
  pthread_t workers[kThreads], watcher;
  CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
  for (size_t i = 0; i < kThreads; ++i) CHECK(pthread_create(&workers[i], NULL, work, (void*)i) == 0);
  for (size_t i = 0; i < kThreads; ++i) CHECK(pthread_join(workers[i], NULL) == 0);
  is_done = 1;
  CHECK(pthread_join(watcher, NULL) == 0);

  const kvcached_stats_t stats = stats_of(ctx);
  CHECK(stats.committed_bytes == 0 && stats.num_allocations == 0);
  CHECK(pool_stats_of(pool).num_used == 0 && pool_stats_of(pool).committed_bytes == 0);
  CHECK(resident_bytes() < resident_before + kSlack);
  CHECK(kvcached_available(ctx) == kvcached_get_limit(ctx));
  CHECK(num_refused > 0 && num_deferred > 0 && num_samples > 0); /* it was tight */
  /* Whatever was on which page: everything can be had again. */
  kvcached_set_limit(ctx, kMaxLimit);
  static int64_t ids[24 * 1024 / 24];
  CHECK(kvcached_pool_alloc(pool, pool_stats_of(pool).num_blocks, ids) == KVCACHED_OK);
  CHECK(kvcached_available(ctx) == 0);
  printf("%zu refused, %zu deferred, %zu samples, peak %zu of %zu\n", (size_t)num_refused,
         (size_t)num_deferred, (size_t)num_samples, stats.peak_committed_bytes, kMaxLimit);
  kvcached_shutdown(ctx);
  return 0;
}
