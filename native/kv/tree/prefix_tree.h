// Finds blocks by the tokens whose KV they hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/layer_group.h"
#include "kv/tree/prefix_node.h"
#include "kv/tree/sibling_order.h"

namespace puna {

class SequenceTable;

// How far the front of a sequence's table is known to the tree.
struct Cursor {
  std::string name_space;
  bool to_disk = true;      // whether what is recorded or found through it may be written to a disk
  int64_t num_blocks = 0;   // known ones
  int32_t node = -1;        // of the last of them
  int64_t number = -1;      // the node's
  int64_t num_matched = 0;  // tokens of the sequence that follow() found, whether or not they are usable
};

// A tree over the blocks of a model; the path from a root to a node spells the tokens before it. A root is a
// namespace: nothing is left of an unused one.
//
// A node is looked up by its parent and all of its tokens: there is no hash that could collide. It has one
// block of each group of layers. Where a block of a group with a window is gone, the tree can
// still be walked through the node, but no sequence can go on within a window behind it. Without a block of
// another group a node goes, and with it what builds on it; without any block, when nothing builds on it; and
// partial blocks as soon as one is missing.
//
// A block of recurrent layers is a snapshot: the state behind a node's tokens, which few nodes have. One that
// was taken within a block is that of a partial node, with or without the blocks that hold these tokens; what
// else begins with them can be copied from, too. Where there is nothing any more, the snapshot goes.
//
// Every table that holds a node's block of a group without a window also holds those of its ancestors, in its
// first entries; so ancestors are free, and evicted, last.
class PrefixTree {
 public:
  struct Partial {
    int32_t node;
    int64_t num_tokens;
  };

  struct NodeId {
    int32_t index;
    int64_t number;
  };

  explicit PrefixTree(LayerGroups& groups);

  // Appends to the table, retained, the blocks that hold the next tokens, while at most `limit` tokens are
  // covered and every group has what the token behind them sees; advances the cursor. A table that has other
  // blocks behind the cursor stays as it is. tokens: all of the sequence. Returns how many are covered.
  //
  // With recurrent layers, the table goes on behind the furthest snapshot that is further than its own state,
  // in place of what it has behind the cursor; of a snapshot within a block the tokens are copied. Where
  // memory lacks for that, it is one at the end of a block.
  int64_t follow(Cursor& cursor, SequenceTable& table, Tokens tokens, int64_t limit);

  // With recurrent layers: appends to an empty table, retained, the blocks of all full nodes that have the
  // tokens, whether or not a snapshot is there. Where windows slide, none. Returns behind how many of the
  // tokens follow() would go on.
  int64_t hold(const Cursor& cursor, SequenceTable& table, Tokens tokens) const;

  // The node behind the cursor that has most of the next tokens at its start, and how many; never more than
  // `limit` tokens from the sequence's first on. Its blocks are for copying, and not retained.
  std::optional<Partial> find_partial(const Cursor& cursor, Tokens tokens, int64_t limit) const;

  // Makes the full blocks behind the cursor findable and advances it. Where other blocks with the same tokens
  // are known, the table gets these in place of its own. tokens: all whose KV is in the table. Does nothing
  // if the table's blocks up to the cursor were forgotten or replaced.
  void record(Cursor& cursor, SequenceTable& table, Tokens tokens);

  // As record(), and makes the partial last block findable, for find_partial(). The table's owner may write
  // on behind these tokens.
  void record_tail(Cursor& cursor, SequenceTable& table, Tokens tokens);

  // As record_tail(), and makes the table's state findable, which is behind all of the tokens. If such a one
  // is known, the table gets that in place of its own.
  void snapshot(Cursor& cursor, SequenceTable& table, Tokens tokens);

  // Positions of the snapshots among the tokens up to the cursor and in the block behind it, ascending.
  std::vector<int64_t> snapshots(const Cursor& cursor, Tokens tokens) const;
  // The block of the snapshot at a position; -1: there is none.
  int32_t find_snapshot(const Cursor& cursor, Tokens tokens, int64_t position) const;

  // The block's content changes, or its memory is needed: it can no longer be found.
  void forget(size_t group, int32_t block);

