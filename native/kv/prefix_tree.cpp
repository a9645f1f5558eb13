#include "kv/prefix_tree.h"

#include <algorithm>

#include "base/assertion.h"
#include "kv/sequence_table.h"

namespace puna {
namespace {

// Models with more groups have the last ones share a bit.
uint16_t saved_bit(size_t group) { return static_cast<uint16_t>(1U << std::min<size_t>(group, 15)); }

// Of the first `limit` tokens, those of the block `index`.
Tokens wanted_of(Tokens tokens, int64_t index, int64_t limit) {
  return block_of(tokens.first(std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(limit, 0)))),
                  index);
}

}  // namespace

PrefixTree::PrefixTree(LayerGroups& groups)
    : groups_(groups),
      has_states_(groups.back().is_state),
      num_token_groups_(groups.size() - has_states_),
      siblings_(nodes_) {}

int64_t PrefixTree::follow(Cursor& cursor, SequenceTable& table, Tokens tokens, int64_t limit) {
  const int64_t covered = cursor.num_blocks * kBlockTokens;
  if (has_states_) {
    Match match = walk(cursor, table, tokens, limit);
    cursor.num_matched = covered + num_matched(cursor, match, tokens, limit);
    return follow_state(cursor, table, match);
  }
  if (table.num_blocks() != cursor.num_blocks || limit < covered + kBlockTokens) return covered;
  Match match = walk(cursor, table, tokens, limit);
  match.path.resize(match.num_usable);
  if (match.path.empty()) return covered;
  table.adopt(match.path, covered + static_cast<int64_t>(match.path.size()) * kBlockTokens);
  take(cursor, match.path);
  return cursor.num_blocks * kBlockTokens;
}

int64_t PrefixTree::follow_state(Cursor& cursor, SequenceTable& table, Match& match) {
  const int64_t begin = cursor.num_blocks;
  const auto position = [&](size_t num_blocks) {
    return (begin + static_cast<int64_t>(num_blocks)) * kBlockTokens;
  };
  const int64_t own = std::max<int64_t>(table.state().position(), 0);
  if (match.snapshot >= 0 && position(match.num_before) + match.copied.num_tokens > own) {
    const std::vector<int32_t> path(match.path.begin(),
                                    match.path.begin() + static_cast<ptrdiff_t>(match.num_before));
    const int32_t state = block(match.snapshot, num_token_groups_);
    if (table.resume(begin, path, match.copied, state)) {
      take(cursor, path);
      admit_to_disk(cursor, match.snapshot);
      return table.state().position();
    }
  }
  match.path.resize(match.num_usable);
  if (match.path.empty() || position(match.num_usable) <= own) return own;
  if (!table.resume(begin, match.path, {-1, 0}, block(match.path.back(), num_token_groups_))) return own;
  take(cursor, match.path);
  return table.state().position();
}

int64_t PrefixTree::hold(const Cursor& cursor, SequenceTable& table, Tokens tokens) const {
  const auto limit = static_cast<int64_t>(tokens.size());
  const Match match = walk(cursor, table, tokens, limit);
  const bool slides = std::ranges::any_of(groups_, [](const LayerGroup& group) {
    return !group.is_state && !group.is_full();
  });
  if (!slides) table.adopt(match.path, static_cast<int64_t>(match.path.size()) * kBlockTokens);
  if (match.snapshot < 0) return static_cast<int64_t>(match.num_usable) * kBlockTokens;
  return static_cast<int64_t>(match.num_before) * kBlockTokens + match.copied.num_tokens;
}

// Tokens behind the cursor.
int64_t PrefixTree::num_matched(const Cursor& cursor, const Match& match, Tokens tokens,
                                int64_t limit) const {
  const auto num_blocks = static_cast<int64_t>(match.path.size());
  const int32_t end = match.path.empty() ? top(cursor) : match.path.back();
  const Partial next = find_most(end, wanted_of(tokens, cursor.num_blocks + num_blocks, limit));
  return num_blocks * kBlockTokens + next.num_tokens;
}

void PrefixTree::take(Cursor& cursor, const std::vector<int32_t>& path) {
  for (const int32_t node : path) admit_to_disk(cursor, node);
  if (path.empty()) return;
  cursor.num_blocks += static_cast<int64_t>(path.size()) - 1;
  advance(cursor, path.back());
}

