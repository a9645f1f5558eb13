// The KV blocks of one model: a pool for each group of layers, and the tree that knows what blocks hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kv/layer_group.h"
#include "kv/tree/prefix_tree.h"

namespace puna {

struct GroupSpec {
  BlockSpec blocks;
  int64_t window;  // 0: all tokens are kept
  bool is_state;   // only of the last group
};

// Some blocks of each group.
using BlockCounts = std::vector<int64_t>;
using BlockLists = std::vector<std::vector<int32_t>>;

// Tokens from a position on, of the sequence whose blocks `source` lists, to a position of another one.
struct KvMove {
  std::vector<int32_t> source, destination;
  int64_t source_begin, destination_begin, num_tokens;
};

class KvBlocks {
 public:
  // Makes so many blocks of each group spare, with memory that it gets from elsewhere; false: there is not so
  // much, and nothing changed.
  using Supply = std::function<bool(const BlockCounts&)>;
  // Is told when a group, one with extents of several blocks, has hardly any spare blocks left.
  using RunsLow = std::function<void(size_t group)>;
  // Copies KV of a group. May throw.
  using Move = std::function<void(size_t group, const KvMove&)>;

  KvBlocks(const std::vector<GroupSpec>& groups, std::shared_ptr<ReleaseClock> clock, Supply supply,
           RunsLow runs_low, Move move);

  size_t num_groups() const { return groups_.size(); }
  // Those whose blocks hold tokens; the group behind them, if there is one, holds states.
  size_t num_token_groups() const { return num_groups() - has_states(); }
  bool has_states() const { return !groups_.empty() && groups_.back().is_state; }
  LayerGroup& states() { return groups_.back(); }
  LayerGroup& group(size_t index) { return groups_[index]; }
  const LayerGroup& group(size_t index) const { return groups_[index]; }
  LayerGroups& groups() { return groups_; }
  PrefixTree& tree() { return tree_; }
  const PrefixTree& tree() const { return tree_; }
  int64_t block_bytes() const { return block_bytes_; }  // of 16 tokens in all layers

  // One reference to each; false, and nothing changed, if there are not so many of every group.
  bool acquire(const BlockCounts& counts, BlockLists& blocks);

  void move(size_t group, const KvMove& move) const { move_(group, move); }

  void evict(size_t group) { tree_.forget(group, groups_[group].pool.oldest_cached()); }
  // Empties the extents of cached blocks that nobody has used for longest, of any group, as long as these are
  // older than `before` (a tick), so many bytes are not spare, and at most so many of them.
  void evict_extents(int64_t before, int64_t spare_bytes, int64_t at_most);
  // When what evict_extents() would begin with became unused; -1: there is nothing.
  int64_t oldest_unused() const;
  // Makes cached blocks spare, at most about so many; false: none are left.
  bool drop_cached(int64_t at_most);
  int64_t spare_bytes() const;
  // The node whose blocks hold a node's tokens: of a snapshot within a block perhaps another one, which may
  // be written to a disk; -1: there is none.
  int32_t token_node(int32_t node) const;
  // Whether a partial node can be written to a disk: nobody goes on writing to its block, or a snapshot is of
  // use with a copy of it.
  bool is_findable_tail(int32_t node) const;
  // Somebody had blocks of these nodes for a while, none before what it builds on: those that hold tokens,
  // and are cached, are evicted right before what they build on again.
  void restore_order(const std::vector<PrefixTree::NodeId>& nodes);
  // Of a node's children that may be written to a disk, the one whose blocks were used last; -1: it has none.
  int32_t last_used_child(int32_t node) const;

  void check() const;

 private:
  int64_t oldest_group() const;
  int64_t last_use(int32_t node) const;

  LayerGroups groups_;
  PrefixTree tree_;
  Supply supply_;
  RunsLow runs_low_;
  Move move_;
  int64_t block_bytes_ = 0;
};

}  // namespace puna
