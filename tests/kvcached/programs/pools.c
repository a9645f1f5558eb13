/* Pools of blocks: what is committed, which blocks are handed out, and everything that can be wrong. */
#include "check.h"

enum { kPage = 4096 };

static kvcached_ctx_t context_with(size_t limit) {
  kvcached_ctx_t ctx = kvcached_init(0);
  CHECK(ctx != NULL);
  kvcached_set_limit(ctx, limit);
  CHECK_OK();
  return ctx;
}

static void blocks_are_committed_and_released(void) {
  kvcached_ctx_t ctx = context_with(16 * MIB);
  const size_t before = resident_bytes();
  kvcached_pool_t pool = kvcached_pool_create(ctx, 1 << 20, MIB); /* a TiB of addresses */
  CHECK(pool != NULL);
  CHECK(pool_stats_of(pool).page_bytes == kPage && pool_stats_of(pool).block_bytes == MIB);
  CHECK(resident_bytes() < before + MIB && stats_of(ctx).committed_bytes == 0);
  int64_t ids[16];
  CHECK(kvcached_pool_alloc(pool, 16, ids) == KVCACHED_OK);
  CHECK(resident_bytes() >= before + 16 * MIB);
  char* base = kvcached_pool_base(pool);
  for (int i = 0; i < 16; ++i) {
    CHECK(ids[i] == i);
    memset(base + ids[i] * (int64_t)MIB, i + 1, MIB);
  }
  CHECK(pool_stats_of(pool).num_used == 16 && pool_stats_of(pool).committed_bytes == 16 * MIB);
  int64_t one = -1;
  CHECK(kvcached_pool_alloc(pool, 1, &one) == KVCACHED_ERR_LIMIT && one == -1);
  const int64_t odd[] = {15, 1, 7, 3};
  CHECK(kvcached_pool_free(pool, odd, 4) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 12 * MIB);
  CHECK(resident_bytes() < before + 13 * MIB);
  CHECK(is_filled(base + MIB, 0, MIB)); /* gone */
  for (int i = 0; i < 16; i += 2) CHECK(is_filled(base + i * MIB, (char)(i + 1), MIB));
  int64_t again[4];
  CHECK(kvcached_pool_alloc(pool, 4, again) == KVCACHED_OK);
  CHECK(again[0] == 1 && again[1] == 3 && again[2] == 7 && again[3] == 15);
  CHECK(kvcached_pool_clear(pool) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 0 && pool_stats_of(pool).num_used == 0);
  CHECK(kvcached_pool_destroy(pool) == KVCACHED_OK);
  CHECK(stats_of(ctx).num_pools == 0);
  kvcached_shutdown(ctx);
}

static void pages_that_blocks_share_stay_for_the_last_of_them(void) {
  kvcached_ctx_t ctx = context_with(MIB);
  kvcached_pool_t pool = kvcached_pool_create(ctx, 8, 6144); /* one and a half pages */
  int64_t ids[8];
  CHECK(kvcached_pool_alloc(pool, 2, ids) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 3 * kPage);
  char* base = kvcached_pool_base(pool);
  memset(base + 6144, 9, 6144);
  CHECK(kvcached_pool_free(pool, &ids[0], 1) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 2 * kPage);
  CHECK(is_filled(base + 6144, 9, 6144));
  CHECK(kvcached_pool_alloc(pool, 1, ids) == KVCACHED_OK && ids[0] == 0); /* half of it is there */
  CHECK(stats_of(ctx).committed_bytes == 3 * kPage);
  CHECK(kvcached_pool_alloc(pool, 6, ids + 2) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 12 * kPage);
  CHECK(is_filled(base + 6144, 9, 6144));
  kvcached_shutdown(ctx);
}

static void blocks_that_cost_nothing_come_first(void) {
  kvcached_ctx_t ctx = context_with(MIB);
  kvcached_pool_t pool = kvcached_pool_create(ctx, 64, 1000);
  CHECK(pool_stats_of(pool).block_bytes == 1024); /* a multiple of 64 */
  int64_t ids[64];
  CHECK(kvcached_pool_alloc(pool, 16, ids) == KVCACHED_OK);    /* 4 pages */
  CHECK(kvcached_pool_free(pool, ids, 4) == KVCACHED_OK);      /* the first page */
  CHECK(kvcached_pool_free(pool, ids + 13, 1) == KVCACHED_OK); /* part of the last */
  CHECK(stats_of(ctx).committed_bytes == 3 * kPage);
  CHECK(kvcached_pool_alloc(pool, 2, ids) == KVCACHED_OK);
  CHECK(ids[0] == 13 && ids[1] == 0);
  CHECK(stats_of(ctx).committed_bytes == 4 * kPage);
  kvcached_set_limit(ctx, 4 * kPage); /* blocks on pages that have memory are still there, others not */
  CHECK(kvcached_pool_alloc(pool, 4, ids) == KVCACHED_ERR_LIMIT);
  CHECK(kvcached_pool_alloc(pool, 3, ids) == KVCACHED_OK);
  CHECK(ids[0] == 1 && ids[1] == 2 && ids[2] == 3);
  CHECK(pool_stats_of(pool).num_used == 16);
  kvcached_shutdown(ctx);
}

