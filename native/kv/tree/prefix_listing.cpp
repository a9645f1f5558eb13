#include "kv/tree/prefix_listing.h"

#include <algorithm>

namespace puna {
namespace {

constexpr int64_t kSeenPerListed = 16;

}  // namespace

std::vector<int32_t> PrefixListing::next(int64_t limit) {
  std::vector<int32_t> nodes;
  budget_ = kSeenPerListed * limit;
  while (!is_done_ && list_pool(limit, nodes)) {
    is_done_ = !kv_->has_states() || group_ == kv_->num_token_groups();
    group_ = kv_->num_token_groups();
    num_seen_ = 0;
    block_ = -1;
  }
  return nodes;
}

// False: there is more of it.
bool PrefixListing::list_pool(int64_t limit, std::vector<int32_t>& nodes) {
  const BlockPool& pool = kv_->group(group_).pool;
  const PrefixTree& tree = kv_->tree();
  const auto goes_on = [&] { return static_cast<int64_t>(nodes.size()) < limit && budget_-- > 0; };
  for (; num_seen_ < pool.num_known(); ++num_seen_) {
    if (!goes_on()) return false;
    const auto block = static_cast<int32_t>(num_seen_);
    const int32_t node = pool.node(block);
    if (pool.num_references(block) > 0 && node >= 0 &&
        (tree.node(node).is_full() || kv_->is_findable_tail(node)))
      list(node, nodes);
  }
  // A block that was released since then is listed already, or used again.
  const bool is_valid = block_ >= 0 && pool.is_cached(block_) && pool.tick(block_) == tick_;
  int32_t block = is_valid ? block_ : pool.newest_cached();
  for (; block >= 0; block = pool.older_cached(block)) {
    if (!goes_on()) {
      block_ = block;
      tick_ = pool.tick(block);
      return false;
    }
    list(pool.node(block), nodes);
  }
  return true;
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
