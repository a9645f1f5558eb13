// What is known of a sequence's tokens.
#include <algorithm>

#include "kv/table/sequence_table.h"
#include "kv/tree/prefix_tree.h"

namespace puna {
namespace {

// Of the first `limit` tokens, those of the block `index`.
Tokens wanted_of(Tokens tokens, int64_t index, int64_t limit) {
  return block_of(tokens.first(std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(limit, 0)))),
                  index);
}

}  // namespace

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

int32_t PrefixTree::find_copyable(int32_t parent, Tokens start, bool for_disk) const {
  int32_t found = -1;
  siblings_.visit_from(parent, start, [&](int32_t node) {
    if (!starts_with(nodes_[node].tokens(), start)) return true;
    if (has_all_tokens(node) && !(for_disk && nodes_[node].memory_only)) found = node;
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

// Tokens behind the cursor.
int64_t PrefixTree::num_matched(const Cursor& cursor, const Match& match, Tokens tokens,
                                int64_t limit) const {
  const auto num_blocks = static_cast<int64_t>(match.path.size());
  const int32_t end = match.path.empty() ? top(cursor) : match.path.back();
  const Partial next = find_most(end, wanted_of(tokens, cursor.num_blocks + num_blocks, limit));
  return num_blocks * kBlockTokens + next.num_tokens;
}

}  // namespace puna
