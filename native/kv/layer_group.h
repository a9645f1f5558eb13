// Layers of a model that keep the KV of the same tokens: they share blocks, and have block tables of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "kv/block_pool.h"
#include "kv/layout.h"

namespace puna {

struct LayerGroup {
  BlockPool pool;
  int64_t window;  // the latest tokens that a token sees, itself included; 0: all

  bool is_full() const { return window == 0; }

  // The first block that the token at `position`, or one behind it, reaches.
  int64_t first_block(int64_t position) const {
    return is_full() ? 0 : std::max<int64_t>(position - window + 1, 0) / kBlockTokens;
  }

  // Blocks that a sequence of so many tokens holds for the next one.
  int64_t num_held(int64_t num_tokens) const {
    return (num_tokens + kBlockTokens - 1) / kBlockTokens - first_block(num_tokens);
  }
};

using LayerGroups = std::deque<LayerGroup>;

}  // namespace puna
