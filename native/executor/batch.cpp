#include "executor/batch.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "executor/check.h"
#include "executor/program/program.h"

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

std::string of_group(int64_t group) { return "group " + text(group) + ": "; }

void check_blocks(const Batch& batch, int64_t sequence, int64_t group, int64_t window) {
  const BlockTables& tables = batch.kv[static_cast<size_t>(group)];
  const int64_t begin = batch.sequence_starts[sequence], end = batch.sequence_starts[sequence + 1];
  const int64_t first = batch.positions[begin], last = batch.positions[end - 1];
  const int64_t needed = last / kBlockTokens + 1;
  if (needed > tables.width) {
    throw Error(of_group(group) + "sequence " + text(sequence) + ": position " + text(last) + " needs " +
                text(needed) + " blocks, its block table has " + text(tables.width));
  }
  const int64_t seen = window > 0 ? std::max<int64_t>(first - window + 1, 0) / kBlockTokens : 0;
  for (int64_t i = seen; i < needed; ++i) {
    const int32_t block = tables.of(sequence)[i];
    if (block < 0 || block >= tables.blocks.num_blocks()) {
      throw Error(of_group(group) + "sequence " + text(sequence) + ": block_tables entry " + text(i) +
                  " is " + text(block) + ", outside of the " + text(tables.blocks.num_blocks()) + " blocks");
    }
  }
}

void check_state(const BlockTables& tables, int64_t sequence, int64_t position, const std::string& name) {
  const int32_t* blocks = tables.of(sequence);
  const int64_t limit = tables.blocks.num_blocks();
  if ((blocks[0] == -1) != (position == 0) || blocks[0] < -1 || blocks[0] >= limit)
    throw Error(name + "block " + text(blocks[0]) + " of " + text(limit) +
                " cannot have the state to go on with from position " + text(position));
  if (blocks[1] < 0 || blocks[1] >= limit)
    throw Error(name + "block " + text(blocks[1]) + ", to be written, is outside of the " + text(limit) +
                " blocks");
}

void check_states(const Batch& batch, int64_t index) {
  const BlockTables& tables = batch.kv[static_cast<size_t>(index)];
  if (tables.width != 2)
    throw Error(of_group(index) + "block_tables has " + text(tables.width) + " columns instead of 2");
  std::unordered_map<int32_t, int64_t> writer;  // block -> the sequence that writes it
  const auto for_all = [&](auto&& body) {
    for (int64_t s = 0; s < batch.num_sequences(); ++s)
      if (batch.sequence_starts[s] < batch.sequence_starts[s + 1])
        body(s, tables.of(s), of_group(index) + "sequence " + text(s) + ": ");
  };
  for_all([&](int64_t s, const int32_t* blocks, const std::string& name) {
    check_state(tables, s, batch.positions[batch.sequence_starts[s]], name);
    if (!writer.emplace(blocks[1], s).second)
      throw Error(name + "block " + text(blocks[1]) + " is written by another sequence, too");
  });
  for_all([&](int64_t s, const int32_t* blocks, const std::string& name) {
    const auto found = writer.find(blocks[0]);
    if (found != writer.end() && found->second != s)
      throw Error(name + "block " + text(blocks[0]) + " is read while another sequence writes it");
  });
}

void check_group(const Batch& batch, int64_t index, const KvGroup& group) {
  const BlockTables& tables = batch.kv[static_cast<size_t>(index)];
  if (tables.num_tables != batch.num_sequences()) {
    throw Error(of_group(index) + "block_tables has " + text(tables.num_tables) + " rows for " +
                text(batch.num_sequences()) + " sequences");
  }
  if (tables.blocks.block_bytes() != group.block_bytes) {
    throw Error(of_group(index) + "blocks have " + text(tables.blocks.block_bytes()) +
                " bytes, the model's " + text(group.block_bytes));
  }
  if (group.is_state) return check_states(batch, index);
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    if (batch.sequence_starts[s] < batch.sequence_starts[s + 1]) check_blocks(batch, s, index, group.window);
  }
}

}  // namespace

std::vector<SequenceDrafts> drafts_of(const Batch& batch) {
  const std::span<const int32_t> rows = batch.rows, starts = batch.draft_starts;
  std::vector<SequenceDrafts> drafts(static_cast<size_t>(batch.num_sequences()));
  if (starts.empty()) return drafts;
  if (!std::is_sorted(rows.begin(), rows.end())) throw Error("rows do not ascend in a step with drafts");
  size_t row = 0, sampler = 0;
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    const size_t first_row = row;
    while (row < rows.size() && rows[row] < batch.sequence_starts[s + 1]) ++row;
    if (row == first_row) continue;
    if (sampler + 1 >= starts.size()) throw Error("draft_starts has too few entries");
    const int64_t count = int64_t{starts[sampler + 1]} - starts[sampler];
    const int64_t tokens = batch.sequence_starts[s + 1] - batch.sequence_starts[s];
    if (count < 0 || count >= tokens)
      throw Error("sequence " + text(s) + ": " + text(count) + " drafts do not fit its " + text(tokens) +
                  " tokens");
    drafts[static_cast<size_t>(s)] = {static_cast<int32_t>(sampler++), static_cast<int32_t>(count)};
  }
  if (starts.front() != 0 || sampler + 1 != starts.size()) throw Error("draft_starts does not fit the rows");
  return drafts;
}

void check_batch(const Batch& batch, int64_t vocab_size, std::span<const KvGroup> groups) {
  check_shapes(batch);
  if (vocab_size > 0) check_range(batch.tokens, vocab_size, "tokens", "entries of the vocabulary");
  const auto num_tokens = static_cast<int64_t>(batch.tokens.size());
  check_range(batch.rows, num_tokens, "rows", "tokens of the step");
  check_range(batch.hidden, num_tokens, "hidden", "tokens of the step");
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    if (batch.sequence_starts[s] < batch.sequence_starts[s + 1]) check_positions(batch, s);
  }
  if (batch.kv.size() != groups.size()) {
    throw Error("there are block tables for " + text(batch.kv.size()) + " groups of layers, the model has " +
                text(groups.size()));
  }
  if (!batch.adapters.empty() && batch.adapters.size() != batch.tokens.size())
    throw Error("there are not as many adapters as tokens");
  drafts_of(batch);
  for (size_t g = 0; g < groups.size(); ++g) check_group(batch, static_cast<int64_t>(g), groups[g]);
}

void check_texts(const Batch& batch) {
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    const int64_t begin = batch.sequence_starts[s];
    if (begin < batch.sequence_starts[s + 1] && batch.positions[begin] != 0)
      throw Error("sequence " + text(s) + " begins in the midst of its text, which an encoder needs whole");
  }
}

int64_t longest_sequence(const Batch& batch) {
  int64_t longest = 0;
  for (int64_t s = 0; s < batch.num_sequences(); ++s)
    longest = std::max(longest, int64_t{batch.sequence_starts[s + 1]} - batch.sequence_starts[s]);
  return longest;
}

}  // namespace puna
