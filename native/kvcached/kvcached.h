/* kvcached: elastic memory for KV caches, under one limit.
 *
 * Address space is reserved; memory is committed when it is allocated and goes back to the system when it is
 * freed. What is committed, counted in pages, never exceeds the limit, not for a moment.
 *
 * Every function may be called from any thread. No function crashes on a handle, pointer, id or size that
 * makes no sense: it fails, and kvcached_last_error() says why. Two things are the caller's: memory is used
 * only between its allocation and its release, and arrays are as long as their count says.
 */
#ifndef KVCACHED_H
#define KVCACHED_H

#include <stddef.h>
#include <stdint.h>

#if defined(KVCACHED_BUILD)
#define KVCACHED_API __attribute__((visibility("default")))
#else
#define KVCACHED_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---- */

typedef enum kvcached_status {
  KVCACHED_OK = 0,
  /* Success: the new limit is below what is committed. Nothing more is committed until enough is freed. */
  KVCACHED_DEFERRED = 1,
  KVCACHED_ERR_INVALID_ARGUMENT = -1,
  /* Not a context or pool, or one that was shut down or destroyed. */
  KVCACHED_ERR_UNKNOWN_HANDLE = -2,
  /* Not an allocation of this context, or one that was already freed. */
  KVCACHED_ERR_UNKNOWN_POINTER = -3,
  /* No such block in the pool, one that is not allocated, or one that comes twice. */
  KVCACHED_ERR_UNKNOWN_BLOCK = -4,
  /* It would exceed the limit. */
  KVCACHED_ERR_LIMIT = -5,
  /* The system does not have the memory or the address space. What came half-way was given back. */
  KVCACHED_ERR_NO_MEMORY = -6,
  /* All blocks of the pool are allocated. */
  KVCACHED_ERR_NO_BLOCKS = -7,
  KVCACHED_ERR_NO_DEVICE = -8,
  /* The bridge: a function came before the one that has to come first. */
  KVCACHED_ERR_NOT_INITIALIZED = -9,
  /* The bridge: there is a KV cache already. */
  KVCACHED_ERR_ALREADY_INITIALIZED = -10
} kvcached_status_t;

/* Status of the calling thread's last call of a function of kvcached.h or kvcached_bridge.h, these three
 * excepted: KVCACHED_OK after a success. */
KVCACHED_API int kvcached_last_error(void);
/* What was wrong with that call, with the values concerned; "" after a success. Valid until this thread's
 * next call. */
KVCACHED_API const char* kvcached_last_error_message(void);
/* What a status means in general; never NULL. */
KVCACHED_API const char* kvcached_strerror(int status);

/* ---- Contexts ---- */

typedef struct kvcached_ctx* kvcached_ctx_t;

/* A context: one limit, and what is allocated under it. device_id: 0, this machine's memory; other devices
 * are not supported. The limit is, to begin with, OLLAMA_KVCACHED_MEMORY_GB of the environment (GiB, or with
 * a unit, such as 512MiB; at least 1 MiB); if that is not set, half of the memory that the system and the
 * control groups of this process have available. NULL on failure. */
KVCACHED_API kvcached_ctx_t kvcached_init(int device_id);

/* Releases everything that was allocated in the context, its pools included. */
KVCACHED_API void kvcached_shutdown(kvcached_ctx_t ctx);

/* Committed, zeroed memory of at least `size` bytes at the border of a page; NULL on failure. Counted in
 * whole pages, so this is for tensors, not for small objects. From 32 MiB on it comes in huge pages of 2 MiB
 * if that many fit under the limit, else in the system's pages. */
KVCACHED_API void* kvcached_alloc(kvcached_ctx_t ctx, size_t size);

/* Gives memory of kvcached_alloc() back to the system. NULL is ignored. */
KVCACHED_API void kvcached_free(kvcached_ctx_t ctx, void* ptr);

/* Bytes that may still be committed: a snapshot, not a promise. 0 on failure. */
KVCACHED_API size_t kvcached_available(kvcached_ctx_t ctx);

/* In bytes, at most INT64_MAX. A limit below what is committed is accepted with KVCACHED_DEFERRED as status:
 * nothing is revoked, and nothing more is committed until enough is freed. */
KVCACHED_API void kvcached_set_limit(kvcached_ctx_t ctx, size_t limit);

/* 0 on failure. */
KVCACHED_API size_t kvcached_get_limit(kvcached_ctx_t ctx);

typedef struct kvcached_stats {
  size_t limit_bytes;
  size_t committed_bytes; /* above limit_bytes only after the limit was set below it */
  size_t peak_committed_bytes;
  size_t num_allocations; /* of kvcached_alloc(), not yet freed */
  size_t num_pools;
} kvcached_stats_t;

/* All at one moment, but for num_pools. Returns a status. */
KVCACHED_API int kvcached_get_stats(kvcached_ctx_t ctx, kvcached_stats_t* stats);

/* ---- Pools of blocks ---- */

/* Blocks of equal size, one after the other in one range of reserved addresses: block i lies at
 * kvcached_pool_base() + i * block_bytes, and has memory from kvcached_pool_alloc() to kvcached_pool_free().
 * Pages come with the first block on them and go with the last. Reading a block without memory gives zeros;
 * writing to one takes memory that nobody counts. */
typedef struct kvcached_pool* kvcached_pool_t;

/* Reserves addresses, and commits nothing. num_blocks: at most 2^31 - 1; 0 for as many as the limit allows.
 * block_bytes: rounded up to a multiple of 64. NULL on failure. */
KVCACHED_API kvcached_pool_t kvcached_pool_create(kvcached_ctx_t ctx, size_t num_blocks, size_t block_bytes);

/* Releases the pool's memory and addresses. Returns a status, like all that follow. */
KVCACHED_API int kvcached_pool_destroy(kvcached_pool_t pool);

/* Commits `count` blocks and writes their ids, in ascending order except that those of pages that have memory
 * already come first. All or, on failure, none. The contents are undefined. */
KVCACHED_API int kvcached_pool_alloc(kvcached_pool_t pool, size_t count, int64_t* block_ids);

/* All or, if any is not allocated or comes twice, none. */
KVCACHED_API int kvcached_pool_free(kvcached_pool_t pool, const int64_t* block_ids, size_t count);

/* Frees every block. */
KVCACHED_API int kvcached_pool_clear(kvcached_pool_t pool);

/* Address of block 0, at the border of a page; NULL on failure. */
KVCACHED_API void* kvcached_pool_base(kvcached_pool_t pool);

typedef struct kvcached_pool_stats {
  size_t num_blocks;
  size_t num_used;
  size_t block_bytes; /* from one block to the next */
  size_t page_bytes;  /* committed and released together */
  size_t committed_bytes;
} kvcached_pool_stats_t;

KVCACHED_API int kvcached_pool_get_stats(kvcached_pool_t pool, kvcached_pool_stats_t* stats);

#ifdef __cplusplus
}
#endif

#endif
