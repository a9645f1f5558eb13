// One step of one model, as flat arrays (puna/backends/base.py).
#pragma once

#include <cstdint>
#include <span>

#include "kv/block_space.h"

namespace puna {

// The place of a group's keys and values.
struct BlockTables {
  std::span<const int32_t> entries;  // [S, width] position p lies in entry p / 16
  int64_t num_tables, width;
  BlockSpace blocks;

  const int32_t* of(int64_t sequence) const { return entries.data() + sequence * width; }
};

struct KvGroup;

struct Batch {
  std::span<const int32_t> tokens;           // [T] sequence by sequence
  std::span<const int32_t> positions;        // [T] contiguous within a sequence
  std::span<const int32_t> sequence_starts;  // [S + 1] sequence s owns tokens [starts[s], starts[s + 1])
  std::span<const BlockTables> kv;           // of each group of the model's layers
  std::span<const int32_t> rows;             // [R] tokens whose result is wanted

  int64_t num_sequences() const { return static_cast<int64_t>(sequence_starts.size()) - 1; }
};

// Throws Error unless every index that the step follows can be followed safely: of a block table, those of
// blocks that its tokens write or see. vocab_size: 0 if tokens are not looked up.
void check_batch(const Batch& batch, int64_t vocab_size, std::span<const KvGroup> groups);

}  // namespace puna
