#include "sampler/sample_batch.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace puna {
namespace {

void check_starts(std::span<const int32_t> starts, size_t num_samplers, size_t num_drafts) {
  if (starts.size() != num_samplers + 1)
    throw Error("draft_starts has " + std::to_string(starts.size()) + " entries for " +
                std::to_string(num_samplers) + " samplers");
  if (starts.front() != 0 || static_cast<size_t>(starts.back()) != num_drafts)
    throw Error("draft_starts does not run from 0 to the number of drafts, " + std::to_string(num_drafts));
  for (size_t i = 1; i < starts.size(); ++i)
    if (starts[i] < starts[i - 1]) throw Error("draft_starts decreases at entry " + std::to_string(i));
}

// One sampler's part of the batch.
struct Turn {
  Sampler* sampler;
  std::span<const int32_t> drafts;
  size_t first_row;
  size_t num_samples = 0;
  std::string error = {};

  size_t num_rows() const { return drafts.size() + 1; }

  // Behind a row that gave something, one that cannot be sampled is left for the next step: so what a
  // sequence gets does not depend on whether its tokens were drafted.
  template <typename SampleRow>
  void take(std::span<Sample> samples, const SampleRow& sample_row) {
    while (true) {
      const size_t row = num_samples;
      try {
        samples[row] = sample_row(*sampler, first_row + row);
      } catch (const Error& unusable) {
        if (row == 0) error = unusable.what();
        return;
      }
      sampler->commit(samples[row]);
      ++num_samples;
      if (row == drafts.size() || samples[row].token != drafts[row]) return;
    }
  }
};

std::vector<Turn> turns_of(std::span<Sampler* const> samplers, const Drafts& drafts) {
  std::vector<Turn> turns;
  turns.reserve(samplers.size());
  for (size_t i = 0, row = 0; i < samplers.size(); row += turns[i++].num_rows()) {
    std::span<const int32_t> tokens;
    if (!drafts.starts.empty()) {
      const auto begin = static_cast<size_t>(drafts.starts[i]),
                 end = static_cast<size_t>(drafts.starts[i + 1]);
      tokens = drafts.tokens.subspan(begin, end - begin);
    }
    turns.push_back({.sampler = samplers[i], .drafts = tokens, .first_row = row});
  }
  return turns;
}

// A row, and what its mask leaves of it.
struct MaskedRow {
  LogitRow logits;
  std::optional<LogitRow> masked;
  const TokenMask* mask;  // null: anything may be drawn
  bool reads_logits;

  void scan(int64_t begin, int64_t end) {
    if (reads_logits) logits.scan(begin, end);
    if (masked) masked->scan(begin, end);
  }

