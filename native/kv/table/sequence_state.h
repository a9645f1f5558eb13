// What recurrent layers keep of one sequence.
#pragma once

#include <cstdint>

#include "kv/layer_group.h"

namespace puna {

// The block with the state behind some number of tokens, and the one that the next step writes: the same if
// nobody else has it, otherwise a fresh one. So a state that the prefix tree knows, or that another table
// has, is never written. One reference to each block.
class SequenceState {
 public:
  explicit SequenceState(LayerGroup* states) : group_(states) {}  // null: the model has none

  bool exists() const { return group_ != nullptr; }
  int32_t block() const { return block_; }        // -1: before the first token, or lost
  int64_t position() const { return position_; }  // tokens that it is behind; -1: lost
  int32_t written() const { return next_ >= 0 || !is_own() ? next_ : block_; }  // -1: a block is needed
  bool needs_block() const { return exists() && written() < 0; }
  // Whether the tree alone keeps it from being written in place.
  bool is_only_known() const { return block_ >= 0 && !group_->pool.is_shared(block_); }
  int64_t num_held() const { return (block_ >= 0) + (next_ >= 0); }
  int64_t held_bytes() const { return exists() ? num_held() * group_->pool.spec().block_bytes : 0; }

  void take(int32_t block) { next_ = block; }  // for the next step, with its reference
  void adopt(int32_t block, int64_t position);
  // A step has written the state behind so many tokens.
  void stepped(int64_t num_tokens);
  // What a step was to write is undefined.
  void failed();
  // A state behind more tokens is lost.
  void truncate(int64_t num_tokens);

 private:
  bool is_own() const { return is_only_known() && group_->pool.node(block_) < 0; }
  void release();

  LayerGroup* group_;
  int32_t block_ = -1, next_ = -1;
  int64_t position_ = 0;
};

}  // namespace puna
