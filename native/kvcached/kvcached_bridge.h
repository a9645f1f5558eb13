/* The bridge: one KV cache per process, without handles, for callers such as cgo. It is built on kvcached.h,
 * whose kvcached_last_error() tells why a function here failed. Functions that return int return a
 * kvcached_status_t: 0 is success, failures are negative.
 *
 * The names LOG_DEBUG and so on are macros in <syslog.h>: do not include both.
 */
#ifndef KVCACHED_BRIDGE_H
#define KVCACHED_BRIDGE_H

#include "kvcached.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operation types for messages to a process that holds the bridge. */
typedef enum {
  BRIDGE_OP_INIT = 0,
  BRIDGE_OP_ALLOC_KV_CACHE = 1,
  BRIDGE_OP_ALLOC_KV_BRIDGE = 2,
  BRIDGE_OP_FREE_KV = 3,
  BRIDGE_OP_SHUTDOWN = 4
} bridge_operation_t;

typedef enum { LOG_DEBUG = 0, LOG_INFO = 1, LOG_WARN = 2, LOG_ERROR = 3 } log_level_t;

/* Comes first. Calling it again does nothing. */
KVCACHED_API int kvcached_bridge_init(void);

/* Stage 1: a context for the device: "cpu" or "cpu:0". A second call does nothing. async_sched changes
 * nothing, since every function may be called from any thread anyway. */
KVCACHED_API int kvcached_bridge_init_kvcached(const char* device, int async_sched);

/* Stage 2: reserves addresses for num_blocks blocks (0: as many as the limit allows) of block_size tokens, of
 * float16. A block is [num_layers][K, V][block_size][head_num][head_dim]. device: the one of stage 1. */
KVCACHED_API int kvcached_bridge_alloc_kv_cache(int num_blocks, int block_size, int head_num, int head_dim,
                                                int num_layers, const char* device);

/* Stage 3: memory for num_blocks blocks, at least 1. Returns an array of their ids, which the caller releases
 * with free(), or NULL, and no blocks, on failure. */
KVCACHED_API long long* kvcached_bridge_alloc_kv(int num_blocks);

/* Gives these blocks back: all or, if any is not allocated or comes twice, none. The array stays the
 * caller's. */
KVCACHED_API int kvcached_bridge_free_kv(long long* block_ids, int num_blocks);

/* Undoes stages 1 to 3: all memory and addresses are gone. Does nothing before stage 1. */
KVCACHED_API int kvcached_bridge_shutdown_kvcached(void);

/* Undoes everything, kvcached_bridge_init() included. */
KVCACHED_API void kvcached_bridge_cleanup(void);

/* The least level of what is written to stderr: a log_level_t, LOG_WARN to begin with. */
KVCACHED_API void kvcached_bridge_set_log_level(int level);

/* For limit, statistics and addresses: the bridge's context, from stage 1 on, and pool, from stage 2 on; both
 * remain the bridge's. NULL before. */
KVCACHED_API kvcached_ctx_t kvcached_bridge_context(void);
KVCACHED_API kvcached_pool_t kvcached_bridge_pool(void);

#ifdef __cplusplus
}
#endif

#endif