static void large_pools_come_in_huge_pages(void) {
  kvcached_ctx_t ctx = context_with(192 * MIB);
  kvcached_pool_t pool = kvcached_pool_create(ctx, 0, 96 * KIB);
  kvcached_pool_stats_t stats = pool_stats_of(pool);
  CHECK(stats.page_bytes == 2 * MIB && stats.num_blocks == 192 * MIB / (96 * KIB));
  CHECK((size_t)kvcached_pool_base(pool) % (2 * MIB) == 0);
  int64_t ids[22];
  CHECK(kvcached_pool_alloc(pool, 21, ids) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 2 * MIB);
  CHECK(kvcached_pool_alloc(pool, 1, ids + 21) == KVCACHED_OK); /* lies on two of them */
  CHECK(ids[21] == 21 && stats_of(ctx).committed_bytes == 4 * MIB);
  CHECK(kvcached_pool_free(pool, ids, 21) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 4 * MIB);
  CHECK(kvcached_pool_free(pool, ids + 21, 1) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 0);
  kvcached_shutdown(ctx);
}

static void num_blocks_follows_from_the_limit(void) {
  kvcached_ctx_t ctx = context_with(MIB + 1000);
  kvcached_pool_t pool = kvcached_pool_create(ctx, 0, 6144);
  CHECK(pool_stats_of(pool).num_blocks == MIB / 6144);
  int64_t ids[MIB / 6144 + 1];
  CHECK(kvcached_pool_alloc(pool, MIB / 6144 + 1, ids) == KVCACHED_ERR_NO_BLOCKS);
  CHECK_ERROR(KVCACHED_ERR_NO_BLOCKS, "171 blocks asked for, but 170 of 170 are free");
  CHECK(kvcached_pool_alloc(pool, MIB / 6144, ids) == KVCACHED_OK);
  CHECK(kvcached_pool_create(ctx, 0, 2 * MIB) == NULL);
  CHECK_ERROR(KVCACHED_ERR_LIMIT, "a block of 2097152 bytes exceeds the limit");
  kvcached_shutdown(ctx);
}

static void blocks_that_exceed_the_limit_are_counted(void) {
  kvcached_ctx_t ctx = context_with(64 * MIB);
  kvcached_pool_t pool = kvcached_pool_create(ctx, 1000, 100000);
  int64_t ids[610];
  CHECK(kvcached_pool_alloc(pool, 610, ids) == KVCACHED_OK);
  CHECK(kvcached_pool_free(pool, ids + 600, 10) == KVCACHED_OK);
  kvcached_set_limit(ctx, 0);
  CHECK(kvcached_pool_alloc(pool, 1, ids + 600) == KVCACHED_ERR_LIMIT);
  CHECK(atoll(kvcached_last_error_message()) > 0); /* "98304 bytes exceed the limit of 0, ..." */
  kvcached_shutdown(ctx);
}

