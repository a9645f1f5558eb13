/* kvcached_bridge.h, in the order of its stages and in every wrong one. */
#include "check.h"
#include "kvcached_bridge.h"

static void what_comes_too_early_is_refused(void) {
  long long id = 0;
  CHECK(kvcached_bridge_init_kvcached("cpu", 1) == KVCACHED_ERR_NOT_INITIALIZED);
  CHECK_ERROR(KVCACHED_ERR_NOT_INITIALIZED, "kvcached_bridge_init() was not called");
  CHECK(kvcached_bridge_alloc_kv_cache(4, 16, 2, 64, 3, "cpu") == KVCACHED_ERR_NOT_INITIALIZED);
  CHECK_ERROR(KVCACHED_ERR_NOT_INITIALIZED, "kvcached_bridge_init_kvcached() was not called");
  CHECK(kvcached_bridge_alloc_kv(1) == NULL);
  CHECK_ERROR(KVCACHED_ERR_NOT_INITIALIZED, "kvcached_bridge_alloc_kv_cache() was not called");
  CHECK(kvcached_bridge_free_kv(&id, 1) == KVCACHED_ERR_NOT_INITIALIZED);
  CHECK(kvcached_bridge_context() == NULL && kvcached_bridge_pool() == NULL);
  CHECK(kvcached_bridge_shutdown_kvcached() == KVCACHED_OK);
}

static void a_cache_from_beginning_to_end(void) {
  const size_t before = resident_bytes(), block_bytes = (size_t)2 * 3 * 16 * 2 * 64 * 2;
  CHECK(kvcached_bridge_init() == KVCACHED_OK);
  CHECK(kvcached_bridge_init() == KVCACHED_OK);
  CHECK(kvcached_bridge_init_kvcached("cpu", 0) == KVCACHED_OK);
  const kvcached_ctx_t ctx = kvcached_bridge_context();
  CHECK(kvcached_bridge_init_kvcached("cpu:0", 1) == KVCACHED_OK);
  CHECK(ctx != NULL && kvcached_bridge_context() == ctx);
  CHECK(kvcached_bridge_pool() == NULL);
  kvcached_set_limit(ctx, 64 * MIB);
  CHECK(kvcached_bridge_alloc_kv_cache(600, 16, 2, 64, 3, "cpu") == KVCACHED_OK);
  CHECK(kvcached_bridge_alloc_kv_cache(600, 16, 2, 64, 3, "cpu") == KVCACHED_ERR_ALREADY_INITIALIZED);
  const kvcached_pool_t pool = kvcached_bridge_pool();
  CHECK(pool_stats_of(pool).num_blocks == 600 && pool_stats_of(pool).block_bytes == block_bytes);
  CHECK(stats_of(ctx).committed_bytes == 0);

  long long* ids = kvcached_bridge_alloc_kv(500);
  CHECK(ids != NULL);
  CHECK(stats_of(ctx).committed_bytes == 500 * block_bytes);
  CHECK(resident_bytes() >= before + 500 * block_bytes);
  char* base = kvcached_pool_base(pool);
  for (int i = 0; i < 500; ++i) memset(base + (size_t)ids[i] * block_bytes, ids[i] & 127, block_bytes);
  CHECK(kvcached_bridge_alloc_kv(101) == NULL);
  CHECK_ERROR(KVCACHED_ERR_NO_BLOCKS, "101 blocks asked for, but 100 of 600 are free");
  CHECK(kvcached_bridge_free_kv(ids + 100, 300) == KVCACHED_OK);
  CHECK(stats_of(ctx).committed_bytes == 200 * block_bytes);
  CHECK(resident_bytes() < before + 201 * block_bytes + MIB);
  CHECK(kvcached_bridge_free_kv(ids + 99, 2) == KVCACHED_ERR_UNKNOWN_BLOCK); /* the second is free already */
  for (int i = 0; i < 500; i += i == 99 ? 301 : 1)
    CHECK(is_filled(base + (size_t)ids[i] * block_bytes, (char)(ids[i] & 127), block_bytes));
  long long* again = kvcached_bridge_alloc_kv(10);
  for (int i = 0; i < 10; ++i) CHECK(again[i] >= 100 && again[i] < 400);
  free(again);
  free(ids);

  CHECK(kvcached_bridge_shutdown_kvcached() == KVCACHED_OK);
  CHECK(resident_bytes() < before + MIB);
  CHECK(kvcached_bridge_context() == NULL && kvcached_bridge_pool() == NULL);
  CHECK(kvcached_get_limit(ctx) == 0 && kvcached_last_error() == KVCACHED_ERR_UNKNOWN_HANDLE);
  CHECK(kvcached_bridge_shutdown_kvcached() == KVCACHED_OK);
}

