#include "kv/prefix_tree.h"

#include "base/assertion.h"
#include "kv/sequence_table.h"

namespace puna {

PrefixTree::PrefixTree(LayerGroups& groups) : groups_(groups), siblings_(nodes_) {}

int64_t PrefixTree::follow(Cursor& cursor, SequenceTable& table, Tokens tokens, int64_t limit) {
  const int64_t covered = cursor.num_blocks * kBlockTokens;
  if (table.num_blocks() != cursor.num_blocks || limit < covered + kBlockTokens) return covered;
  std::vector<int32_t> path;
  path.resize(static_cast<size_t>(walk(cursor, table, tokens, limit, path)));
  if (path.empty()) return covered;
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<int32_t> found(path.size());
    for (size_t i = 0; i < path.size(); ++i) found[i] = block(path[i], group);
    table.adopt(group, found);
  }
  table.adopted(static_cast<int64_t>(path.size()));
  for (const int32_t node : path) admit_to_disk(cursor, node);
  cursor.num_blocks += static_cast<int64_t>(path.size()) - 1;
  advance(cursor, path.back());
  return cursor.num_blocks * kBlockTokens;
}

// Fills `path` with the known nodes behind the cursor. Returns behind how many of them a sequence can go on.
int64_t PrefixTree::walk(const Cursor& cursor, const SequenceTable& table, Tokens tokens, int64_t limit,
                         std::vector<int32_t>& path) const {
  const Tokens wanted = tokens.first(std::min(tokens.size(), static_cast<size_t>(limit)));
  std::vector<int64_t> present;  // of each group, since when without a gap
  for (size_t group = 0; group < groups_.size(); ++group) present.push_back(table.first(group));
  int64_t usable = 0;
  int32_t node = top(cursor);
  for (int64_t index = cursor.num_blocks; node >= 0; ++index) {
    const Tokens next = block_of(wanted, index);
    if (next.size() < kBlockTokens || (node = siblings_.find(node, next)) < 0) break;
    path.push_back(node);
    bool is_usable = true;
    for (size_t group = 0; group < groups_.size(); ++group) {
      if (block(node, group) < 0) present[group] = index + 1;
      is_usable &= present[group] <= table.first_needed(group, (index + 1) * kBlockTokens);
    }
    if (is_usable) usable = static_cast<int64_t>(path.size());
  }
  return usable;
}

std::optional<PrefixTree::Partial> PrefixTree::find_partial(const Cursor& cursor, Tokens tokens,
                                                            int64_t limit) const {
  const int32_t parent = top(cursor);
  const auto end = static_cast<size_t>(std::max<int64_t>(limit, 0));
  const Tokens wanted = block_of(tokens.first(std::min(tokens.size(), end)), cursor.num_blocks);
  if (parent < 0 || wanted.empty()) return std::nullopt;
  Partial best = {-1, 0};
  // Children further away have no more in common.
  const auto visit = [&](int32_t node) {
    const int64_t common = num_common(nodes_[node].tokens(), wanted);
    if (common <= best.num_tokens) return true;
    if (!has_all_blocks(node)) return false;
    best = {node, common};
    return true;
  };
  siblings_.visit_from(parent, wanted, visit);
  siblings_.visit_before(parent, wanted, visit);
  return best.node < 0 ? std::nullopt : std::optional(best);
}

void PrefixTree::record(Cursor& cursor, SequenceTable& table, Tokens tokens) {
  const Tokens own = tokens.first(std::min(tokens.size(), static_cast<size_t>(table.num_genuine())));
  int64_t num_full = static_cast<int64_t>(own.size()) / kBlockTokens;
  require(num_full <= table.num_blocks(), "tokens without blocks are recorded");
  while (num_full > cursor.num_blocks && !table.holds_any(num_full - 1)) --num_full;
  if (cursor.num_blocks >= num_full || !is_current(cursor, table)) return;
  int32_t parent = top_for_insertion(cursor);
  while (cursor.num_blocks < num_full) {
    const Tokens next = block_of(own, cursor.num_blocks);
    int32_t node = siblings_.find(parent, next);
    if (node < 0) {
      node = insert(cursor, parent, next, table);
    } else {
      admit_to_disk(cursor, node);
      unify(node, table, cursor.num_blocks);
    }
    advance(cursor, node);
    parent = node;
  }
}

void PrefixTree::record_tail(Cursor& cursor, SequenceTable& table, Tokens tokens) {
  record(cursor, table, tokens);
  const Tokens own = tokens.first(std::min(tokens.size(), static_cast<size_t>(table.num_genuine())));
  const Tokens tail = block_of(own, cursor.num_blocks);
  if (tail.empty() || tail.size() == kBlockTokens || !is_current(cursor, table)) return;
  int32_t known = -1;  // that has these tokens, and perhaps more
  if (const int32_t parent = top(cursor); parent >= 0)
    siblings_.visit_from(parent, tail, [&](int32_t node) {
      if (starts_with(nodes_[node].tokens(), tail)) known = node;
      return true;
    });
  const bool is_same = known >= 0 && nodes_[known].num_tokens == tail.size();
  if (known < 0 || (!is_same && !has_all_blocks(known))) {
    insert(cursor, top_for_insertion(cursor), tail, table);
    return;
  }
  if (is_same) admit_to_disk(cursor, known);
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t block = table.entry(group, cursor.num_blocks);
    const int32_t node = groups_[group].pool.node(block);
    if (node >= 0 && node != known) remove_subtree(node);  // another has these tokens and is there already
  }
}

