// Blocks of equal size, one after the other, of which those that are allocated have memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kv/memory/arena.h"
#include "kv/pool/id_set.h"
#include "kvcached/budget.h"

namespace puna::kvcached {

// A page has memory exactly as long as a block on it is allocated. A free block is "ready" if all its pages
// have memory, and "dry" otherwise. Blocks from frontier_ on were never allocated, and are dry.
class BlockPool {
 public:
  struct Usage {
    int64_t num_used, committed;  // blocks, bytes
  };

  // As many as can be allocated at once, at least 1. Throws Failure if not one can.
  static int64_t num_blocks_within(int64_t limit, int64_t block_bytes);

  // Throws Failure for sizes that make no sense.
  BlockPool(std::shared_ptr<Budget> budget, int64_t num_blocks, int64_t block_bytes);
  ~BlockPool();

  // Writes the ids of `count` blocks, or throws Failure and changes nothing.
  void alloc(int64_t count, int64_t* ids);
  void free(const int64_t* ids, int64_t count);
  void clear();

  uint8_t* base() const { return base_; }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_bytes() const { return block_bytes_; }
  int64_t page_bytes() const { return page_bytes_; }
  Usage usage() const;

 private:
  struct Range {
    int64_t first, last;
  };
  Range pages_of(int64_t block) const;
  Range blocks_on(int64_t page) const;
  bool has_memory(int64_t page) const;
  std::vector<int64_t> choose(int64_t count);
  std::vector<int64_t> missing_pages(const std::vector<int64_t>& blocks) const;
  void commit(const std::vector<int64_t>& pages);
  void free_locked(const int64_t* ids, int64_t count);
  std::vector<int64_t> leave_pages(const int64_t* ids, int64_t count);
  void sort_free_block(int64_t block);
  void sort_free_blocks_on(const std::vector<int64_t>& pages);

  const std::shared_ptr<Budget> budget_;
  const int64_t num_blocks_, block_bytes_, page_bytes_;
  mutable std::mutex mutex_;
  Arena arena_;
  uint8_t* const base_;
  IdSet used_, ready_, dry_;
  int64_t frontier_ = 0;
  std::vector<int32_t> num_used_on_;  // blocks, for each page up to the last that had memory
  int64_t num_pages_with_memory_ = 0;
};

}  // namespace puna::kvcached
