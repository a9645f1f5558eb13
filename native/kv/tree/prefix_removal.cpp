// What was known is forgotten.
#include <algorithm>

#include "kv/tree/prefix_tree.h"

namespace puna {

void PrefixTree::forget(size_t group, int32_t block) {
  const int32_t node = groups_[group].pool.node(block);
  if (node < 0) return;
  if (groups_[group].is_full() && nodes_[node].is_full()) {
    remove_subtree(node);
  } else if (groups_[group].is_state || nodes_[node].is_full()) {
    set_block(node, group, -1);
    prune(node);
  } else {
    const PrefixNode tail = nodes_[node];
    const int64_t parent = nodes_[tail.parent].number;
    drop_tokens(node);
    if (nodes_[tail.parent].number != parent) return;
    drop_unreachable(tail.parent, tail.tokens());
    prune(tail.parent);
  }
}

void PrefixTree::remove_subtree(int32_t node) {
  const PrefixNode top = nodes_[node];
  const int32_t parent = top.parent;
  std::vector<int32_t> subtree = {node};
  for (size_t i = 0; i < subtree.size(); ++i)  // it grows meanwhile
    visit_children(subtree[i], [&](int32_t below) {
      subtree.push_back(below);
      return false;
    });
  for (size_t i = subtree.size(); i-- > 0;) remove_leaf(subtree[i]);
  drop_unreachable(parent, top.tokens());
  prune(parent);
}

// Snapshots within a block that began with these tokens and is gone: where no other one begins so, nobody can
// come to them.
void PrefixTree::drop_unreachable(int32_t parent, Tokens tokens) {
  if (!has_states_ || nodes_[parent].children < 0 || siblings_.is_single_full(parent)) return;
  for (size_t count = std::min<size_t>(tokens.size(), kBlockTokens - 1); count > 0; --count) {
    const Tokens start = tokens.first(count);
    const int32_t node = siblings_.find(parent, start);
    if (node >= 0 && !has_all_tokens(node) && find_copyable(parent, start) < 0) remove_leaf(node);
  }
}

// Of a partial node: it remains for its snapshot, if it has one.
void PrefixTree::drop_tokens(int32_t node) {
  for (size_t group = 0; group < num_token_groups_; ++group) set_block(node, group, -1);
  prune(node);
}

void PrefixTree::remove_leaf(int32_t node) {
  for (size_t group = 0; group < groups_.size(); ++group) set_block(node, group, -1);
  free_node(node);
}

// Removes a node that nothing builds on and that has no blocks, and likewise those that it builds on.
void PrefixTree::prune(int32_t node) {
  while (node >= 0 && nodes_[node].children < 0 && !has_any_block(node)) {
    const int32_t parent = nodes_[node].parent;
    free_node(node);
    node = parent;
  }
}

void PrefixTree::free_node(int32_t node) {
  if (nodes_[node].is_root()) {
    roots_.erase(names_.at(node));
    names_.erase(node);
  } else {
    siblings_.erase(node);
    --num_nodes_;
  }
  nodes_[node].number = -1;
  nodes_[node].parent = free_;
  free_ = node;
}

}  // namespace puna
