// Tables go on with what is known.
#include <algorithm>

#include "kv/table/sequence_table.h"
#include "kv/tree/prefix_tree.h"

namespace puna {

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
  const bool slides = std::ranges::any_of(
      groups_, [](const LayerGroup& group) { return !group.is_state && !group.is_full(); });
  if (!slides) table.adopt(match.path, static_cast<int64_t>(match.path.size()) * kBlockTokens);
  if (match.snapshot < 0) return static_cast<int64_t>(match.num_usable) * kBlockTokens;
  return static_cast<int64_t>(match.num_before) * kBlockTokens + match.copied.num_tokens;
}

void PrefixTree::take(Cursor& cursor, const std::vector<int32_t>& path) {
  for (const int32_t node : path) admit_to_disk(cursor, node);
  if (path.empty()) return;
  cursor.num_blocks += static_cast<int64_t>(path.size()) - 1;
  advance(cursor, path.back());
}

}  // namespace puna
