// Finds blocks by the tokens whose KV they hold.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/layer_group.h"
#include "kv/prefix_node.h"
#include "kv/sibling_order.h"

namespace puna {

class SequenceTable;

// How far the front of a sequence's table is known to the tree.
struct Cursor {
  std::string name_space;
  bool to_disk = true;     // whether what is recorded or found through it may be written to a disk
  int64_t num_blocks = 0;  // known ones
  int32_t node = -1;       // of the last of them
  int64_t number = -1;     // the node's
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
// Every table that holds a node's block of a group without a window also holds those of its ancestors, in its
// first entries; so ancestors are free, and evicted, last.
class PrefixTree {
 public:
  struct Partial {
    int32_t node;
    int64_t num_tokens;
  };

  explicit PrefixTree(LayerGroups& groups);

  // Appends to the table, retained, the blocks that hold the next tokens, while at most `limit` tokens are
  // covered and every group has what the token behind them sees; advances the cursor. A table that has other
  // blocks behind the cursor stays as it is. tokens: all of the sequence. Returns how many are covered.
  int64_t follow(Cursor& cursor, SequenceTable& table, Tokens tokens, int64_t limit);

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

  // Throws AssertionFailure unless the tree hangs together, and each block stands in it once.
  void check() const;

 private:
  int64_t slot(int32_t node, size_t group) const {
    return node * static_cast<int64_t>(groups_.size()) + static_cast<int64_t>(group);
  }
  bool is_alive(const Cursor& cursor) const {
    return cursor.node < nodes_.size() && nodes_[cursor.node].number == cursor.number;
  }
  bool is_current(const Cursor& cursor, const SequenceTable& table) const;
  int32_t top(const Cursor& cursor) const;
  int32_t top_for_insertion(const Cursor& cursor);
  bool has_all_blocks(int32_t node) const;
  bool has_any_block(int32_t node) const;

  int64_t walk(const Cursor& cursor, const SequenceTable& table, Tokens tokens, int64_t limit,
               std::vector<int32_t>& path) const;
  void advance(Cursor& cursor, int32_t node);
  void admit_to_disk(const Cursor& cursor, int32_t node);
  int32_t insert(const Cursor& cursor, int32_t parent, Tokens tokens, SequenceTable& table);
  void unify(int32_t node, SequenceTable& table, int64_t index);
  int32_t new_node(int32_t parent, Tokens tokens);
  void set_block(int32_t node, size_t group, int32_t block);
  void remove_subtree(int32_t node);
  void remove_leaf(int32_t node);
  void prune(int32_t node);
  void free_node(int32_t node);
  void check_node(int32_t index) const;

  LayerGroups& groups_;
  ChunkedArray<PrefixNode> nodes_;
  ChunkedArray<int32_t> blocks_;  // of each node one of each group, or -1
  SiblingOrder siblings_;
  std::unordered_map<std::string, int32_t> roots_;
  std::unordered_map<int32_t, std::string> names_;  // of the roots
  std::minstd_rand random_{std::random_device{}()};
  int32_t free_ = -1;  // a list, by `parent`
  int64_t num_nodes_ = 0, next_number_ = 0;
};

// Of the tokens of a sequence, those of its block `index`; fewer than a block's at their end.
inline Tokens block_of(Tokens tokens, int64_t index) {
  const size_t begin = std::min(static_cast<size_t>(index * kBlockTokens), tokens.size());
  return tokens.subspan(begin, std::min<size_t>(kBlockTokens, tokens.size() - begin));
}

}  // namespace puna
