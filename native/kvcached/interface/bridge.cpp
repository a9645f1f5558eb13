// kvcached_bridge.h, on top of kvcached.h
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "kvcached/failure.h"
#include "kvcached/interface/last_error.h"
#include "kvcached/kvcached_bridge.h"

using puna::kvcached::Failure;
using puna::kvcached::guarded;
using puna::kvcached::guarded_status;

namespace {

constexpr size_t kValueBytes = 2;  // float16

struct Bridge {
  std::mutex mutex;
  bool is_initialized = false;
  int log_level = LOG_WARN;
  kvcached_ctx_t context = nullptr;
  kvcached_pool_t pool = nullptr;
};

auto& bridge = *new Bridge;  // never destroyed, like the handles

__attribute__((format(printf, 2, 3))) void log(log_level_t level, const char* format, ...) {
  if (level < bridge.log_level) return;
  constexpr const char* kNames[] = {"DEBUG", "INFO", "WARN", "ERROR"};
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "kvcached: %s: %s\n", kNames[level], text);
}

// Throws what the last call of kvcached.h failed with.
void check_last_call() {
  if (const int status = kvcached_last_error(); status < 0)
    throw Failure(static_cast<kvcached_status_t>(status), kvcached_last_error_message());
}

// Runs the body of a bridge function, one at a time.
template <typename Result, typename Body>
Result bridged(const char* function, Result failed, Body body) {
  const std::lock_guard<std::mutex> lock(bridge.mutex);
  Result result = guarded(failed, body);
  if (kvcached_last_error() < 0)
    log(LOG_ERROR, "%s: %s", function, kvcached_last_error_message());
  else
    log(LOG_DEBUG, "%s: done", function);
  return result;
}

template <typename Body>
int bridged_status(const char* function, Body body) {
  bridged(function, false, [&] {
    body();
    return true;
  });
  return kvcached_last_error();
}

void check_device(const char* device) {
  const std::string name = device == nullptr ? "" : device;
  if (name != "cpu" && name != "cpu:0")
    throw Failure(KVCACHED_ERR_NO_DEVICE, "there is no device \"" + name + "\", only \"cpu\"");
}

void check_stage(const void* handle, const char* earlier) {
  if (handle == nullptr)
    throw Failure(KVCACHED_ERR_NOT_INITIALIZED, std::string(earlier) + "() was not called");
}

size_t positive(int value, const char* name) {
  if (value <= 0)
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, std::string(name) + " is " + std::to_string(value));
  return static_cast<size_t>(value);
}

size_t product(std::initializer_list<size_t> factors) {
  size_t bytes = 1;
  for (const size_t factor : factors)
    if (__builtin_mul_overflow(bytes, factor, &bytes))
      throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, "a block would be larger than the address space");
  return bytes;
}

void shut_down() {
  if (bridge.context == nullptr) return;
  kvcached_shutdown(bridge.context);
  bridge.context = nullptr;
  bridge.pool = nullptr;
  log(LOG_INFO, "shut down");
}

}  // namespace

int kvcached_bridge_init() {
  return bridged_status(__func__, [] { bridge.is_initialized = true; });
}

int kvcached_bridge_init_kvcached(const char* device, int /*async_sched*/) {
  return bridged_status(__func__, [&] {
    if (!bridge.is_initialized)
      throw Failure(KVCACHED_ERR_NOT_INITIALIZED, "kvcached_bridge_init() was not called");
    check_device(device);
    if (bridge.context != nullptr) return;
    bridge.context = kvcached_init(0);
    check_last_call();
    log(LOG_INFO, "initialized, with a limit of %zu bytes", kvcached_get_limit(bridge.context));
  });
}

int kvcached_bridge_alloc_kv_cache(int num_blocks, int block_size, int head_num, int head_dim, int num_layers,
                                   const char* device) {
  return bridged_status(__func__, [&] {
    check_stage(bridge.context, "kvcached_bridge_init_kvcached");
    check_device(device);
    if (bridge.pool != nullptr)
      throw Failure(KVCACHED_ERR_ALREADY_INITIALIZED, "there is a KV cache already");
    const size_t count = num_blocks == 0 ? 0 : positive(num_blocks, "num_blocks");
    const size_t block_bytes =
        product({positive(block_size, "block_size"), positive(head_num, "head_num"),
                 positive(head_dim, "head_dim"), positive(num_layers, "num_layers"), 2, kValueBytes});
    bridge.pool = kvcached_pool_create(bridge.context, count, block_bytes);
    check_last_call();
    log(LOG_INFO, "a KV cache with blocks of %zu bytes", block_bytes);
  });
}

long long* kvcached_bridge_alloc_kv(int num_blocks) {
  return bridged<long long*>(__func__, nullptr, [&] {
    check_stage(bridge.pool, "kvcached_bridge_alloc_kv_cache");
    const size_t count = positive(num_blocks, "num_blocks");
    std::vector<int64_t> ids(count);
    // With malloc(), and before there are blocks that would have to be given back.
    std::unique_ptr<long long, decltype(&std::free)> array(
        static_cast<long long*>(std::malloc(count * sizeof(long long))), &std::free);
    if (array == nullptr) throw std::bad_alloc();
    kvcached_pool_alloc(bridge.pool, count, ids.data());
    check_last_call();
    std::copy(ids.begin(), ids.end(), array.get());
    return array.release();
  });
}

int kvcached_bridge_free_kv(long long* block_ids, int num_blocks) {
  return bridged_status(__func__, [&] {
    check_stage(bridge.pool, "kvcached_bridge_alloc_kv_cache");
    const size_t count = positive(num_blocks, "num_blocks");
    if (block_ids == nullptr) throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, "block_ids is NULL");
    const std::vector<int64_t> ids(block_ids, block_ids + count);
    kvcached_pool_free(bridge.pool, ids.data(), count);
    check_last_call();
  });
}

int kvcached_bridge_shutdown_kvcached() { return bridged_status(__func__, shut_down); }

void kvcached_bridge_cleanup() {
  bridged_status(__func__, [] {
    shut_down();
    bridge.is_initialized = false;
  });
}

void kvcached_bridge_set_log_level(int level) {
  bridged_status(__func__, [&] {
    if (level < LOG_DEBUG || level > LOG_ERROR)
      throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, "there is no log level " + std::to_string(level));
    bridge.log_level = level;
  });
}

kvcached_ctx_t kvcached_bridge_context(void) {
  const std::lock_guard<std::mutex> lock(bridge.mutex);
  return bridge.context;
}

kvcached_pool_t kvcached_bridge_pool(void) {
  const std::lock_guard<std::mutex> lock(bridge.mutex);
  return bridge.pool;
}
