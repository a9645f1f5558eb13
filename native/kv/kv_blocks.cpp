#include "kv/kv_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/assertion.h"

namespace puna {
namespace {

constexpr int64_t kFewSpare = 4;

LayerGroups groups_of(const std::vector<GroupSpec>& specs, const std::shared_ptr<ReleaseClock>& clock) {
  LayerGroups groups;
  for (const GroupSpec& spec : specs)
    groups.push_back({BlockPool(spec.blocks, clock), spec.window, spec.is_state});
  return groups;
}

}  // namespace

KvBlocks::KvBlocks(const std::vector<GroupSpec>& groups, std::shared_ptr<ReleaseClock> clock, Supply supply,
                   RunsLow runs_low, Move move)
    : groups_(groups_of(groups, clock)),
      tree_(groups_),
      supply_(std::move(supply)),
      runs_low_(std::move(runs_low)),
      move_(std::move(move)) {
  for (const LayerGroup& group : groups_) {
    require(!group.is_state || &group == &groups_.back(), "states come last");
    if (!group.is_state) block_bytes_ += group.pool.spec().block_bytes;
  }
}

bool KvBlocks::acquire(const BlockCounts& counts, BlockLists& blocks) {
  bool is_short = false, is_any = false;
  for (size_t group = 0; group < groups_.size(); ++group) {
    is_short |= counts[group] > groups_[group].pool.num_spare();
    is_any |= counts[group] > 0;
  }
  blocks.assign(groups_.size(), {});
  if (!is_any) return true;
  if (is_short && !supply_(counts)) return false;
  for (size_t group = 0; group < groups_.size(); ++group)
    groups_[group].pool.acquire(counts[group], blocks[group]);
  for (size_t group = 0; group < groups_.size(); ++group) {
    const BlockPool& pool = groups_[group].pool;
    const int64_t extent_blocks = pool.spec().extent_blocks;
    if (counts[group] > 0 && extent_blocks > 1 && pool.num_spare() < std::min(kFewSpare, extent_blocks))
      runs_low_(group);
  }
  return true;
}

void KvBlocks::evict_extents(int64_t before, int64_t spare_bytes, int64_t at_most) {
  for (; at_most > 0; --at_most) {
    const int64_t group = oldest_group();
    if (group < 0 || this->spare_bytes() >= spare_bytes) return;
    const BlockPool& pool = groups_[static_cast<size_t>(group)].pool;
    if (pool.extents().oldest_tick() >= before) return;
    const int64_t extent = pool.extents().oldest(), first = pool.extents().first_block(extent);
    for (int64_t i = 0; i < pool.extents().num_blocks_in(extent); ++i)
      tree_.forget(static_cast<size_t>(group), static_cast<int32_t>(first + i));
  }
}

int64_t KvBlocks::oldest_unused() const {
  const int64_t group = oldest_group();
  return group < 0 ? -1 : groups_[static_cast<size_t>(group)].pool.extents().oldest_tick();
}

bool KvBlocks::drop_cached(int64_t at_most) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    const BlockPool& pool = groups_[group].pool;
    while (const int64_t before = pool.num_cached()) {
      if (at_most <= 0) return true;
      evict(group);
      at_most -= before - pool.num_cached();  // with all that builds on it
    }
  }
  return false;
}

void KvBlocks::restore_order(const std::vector<PrefixTree::NodeId>& nodes) {
  for (const PrefixTree::NodeId& id : nodes) {
    if (!tree_.is_alive(id)) continue;
    const int32_t parent = tree_.node(id.index).parent;
    if (tree_.node(parent).is_root()) continue;
    for (size_t group = 0; group < num_token_groups(); ++group) {
      BlockPool& pool = groups_[group].pool;
      const int32_t block = tree_.block(id.index, group), before = tree_.block(parent, group);
      if (block >= 0 && before >= 0 && pool.is_cached(block) && pool.is_cached(before) &&
          pool.tick(block) > pool.tick(before))
        pool.make_older(block, before);
    }
  }
}

int32_t KvBlocks::token_node(int32_t node) const {
  for (size_t group = 0; group < num_token_groups(); ++group)
    if (tree_.block(node, group) >= 0) return node;
  const PrefixNode& view = tree_.node(node);
  return view.is_full() ? node : tree_.find_copyable(view.parent, view.tokens(), true);
}

bool KvBlocks::is_findable_tail(int32_t node) const {
  if (has_states() && tree_.block(node, num_token_groups()) >= 0) return token_node(node) >= 0;
  const int32_t block = tree_.block(node, 0);
  return block >= 0 && group(0).pool.num_references(block) == 0;
}

int64_t KvBlocks::spare_bytes() const {
  int64_t bytes = 0;
  for (const LayerGroup& group : groups_) bytes += group.pool.spare_bytes();
  return bytes;
}

int32_t KvBlocks::last_used_child(int32_t node) const {
  int32_t last = -1;
  int64_t when = -1;
  tree_.visit_children(node, [&](int32_t child) {
    const int64_t used = last_use(child);
    if (used > when && !tree_.node(child).memory_only) {
      last = child;
      when = used;
    }
    return false;
  });
  return last;
}

int64_t KvBlocks::last_use(int32_t node) const {
  int64_t last = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t block = tree_.block(node, group);
    const BlockPool& pool = groups_[group].pool;
    if (pool.num_references(block) > 0) return std::numeric_limits<int64_t>::max();
    if (block >= 0) last = std::max(last, pool.tick(block));
  }
  return last;
}

void KvBlocks::check() const {
  for (const LayerGroup& group : groups_) group.pool.check();
  tree_.check();
}

int64_t KvBlocks::oldest_group() const {
  int64_t oldest = -1, tick = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int64_t its = groups_[group].pool.extents().oldest_tick();
    if (its >= 0 && (oldest < 0 || its < tick)) {
      oldest = static_cast<int64_t>(group);
      tick = its;
    }
  }
  return oldest;
}

}  // namespace puna
