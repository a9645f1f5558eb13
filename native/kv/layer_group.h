// Layers of a model that keep the KV of the same tokens, or the state behind them: they share blocks, and
// have block tables of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "kv/layout.h"
#include "kv/pool/block_pool.h"

namespace puna {

inline int64_t blocks_for(int64_t num_tokens) { return (num_tokens + kBlockTokens - 1) / kBlockTokens; }

struct LayerGroup {
  BlockPool pool;
  int64_t window;  // the latest tokens that a token sees, itself included; 0: all
  bool is_state;   // a block is what recurrent layers keep of all tokens before

  bool is_full() const { return window == 0 && !is_state; }

  // The first token that the one at `position` sees, if there is one before it.
  int64_t first_seen(int64_t position) const {
    return is_full() ? 0 : std::max<int64_t>(position - window + 1, 0);
  }
};

using LayerGroups = std::deque<LayerGroup>;

}  // namespace puna
