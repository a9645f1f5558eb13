#include "base/assertion.h"
#include "kv/tree/prefix_tree.h"

namespace puna {

void PrefixTree::check() const {
  int64_t num_nodes = 0, num_roots = 0;
  for (int32_t index = 0; index < nodes_.size(); ++index) {
    if (nodes_[index].number < 0) continue;
    if (nodes_[index].is_root()) {
      ++num_roots;
      require(roots_.at(names_.at(index)) == index, "a root under a wrong name:", index);
      require(nodes_[index].children >= 0, "an unused root:", index);
    } else {
      ++num_nodes;
      check_node(index);
    }
  }
  require(num_nodes == num_nodes_, "the number of nodes is wrong");
  require(num_roots == static_cast<int64_t>(roots_.size()), "the number of roots is wrong");
}

void PrefixTree::check_node(int32_t index) const {
  const PrefixNode& node = nodes_[index];
  const PrefixNode& parent = nodes_[node.parent];
  require(parent.number >= 0 && (parent.is_root() || parent.is_full()), "a node without a parent:", index);
  require(siblings_.find(node.parent, node.tokens()) == index, "a node that is not found:", index);
  require(node.is_full() || node.children < 0, "a partial block with a child:", index);
  require(node.is_full() || has_all_tokens(index) || !has_any_tokens(index),
          "a partial block without a group:", index);
  require(has_windows() || node.is_full() || find_copyable(node.parent, node.tokens()) >= 0,
          "a snapshot that nobody can come to:", index);
  require(has_any_block(index) || node.children >= 0, "a node for nothing:", index);
  require(node.memory_only || parent.is_root() || !parent.memory_only,
          "a block for the disk behind one that is not:", index);
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t known = block(index, group);
    require(known >= 0 || !groups_[group].is_full() || !node.is_full(), "a node without its block:", index);
    require(known < 0 || groups_[group].pool.node(known) == index, "a block with two nodes:", known);
  }
}

}  // namespace puna
