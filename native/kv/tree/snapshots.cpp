// States of recurrent layers become known, and are found.
#include <algorithm>

#include "base/assertion.h"
#include "kv/table/sequence_table.h"
#include "kv/tree/prefix_tree.h"

namespace puna {

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

}  // namespace puna
