// kvcached.h
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "kvcached/block_pool.h"
#include "kvcached/context.h"
#include "kvcached/environment.h"
#include "kvcached/failure.h"
#include "kvcached/interface/handles.h"
#include "kvcached/interface/last_error.h"
#include "kvcached/system_memory.h"

using puna::kvcached::BlockPool;
using puna::kvcached::Budget;
using puna::kvcached::Context;
using puna::kvcached::Failure;
using puna::kvcached::guarded;
using puna::kvcached::guarded_status;
using puna::kvcached::Handles;

namespace {

struct Pool {
  const std::shared_ptr<Context> context;
  BlockPool blocks;
};

// Never destroyed: other threads may still call when the process ends.
auto& contexts = *new Handles<kvcached_ctx_t, Context>("context");
auto& pools = *new Handles<kvcached_pool_t, Pool>("pool");

void check_given(const void* pointer, const char* name) {
  if (pointer == nullptr) throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, std::string(name) + " is NULL");
}

int64_t checked_size(size_t size, const char* name) {
  if (size > INT64_MAX)
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, std::string(name) + " is " + std::to_string(size));
  return static_cast<int64_t>(size);
}

}  // namespace

kvcached_ctx_t kvcached_init(int device_id) {
  return guarded(kvcached_ctx_t{}, [&] {
    if (device_id != 0)
      throw Failure(KVCACHED_ERR_NO_DEVICE, "there is no device " + std::to_string(device_id) +
                                                ", only 0, which is this machine's memory");
    const std::optional<int64_t> limit = puna::kvcached::limit_from_environment();
    return contexts.add(std::make_shared<Context>(limit ? *limit : puna::kvcached::available_memory() / 2));
  });
}

void kvcached_shutdown(kvcached_ctx_t ctx) {
  guarded_status([&] {
    const std::shared_ptr<Context> context = contexts.remove(ctx);
    pools.remove_if([&](const Pool& pool) { return pool.context == context; });
  });
}

void* kvcached_alloc(kvcached_ctx_t ctx, size_t size) {
  return guarded<void*>(nullptr, [&] { return contexts.find(ctx)->alloc(size); });
}

void kvcached_free(kvcached_ctx_t ctx, void* ptr) {
  guarded_status([&] {
    const std::shared_ptr<Context> context = contexts.find(ctx);
    if (ptr != nullptr) context->free(ptr);
  });
}

size_t kvcached_available(kvcached_ctx_t ctx) {
  return guarded(size_t{0}, [&] {
    const Budget::Usage usage = contexts.find(ctx)->budget()->usage();
    return static_cast<size_t>(std::max<int64_t>(usage.limit - usage.committed, 0));
  });
}

void kvcached_set_limit(kvcached_ctx_t ctx, size_t limit) {
  bool is_deferred = false;
  const int status = guarded_status([&] {
    const std::shared_ptr<Context> context = contexts.find(ctx);
    is_deferred = context->budget()->set_limit(checked_size(limit, "the limit"));
  });
  if (status == KVCACHED_OK && is_deferred)
    puna::kvcached::set_last_error(KVCACHED_DEFERRED, kvcached_strerror(KVCACHED_DEFERRED));
}

size_t kvcached_get_limit(kvcached_ctx_t ctx) {
  return guarded(size_t{0}, [&] { return static_cast<size_t>(contexts.find(ctx)->budget()->usage().limit); });
}

int kvcached_get_stats(kvcached_ctx_t ctx, kvcached_stats_t* stats) {
  return guarded_status([&] {
    check_given(stats, "stats");
    const std::shared_ptr<Context> context = contexts.find(ctx);
    const Budget::Usage usage = context->budget()->usage();
    stats->limit_bytes = static_cast<size_t>(usage.limit);
    stats->committed_bytes = static_cast<size_t>(usage.committed);
    stats->peak_committed_bytes = static_cast<size_t>(usage.peak);
    stats->num_allocations = context->num_allocations();
    stats->num_pools = pools.count_if([&](const Pool& pool) { return pool.context == context; });
  });
}

kvcached_pool_t kvcached_pool_create(kvcached_ctx_t ctx, size_t num_blocks, size_t block_bytes) {
  return guarded(kvcached_pool_t{}, [&] {
    const std::shared_ptr<Context> context = contexts.find(ctx);
    const int64_t bytes = checked_size(block_bytes, "block_bytes");
    const int64_t count = num_blocks == 0
                              ? BlockPool::num_blocks_within(context->budget()->usage().limit, bytes)
                              : checked_size(num_blocks, "num_blocks");
    return pools.add(std::shared_ptr<Pool>(new Pool{context, {context->budget(), count, bytes}}));
  });
}

int kvcached_pool_destroy(kvcached_pool_t pool) {
  return guarded_status([&] { pools.remove(pool); });
}

int kvcached_pool_alloc(kvcached_pool_t pool, size_t count, int64_t* block_ids) {
  return guarded_status([&] {
    const std::shared_ptr<Pool> found = pools.find(pool);
    if (count == 0) return;
    check_given(block_ids, "block_ids");
    found->blocks.alloc(checked_size(count, "count"), block_ids);
  });
}

int kvcached_pool_free(kvcached_pool_t pool, const int64_t* block_ids, size_t count) {
  return guarded_status([&] {
    const std::shared_ptr<Pool> found = pools.find(pool);
    if (count == 0) return;
    check_given(block_ids, "block_ids");
    found->blocks.free(block_ids, checked_size(count, "count"));
  });
}

int kvcached_pool_clear(kvcached_pool_t pool) {
  return guarded_status([&] { pools.find(pool)->blocks.clear(); });
}

void* kvcached_pool_base(kvcached_pool_t pool) {
  return guarded<void*>(nullptr, [&] { return pools.find(pool)->blocks.base(); });
}

int kvcached_pool_get_stats(kvcached_pool_t pool, kvcached_pool_stats_t* stats) {
  return guarded_status([&] {
    check_given(stats, "stats");
    const std::shared_ptr<Pool> found = pools.find(pool);
    const BlockPool::Usage usage = found->blocks.usage();
    stats->num_blocks = static_cast<size_t>(found->blocks.num_blocks());
    stats->num_used = static_cast<size_t>(usage.num_used);
    stats->block_bytes = static_cast<size_t>(found->blocks.block_bytes());
    stats->page_bytes = static_cast<size_t>(found->blocks.page_bytes());
    stats->committed_bytes = static_cast<size_t>(usage.committed);
  });
}
