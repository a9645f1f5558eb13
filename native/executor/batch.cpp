#include "executor/batch.h"

#include <string>

#include "executor/check.h"
#include "kernels/kernels.h"

namespace puna {
namespace {

void check_shapes(const Batch& batch) {
  const auto& starts = batch.sequence_starts;
  const int64_t tokens = static_cast<int64_t>(batch.tokens.size());
  if (batch.positions.size() != batch.tokens.size()) {
    throw Error("positions has " + text(batch.positions.size()) + " entries for " + text(tokens) + " tokens");
  }
  if (starts.empty() || starts.front() != 0 || starts.back() != tokens) {
    throw Error("sequence_starts does not run from 0 to the number of tokens, " + text(tokens));
  }
  for (size_t s = 1; s < starts.size(); ++s) {
    if (starts[s] < starts[s - 1]) throw Error("sequence_starts decreases at entry " + text(s));
  }
  if (batch.num_tables != batch.num_sequences()) {
    throw Error("block_tables has " + text(batch.num_tables) + " rows for " + text(batch.num_sequences()) +
                " sequences");
  }
}

void check_range(std::span<const int32_t> values, int64_t limit, const char* name, const char* of) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= limit) {
      throw Error(std::string(name) + "[" + text(i) + "] is " + text(values[i]) + ", outside of the " +
                  text(limit) + " " + of);
    }
  }
}

void check_positions(const Batch& batch, int64_t sequence) {
  const int64_t begin = batch.sequence_starts[sequence], end = batch.sequence_starts[sequence + 1];
  const int64_t first = batch.positions[begin];
  if (first < 0) throw Error("sequence " + text(sequence) + ": position " + text(first) + " is negative");
  for (int64_t t = begin; t < end; ++t) {
    if (batch.positions[t] != first + (t - begin)) {
      throw Error("sequence " + text(sequence) + ": positions are not contiguous at token " + text(t));
    }
  }
}

void check_blocks(const Batch& batch, int64_t sequence) {
  const int64_t last = batch.positions[batch.sequence_starts[sequence + 1] - 1];
  const int64_t needed = last / kBlockTokens + 1;
  if (needed > batch.table_width) {
    throw Error("sequence " + text(sequence) + ": position " + text(last) + " needs " + text(needed) +
                " blocks, its block table has " + text(batch.table_width));
  }
  for (int64_t i = 0; i < needed; ++i) {
    const int32_t block = batch.block_table(sequence)[i];
    if (block < 0 || block >= batch.blocks.num_blocks()) {
      throw Error("sequence " + text(sequence) + ": block_tables entry " + text(i) + " is " + text(block) +
                  ", outside of the arena's " + text(batch.blocks.num_blocks()) + " blocks");
    }
  }
}

}  // namespace

void check_batch(const Batch& batch, int64_t vocab_size, int64_t block_bytes) {
  check_shapes(batch);
  if (vocab_size > 0) check_range(batch.tokens, vocab_size, "tokens", "entries of the vocabulary");
  check_range(batch.rows, static_cast<int64_t>(batch.tokens.size()), "rows", "tokens of the step");
  if (block_bytes > 0 && batch.blocks.block_bytes() != block_bytes) {
    throw Error("the arena's blocks have " + text(batch.blocks.block_bytes()) + " bytes, the model's " +
                text(block_bytes));
  }
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    if (batch.sequence_starts[s] == batch.sequence_starts[s + 1]) continue;
    check_positions(batch, s);
    if (block_bytes > 0) check_blocks(batch, s);
  }
}

}  // namespace puna
