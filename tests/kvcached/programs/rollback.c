/* What the system refuses half-way is given back. This program's madvise() takes the place of the C
 * library's. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>

#include "check.h"

enum { kPopulate = 23, kPage = 4096 };

static int num_until_refusal = -1; /* populating calls that are let through first; -1: all */
static int refusal = ENOMEM;

int madvise(void* address, size_t length, int advice) {
  if (advice == kPopulate && num_until_refusal >= 0 && num_until_refusal-- == 0) {
    num_until_refusal = -1;
    if (refusal == ENOMEM) syscall(SYS_madvise, address, length / 2 / kPage * kPage, kPopulate);
    errno = refusal;
    return -1;
  }
  return (int)syscall(SYS_madvise, address, length, advice);
}

static void an_allocation_that_fails_leaves_nothing(kvcached_ctx_t ctx) {
  char* neighbour = kvcached_alloc(ctx, MIB);
  memset(neighbour, 4, MIB);
  const size_t before = resident_bytes();
  num_until_refusal = 0;
  CHECK(kvcached_alloc(ctx, 16 * MIB) == NULL);
  CHECK_ERROR(KVCACHED_ERR_NO_MEMORY, "cannot commit 16777216 bytes: Cannot allocate memory");
  CHECK(resident_bytes() < before + MIB && stats_of(ctx).committed_bytes == MIB);
  CHECK(stats_of(ctx).num_allocations == 1 && is_filled(neighbour, 4, MIB));
  CHECK(kvcached_alloc(ctx, 16 * MIB) != NULL);
}

static void blocks_that_fail_leave_nothing(kvcached_ctx_t ctx) {
  kvcached_pool_t pool = kvcached_pool_create(ctx, 16, MIB);
  int64_t ids[16], more[9] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
  CHECK(kvcached_pool_alloc(pool, 16, ids) == KVCACHED_OK);
  char* base = kvcached_pool_base(pool);
  for (int i = 0; i < 16; ++i) memset(base + i * MIB, i + 1, MIB);
  const int64_t free_ids[] = {1, 2, 3, 5, 6, 7, 9, 10, 11}; /* three runs of pages */
  CHECK(kvcached_pool_free(pool, free_ids, 9) == KVCACHED_OK);
  const size_t before = resident_bytes(), committed = stats_of(ctx).committed_bytes;
  for (int run = 0; run < 3; ++run) {
    num_until_refusal = run;
    CHECK(kvcached_pool_alloc(pool, 9, more) == KVCACHED_ERR_NO_MEMORY);
    CHECK(more[0] == -1 && stats_of(ctx).committed_bytes == committed);
    CHECK(resident_bytes() < before + MIB / 2 && pool_stats_of(pool).num_used == 7);
  }
  for (int i = 0; i < 16; i += 4) CHECK(is_filled(base + i * MIB, (char)(i + 1), MIB));
  CHECK(kvcached_pool_alloc(pool, 9, more) == KVCACHED_OK);
  CHECK(memcmp(more, free_ids, sizeof more) == 0);
  CHECK(stats_of(ctx).committed_bytes == committed + 9 * MIB);
}

static void a_kernel_that_cannot_populate_will_do(kvcached_ctx_t ctx) {
  const size_t before = resident_bytes();
  refusal = EINVAL;
  num_until_refusal = 0;
  char* memory = kvcached_alloc(ctx, 8 * MIB);
  CHECK(memory != NULL && resident_bytes() >= before + 8 * MIB);
  CHECK(is_filled(memory, 0, 8 * MIB));
  refusal = ENOMEM;
}

int main(void) {
  kvcached_ctx_t ctx = kvcached_init(0);
  kvcached_set_limit(ctx, 64 * MIB);
  an_allocation_that_fails_leaves_nothing(ctx);
  blocks_that_fail_leave_nothing(ctx);
  a_kernel_that_cannot_populate_will_do(ctx);
  kvcached_shutdown(ctx);
  return 0;
}