static void the_number_of_blocks_follows_from_the_limit(void) {
  CHECK(kvcached_bridge_init_kvcached("cpu", 1) == KVCACHED_OK);
  kvcached_set_limit(kvcached_bridge_context(), 3 * MIB);
  CHECK(kvcached_bridge_alloc_kv_cache(0, 16, 4, 64, 8, "cpu") == KVCACHED_OK);
  CHECK(pool_stats_of(kvcached_bridge_pool()).num_blocks == 24);
  long long* ids = kvcached_bridge_alloc_kv(24);
  CHECK(ids != NULL);
  kvcached_set_limit(kvcached_bridge_context(), MIB);
  CHECK(kvcached_last_error() == KVCACHED_DEFERRED);
  CHECK(kvcached_bridge_free_kv(ids, 8) == KVCACHED_OK);
  CHECK(kvcached_bridge_alloc_kv(1) == NULL);
  CHECK_ERROR(KVCACHED_ERR_LIMIT, "limit of 1048576");
  CHECK(kvcached_bridge_free_kv(ids + 8, 16) == KVCACHED_OK);
  free(ids);
  kvcached_bridge_cleanup();
  CHECK_OK();
  CHECK(kvcached_bridge_init_kvcached("cpu", 1) == KVCACHED_ERR_NOT_INITIALIZED);
  CHECK(kvcached_bridge_init() == KVCACHED_OK);
}

static void nonsense_is_refused(void) {
  CHECK(kvcached_bridge_init_kvcached("cuda:0", 1) == KVCACHED_ERR_NO_DEVICE);
  CHECK_ERROR(KVCACHED_ERR_NO_DEVICE, "no device \"cuda:0\"");
  CHECK(kvcached_bridge_init_kvcached(NULL, 1) == KVCACHED_ERR_NO_DEVICE);
  CHECK(kvcached_bridge_context() == NULL);
  CHECK(kvcached_bridge_init_kvcached("cpu", 1) == KVCACHED_OK);
  const int sizes[][5] = {{-1, 16, 2, 64, 3},         {4, 0, 2, 64, 3},
                          {4, 16, -2, 64, 3},         {4, 16, 2, 0, 3},
                          {4, 16, 2, 64, 0},          {4, 1 << 30, 1 << 30, 1 << 30, 1 << 30},
                          {1 << 30, 1 << 20, 1, 1, 1}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const int* s = sizes[i];
    CHECK(kvcached_bridge_alloc_kv_cache(s[0], s[1], s[2], s[3], s[4], "cpu") ==
          KVCACHED_ERR_INVALID_ARGUMENT);
    CHECK(kvcached_last_error_message()[0] != '\0' && kvcached_bridge_pool() == NULL);
  }
  CHECK(kvcached_bridge_alloc_kv_cache(4, 16, 2, 64, 3, "cuda") == KVCACHED_ERR_NO_DEVICE);
  CHECK(kvcached_bridge_alloc_kv_cache(4, 16, 2, 64, 3, "cpu") == KVCACHED_OK);
  CHECK(kvcached_bridge_alloc_kv(0) == NULL);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "num_blocks is 0");
  CHECK(kvcached_bridge_alloc_kv(-5) == NULL && kvcached_last_error() == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_bridge_free_kv(NULL, 1) == KVCACHED_ERR_INVALID_ARGUMENT);
  long long id = 9;
  CHECK(kvcached_bridge_free_kv(&id, 0) == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_bridge_free_kv(&id, 1) == KVCACHED_ERR_UNKNOWN_BLOCK);
  kvcached_bridge_set_log_level(4);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "no log level 4");
  kvcached_bridge_set_log_level(-1);
  CHECK(kvcached_last_error() == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK(kvcached_bridge_shutdown_kvcached() == KVCACHED_OK);
}

int main(void) {
  resident_bytes();
  what_comes_too_early_is_refused();
  a_cache_from_beginning_to_end();
  the_number_of_blocks_follows_from_the_limit();
  nonsense_is_refused();
  /* The operations are for messages of callers: only their numbers matter. */
  CHECK(BRIDGE_OP_INIT == 0 && BRIDGE_OP_ALLOC_KV_CACHE == 1 && BRIDGE_OP_ALLOC_KV_BRIDGE == 2);
  CHECK(BRIDGE_OP_FREE_KV == 3 && BRIDGE_OP_SHUTDOWN == 4);
  fprintf(stderr, "-- debug\n");
  kvcached_bridge_set_log_level(LOG_DEBUG);
  kvcached_bridge_init_kvcached("cpu", 1);
  fprintf(stderr, "-- error\n");
  kvcached_bridge_set_log_level(LOG_ERROR);
  kvcached_bridge_alloc_kv_cache(1, 1, 1, 1, 1, "cpu");
  kvcached_bridge_alloc_kv(-3);
  kvcached_bridge_cleanup();
  return 0;
}
