// The block tables of one sequence.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_blocks.h"
#include "kv/table/sequence_state.h"

namespace puna {

// The blocks that hold a sequence's KV, for each group of layers: the token at position p lies in entry p
// // 16. The entries from a first one on are held, with one reference each; of groups without a window that
// is 0. Of a group of recurrent layers it holds a state instead: see kv/table/sequence_state.h.
//
// Only full blocks are ever shared, by adopt() and fork(); all operations leave whatever holds the next token
// with this table alone. What moved to other positions, and what was computed behind that, is not what
// computing the tokens would give: num_genuine() tokens are.
class SequenceTable {
 public:
  // keeps_all: windows do not slide.
  SequenceTable(std::shared_ptr<KvBlocks> kv, bool keeps_all)
      : kv_(std::move(kv)), keeps_all_(keeps_all), state_(kv_->has_states() ? &kv_->states() : nullptr) {
    groups_.resize(kv_->num_token_groups());
  }

  const std::shared_ptr<KvBlocks>& kv() const { return kv_; }
  bool keeps_all() const { return keeps_all_; }
  // Blocks that have slid out stay out: see can_resume().
  void set_keeps_all(bool keeps_all) { keeps_all_ = keeps_all; }
  int64_t num_blocks() const { return num_blocks_; }  // entries, held or not
  int64_t num_genuine() const { return num_genuine_; }
  int64_t held_bytes() const;
  const SequenceState& state() const { return state_; }
  // For groups whose blocks hold tokens. The first held entry; those before it are -1.
  int64_t first(size_t group) const { return groups_.at(group).first; }
  const std::vector<int32_t>& blocks(size_t group) const { return groups_.at(group).blocks; }
  int32_t entry(size_t group, int64_t index) const {
    return groups_[group].blocks[static_cast<size_t>(index)];
  }
  bool holds_any(int64_t index) const;
  // The first token, and the first entry, that the token at `position` sees.
  int64_t first_seen(size_t group, int64_t position) const {
    return keeps_all_ ? 0 : kv_->group(group).first_seen(position);
  }
  int64_t first_needed(size_t group, int64_t position) const {
    return first_seen(group, position) / kBlockTokens;
  }

  // Bytes that it takes beside what it holds to hold what the token behind the first `num_tokens` sees.
  int64_t missing_bytes(int64_t num_tokens) const;
  // Bytes that it then holds at least: with one state, whatever it takes while others have that, too.
  int64_t least_bytes(int64_t num_tokens) const;
  // Makes room for the first `num_tokens` tokens, of which those at `position` and later will be computed;
  // false, and nothing changed, if blocks are short. Where the table ends before what the token at `position`
  // sees, entries before that are not held. There is a block to write the state to, then: if memory lacks for
  // a fresh one, and nobody else holds the present one, the tree forgets that.
  bool grow(int64_t num_tokens, int64_t position);
  // Lets go of what neither the token at `position` nor a later one sees.
  void slide(int64_t position);
  // Keeps the first `num_tokens` tokens, gives blocks wholly beyond back. For tokens that nobody else can
  // know of: the block that is cut must not be shared, nor may the tree have recorded what is cut off.
  void truncate(int64_t num_tokens);
  void release() { truncate(0); }
  // A step with the table has ended, and its state is now that behind so many tokens; or it has failed, and
  // the state is lost if it was to be written in place.
  void stepped(int64_t num_tokens) { state_.stepped(num_tokens); }
  void failed() { state_.failed(); }

  // Whether the table has all that the token behind the first `num_tokens` sees: a state is only behind one.
  bool can_resume(int64_t num_tokens) const;
  // A second table with the first `num_tokens` tokens, behind which it can resume: full blocks are shared,
  // the tokens of a last, partial one are moved. Null if there are no blocks for them.
  std::unique_ptr<SequenceTable> fork(int64_t num_tokens) const;
  // Drops tokens [begin, end) of the first `num_tokens`; those behind them move down by end - begin. Blocks
  // that change and are shared are copied, those of this table alone change in place and are forgotten by the
  // tree. Whatever lies behind `num_tokens` is given back. False, and nothing changed, if blocks are short,
  // if a window reaches what has slid out, or for a state. If moving throws, the table's KV is lost.
  bool remove(int64_t begin, int64_t end, int64_t num_tokens);

  // For the tree: goes on behind the first `num_blocks` with the blocks of the nodes `path`, with copies of
  // the tokens at the start of another one's, and with the state behind all of them. Whatever else the table
  // has there is given back. False, and nothing changed, if blocks are short.
  bool resume(int64_t num_blocks, const std::vector<int32_t>& path, PrefixTree::Partial copied,
              int32_t state);
  // Takes another block, which is retained, with the same state.
  void replace_state(int32_t block) { state_.adopt(block, state_.position()); }
  // Appends the blocks of the nodes `path`, retained, as far as the token at `position` sees them.
  void adopt(const std::vector<int32_t>& path, int64_t position);
  // Takes another block, which is retained, in place of the table's own.
  void replace(size_t group, int64_t index, int32_t block);

 private:
  struct Entries {
    std::vector<int32_t> blocks;
    int64_t first = 0;
    int64_t valid = 0;  // the first token whose KV is there: of this entry, or behind what a shift left of it
  };
  struct Shift;  // of one group's tokens
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  static void set_first(Entries& entries, int64_t first);
  void adopt(size_t group, const std::vector<int32_t>& path, int64_t position);
  void let_go(size_t group, int64_t begin, int64_t end);
  Shift plan_shift(size_t group, int64_t begin, int64_t end, int64_t num_tokens) const;
  void apply(size_t group, const Shift& shift, const std::vector<int32_t>& fresh);

  std::shared_ptr<KvBlocks> kv_;
  bool keeps_all_;
  std::vector<Entries> groups_;
  SequenceState state_;
  int64_t num_blocks_ = 0;
  int64_t num_genuine_ = kAll;
};

}  // namespace puna
