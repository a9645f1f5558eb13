// What tables hold becomes known.
#include <algorithm>

#include "base/assertion.h"
#include "kv/table/sequence_table.h"
#include "kv/tree/prefix_tree.h"

namespace puna {

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
  int32_t known = siblings_.find(parent, tail);
  if (known < 0 || !has_all_tokens(known))
    known = find_copyable(parent, tail, cursor.to_disk);  // that has these tokens, and more
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

}  // namespace puna
