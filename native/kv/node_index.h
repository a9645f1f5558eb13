// Finds nodes by hash. Linear hashing: each insertion splits one chain, so that no call rebuilds the table.
#pragma once

#include <cstdint>

#include "kv/chunked_array.h"
#include "kv/prefix_node.h"

namespace puna {

class NodeIndex {
 public:
  explicit NodeIndex(ChunkedArray<PrefixNode>& nodes) : nodes_(nodes) { chains_.grow(kFewest); }

  // The node with this hash of which is(node) holds; -1: none.
  template <class Is>
  int32_t find(uint32_t hash, Is&& is) const {
    for (int32_t node = chains_[chain_of(hash)].first; node >= 0; node = nodes_[node].next)
      if (nodes_[node].hash == hash && is(nodes_[node])) return node;
    return -1;
  }

  void insert(int32_t node) {
    push(chain_of(nodes_[node].hash), node);
    if (++size_ > chains_.size()) split();
  }

  void erase(int32_t node) {
    int32_t* link = &chains_[chain_of(nodes_[node].hash)].first;
    while (*link != node) link = &nodes_[*link].next;
    *link = nodes_[node].next;
    --size_;
  }

 private:
  static constexpr int64_t kFewest = 64;
  struct Chain {
    int32_t first = -1;
  };

  // Chains below `split_` are split already: their nodes are told apart by one more bit.
  int64_t chain_of(uint32_t hash) const {
    const int64_t chain = hash & (2 * level_ - 1);
    return chain < chains_.size() ? chain : chain - level_;
  }

  void push(int64_t chain, int32_t node) {
    nodes_[node].next = chains_[chain].first;
    chains_[chain].first = node;
  }

  void split() {
    if (chains_.size() == 2 * level_) level_ *= 2;
    const int64_t old = chains_.size() - level_;
    chains_.grow(chains_.size() + 1);
    int32_t node = chains_[old].first;
    chains_[old].first = -1;
    while (node >= 0) {
      const int32_t next = nodes_[node].next;
      push(chain_of(nodes_[node].hash), node);
      node = next;
    }
  }

  ChunkedArray<PrefixNode>& nodes_;
  ChunkedArray<Chain> chains_;
  int64_t level_ = kFewest, size_ = 0;
};

}  // namespace puna
