#include "kv/pool/extent_map.h"

#include <algorithm>

#include "base/assertion.h"

namespace puna {

ExtentMap::ExtentMap(int64_t num_blocks, int64_t extent_blocks)
    : num_blocks_(num_blocks),
      extent_blocks_(extent_blocks),
      num_extents_((num_blocks + extent_blocks - 1) / extent_blocks) {}

int64_t ExtentMap::num_blocks_in(int64_t extent) const {
  return std::min(extent_blocks_, num_blocks_ - first_block(extent));
}

bool ExtentMap::is_committed(int64_t extent) const {
  return extent < extents_.size() && !uncommitted_.contains(extent);
}

int64_t ExtentMap::num_for(int64_t num_blocks) const {
  const int64_t count = (num_blocks + extent_blocks_ - 1) / extent_blocks_;
  if (count < num_uncommitted()) return count;
  // All of them, and of these the last may be short.
  const int64_t last = num_extents_ - 1;
  const int64_t missing = is_committed(last) ? 0 : extent_blocks_ - num_blocks_in(last);
  return num_blocks <= num_uncommitted() * extent_blocks_ - missing ? count : num_uncommitted() + 1;
}

std::vector<int64_t> ExtentMap::commit(int64_t count) {
  std::vector<int64_t> extents;
  extents.reserve(static_cast<size_t>(count));
  for (int64_t extent = -1; static_cast<int64_t>(extents.size()) < count;) {
    extent = uncommitted_.next(extent + 1);
    if (extent < 0) break;
    extents.push_back(extent);
  }
  for (const int64_t extent : extents) uncommitted_.erase(extent);
  while (static_cast<int64_t>(extents.size()) < count && extents_.size() < num_extents_) {
    extents.push_back(extents_.size());
    extents_.grow(extents_.size() + 1);
  }
  for (const int64_t extent : extents) {
    empty_.insert(extent);
    ++num_unused_;
    unused_blocks_ += num_blocks_in(extent);
  }
  return extents;
}

void ExtentMap::uncommit(const std::vector<int64_t>& extents) {
  for (const int64_t extent : extents) {
    require(empty_.erase(extent), "an extent that is not empty loses its memory:", extent);
    uncommitted_.insert(extent);
    --num_unused_;
    unused_blocks_ -= num_blocks_in(extent);
  }
}

std::vector<int64_t> ExtentMap::highest_empty(int64_t count) {
  std::vector<int64_t> extents;
  while (static_cast<int64_t>(extents.size()) < count && empty_.size() > 0) {
    extents.push_back(empty_.last());
    empty_.erase(extents.back());
  }
  for (const int64_t extent : extents) empty_.insert(extent);
  std::reverse(extents.begin(), extents.end());
  return extents;
}

void ExtentMap::spare_used(int64_t block) {
  const int64_t extent = extent_of(block);
  if (extents_[extent].used++ == 0) became_used(extent);
}

void ExtentMap::cached_used(int64_t block) {
  const int64_t extent = extent_of(block);
  if (extents_[extent].used++ == 0) became_used(extent);
  --extents_[extent].cached;
}

void ExtentMap::used_cached(int64_t block, int64_t tick) {
  const int64_t extent = extent_of(block);
  ++extents_[extent].cached;
  if (--extents_[extent].used == 0) became_unused(extent, tick);
}

void ExtentMap::used_spare(int64_t block, int64_t tick) {
  const int64_t extent = extent_of(block);
  if (--extents_[extent].used == 0) became_unused(extent, tick);
}

void ExtentMap::cached_spare(int64_t block) {
  const int64_t extent = extent_of(block);
  if (--extents_[extent].cached > 0 || extents_[extent].used > 0) return;
  unused_.remove(extents_, static_cast<int32_t>(extent));
  empty_.insert(extent);
}

void ExtentMap::make_oldest(int64_t extent, int64_t tick) {
  extents_[extent].tick = tick;
  unused_.remove(extents_, static_cast<int32_t>(extent));
  unused_.push_front(extents_, static_cast<int32_t>(extent));
}

void ExtentMap::make_no_younger(int64_t block, int64_t other) {
  const int64_t extent = extent_of(block), next = extent_of(other);
  if (!is_listed(extent) || !is_listed(next) || extents_[extent].tick <= extents_[next].tick) return;
  extents_[extent].tick = extents_[next].tick;
  unused_.remove(extents_, static_cast<int32_t>(extent));
  unused_.insert_before(extents_, static_cast<int32_t>(extent), static_cast<int32_t>(next));
}

void ExtentMap::became_used(int64_t extent) {
  --num_unused_;
  unused_blocks_ -= num_blocks_in(extent);
  if (extents_[extent].cached > 0)
    unused_.remove(extents_, static_cast<int32_t>(extent));
  else
    empty_.erase(extent);
}

void ExtentMap::became_unused(int64_t extent, int64_t tick) {
  ++num_unused_;
  unused_blocks_ += num_blocks_in(extent);
  if (extents_[extent].cached == 0) {
    empty_.insert(extent);
    return;
  }
  extents_[extent].tick = tick;
  unused_.push_back(extents_, static_cast<int32_t>(extent));
}

void ExtentMap::check() const {
  int64_t num_unused = 0, num_empty = 0, num_cached = 0, blocks = 0;
  for (int64_t extent = 0; extent < extents_.size(); ++extent) {
    const Extent& counts = extents_[extent];
    require(counts.used >= 0 && counts.cached >= 0, "negative counts of extent", extent);
    if (!is_committed(extent)) {
      require(counts.used == 0 && counts.cached == 0, "blocks in use without memory, in extent", extent);
      continue;
    }
    const bool is_empty = counts.used == 0 && counts.cached == 0;
    require(empty_.contains(extent) == is_empty, "whether it is empty is wrong of extent", extent);
    num_empty += is_empty;
    num_unused += counts.used == 0;
    num_cached += counts.used == 0 && counts.cached > 0;
    blocks += counts.used == 0 ? num_blocks_in(extent) : 0;
  }
  require(num_empty == empty_.size(), "the number of empty extents is wrong");
  require(num_unused == num_unused_ && blocks == unused_blocks_, "the number of unused extents is wrong");
  require(num_cached == unused_.size(), "the list of unused extents is wrong");
  for (int32_t extent = unused_.first(), next; extent >= 0; extent = next) {
    next = extents_[extent].next;
    require(extents_[extent].used == 0 && extents_[extent].cached > 0, "not unused: extent", extent);
    require(next < 0 || extents_[extent].tick <= extents_[next].tick, "unused extents are out of order");
  }
}

}  // namespace puna