  Sample sample(const Sampler& sampler, Candidates& candidates) {
    if (mask == nullptr) return sampler.sample(logits, candidates);
    mask->check();
    return sampler.sample(logits, masked ? *masked : logits, *mask, candidates);
  }
};

MaskedRow row_of(const Kernels& kernels, std::span<float> logits, const Sampler& sampler,
                 const TokenMask* mask) {
  const float beta = sampler.scan_inverse_temperature();
  MaskedRow row = {.logits = LogitRow(kernels, logits, beta),
                   .masked = {},
                   .mask = mask,
                   .reads_logits = mask == nullptr || sampler.wants_logprobs()};
  if (mask == nullptr || mask->only()) return row;
  if (row.reads_logits)
    row.masked.emplace(kernels, std::span<const float>(logits), beta, *mask);
  else
    row.masked.emplace(kernels, logits, beta, *mask);
  return row;
}

std::vector<MaskedRow> rows_of(const Kernels& kernels, float* logits, size_t vocab_size,
                               std::span<const Turn> turns, std::span<const TokenMask* const> masks) {
  std::vector<MaskedRow> rows;
  for (const Turn& turn : turns) {
    for (size_t i = 0; i < turn.num_rows(); ++i, logits += vocab_size)
      rows.push_back(row_of(kernels, std::span(logits, vocab_size), *turn.sampler,
                            masks.empty() ? nullptr : masks[rows.size()]));
  }
  return rows;
}

// Waking the other threads costs some 15 us; reading 1024 blocks takes as long.
bool is_worth_waking(std::span<const MaskedRow> rows) {
  int64_t work = 0;
  for (const MaskedRow& row : rows)
    if (row.reads_logits || row.masked) work += row.logits.num_blocks() * (row.logits.has_sums() ? 4 : 1);
  return work > 1024;
}

// Without the rows behind a draft that was wrong.
SampledBatch finished(std::span<Turn> turns, std::vector<Sample>&& samples) {
  SampledBatch batch = {.samples = std::move(samples), .starts = {0}, .errors = {}};
  auto end = batch.samples.begin();
  for (Turn& turn : turns) {
    const auto first = batch.samples.begin() + static_cast<int64_t>(turn.first_row);
    const auto last = first + static_cast<int64_t>(turn.num_samples);
    end = end == first ? last : std::move(first, last, end);
    batch.starts.push_back(static_cast<int32_t>(end - batch.samples.begin()));
    batch.errors.push_back(std::move(turn.error));
  }
  batch.samples.erase(end, batch.samples.end());
  return batch;
}

}  // namespace

SampledBatch sample_batch(ThreadPool& pool, const Kernels& kernels, float* logits, int64_t num_rows,
                          int64_t vocab_size, std::span<Sampler* const> samplers, const Drafts& drafts,
                          std::span<const TokenMask* const> masks) {
  if (!drafts.starts.empty()) check_starts(drafts.starts, samplers.size(), drafts.tokens.size());
  if (static_cast<size_t>(num_rows) != samplers.size() + drafts.tokens.size())
    throw Error("logits have " + std::to_string(num_rows) + " rows, but there are " +
                std::to_string(samplers.size()) + " samplers" +
                (drafts.starts.empty() ? "" : " and " + std::to_string(drafts.tokens.size()) + " drafts"));
  if (!masks.empty() && masks.size() != static_cast<size_t>(num_rows))
    throw Error(std::to_string(num_rows) + " rows have " + std::to_string(masks.size()) + " masks");
  std::vector<Turn> turns = turns_of(samplers, drafts);
  std::vector<MaskedRow> rows = rows_of(kernels, logits, static_cast<size_t>(vocab_size), turns, masks);
  const auto share_out = [&](int64_t count, const std::function<void(int64_t)>& body) {
    if (count > 1 && is_worth_waking(rows)) return pool.parallel_for(count, body);
    for (int64_t i = 0; i < count; ++i) body(i);
  };
  const auto num_turns = static_cast<int64_t>(turns.size());
  constexpr int64_t kPart = 64;  // blocks
  const int64_t num_parts = (vocab_size + kPart * kLogitBlock - 1) / (kPart * kLogitBlock);
  // Rows of fewer samplers than threads are read by all of them together.
  const bool together = num_turns < pool.num_threads();
  if (together)
    share_out(num_rows * num_parts, [&](int64_t i) {
      rows[static_cast<size_t>(i / num_parts)].scan(i % num_parts * kPart, (i % num_parts + 1) * kPart);
    });
  const auto sample_row = [&](const Sampler& sampler, size_t r) {
    static thread_local Candidates candidates;
    if (!together) rows[r].scan(0, rows[r].logits.num_blocks());
    return rows[r].sample(sampler, candidates);
  };
  std::vector<Sample> samples(rows.size());
  share_out(num_turns, [&](int64_t i) {
    Turn& turn = turns[static_cast<size_t>(i)];
    turn.take(std::span(samples).subspan(turn.first_row, turn.num_rows()), sample_row);
  });
  return finished(turns, std::move(samples));
}

}  // namespace puna
