#include "kv/tree/unsaved_nodes.h"

namespace puna {
namespace {

constexpr int64_t kSeenPerTaken = 16;

}  // namespace

std::vector<int32_t> UnsavedNodes::take(int64_t limit) {
  PrefixTree& tree = kv_->tree();
  std::vector<int32_t> nodes;
  for (int64_t budget = kSeenPerTaken * limit; budget > 0 && num_fresh() > 0; --budget) {
    if (static_cast<int64_t>(nodes.size()) >= limit) break;
    const PrefixTree::NodeId id = tree.fresh().front();
    tree.fresh().pop_front();
    if (!tree.is_alive(id) || !may_be_saved(id.index)) continue;
    std::vector<int32_t> path;
    for (int32_t node = id.index; !tree.node(node).is_root() && tree.is_unsaved(node);
         node = tree.node(node).parent)
      path.push_back(node);
    const size_t room = static_cast<size_t>(limit) - nodes.size();
    if (path.size() > room) {  // the rest next time
      tree.fresh().push_front(id);
      path.erase(path.begin(), path.end() - static_cast<ptrdiff_t>(room));
    }
    for (const int32_t node : path) tree.set_saved(node, true);
    nodes.insert(nodes.end(), path.rbegin(), path.rend());
  }
  return nodes;
}

void UnsavedNodes::put_back(const std::vector<PrefixTree::NodeId>& nodes) {
  PrefixTree& tree = kv_->tree();
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!tree.is_alive(nodes[i])) continue;
    tree.set_saved(nodes[i].index, false);
    tree.fresh().push_front(nodes[i]);
  }
}

bool UnsavedNodes::may_be_saved(int32_t node) const {
  const PrefixTree& tree = kv_->tree();
  if (tree.node(node).memory_only) return false;
  if (!tree.node(node).is_full() && (!kv_->is_findable_tail(node) || is_aged(node))) return false;
  int64_t depth = 0;
  for (; depth < min_blocks_ && !tree.node(node).is_root(); node = tree.node(node).parent) ++depth;
  return depth == min_blocks_;
}

bool UnsavedNodes::is_aged(int32_t node) const {
  if (!kv_->has_states()) return false;
  const int32_t block = kv_->tree().block(node, kv_->num_token_groups());
  return block >= 0 && kv_->states().pool.is_aged(block);
}

}  // namespace puna