static void nonsense_is_refused(void) {
  kvcached_ctx_t ctx = context_with(MIB);
  CHECK(kvcached_pool_create(ctx, 0, 0) == NULL);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "block_bytes is 0");
  const size_t sizes[][2] = {{1, 0},
                             {0, 0},
                             {1, SIZE_MAX},
                             {SIZE_MAX, 64},
                             {0, SIZE_MAX},
                             {1u << 31, 64},
                             {0x7fffffff, (size_t)1 << 40}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    CHECK(kvcached_pool_create(ctx, sizes[i][0], sizes[i][1]) == NULL);
    CHECK(kvcached_last_error() == KVCACHED_ERR_INVALID_ARGUMENT);
    CHECK(kvcached_last_error_message()[0] != '\0');
  }
  kvcached_pool_t pool = kvcached_pool_create(ctx, 0x7fffffff, kPage);
  int64_t ids[5];
  CHECK(kvcached_pool_alloc(pool, 3, ids) == KVCACHED_OK);
  memset(kvcached_pool_base(pool), 3, 3 * kPage);
  CHECK(kvcached_pool_alloc(pool, 0x7ffffff0, ids + 3) == KVCACHED_ERR_LIMIT);
  CHECK(kvcached_pool_alloc(pool, 0x7fffffff, ids + 3) == KVCACHED_ERR_NO_BLOCKS);
  CHECK(kvcached_pool_alloc(pool, SIZE_MAX, ids + 3) == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_pool_alloc(pool, 1, NULL) == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_pool_alloc(pool, 0, NULL) == KVCACHED_OK);
  const int64_t wrong[][3] = {{0, 1, 3}, {0, 1, 0}, {2, -1, 1}, {1, INT64_MAX, 0}, {INT64_MIN, 0, 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK(kvcached_pool_free(pool, wrong[i], 3) == KVCACHED_ERR_UNKNOWN_BLOCK);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_BLOCK, i == 1 ? "block 0 comes twice" : "is not allocated");
    CHECK(pool_stats_of(pool).num_used == 3 && stats_of(ctx).committed_bytes == 3 * kPage);
  }
  CHECK(is_filled(kvcached_pool_base(pool), 3, 3 * kPage));
  CHECK(kvcached_pool_free(pool, NULL, 1) == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_pool_free(pool, ids, SIZE_MAX) == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_pool_free(pool, NULL, 0) == KVCACHED_OK);
  CHECK(kvcached_pool_free(pool, ids, 3) == KVCACHED_OK);
  CHECK(kvcached_pool_free(pool, ids, 3) == KVCACHED_ERR_UNKNOWN_BLOCK);
  CHECK(kvcached_pool_get_stats(pool, NULL) == KVCACHED_ERR_INVALID_ARGUMENT);
  kvcached_shutdown(ctx);
}

static void every_function_knows_an_unknown_pool(void) {
  kvcached_ctx_t ctx = context_with(MIB);
  kvcached_pool_t gone = kvcached_pool_create(ctx, 1, 64);
  CHECK(kvcached_pool_destroy(gone) == KVCACHED_OK);
  const kvcached_pool_t unknown[] = {gone, NULL, (kvcached_pool_t)(void*)"not a pool"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
    int64_t id = 0;
    kvcached_pool_stats_t stats;
    CHECK(kvcached_pool_alloc(unknown[i], 1, &id) == KVCACHED_ERR_UNKNOWN_HANDLE);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown pool");
    CHECK(kvcached_pool_free(unknown[i], &id, 1) == KVCACHED_ERR_UNKNOWN_HANDLE);
    CHECK(kvcached_pool_clear(unknown[i]) == KVCACHED_ERR_UNKNOWN_HANDLE);
    CHECK(kvcached_pool_base(unknown[i]) == NULL && kvcached_last_error() == KVCACHED_ERR_UNKNOWN_HANDLE);
    CHECK(kvcached_pool_get_stats(unknown[i], &stats) == KVCACHED_ERR_UNKNOWN_HANDLE);
    CHECK(kvcached_pool_destroy(unknown[i]) == KVCACHED_ERR_UNKNOWN_HANDLE);
  }
  kvcached_shutdown(ctx);
}

static void pools_and_allocations_share_the_limit(void) {
  kvcached_ctx_t ctx = context_with(4 * MIB);
  kvcached_pool_t first = kvcached_pool_create(ctx, 4, MIB), second = kvcached_pool_create(ctx, 4, MIB);
  int64_t ids[4];
  void* memory = kvcached_alloc(ctx, MIB);
  CHECK(kvcached_pool_alloc(first, 3, ids) == KVCACHED_OK);
  CHECK(kvcached_pool_alloc(second, 1, ids) == KVCACHED_ERR_LIMIT);
  kvcached_free(ctx, memory);
  CHECK(kvcached_pool_alloc(second, 1, ids) == KVCACHED_OK);
  CHECK(kvcached_pool_destroy(first) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == MIB);
  CHECK(kvcached_pool_alloc(second, 3, ids) == KVCACHED_OK);
  kvcached_shutdown(ctx);
}

int main(void) {
  blocks_are_committed_and_released();
  pages_that_blocks_share_stay_for_the_last_of_them();
  blocks_that_cost_nothing_come_first();
  large_pools_come_in_huge_pages();
  num_blocks_follows_from_the_limit();
  blocks_that_exceed_the_limit_are_counted();
  nonsense_is_refused();
  every_function_knows_an_unknown_pool();
  pools_and_allocations_share_the_limit();
  return 0;
}
