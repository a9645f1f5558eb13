#include "kv/pool/block_pool.h"

#include <utility>

#include "base/assertion.h"

namespace puna {

BlockPool::BlockPool(const BlockSpec& spec, std::shared_ptr<ReleaseClock> clock)
    : spec_(spec), clock_(std::move(clock)), extents_(spec.num_blocks, spec.extent_blocks) {}

std::vector<int64_t> BlockPool::commit(int64_t num_extents) {
  std::vector<int64_t> extents = extents_.commit(num_extents);
  for (const int64_t extent : extents) {
    const int64_t first = extents_.first_block(extent), end = first + extents_.num_blocks_in(extent);
    blocks_.grow(end);
    for (int64_t block = first; block < end; ++block) spare_.insert(block);
  }
  return extents;
}

void BlockPool::uncommit(const std::vector<int64_t>& extents) {
  extents_.uncommit(extents);
  for (const int64_t extent : extents) {
    const int64_t first = extents_.first_block(extent), end = first + extents_.num_blocks_in(extent);
    for (int64_t block = first; block < end; ++block) spare_.erase(block);
  }
}

std::vector<int64_t> BlockPool::uncommit_empty(int64_t at_most) {
  std::vector<int64_t> extents = extents_.highest_empty(at_most);
  uncommit(extents);
  return extents;
}

void BlockPool::acquire(int64_t count, std::vector<int32_t>& blocks) {
  require(count <= num_spare(), "more blocks are taken than are spare");
  for (int64_t block = -1; count > 0; --count) {
    block = spare_.next(block + 1);
    spare_.erase(block);
    Block& taken = blocks_[block];
    require(taken.references == 0 && taken.node < 0, "handed out although it is not spare: block", block);
    taken.references = 1;
    ++num_used_;
    extents_.spare_used(block);
    blocks.push_back(static_cast<int32_t>(block));
  }
}

void BlockPool::retain(int32_t block) {
  require(num_references(block) > 0 || is_cached(block), "retain of free block", block);
  Block& owned = blocks_[block];
  if (owned.references++ > 0) return;
  cached_.remove(blocks_, block);
  ++num_used_;
  extents_.cached_used(block);
}

void BlockPool::release(int32_t block) {
  require(num_references(block) > 0, "release of free block", block);
  Block& owned = blocks_[block];
  if (--owned.references > 0) return;
  --num_used_;
  owned.tick = ++clock_->ticks;
  if (owned.node >= 0) {
    cached_.push_back(blocks_, block);
    extents_.used_cached(block, owned.tick);
  } else {
    spare_.insert(block);
    extents_.used_spare(block, owned.tick);
  }
}

void BlockPool::set_node(int32_t block, int32_t node) {
  Block& known = blocks_[block];
  const bool was_cached = known.references == 0 && known.node >= 0;
  require(node < 0 || known.references > 0, "content for free block", block);
  known.node = node;
  if (!was_cached || node >= 0) return;
  cached_.remove(blocks_, block);
  spare_.insert(block);
  extents_.cached_spare(block);
}

void BlockPool::make_oldest(int32_t block) {
  require(is_cached(block), "made the oldest though it is not cached: block", block);
  blocks_[block].tick = --clock_->first_tick;
  cached_.remove(blocks_, block);
  cached_.push_front(blocks_, block);
  if (spec_.extent_blocks == 1) extents_.make_oldest(block, clock_->first_tick);
}

void BlockPool::make_older(int32_t block, int32_t other) {
  require(is_cached(block) && is_cached(other) && block != other, "made older though it is not cached: block",
          block);
  blocks_[block].tick = blocks_[other].tick;
  cached_.remove(blocks_, block);
  cached_.insert_before(blocks_, block, other);
  extents_.make_no_younger(block, other);
}

void BlockPool::check() const {
  int64_t num_used = 0, num_cached = 0, num_spare = 0;
  std::vector<ExtentMap::Count> counts(static_cast<size_t>(blocks_.size() / spec_.extent_blocks + 1), {0, 0});
  for (int64_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    ExtentMap::Count& count = counts[static_cast<size_t>(extents_.extent_of(id))];
    const bool is_used = block.references > 0, is_cached = !is_used && block.node >= 0;
    const bool is_spare = extents_.is_committed(extents_.extent_of(id)) && !is_used && !is_cached;
    require(spare_.contains(id) == is_spare, "whether it is spare is wrong of block", id);
    num_used += is_used;
    num_cached += is_cached;
    num_spare += is_spare;
    count.used += is_used;
    count.cached += is_cached;
  }
  require(num_used == num_used_, "the number of blocks in use is wrong");
  require(num_cached == cached_.size(), "the number of cached blocks is wrong");
  require(num_spare == spare_.size(), "the number of spare blocks is wrong");
  int64_t tick = 0;
  for (int32_t block = cached_.first(); block >= 0; block = blocks_[block].next) {
    require(blocks_[block].tick >= tick, "cached blocks are out of order, at block", block);
    require(is_cached(block), "not cached: block", block);
    tick = blocks_[block].tick;
  }
  for (int64_t extent = 0; extent * spec_.extent_blocks < blocks_.size(); ++extent) {
    const ExtentMap::Count known = extents_.count(extent), is = counts[static_cast<size_t>(extent)];
    require(known.used == is.used && known.cached == is.cached, "wrong counts of extent", extent);
  }
  extents_.check();
}

}  // namespace puna
