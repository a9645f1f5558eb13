// One step of one model, as flat arrays (puna/backends/base.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_space.h"

namespace puna {

// The place of a group's keys and values, or states.
struct BlockTables {
  // [S, width] position p lies in entry p / 16. Of states [S, 2]: the block to read, -1 at position 0, and
  // the block to write, perhaps the same.
  std::span<const int32_t> entries;
  int64_t num_tables, width;
  BlockSpace blocks;

  const int32_t* of(int64_t sequence) const { return entries.data() + sequence * width; }
};

class Adapter;

struct Batch {
  std::span<const int32_t> tokens;           // [T] sequence by sequence
  std::span<const int32_t> positions;        // [T] contiguous within a sequence
  std::span<const int32_t> sequence_starts;  // [S + 1] sequence s owns tokens [starts[s], starts[s + 1])
  std::span<const BlockTables> kv;           // of each group of the model's layers
  std::span<const int32_t> rows;             // [R] tokens whose result is wanted
  std::span<const int32_t> hidden = {};      // [H] tokens whose hidden state is wanted
  // [n + 1], or empty if there are none: of the sequences that have rows, in order, sequence i has as many
  // drafts as its last tokens as lie between starts i and i + 1. Rows then ascend.
  std::span<const int32_t> draft_starts = {};
  std::span<const Adapter* const> adapters = {};  // [T] of each token, or nullptr; empty: there are none
  std::span<const float> before = {};             // [T, width] for a prediction head: see the op HiddenBefore

  int64_t num_sequences() const { return static_cast<int64_t>(sequence_starts.size()) - 1; }
};

// The last tokens of a sequence that only stay if they turn out right.
struct SequenceDrafts {
  int32_t sampler = -1;  // the sequence's place among those that have rows
  int32_t count = 0;
};

// Of each sequence. Throws Error if draft_starts does not fit the rows.
std::vector<SequenceDrafts> drafts_of(const Batch& batch);

struct KvGroup;

// Throws Error unless every index that the step follows can be followed safely: of a block table, those of
// blocks that its tokens write or see. A state is not written where another sequence's is. vocab_size: 0 if
// tokens are not looked up.
void check_batch(const Batch& batch, int64_t vocab_size, std::span<const KvGroup> groups);

// Of an encoder: throws Error unless each sequence begins with its first token.
void check_texts(const Batch& batch);

int64_t longest_sequence(const Batch& batch);

}  // namespace puna
