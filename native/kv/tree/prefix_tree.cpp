#include "kv/tree/prefix_tree.h"

#include <algorithm>

#include "kv/table/sequence_table.h"

namespace puna {
namespace {

// Models with more groups have the last ones share a bit.
uint16_t saved_bit(size_t group) { return static_cast<uint16_t>(1U << std::min<size_t>(group, 15)); }

}  // namespace

PrefixTree::PrefixTree(LayerGroups& groups)
    : groups_(groups),
      has_states_(!groups.empty() && groups.back().is_state),
      num_token_groups_(groups.size() - has_states_),
      siblings_(nodes_) {}

int64_t PrefixTree::num_recorded(size_t group, int32_t block) const {
  const int32_t node = groups_[group].pool.node(block);
  return node < 0 ? 0 : nodes_[node].num_tokens;
}

// A table's entries behind the cursor belong to it only while those before are the nodes' own.
bool PrefixTree::is_current(const Cursor& cursor, const SequenceTable& table) const {
  if (cursor.num_blocks == 0) return true;
  if (cursor.num_blocks > table.num_blocks() || !is_alive(cursor)) return false;
  for (size_t group = 0; group < num_token_groups_; ++group) {
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

// In every group that holds tokens.
bool PrefixTree::has_all_tokens(int32_t node) const {
  for (size_t group = 0; group < num_token_groups_; ++group)
    if (block(node, group) < 0) return false;
  return true;
}

bool PrefixTree::has_any_tokens(int32_t node) const {
  for (size_t group = 0; group < num_token_groups_; ++group)
    if (block(node, group) >= 0) return true;
  return false;
}

bool PrefixTree::has_any_block(int32_t node) const {
  return has_any_tokens(node) || (has_states_ && block(node, num_token_groups_) >= 0);
}

void PrefixTree::advance(Cursor& cursor, int32_t node) {
  ++cursor.num_blocks;
  cursor.node = node;
  cursor.number = nodes_[node].number;
}

void PrefixTree::admit_to_disk(const Cursor& cursor, int32_t node) {
  if (!nodes_[node].memory_only || !cursor.to_disk) return;
  nodes_[node].memory_only = false;
  note(node);
}

bool PrefixTree::is_unsaved(int32_t node) const {
  for (size_t group = 0; group < groups_.size(); ++group)
    if (block(node, group) >= 0 && !(nodes_[node].saved & saved_bit(group))) return true;
  return false;
}

void PrefixTree::set_saved(int32_t node, bool is_saved) {
  uint16_t groups = 0;
  for (size_t group = 0; group < groups_.size(); ++group)
    if (block(node, group) >= 0) groups |= saved_bit(group);
  uint16_t& saved = nodes_[node].saved;
  saved = static_cast<uint16_t>(is_saved ? saved | groups : saved & ~groups);
}

void PrefixTree::note(int32_t node) {
  if (!notes_fresh_ || nodes_[node].memory_only) return;
  if (fresh_.empty() || fresh_.back().index != node || fresh_.back().number != nodes_[node].number)
    fresh_.push_back({node, nodes_[node].number});
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
  if (block < 0) return;
  groups_[group].pool.set_node(block, node);
  if (!(nodes_[node].saved & saved_bit(group))) note(node);
}

}  // namespace puna
