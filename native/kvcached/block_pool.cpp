#include "kvcached/block_pool.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kvcached/failure.h"
#include "kvcached/system_memory.h"

namespace puna::kvcached {
namespace {

constexpr int64_t kMinHugePages = 64;  // with fewer, whole huge pages would be too coarse
constexpr int64_t kAlignment = 64;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t checked_stride(int64_t num_blocks, int64_t block_bytes) {
  if (num_blocks < 1 || num_blocks > INT32_MAX)
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT,
                  "num_blocks is " + std::to_string(num_blocks) + ", not within 1 and 2^31 - 1");
  if (block_bytes < 1) throw Failure(KVCACHED_ERR_INVALID_ARGUMENT, "block_bytes is 0");
  if (block_bytes > kMostAddresses / num_blocks ||
      round_up(block_bytes, kAlignment) > kMostAddresses / num_blocks)
    throw Failure(KVCACHED_ERR_INVALID_ARGUMENT,
                  "blocks of " + std::to_string(block_bytes) + " bytes" +
                      (num_blocks > 1 ? ", " + std::to_string(num_blocks) + " of them," : "") +
                      " make no sense: at most 64 TiB together");
  return round_up(block_bytes, kAlignment);
}

int64_t choose_page_bytes(int64_t limit, int64_t reserved) {
  if (std::min(limit, reserved) >= kMinHugePages * kHugePageBytes) return kHugePageBytes;
  return sysconf(_SC_PAGESIZE);
}

}  // namespace

int64_t BlockPool::num_blocks_within(int64_t limit, int64_t block_bytes) {
  const int64_t stride = checked_stride(1, block_bytes), page = choose_page_bytes(limit, limit);
  const int64_t num_blocks = limit / page * page / stride;
  if (num_blocks == 0)
    throw Failure(KVCACHED_ERR_LIMIT, "a block of " + std::to_string(block_bytes) +
                                          " bytes exceeds the limit of " + std::to_string(limit));
  return std::min<int64_t>({num_blocks, INT32_MAX, kMostAddresses / stride});
}

BlockPool::BlockPool(std::shared_ptr<Budget> budget, int64_t num_blocks, int64_t block_bytes)
    : budget_(std::move(budget)),
      num_blocks_(num_blocks),
      block_bytes_(checked_stride(num_blocks, block_bytes)),
      page_bytes_(choose_page_bytes(budget_->usage().limit, num_blocks_ * block_bytes_)),
      arena_(round_up(num_blocks_ * block_bytes_, page_bytes_) / page_bytes_, page_bytes_),
      base_(arena_.blocks()[0]) {}

BlockPool::~BlockPool() {
  arena_.close();
  budget_->give(num_pages_with_memory_ * page_bytes_);
}

BlockPool::Usage BlockPool::usage() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {used_.size(), num_pages_with_memory_ * page_bytes_};
}

BlockPool::Range BlockPool::pages_of(int64_t block) const {
  return {block * block_bytes_ / page_bytes_, ((block + 1) * block_bytes_ - 1) / page_bytes_};
}

BlockPool::Range BlockPool::blocks_on(int64_t page) const {
  const int64_t last = ((page + 1) * page_bytes_ - 1) / block_bytes_;
  return {page * page_bytes_ / block_bytes_, std::min(last, num_blocks_ - 1)};
}

bool BlockPool::has_memory(int64_t page) const {
  const auto index = static_cast<size_t>(page);
  return index < num_used_on_.size() && num_used_on_[index] > 0;
}

void BlockPool::alloc(int64_t count, int64_t* ids) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count > num_blocks_ - used_.size())
    throw Failure(KVCACHED_ERR_NO_BLOCKS, std::to_string(count) + " blocks asked for, but " +
                                              std::to_string(num_blocks_ - used_.size()) + " of " +
                                              std::to_string(num_blocks_) + " are free");
  // Before ids are gathered for what cannot be.
  const int64_t num_dry = std::max<int64_t>(count - ready_.size(), 0);
  const int64_t least = num_dry * block_bytes_ - num_pages_with_memory_ * page_bytes_;
  if (least > 0) budget_->check(least);  // else they may find room on pages that have memory
  const std::vector<int64_t> blocks = choose(count), missing = missing_pages(blocks);
  commit(missing);
  for (const int64_t block : blocks) {
    ready_.erase(block);
    dry_.erase(block);
    used_.insert(block);
    frontier_ = std::max(frontier_, block + 1);
    const Range pages = pages_of(block);
    if (pages.last >= std::ssize(num_used_on_)) num_used_on_.resize(static_cast<size_t>(pages.last + 1));
    for (int64_t page = pages.first; page <= pages.last; ++page) ++num_used_on_[static_cast<size_t>(page)];
  }
  sort_free_blocks_on(missing);
  std::copy(blocks.begin(), blocks.end(), ids);
}

