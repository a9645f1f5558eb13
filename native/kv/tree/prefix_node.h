// A node of a prefix tree, and the tokens that it is looked for by.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>

#include "kv/layout.h"

namespace puna {

using Tokens = std::span<const int32_t>;

// A block's tokens behind those of its parent; a root has none. Those of leaves may be fewer than a block's.
struct PrefixNode {
  int64_t number = -1;  // never used twice; -1: the node is free
  int32_t parent = -1;
  int32_t children = -1;          // the top of their order
  int32_t left = -1, right = -1;  // in the order of its siblings
  uint32_t priority = 0;          // there; random
  uint8_t num_tokens = 0;
  bool memory_only = false;  // nobody who allows it on a disk has needed its tokens
  uint16_t saved = 0;        // groups whose blocks have files, as bits
  int32_t token_ids[kBlockTokens];

  Tokens tokens() const { return {token_ids, num_tokens}; }
  bool is_full() const { return num_tokens == kBlockTokens; }
  bool is_root() const { return parent < 0; }
};

inline std::strong_ordering compare(Tokens a, Tokens b) {
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
}

inline bool starts_with(Tokens tokens, Tokens start) {
  return start.size() <= tokens.size() && std::equal(start.begin(), start.end(), tokens.begin());
}

// Tokens that both start with.
inline int64_t num_common(Tokens a, Tokens b) {
  const size_t length = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(length), b.begin()).first - a.begin();
}

}  // namespace puna