void PrefixTree::forget(size_t group, int32_t block) {
  const int32_t node = groups_[group].pool.node(block);
  if (node < 0) return;
  if (groups_[group].is_full() || !nodes_[node].is_full()) {
    remove_subtree(node);
  } else {
    set_block(node, group, -1);
    prune(node);
  }
}

int64_t PrefixTree::num_recorded(size_t group, int32_t block) const {
  const int32_t node = groups_[group].pool.node(block);
  return node < 0 ? 0 : nodes_[node].num_tokens;
}

// A table's entries behind the cursor belong to it only while those before are the nodes' own.
bool PrefixTree::is_current(const Cursor& cursor, const SequenceTable& table) const {
  if (cursor.num_blocks == 0) return true;
  if (cursor.num_blocks > table.num_blocks() || !is_alive(cursor)) return false;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t own = table.entry(group, cursor.num_blocks - 1);
    if (own >= 0 && own != block(cursor.node, group)) return false;
  }
  return true;
}

// The node whose children go on with the sequence; -1: there is none.
int32_t PrefixTree::top(const Cursor& cursor) const {
  if (cursor.num_blocks > 0) return is_alive(cursor) ? cursor.node : -1;
  const auto root = roots_.find(cursor.name_space);
  return root == roots_.end() ? -1 : root->second;
}

int32_t PrefixTree::top_for_insertion(const Cursor& cursor) {
  if (const int32_t known = top(cursor); known >= 0) return known;
  const int32_t root = new_node(-1, {});
  roots_.emplace(cursor.name_space, root);
  names_.emplace(root, cursor.name_space);
  return root;
}

bool PrefixTree::has_all_blocks(int32_t node) const {
  for (size_t group = 0; group < groups_.size(); ++group)
    if (block(node, group) < 0) return false;
  return true;
}

bool PrefixTree::has_any_block(int32_t node) const {
  for (size_t group = 0; group < groups_.size(); ++group)
    if (block(node, group) >= 0) return true;
  return false;
}

void PrefixTree::advance(Cursor& cursor, int32_t node) {
  ++cursor.num_blocks;
  cursor.node = node;
  cursor.number = nodes_[node].number;
}

void PrefixTree::admit_to_disk(const Cursor& cursor, int32_t node) {
  nodes_[node].memory_only &= !cursor.to_disk;
}

// A new node for the table's block behind the cursor. Shorter ones that the same blocks have are replaced.
int32_t PrefixTree::insert(const Cursor& cursor, int32_t parent, Tokens tokens, SequenceTable& table) {
  const int32_t node = new_node(parent, tokens);
  nodes_[node].memory_only = !cursor.to_disk;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t own = table.entry(group, cursor.num_blocks);
    if (own < 0) continue;
    if (const int32_t shorter = groups_[group].pool.node(own); shorter >= 0) {
      const PrefixNode& before = nodes_[shorter];
      require(before.parent == parent && !before.is_full() && starts_with(tokens, before.tokens()),
              "rewritten while it could be found: block", own);
      remove_leaf(shorter);
    }
    set_block(node, group, own);
  }
  return node;
}

// The table and a node have the same tokens: one block of each group will do.
void PrefixTree::unify(int32_t node, SequenceTable& table, int64_t index) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t own = table.entry(group, index), known = block(node, group);
    if (own < 0 || own == known) continue;
    if (const int32_t tail = groups_[group].pool.node(own); tail >= 0) remove_subtree(tail);
    if (known < 0)
      set_block(node, group, own);
    else
      table.replace(group, index, known);
  }
}

int32_t PrefixTree::new_node(int32_t parent, Tokens tokens) {
  int32_t index = free_;
  if (index >= 0) {
    free_ = nodes_[index].parent;
  } else {
    index = static_cast<int32_t>(nodes_.size());
    nodes_.grow(nodes_.size() + 1);
    blocks_.grow(nodes_.size() * static_cast<int64_t>(groups_.size()));
  }
  PrefixNode& node = nodes_[index] = {};
  node.number = next_number_++;
  node.parent = parent;
  node.num_tokens = static_cast<uint8_t>(tokens.size());
  std::ranges::copy(tokens, node.token_ids);
  for (size_t group = 0; group < groups_.size(); ++group) blocks_[slot(index, group)] = -1;
  if (parent < 0) return index;
  node.priority = static_cast<uint32_t>(random_());
  siblings_.insert(index);
  ++num_nodes_;
  return index;
}

void PrefixTree::set_block(int32_t node, size_t group, int32_t block) {
  int32_t& known = blocks_[slot(node, group)];
  if (known >= 0) groups_[group].pool.set_node(known, -1);
  known = block;
  if (block >= 0) groups_[group].pool.set_node(block, node);
}

void PrefixTree::remove_subtree(int32_t node) {
  const int32_t parent = nodes_[node].parent;
  std::vector<int32_t> subtree = {node};
  for (size_t i = 0; i < subtree.size(); ++i)  // it grows meanwhile
    visit_children(subtree[i], [&](int32_t below) {
      subtree.push_back(below);
      return false;
    });
  for (size_t i = subtree.size(); i-- > 0;) remove_leaf(subtree[i]);
  prune(parent);
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
  require(node.is_full() || has_all_blocks(index), "a partial block without a group:", index);
  require(has_any_block(index) || node.children >= 0, "a node for nothing:", index);
  require(node.memory_only || parent.is_root() || !parent.memory_only,
          "a block for the disk behind one that is not:", index);
  for (size_t group = 0; group < groups_.size(); ++group) {
    const int32_t known = block(index, group);
    require(known >= 0 || !groups_[group].is_full(), "a node without its block:", index);
    require(known < 0 || groups_[group].pool.node(known) == index, "a block with two nodes:", known);
  }
}

}  // namespace puna