// Blocks that cost nothing, then those with the lowest ids, so that what is in use gathers on few pages.
std::vector<int64_t> BlockPool::choose(int64_t count) {
  std::vector<int64_t> blocks;
  blocks.reserve(static_cast<size_t>(count));
  for (IdSet* free : {&ready_, &dry_})
    for (int64_t id = free->next(0); id >= 0 && std::ssize(blocks) < count; id = free->next(id + 1))
      blocks.push_back(id);
  for (int64_t id = frontier_; std::ssize(blocks) < count; ++id) blocks.push_back(id);
  return blocks;
}

std::vector<int64_t> BlockPool::missing_pages(const std::vector<int64_t>& blocks) const {
  std::vector<int64_t> missing;
  for (const int64_t block : blocks) {
    const Range pages = pages_of(block);
    for (int64_t page = pages.first; page <= pages.last; ++page)
      // Dry blocks come in ascending order, so only the last page can come again.
      if (!has_memory(page) && (missing.empty() || missing.back() < page)) missing.push_back(page);
  }
  return missing;
}

void BlockPool::commit(const std::vector<int64_t>& pages) {
  if (pages.empty()) return;
  const int64_t bytes = std::ssize(pages) * page_bytes_;
  budget_->take(bytes);
  try {
    check_available(bytes);
    arena_.commit(pages);
  } catch (...) {
    budget_->give(bytes);
    throw;
  }
  num_pages_with_memory_ += std::ssize(pages);
}

void BlockPool::free(const int64_t* ids, int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_locked(ids, count);
}

void BlockPool::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t> ids;
  for (int64_t id = used_.next(0); id >= 0; id = used_.next(id + 1)) ids.push_back(id);
  free_locked(ids.data(), std::ssize(ids));
}

void BlockPool::free_locked(const int64_t* ids, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && used_.erase(ids[i])) continue;
    for (int64_t j = 0; j < i; ++j) used_.insert(ids[j]);
    const bool is_repeated = std::find(ids, ids + i, ids[i]) != ids + i;
    throw Failure(KVCACHED_ERR_UNKNOWN_BLOCK,
                  "block " + std::to_string(ids[i]) + (is_repeated ? " comes twice" : " is not allocated"));
  }
  const std::vector<int64_t> empty = leave_pages(ids, count);
  for (int64_t i = 0; i < count; ++i) sort_free_block(ids[i]);
  sort_free_blocks_on(empty);
  arena_.release(empty);
  num_pages_with_memory_ -= std::ssize(empty);
  budget_->give(std::ssize(empty) * page_bytes_);
}

// Returns the pages on which no block is allocated any more.
std::vector<int64_t> BlockPool::leave_pages(const int64_t* ids, int64_t count) {
  std::vector<int64_t> empty;
  for (int64_t i = 0; i < count; ++i) {
    const Range pages = pages_of(ids[i]);
    for (int64_t page = pages.first; page <= pages.last; ++page)
      if (--num_used_on_[static_cast<size_t>(page)] == 0) empty.push_back(page);
  }
  return empty;
}

void BlockPool::sort_free_block(int64_t block) {
  frontier_ = std::max(frontier_, block + 1);
  const Range pages = pages_of(block);
  bool is_ready = true;
  for (int64_t page = pages.first; page <= pages.last && is_ready; ++page) is_ready = has_memory(page);
  (is_ready ? ready_ : dry_).insert(block);
  (is_ready ? dry_ : ready_).erase(block);
}

void BlockPool::sort_free_blocks_on(const std::vector<int64_t>& pages) {
  for (const int64_t page : pages) {
    const Range blocks = blocks_on(page);
    for (int64_t block = blocks.first; block <= blocks.last; ++block)
      if (!used_.contains(block)) sort_free_block(block);
  }
}

}  // namespace puna::kvcached
