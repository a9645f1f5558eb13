#include "kvcached/context.h"

#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "kvcached/failure.h"
#include "kvcached/system_memory.h"

namespace puna::kvcached {
namespace {

constexpr int64_t kMinHugeBytes = 16 * kHugePageBytes;  // from here on, rounding up wastes little

int64_t bytes_of(const Arena& arena) { return arena.num_blocks() * arena.block_bytes(); }

}  // namespace

void* Context::alloc(size_t size) {
  if (size == 0) throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, "an allocation of 0 bytes");
  if (size > static_cast<size_t>(kMostAddresses))
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT,
                  "an allocation of " + std::to_string(size) + " bytes makes no sense: at most 64 TiB");
  int64_t page_bytes;
  const int64_t bytes = take(size, &page_bytes);
  try {
    check_available(bytes);
    // A single extent, since it comes and goes as a whole.
    const int64_t num_pages = bytes / page_bytes;
    auto arena = std::make_unique<Arena>(num_pages, page_bytes, num_pages, bytes);
    arena->commit(std::array<int64_t, 1>{0});
    void* pointer = arena->blocks()[0];
    const std::lock_guard<std::mutex> lock(mutex_);
    allocations_.emplace(pointer, std::move(arena));
    return pointer;
  } catch (...) {
    budget_->give(bytes);
    throw;
  }
}

// Takes whole pages from the budget: huge ones if they fit, else small ones.
int64_t Context::take(size_t size, int64_t* page_bytes) {
  const auto rounded = [size](int64_t page) { return (static_cast<int64_t>(size) + page - 1) / page * page; };
  const Budget::Usage usage = budget_->usage();
  const int64_t huge = rounded(kHugePageBytes);
  *page_bytes =
      huge >= kMinHugeBytes && huge <= usage.limit - usage.committed ? kHugePageBytes : sysconf(_SC_PAGESIZE);
  const int64_t bytes = rounded(*page_bytes);
  budget_->take(bytes);
  return bytes;
}

void Context::free(void* pointer) {
  std::unique_ptr<Arena> arena;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = allocations_.find(pointer);
    if (found == allocations_.end())
      throw Failure(KVCACHED_ERR_UNKNOWN_POINTER,
                    "a pointer that is no allocation of this context, or was already freed");
    arena = std::move(found->second);
    allocations_.erase(found);
  }
  const int64_t bytes = bytes_of(*arena);
  arena.reset();
  budget_->give(bytes);
}

size_t Context::num_allocations() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return allocations_.size();
}

}  // namespace puna::kvcached