  int64_t num_recorded(size_t group, int32_t block) const;  // tokens at the block's start that can be found
  int64_t num_nodes() const { return num_nodes_; }
  int64_t next_number() const { return next_number_; }
  int64_t num_node_slots() const { return nodes_.size(); }
  const PrefixNode& node(int32_t index) const { return nodes_[index]; }
  int32_t block(int32_t node, size_t group) const { return blocks_[slot(node, group)]; }
  // Calls visit(child) until it returns true.
  template <class Visit>
  void visit_children(int32_t node, Visit&& visit) const {
    siblings_.visit_from(node, {}, visit);
  }
  const std::string& name_space(int32_t root) const { return names_.at(root); }
  // A child of `parent` that has these tokens at its start, in blocks of all groups; -1: there is none.
  // for_disk: one whose further tokens may be written to a disk, too.
  int32_t find_copyable(int32_t parent, Tokens start, bool for_disk = false) const;
  bool is_alive(const NodeId& id) const {
    return id.index < nodes_.size() && nodes_[id.index].number == id.number;
  }

  // Nodes that have got blocks, or may be written to a disk, since these were taken out; see UnsavedNodes.
  std::deque<NodeId>& fresh() { return fresh_; }
  void note_fresh() { notes_fresh_ = true; }
  bool is_unsaved(int32_t node) const;
  void set_saved(int32_t node, bool is_saved);  // all blocks that it has

  // Throws AssertionFailure unless the tree hangs together, and each block stands in it once.
  void check() const;

 private:
  int64_t slot(int32_t node, size_t group) const {
    return node * static_cast<int64_t>(groups_.size()) + static_cast<int64_t>(group);
  }
  bool is_alive(const Cursor& cursor) const { return is_alive(NodeId{cursor.node, cursor.number}); }
  bool is_current(const Cursor& cursor, const SequenceTable& table) const;
  int32_t top(const Cursor& cursor) const;
  int32_t top_for_insertion(const Cursor& cursor);
  bool has_windows() const {
    return std::ranges::any_of(groups_, [](const LayerGroup& group) { return group.window > 0; });
  }
  bool has_all_tokens(int32_t node) const;
  bool has_any_tokens(int32_t node) const;
  bool has_any_block(int32_t node) const;

  // What follow() finds: the path behind the cursor, and how much of it can be used.
  struct Match {
    std::vector<int32_t> path;
    size_t num_usable = 0;
    // A snapshot behind more: of a partial node behind some of the path, and what to copy its tokens from.
    int32_t snapshot = -1;
    size_t num_before = 0;
    Partial copied = {-1, 0};
  };
  Match walk(const Cursor& cursor, const SequenceTable& table, Tokens tokens, int64_t limit) const;
  int64_t follow_state(Cursor& cursor, SequenceTable& table, Match& match);
  int64_t num_matched(const Cursor& cursor, const Match& match, Tokens tokens, int64_t limit) const;
  Partial find_most(int32_t parent, Tokens wanted) const;
  void take(Cursor& cursor, const std::vector<int32_t>& path);
  // The snapshot within the block behind `parent` that has most of the wanted tokens before it.
  Partial find_odd(int32_t parent, Tokens wanted, const std::function<bool(int64_t)>& is_usable) const;
  void record_blocks(Cursor& cursor, SequenceTable& table, Tokens own, int64_t num_full);
  void drop_tokens(int32_t node);
  void advance(Cursor& cursor, int32_t node);
  void admit_to_disk(const Cursor& cursor, int32_t node);
  void note(int32_t node);
  int32_t insert(const Cursor& cursor, int32_t parent, Tokens tokens, SequenceTable& table);
  void unify(int32_t node, SequenceTable& table, int64_t index);
  int32_t new_node(int32_t parent, Tokens tokens);
  void set_block(int32_t node, size_t group, int32_t block);
  void remove_subtree(int32_t node);
  void drop_unreachable(int32_t parent, Tokens tokens);
  void remove_leaf(int32_t node);
  void prune(int32_t node);
  void free_node(int32_t node);
  void check_node(int32_t index) const;

  LayerGroups& groups_;
  const bool has_states_;
  const size_t num_token_groups_;
  ChunkedArray<PrefixNode> nodes_;
  ChunkedArray<int32_t> blocks_;  // of each node one of each group, or -1
  SiblingOrder siblings_;
  std::unordered_map<std::string, int32_t> roots_;
  std::unordered_map<int32_t, std::string> names_;  // of the roots
  std::minstd_rand random_{std::random_device{}()};
  int32_t free_ = -1;  // a list, by `parent`
  int64_t num_nodes_ = 0, next_number_ = 0;
  std::deque<NodeId> fresh_;
  bool notes_fresh_ = false;
};

// Of the tokens of a sequence, those of its block `index`; fewer than a block's at their end.
inline Tokens block_of(Tokens tokens, int64_t index) {
  const size_t begin = std::min(static_cast<size_t>(index * kBlockTokens), tokens.size());
  return tokens.subspan(begin, std::min<size_t>(kBlockTokens, tokens.size() - begin));
}

}  // namespace puna
