#include "kv/prefix_listing.h"

#include <algorithm>

namespace puna {
namespace {

constexpr int64_t kSeenPerListed = 16;

}  // namespace

std::vector<int32_t> PrefixListing::next(int64_t limit) {
  std::vector<int32_t> nodes;
  int64_t budget = kSeenPerListed * limit;
  const auto goes_on = [&] { return static_cast<int64_t>(nodes.size()) < limit && budget-- > 0; };
  for (Progress& progress : pools_)
    for (const BlockPool& pool = *progress.pool; progress.num_seen < pool.num_known(); ++progress.num_seen) {
      if (!goes_on()) return nodes;
      const auto block = static_cast<int32_t>(progress.num_seen);
      if (const int32_t node = pool.node(block);
          pool.num_references(block) > 0 && node >= 0 && is_settled(pool, node))
        list(node, nodes);
    }
  while (Progress* progress = newest()) {
    if (!goes_on()) return nodes;
    list(progress->pool->node(progress->block), nodes);
    progress->block = progress->pool->older_cached(progress->block);
    progress->is_done = progress->block < 0;
    if (!progress->is_done) progress->tick = progress->pool->tick(progress->block);
  }
  is_done_ = true;
  return nodes;
}

// The partial block of a running sequence is being written to; a snapshot never is.
bool PrefixListing::is_settled(const BlockPool& pool, int32_t node) const {
  return kv_->tree().node(node).is_full() || &pool != &kv_->group(0).pool || kv_->num_token_groups() == 0;
}

// Whose block was released last, of those that are cached and not listed.
PrefixListing::Progress* PrefixListing::newest() {
  Progress* newest = nullptr;
  for (Progress& progress : pools_) {
    // A block that was released since then is listed already, or used again.
    const BlockPool& pool = *progress.pool;
    const bool is_valid =
        progress.block >= 0 && pool.is_cached(progress.block) && pool.tick(progress.block) == progress.tick;
    if (progress.is_done) continue;
    if (!is_valid) progress.block = pool.newest_cached();
    progress.is_done = progress.block < 0;
    if (progress.is_done) continue;
    progress.tick = pool.tick(progress.block);
    if (newest == nullptr || progress.tick > newest->tick) newest = &progress;
  }
  return newest;
}

void PrefixListing::list(int32_t node, std::vector<int32_t>& nodes) {
  const auto begin = static_cast<ptrdiff_t>(nodes.size());
  const PrefixTree& tree = kv_->tree();
  if (tree.node(node).memory_only || tree.node(node).number >= end_) return;
  for (; !tree.node(node).is_root() && !is_listed_[static_cast<size_t>(node)];
       node = tree.node(node).parent) {
    is_listed_[static_cast<size_t>(node)] = true;
    nodes.push_back(node);
  }
  std::reverse(nodes.begin() + begin, nodes.end());
}

}  // namespace puna
