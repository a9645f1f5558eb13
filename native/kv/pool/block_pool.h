// The blocks of one group: their owners, and which are free.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kv/pool/extent_map.h"
#include "kv/pool/id_set.h"
#include "kv/pool/index_list.h"

namespace puna {

// The order in which blocks were released, over all pools that have it. Those that were made the oldest come
// before all others.
struct ReleaseClock {
  static constexpr int64_t kStart = int64_t{1} << 62;
  int64_t ticks = kStart;
  int64_t first_tick = kStart;
};

// How a device divides a group's memory.
struct BlockSpec {
  int64_t num_blocks, block_bytes, extent_blocks, extent_bytes;
};

// A block with memory is in use (it has references), cached (free, but a node of the prefix tree has its
// content), or spare. The spare block with the lowest id is used first, so that what is in use gathers in few
// extents and the others can be given back.
class BlockPool {
 public:
  BlockPool(const BlockSpec& spec, std::shared_ptr<ReleaseClock> clock);

  const BlockSpec& spec() const { return spec_; }
  const ExtentMap& extents() const { return extents_; }
  int64_t num_used() const { return num_used_; }
  int64_t num_cached() const { return cached_.size(); }
  int64_t num_spare() const { return spare_.size(); }
  int64_t spare_bytes() const { return extents_.num_empty() * spec_.extent_bytes; }

  // So many extents get memory, and lose it again, from the caller's point of view: the device is not told.
  std::vector<int64_t> commit(int64_t num_extents);
  void uncommit(const std::vector<int64_t>& extents);
  std::vector<int64_t> uncommit_empty(int64_t at_most);

  // One reference each, of as many as are spare at least.
  void acquire(int64_t count, std::vector<int32_t>& blocks);
  void retain(int32_t block);   // of a block that is in use or cached
  void release(int32_t block);  // without references it is cached if a node has it, or else spare
  int32_t num_references(int32_t block) const { return is_known(block) ? blocks_[block].references : 0; }
  bool is_shared(int32_t block) const { return blocks_[block].references > 1; }

  // The node of the prefix tree that has the block; -1: none.
  int32_t node(int32_t block) const { return is_known(block) ? blocks_[block].node : -1; }
  void set_node(int32_t block, int32_t node);  // -1: a cached block becomes spare

  void make_oldest(int32_t block);  // one that is cached, as if it had been released first of all
  // Both are cached, and the block is the younger: the block is evicted right before it from now on.
  void make_older(int32_t block, int32_t other);

  // Released longest ago, and last.
  int32_t oldest_cached() const { return cached_.first(); }
  int32_t newest_cached() const { return cached_.last(); }
  int32_t older_cached(int32_t block) const { return blocks_[block].previous; }
  bool is_cached(int32_t block) const { return node(block) >= 0 && blocks_[block].references == 0; }
  int64_t tick(int32_t block) const { return blocks_[block].tick; }
  // Whether it was made the oldest, and nobody has had it since.
  bool is_aged(int32_t block) const { return is_cached(block) && blocks_[block].tick < ReleaseClock::kStart; }
  int64_t num_known() const { return blocks_.size(); }  // ids below that may have been used

  // Throws AssertionFailure unless every block with memory is in exactly one state, and all counts are right.
  void check() const;

 private:
  struct Block {
    int64_t tick = 0;  // when it was released last
    int32_t references = 0, node = -1;
    int32_t previous = -1, next = -1;  // among the cached
  };
  bool is_known(int32_t block) const { return block >= 0 && block < blocks_.size(); }

  const BlockSpec spec_;
  const std::shared_ptr<ReleaseClock> clock_;
  ExtentMap extents_;
  ChunkedArray<Block> blocks_;
  IdSet spare_;
  IndexList<Block> cached_;  // in the order of their release
  int64_t num_used_ = 0;
};

}  // namespace puna
