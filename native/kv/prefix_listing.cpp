#include "kv/prefix_listing.h"

#include <algorithm>

namespace puna {
namespace {

constexpr int64_t kSeenPerListed = 16;

}  // namespace

std::vector<int32_t> PrefixListing::next(int64_t limit) {
  const BlockPool& pool = kv_->group(0).pool;
  std::vector<int32_t> nodes;
  int64_t budget = kSeenPerListed * limit;
  const auto goes_on = [&] { return static_cast<int64_t>(nodes.size()) < limit && budget-- > 0; };
  for (; num_seen_ < pool.num_known(); ++num_seen_) {
    if (!goes_on()) return nodes;
    const auto block = static_cast<int32_t>(num_seen_);
    // The partial block of a running sequence is being written to.
    if (const int32_t node = pool.node(block);
        pool.num_references(block) > 0 && node >= 0 && kv_->tree().node(node).is_full())
      list(node, nodes);
  }
  // A block that was released since then is listed already, or used again.
  const bool is_valid = block_ >= 0 && pool.is_cached(block_) && pool.tick(block_) == tick_;
  int32_t block = is_valid ? block_ : pool.newest_cached();
  for (; block >= 0; block = pool.older_cached(block)) {
    if (!goes_on()) {
      block_ = block;
      tick_ = pool.tick(block);
      return nodes;
    }
    list(pool.node(block), nodes);
  }
  is_done_ = true;
  return nodes;
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
