/* kvcached.h but for the pools: allocations, the limit, and everything that can be wrong. */
#include "check.h"

static const size_t kPage = 4096;

static void allocations_are_zeroed_counted_and_given_back(void) {
  kvcached_ctx_t ctx = kvcached_init(0);
  CHECK(ctx != NULL);
  kvcached_set_limit(ctx, 64 * MIB);
  CHECK_OK();
  const size_t before = resident_bytes();
  char* memory = kvcached_alloc(ctx, 20 * MIB + 1);
  CHECK(memory != NULL);
  CHECK_OK();
  CHECK((size_t)memory % kPage == 0);
  CHECK(is_filled(memory, 0, 20 * MIB + 1));
  CHECK(resident_bytes() - before >= 20 * MIB); /* committed, not only reserved */
  const kvcached_stats_t stats = stats_of(ctx);
  CHECK(stats.limit_bytes == 64 * MIB && stats.committed_bytes == 20 * MIB + kPage);
  CHECK(stats.peak_committed_bytes == stats.committed_bytes);
  CHECK(stats.num_allocations == 1 && stats.num_pools == 0);
  CHECK(kvcached_available(ctx) == 44 * MIB - kPage);
  memset(memory, 1, 20 * MIB + 1);
  kvcached_free(ctx, memory);
  CHECK_OK();
  CHECK(stats_of(ctx).committed_bytes == 0 && stats_of(ctx).num_allocations == 0);
  CHECK(stats_of(ctx).peak_committed_bytes == 20 * MIB + kPage);
  CHECK(resident_bytes() < before + MIB);
  kvcached_free(ctx, NULL);
  CHECK_OK();
  kvcached_shutdown(ctx);
  CHECK_OK();
}

static void the_whole_limit_can_be_had_and_not_a_byte_more(void) {
  kvcached_ctx_t ctx = kvcached_init(0);
  kvcached_set_limit(ctx, 33 * MIB); /* no multiple of a huge page */
  void* whole = kvcached_alloc(ctx, kvcached_available(ctx));
  CHECK(whole != NULL && kvcached_available(ctx) == 0);
  CHECK(kvcached_alloc(ctx, 1) == NULL);
  CHECK_ERROR(KVCACHED_ERR_LIMIT, "4096 bytes exceed the limit of 34603008, of which 34603008 are committed");
  kvcached_free(ctx, whole);
  CHECK(kvcached_alloc(ctx, 33 * MIB + 1) == NULL);
  CHECK_ERROR(KVCACHED_ERR_LIMIT, "exceed the limit");
  CHECK(stats_of(ctx).committed_bytes == 0);
  void* huge = kvcached_alloc(ctx, 32 * MIB); /* in huge pages */
  CHECK(huge != NULL && (size_t)huge % (2 * MIB) == 0 && stats_of(ctx).committed_bytes == 32 * MIB);
  kvcached_shutdown(ctx);
}

static void a_limit_below_what_is_committed_is_deferred(void) {
  kvcached_ctx_t ctx = kvcached_init(0);
  kvcached_set_limit(ctx, 16 * MIB);
  char* first = kvcached_alloc(ctx, 6 * MIB);
  char* second = kvcached_alloc(ctx, 6 * MIB);
  memset(first, 7, 6 * MIB);
  kvcached_set_limit(ctx, 8 * MIB);
  CHECK_ERROR(KVCACHED_DEFERRED, "below what is committed");
  CHECK(kvcached_get_limit(ctx) == 8 * MIB && stats_of(ctx).committed_bytes == 12 * MIB);
  CHECK(kvcached_available(ctx) == 0);
  CHECK_OK();
  CHECK(kvcached_alloc(ctx, 1) == NULL && kvcached_last_error() == KVCACHED_ERR_LIMIT);
  kvcached_free(ctx, second);
  CHECK(kvcached_available(ctx) == 2 * MIB); /* shrunk */
  CHECK(kvcached_alloc(ctx, 2 * MIB) != NULL);
  CHECK(is_filled(first, 7, 6 * MIB));
  kvcached_set_limit(ctx, 0);
  CHECK(kvcached_last_error() == KVCACHED_DEFERRED && kvcached_get_limit(ctx) == 0);
  kvcached_set_limit(ctx, 16 * MIB); /* grows again */
  CHECK_OK();
  CHECK(kvcached_available(ctx) == 8 * MIB);
  kvcached_shutdown(ctx);
}

