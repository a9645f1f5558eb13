// One step of one model, as flat arrays (puna/backends/base.py).
#pragma once

#include <cstdint>
#include <span>

#include "kv/block_space.h"

namespace puna {

struct Batch {
  std::span<const int32_t> tokens;           // [T] sequence by sequence
  std::span<const int32_t> positions;        // [T] contiguous within a sequence
  std::span<const int32_t> sequence_starts;  // [S + 1] sequence s owns tokens [starts[s], starts[s + 1])
  std::span<const int32_t> block_tables;     // [S, table_width] position p lies in entry p / 16
  int64_t num_tables, table_width;
  std::span<const int32_t> rows;  // [R] tokens whose result is wanted

  BlockSpace blocks;

  int64_t num_sequences() const { return static_cast<int64_t>(sequence_starts.size()) - 1; }
  const int32_t* block_table(int64_t sequence) const { return block_tables.data() + sequence * table_width; }
};

// Throws Error unless every index in the batch can be followed safely. vocab_size: 0 if tokens are not looked
// up. block_bytes: what the model needs of a block; 0 without attention, then blocks are not looked at.
void check_batch(const Batch& batch, int64_t vocab_size, int64_t block_bytes);

}  // namespace puna
