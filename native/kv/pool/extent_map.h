// Which extents of a group's memory are committed, and how many of their blocks are in use and cached.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/pool/id_set.h"
#include "kv/pool/index_list.h"

namespace puna {

// An extent is a run of blocks that get and lose their memory together.
class ExtentMap {
 public:
  ExtentMap(int64_t num_blocks, int64_t extent_blocks);

  int64_t extent_blocks() const { return extent_blocks_; }
  int64_t num_extents() const { return num_extents_; }
  int64_t num_committed() const { return extents_.size() - uncommitted_.size(); }
  int64_t num_uncommitted() const { return num_extents_ - num_committed(); }
  int64_t num_empty() const { return empty_.size(); }       // committed, with spare blocks only
  int64_t num_unused() const { return num_unused_; }        // committed, without blocks in use
  int64_t unused_blocks() const { return unused_blocks_; }  // of these

  int64_t first_block(int64_t extent) const { return extent * extent_blocks_; }
  int64_t num_blocks_in(int64_t extent) const;
  int64_t extent_of(int64_t block) const { return extent_blocks_ == 1 ? block : block / extent_blocks_; }
  bool is_committed(int64_t extent) const;
  // Uncommitted ones that together have so many blocks, the lowest first: how many; one more than there are
  // if there are too few.
  int64_t num_for(int64_t num_blocks) const;

  std::vector<int64_t> commit(int64_t count);          // the lowest uncommitted; at most as many as there are
  void uncommit(const std::vector<int64_t>& extents);  // empty ones
  std::vector<int64_t> highest_empty(int64_t count);

  // The extent with cached blocks and none in use that has been so for longest; -1: there is none.
  int64_t oldest() const { return unused_.first(); }
  int64_t oldest_tick() const { return unused_.first() < 0 ? -1 : extents_[unused_.first()].tick; }

  // Changes of a block's state.
  void spare_used(int64_t block);
  void cached_used(int64_t block);
  void used_cached(int64_t block, int64_t tick);
  void used_spare(int64_t block, int64_t tick);
  void cached_spare(int64_t block);
  void make_oldest(int64_t extent, int64_t tick);  // an unused one with cached blocks
  // Where both are unused and have cached blocks: an extent is no younger than that of another block.
  void make_no_younger(int64_t block, int64_t other);

  struct Count {
    int32_t used, cached;
  };
  Count count(int64_t extent) const { return {extents_[extent].used, extents_[extent].cached}; }
  void check() const;

 private:
  struct Extent {
    int64_t tick = 0;  // when it became unused
    int32_t used = 0, cached = 0;
    int32_t previous = -1, next = -1;  // among the unused with cached blocks
  };
  bool is_listed(int64_t extent) const { return extents_[extent].used == 0 && extents_[extent].cached > 0; }
  void became_used(int64_t extent);
  void became_unused(int64_t extent, int64_t tick);

  const int64_t num_blocks_, extent_blocks_, num_extents_;
  ChunkedArray<Extent> extents_;  // those that ever were committed
  IdSet uncommitted_;             // of these
  IdSet empty_;
  IndexList<Extent> unused_;  // those with cached blocks, in the order in which they became unused
  int64_t num_unused_ = 0, unused_blocks_ = 0;
};

}  // namespace puna