static void nonsense_is_refused(void) {
  CHECK(kvcached_init(1) == NULL);
  CHECK_ERROR(KVCACHED_ERR_NO_DEVICE, "no device 1");
  CHECK(kvcached_init(-1) == NULL);
  CHECK_ERROR(KVCACHED_ERR_NO_DEVICE, "no device -1");
  kvcached_ctx_t ctx = kvcached_init(0), other = kvcached_init(0);
  CHECK(kvcached_get_limit(ctx) > 0);
  CHECK(kvcached_alloc(ctx, 0) == NULL);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "0 bytes");
  CHECK(kvcached_alloc(ctx, SIZE_MAX) == NULL);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "makes no sense");
  kvcached_set_limit(ctx, SIZE_MAX);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "limit");
  kvcached_set_limit(ctx, INT64_MAX); /* more than any machine has */
  CHECK_OK();
  CHECK(kvcached_alloc(ctx, (size_t)1 << 45) == NULL);
  CHECK_ERROR(KVCACHED_ERR_NO_MEMORY, "more than");
  CHECK(stats_of(ctx).committed_bytes == 0);
  char* memory = kvcached_alloc(ctx, 3 * kPage);
  memset(memory, 5, 3 * kPage);
  char on_the_stack;
  char* const wrong[] = {memory + 1, memory + kPage, &on_the_stack, (char*)8};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    kvcached_free(ctx, wrong[i]);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_POINTER, "no allocation of this context");
  }
  kvcached_free(other, memory);
  CHECK(kvcached_last_error() == KVCACHED_ERR_UNKNOWN_POINTER);
  CHECK(is_filled(memory, 5, 3 * kPage) && stats_of(ctx).committed_bytes == 3 * kPage);
  kvcached_free(ctx, memory);
  CHECK_OK();
  kvcached_free(ctx, memory);
  CHECK_ERROR(KVCACHED_ERR_UNKNOWN_POINTER, "already freed");
  CHECK(stats_of(ctx).committed_bytes == 0);
  CHECK(kvcached_get_stats(ctx, NULL) == KVCACHED_ERR_INVALID_ARGUMENT);
  CHECK_ERROR(KVCACHED_ERR_INVALID_ARGUMENT, "stats is NULL");
  kvcached_shutdown(ctx);
  kvcached_shutdown(other);
}

static void every_function_knows_an_unknown_context(void) {
  kvcached_ctx_t gone = kvcached_init(0);
  void* memory = kvcached_alloc(gone, 1);
  kvcached_shutdown(gone);
  kvcached_ctx_t next = kvcached_init(0);
  CHECK(next != gone);
  const kvcached_ctx_t unknown[] = {gone, NULL, (kvcached_ctx_t)(void*)"not a context"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
    kvcached_stats_t stats;
    CHECK(kvcached_alloc(unknown[i], 1) == NULL);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
    kvcached_free(unknown[i], memory);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
    CHECK(kvcached_available(unknown[i]) == 0);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
    kvcached_set_limit(unknown[i], 1);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
    CHECK(kvcached_get_limit(unknown[i]) == 0);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
    CHECK(kvcached_get_stats(unknown[i], &stats) == KVCACHED_ERR_UNKNOWN_HANDLE);
    CHECK(kvcached_pool_create(unknown[i], 1, 64) == NULL);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
    kvcached_shutdown(unknown[i]);
    CHECK_ERROR(KVCACHED_ERR_UNKNOWN_HANDLE, "unknown context");
  }
  kvcached_shutdown(next);
  CHECK_OK();
}

static void every_status_has_a_text_of_its_own(void) {
  for (int status = KVCACHED_ERR_ALREADY_INITIALIZED - 1; status <= KVCACHED_DEFERRED + 1; ++status)
    for (int other = status + 1; other <= KVCACHED_DEFERRED; ++other)
      CHECK(strcmp(kvcached_strerror(status), kvcached_strerror(other)) != 0);
  CHECK(strcmp(kvcached_strerror(-100), "unknown status") == 0);
  CHECK(strcmp(kvcached_strerror(KVCACHED_OK), "success") == 0);
}

static void shutdown_gives_everything_back(void) {
  const size_t before = resident_bytes();
  kvcached_ctx_t ctx = kvcached_init(0);
  for (int i = 0; i < 16; ++i) CHECK(kvcached_alloc(ctx, MIB) != NULL);
  int64_t ids[16];
  kvcached_pool_t pool = kvcached_pool_create(ctx, 16, MIB);
  CHECK(kvcached_pool_alloc(pool, 16, ids) == KVCACHED_OK);
  CHECK(stats_of(ctx).num_pools == 1 && stats_of(ctx).committed_bytes == 32 * MIB);
  CHECK(resident_bytes() >= before + 32 * MIB);
  kvcached_shutdown(ctx);
  CHECK(resident_bytes() < before + MIB);
  CHECK(kvcached_pool_clear(pool) == KVCACHED_ERR_UNKNOWN_HANDLE);
}

int main(void) {
  free(malloc(MIB)); /* stdio and malloc take their memory now */
  resident_bytes();
  allocations_are_zeroed_counted_and_given_back();
  the_whole_limit_can_be_had_and_not_a_byte_more();
  a_limit_below_what_is_committed_is_deferred();
  nonsense_is_refused();
  every_function_knows_an_unknown_context();
  every_status_has_a_text_of_its_own();
  shutdown_gives_everything_back();
  return 0;
}