// The known nodes behind the cursor, and behind how many of them a sequence can go on.
PrefixTree::Match PrefixTree::walk(const Cursor& cursor, const SequenceTable& table, Tokens tokens,
                                   int64_t limit) const {
  Match match;
  std::vector<int64_t> present;  // of each group, since when without a gap
  for (size_t group = 0; group < num_token_groups_; ++group) present.push_back(table.first(group));
  const auto is_usable = [&](int64_t position) {
    for (size_t group = 0; group < num_token_groups_; ++group)
      if (present[group] > table.first_needed(group, position)) return false;
    return true;
  };
  int32_t node = top(cursor);
  for (int64_t index = cursor.num_blocks; node >= 0; ++index) {
    const Tokens next = wanted_of(tokens, index, limit);
    if (has_states_) {
      const int64_t start = index * kBlockTokens;
      const Partial odd = find_odd(node, next, [&](int64_t count) { return is_usable(start + count); });
      if (odd.node >= 0) {
        match.snapshot = odd.node;
        match.num_before = match.path.size();
        match.copied = {find_copyable(node, next.first(static_cast<size_t>(odd.num_tokens))), odd.num_tokens};
      }
    }
    if (next.size() < kBlockTokens || (node = siblings_.find(node, next)) < 0) break;
    match.path.push_back(node);
    for (size_t group = 0; group < num_token_groups_; ++group)
      if (block(node, group) < 0) present[group] = index + 1;
    const bool is_resumable = !has_states_ || block(node, num_token_groups_) >= 0;
    if (is_resumable && is_usable((index + 1) * kBlockTokens)) {
      match.num_usable = match.path.size();
      match.snapshot = -1;  // it is behind less
    }
  }
  return match;
}

PrefixTree::Partial PrefixTree::find_odd(int32_t parent, Tokens wanted,
                                         const std::function<bool(int64_t)>& is_usable) const {
  if (siblings_.is_single_full(parent)) return {-1, 0};
  for (size_t count = std::min<size_t>(wanted.size(), kBlockTokens - 1); count > 0; --count) {
    const Tokens start = wanted.first(count);
    const int32_t node = siblings_.find(parent, start);
    if (node >= 0 && block(node, num_token_groups_) >= 0 && is_usable(static_cast<int64_t>(count)) &&
        find_copyable(parent, start) >= 0)
      return {node, static_cast<int64_t>(count)};
  }
  return {-1, 0};
}

int32_t PrefixTree::find_copyable(int32_t parent, Tokens start) const {
  int32_t found = -1;
  siblings_.visit_from(parent, start, [&](int32_t node) {
    if (!starts_with(nodes_[node].tokens(), start)) return true;
    if (has_all_tokens(node)) found = node;
    return found >= 0;
  });
  return found;
}

std::optional<PrefixTree::Partial> PrefixTree::find_partial(const Cursor& cursor, Tokens tokens,
                                                            int64_t limit) const {
  const Partial best = find_most(top(cursor), wanted_of(tokens, cursor.num_blocks, limit));
  return best.node < 0 ? std::nullopt : std::optional(best);
}

// The child of `parent` with blocks of all groups that has most of the wanted tokens at its start.
PrefixTree::Partial PrefixTree::find_most(int32_t parent, Tokens wanted) const {
  Partial best = {-1, 0};
  if (parent < 0 || wanted.empty()) return best;
  // Children further away have no more in common.
  const auto visit = [&](int32_t node) {
    const int64_t common = num_common(nodes_[node].tokens(), wanted);
    if (common <= best.num_tokens) return true;
    if (!has_all_tokens(node)) return false;
    best = {node, common};
    return true;
  };
  siblings_.visit_from(parent, wanted, visit);
  siblings_.visit_before(parent, wanted, visit);
  return best;
}

void PrefixTree::record(Cursor& cursor, SequenceTable& table, Tokens tokens) {
  const Tokens own = tokens.first(std::min(tokens.size(), static_cast<size_t>(table.num_genuine())));
  int64_t num_full = static_cast<int64_t>(own.size()) / kBlockTokens;
  require(num_full <= table.num_blocks(), "tokens without blocks are recorded");
  while (num_full > cursor.num_blocks && !table.holds_any(num_full - 1)) --num_full;
  record_blocks(cursor, table, own, num_full);
}

void PrefixTree::record_blocks(Cursor& cursor, SequenceTable& table, Tokens own, int64_t num_full) {
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
  if (tail.empty() || tail.size() == kBlockTokens || num_token_groups_ == 0 || !is_current(cursor, table))
    return;
  const int32_t parent = top_for_insertion(cursor);
  const int32_t known = find_copyable(parent, tail);  // that has these tokens, and perhaps more
  if (known < 0) {
    insert(cursor, parent, tail, table);
    return;
  }
  if (nodes_[known].num_tokens == tail.size()) admit_to_disk(cursor, known);
  for (size_t group = 0; group < num_token_groups_; ++group) {
    const int32_t block = table.entry(group, cursor.num_blocks);
    const int32_t node = groups_[group].pool.node(block);
    if (node >= 0 && node != known) drop_tokens(node);  // another has these tokens and is there already
  }
}

