/* What the test programs share. A failed check ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvcached.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      fprintf(stderr, "%s:%d: %s; last error %d: %s\n", __FILE__, __LINE__, #condition, \
              kvcached_last_error(), kvcached_last_error_message());                    \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

/* The last call failed with this status, and a message that has these words. */
#define CHECK_ERROR(status, words)                            \
  do {                                                        \
    CHECK(kvcached_last_error() == (status));                 \
    CHECK(strstr(kvcached_last_error_message(), words) != 0); \
  } while (0)

#define CHECK_OK()                                   \
  do {                                               \
    CHECK(kvcached_last_error() == KVCACHED_OK);     \
    CHECK(kvcached_last_error_message()[0] == '\0'); \
  } while (0)

static inline kvcached_stats_t stats_of(kvcached_ctx_t ctx) {
  kvcached_stats_t stats;
  CHECK(kvcached_get_stats(ctx, &stats) == KVCACHED_OK);
  return stats;
}

static inline kvcached_pool_stats_t pool_stats_of(kvcached_pool_t pool) {
  kvcached_pool_stats_t stats;
  CHECK(kvcached_pool_get_stats(pool, &stats) == KVCACHED_OK);
  return stats;
}

static inline size_t resident_bytes(void) {
  size_t size, resident;
  FILE* file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%zu %zu", &size, &resident) == 2);
  fclose(file);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static inline int is_filled(const char* memory, char value, size_t size) {
  for (size_t i = 0; i < size; ++i)
    if (memory[i] != value) return 0;
  return 1;
}

#endif