void PrefixTree::snapshot(Cursor& cursor, SequenceTable& table, Tokens tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  require(has_states_ && length > 0 && table.state().position() == length, "no state behind token", length);
  record_tail(cursor, table, tokens);
  if (num_token_groups_ == 0 && !is_current(cursor, table)) cursor = {cursor.name_space, cursor.to_disk};
  record_blocks(cursor, table, tokens, length / kBlockTokens);
  if (cursor.num_blocks != length / kBlockTokens || !is_current(cursor, table)) return;
  int32_t node = cursor.node;
  if (const Tokens tail = block_of(tokens, cursor.num_blocks); !tail.empty()) {
    const int32_t parent = top_for_insertion(cursor);
    node = siblings_.find(parent, tail);
    if (node < 0) {
      node = new_node(parent, tail);
      nodes_[node].memory_only = !cursor.to_disk;
    }
  }
  admit_to_disk(cursor, node);
  const int32_t own = table.state().block(), known = block(node, num_token_groups_);
  if (known < 0)
    set_block(node, num_token_groups_, own);
  else if (known != own)
    table.replace_state(known);
}

std::vector<int64_t> PrefixTree::snapshots(const Cursor& cursor, Tokens tokens) const {
  std::vector<int64_t> positions;
  int32_t node = top(cursor);
  for (int64_t index = cursor.num_blocks; node >= 0 && has_states_; --index, node = nodes_[node].parent) {
    const Tokens next = block_of(tokens, index);
    if (!siblings_.is_single_full(node))
      for (size_t count = std::min<size_t>(next.size(), kBlockTokens - 1); count > 0; --count)
        if (const int32_t odd = siblings_.find(node, next.first(count));
            odd >= 0 && block(odd, num_token_groups_) >= 0)
          positions.push_back(index * kBlockTokens + static_cast<int64_t>(count));
    if (!nodes_[node].is_root() && block(node, num_token_groups_) >= 0)
      positions.push_back(index * kBlockTokens);
  }
  std::ranges::reverse(positions);
  return positions;
}

int32_t PrefixTree::find_snapshot(const Cursor& cursor, Tokens tokens, int64_t position) const {
  int32_t node = top(cursor);
  int64_t index = cursor.num_blocks;
  const int64_t wanted = position / kBlockTokens;
  if (wanted > index || position <= 0 || position > static_cast<int64_t>(tokens.size())) return -1;
  for (; node >= 0 && index > wanted; --index) node = nodes_[node].parent;
  if (const auto count = static_cast<size_t>(position % kBlockTokens); node >= 0 && count > 0)
    node = siblings_.find(node, block_of(tokens, wanted).first(count));
  return node < 0 || !has_states_ ? -1 : block(node, num_token_groups_);
}

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

// A node for the table's block behind the cursor, which has none. Shorter ones that the same blocks have are
// replaced, but for their snapshots.
int32_t PrefixTree::insert(const Cursor& cursor, int32_t parent, Tokens tokens, SequenceTable& table) {
  int32_t node = siblings_.find(parent, tokens);  // that of a snapshot, then
  if (node < 0) {
    node = new_node(parent, tokens);
    nodes_[node].memory_only = true;
  }
  admit_to_disk(cursor, node);
  for (size_t group = 0; group < num_token_groups_; ++group) {
    const int32_t own = table.entry(group, cursor.num_blocks);
    if (own < 0) continue;
    if (const int32_t shorter = groups_[group].pool.node(own); shorter >= 0) {
      const PrefixNode& before = nodes_[shorter];
      require(before.parent == parent && !before.is_full() && starts_with(tokens, before.tokens()),
              "rewritten while it could be found: block", own);
      drop_tokens(shorter);
    }
    set_block(node, group, own);
  }
  return node;
}

// The table and a node have the same tokens: one block of each group will do.
void PrefixTree::unify(int32_t node, SequenceTable& table, int64_t index) {
  for (size_t group = 0; group < num_token_groups_; ++group) {
    const int32_t own = table.entry(group, index), known = block(node, group);
    if (own < 0 || own == known) continue;
    if (const int32_t tail = groups_[group].pool.node(own); tail >= 0) drop_tokens(tail);
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
  if (block < 0) return;
  groups_[group].pool.set_node(block, node);
  if (!(nodes_[node].saved & saved_bit(group))) note(node);
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
