// The prediction head's runs: it takes the hidden state of a token and the token after it, and gives the one
// after that. Applied again to what it gave itself, it goes on from there.
#include "executor/prediction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "executor/step.h"

namespace puna {
namespace {

// -1 where something is not a number.
int32_t likeliest(const Kernels& kernels, std::span<const float> logits) {
  const size_t num_blocks = logits.size() / kLogitBlock;
  std::vector<float> maxima(num_blocks);
  kernels.logit_maxima(logits.data(), static_cast<int64_t>(num_blocks), maxima.data());
  float largest = -std::numeric_limits<float>::infinity();
  size_t begin = 0, end = 0;  // of the block with the largest
  const auto look_at = [&](float value, size_t from, size_t to) {
    if (value > largest || std::isnan(value)) largest = value, begin = from, end = to;
  };
  for (size_t b = 0; b < num_blocks && !std::isnan(largest); ++b)
    look_at(maxima[b], b * kLogitBlock, (b + 1) * kLogitBlock);
  for (size_t i = num_blocks * kLogitBlock; i < logits.size() && !std::isnan(largest); ++i)
    look_at(logits[i], i, i + 1);
  if (!std::isfinite(largest)) return -1;
  const auto of_block = logits.subspan(begin, end - begin);
  return static_cast<int32_t>(begin) +
         static_cast<int32_t>(std::ranges::find(of_block, largest) - of_block.begin());
}

// The rows of some of a batch's tokens, with block tables for all of its sequences.
struct HeadRows {
  std::vector<int32_t> tokens, positions, starts = {0};
  std::vector<float> before;

  void add(int32_t token, int32_t position, std::span<const float> hidden, size_t width) {
    tokens.push_back(token);
    positions.push_back(position);
    if (hidden.empty()) {
      before.resize(before.size() + width);
    } else {
      before.insert(before.end(), hidden.begin(), hidden.end());
    }
  }
  void end_sequence() { starts.push_back(static_cast<int32_t>(tokens.size())); }
  // kv: of the groups that the head reads.
  Batch batch(std::span<const BlockTables> kv) const {
    return {.tokens = tokens,
            .positions = positions,
            .sequence_starts = starts,
            .kv = kv,
            .rows = {},
            .before = before};
  }
};

// How many of a sequence's tokens stay: all but the drafts that turned out wrong.
int64_t num_staying(int64_t num_tokens, const SequenceDrafts& drafts, std::span<const int32_t> starts) {
  if (drafts.count == 0) return num_tokens;
  const auto sampler = static_cast<size_t>(drafts.sampler);
  if (sampler + 1 >= starts.size()) throw Error("there are fewer samples than drafts");
  const int64_t right = std::max(int64_t{starts[sampler + 1]} - starts[sampler] - 1, int64_t{0});
  if (right > drafts.count) throw Error("there are more samples than drafts");
  return num_tokens - drafts.count + right;
}

// Of each token of the batch, the row of its hidden state; -1: it has none.
std::vector<int64_t> hidden_rows(const Batch& batch) {
  std::vector<int64_t> rows(batch.tokens.size(), -1);
  int64_t row = 0;
  for (const auto wanted : {batch.rows, batch.hidden})
    for (const int32_t token : wanted) rows[static_cast<size_t>(token)] = row++;
  return rows;
}

void check_wanted(const Batch& batch, const WantedDrafts& wanted) {
  const size_t num_sequences = wanted.states.size();
  if (batch.tokens.size() != num_sequences || batch.sequence_starts.size() != num_sequences + 1 ||
      batch.positions.size() != num_sequences || wanted.counts.size() != num_sequences)
    throw Error("the head goes on from one token of each sequence");
  if (std::ranges::find(wanted.states, nullptr) != wanted.states.end())
    throw Error("a sequence has no head state");
}

// The groups that the head reads. One that keeps nothing reads, at the position of the last token that is
// kept, what the token behind that will see: of a window one token less.
std::vector<KvGroup> groups_of_head(const Plan& plan) {
  if (plan.prediction->keeps) return {plan.groups.front()};
  std::vector<KvGroup> groups = plan.groups;
  for (KvGroup& group : groups)
    if (group.window > 1) --group.window;
  return groups;
}

}  // namespace

std::vector<int32_t> Program::tokens_for_head(const Batch& batch, std::span<HeadState* const> states) const {
  if (states.size() + 1 != batch.sequence_starts.size())
    throw Error("there are not as many head states as sequences");
  if (!plan_.prediction || !plan_.prediction->keeps) return {};  // that of the latest token is enough
  std::vector<bool> has_row(batch.tokens.size());
  for (const int32_t row : batch.rows) has_row.at(static_cast<size_t>(row)) = true;
  std::vector<int32_t> tokens;
  for (size_t s = 0; s < states.size(); ++s) {
    if (states[s] == nullptr) continue;
    for (int32_t t = batch.sequence_starts[s]; t < batch.sequence_starts[s + 1]; ++t)
      if (!has_row.at(static_cast<size_t>(t))) tokens.push_back(t);
  }
  return tokens;
}

void Program::keep(ThreadPool& pool, const Batch& batch, int num_threads, std::span<HeadState* const> states,
                   std::span<const float> hidden, std::span<const int32_t> sample_starts) {
  if (!plan_.prediction) throw Error("the model has no prediction head");
  check_batch(batch, plan_.vocab_size, plan_.groups);
  const auto width = static_cast<size_t>(plan_.buffers[static_cast<size_t>(plan_.hidden)].width);
  if (hidden.size() != width * (batch.rows.size() + batch.hidden.size()))
    throw Error("the hidden states are not those of the batch");
  const std::vector<int64_t> rows = hidden_rows(batch);
  const auto behind = [&](int64_t token) {
    const int64_t row = rows[static_cast<size_t>(token)];
    if (row < 0) throw Error("token " + std::to_string(token) + " has no hidden state");
    return hidden.subspan(static_cast<size_t>(row) * width, width);
  };
  const std::vector<SequenceDrafts> drafts = drafts_of(batch);
  HeadRows kept;
  for (size_t s = 0; s < states.size(); ++s) {
    HeadState* state = states[s];
    const int64_t begin = batch.sequence_starts[s], length = batch.sequence_starts[s + 1] - begin;
    if (state != nullptr && length > 0) {
      const int64_t end = begin + num_staying(length, drafts[s], sample_starts);
      for (int64_t t = begin + (state->has_kept_latest ? 1 : 0); t < end && plan_.prediction->keeps; ++t)
        kept.add(batch.tokens[static_cast<size_t>(t)], batch.positions[static_cast<size_t>(t)],
                 t == begin ? std::span<const float>(state->hidden) : behind(t - 1), width);
      state->has_kept_latest = false;
      if (plan_.prediction->keeps || rows[static_cast<size_t>(end - 1)] >= 0) {
        const std::span<const float> last = behind(end - 1);
        state->hidden.assign(last.begin(), last.end());
      } else {
        state->forget();
      }
    }
    kept.end_sequence();
  }
  if (kept.tokens.empty()) return;
  const std::lock_guard<std::mutex> lock(one_run_);
  execute(pool, kept.batch(batch.kv.first(1)), num_threads, plan_.prediction->begin,
          plan_.prediction->attention, nullptr);
}

std::vector<int32_t> Program::predict_next(ThreadPool& pool, const Batch& batch, int num_threads,
                                           std::vector<float>& hidden) {
  check_batch(batch, plan_.vocab_size, groups_of_head(plan_));
  const std::lock_guard<std::mutex> lock(one_run_);
  const Step step = execute(pool, batch, num_threads, plan_.prediction->begin, plan_.stages.size(), nullptr);
  const auto num_rows = static_cast<int64_t>(batch.rows.size());
  const Output logits = output(step, plan_.prediction->result, num_rows);
  const Output made = output(step, plan_.prediction->hidden, num_rows);
  hidden.assign(made.data.get(), made.data.get() + num_rows * made.width);
  std::vector<int32_t> tokens(batch.rows.size());
  pool.parallel_for(num_rows, [&](int64_t i) {
    const float* row = logits.data.get() + i * logits.width;
    tokens[static_cast<size_t>(i)] = likeliest(*plan_.kernels, {row, static_cast<size_t>(logits.width)});
  });
  return tokens;
}

std::vector<std::vector<int32_t>> Program::predict(ThreadPool& pool, const Batch& batch, int num_threads,
                                                   const WantedDrafts& wanted) {
  if (!plan_.prediction) throw Error("the model has no prediction head");
  check_wanted(batch, wanted);
  const auto width = static_cast<size_t>(plan_.buffers[static_cast<size_t>(plan_.hidden)].width);
  const bool keeps = plan_.prediction->keeps;
  std::vector<std::vector<int32_t>> drafts(wanted.states.size());
  std::vector<float> hidden;        // of the rows before
  std::vector<size_t> rows_before;  // by sequence
  for (size_t depth = 0;; ++depth) {
    HeadRows rows;
    std::vector<size_t> going;
    for (size_t s = 0; s < drafts.size(); ++s) {
      if (wanted.counts[s] > static_cast<int64_t>(depth) && drafts[s].size() == depth) {
        const int32_t token = depth == 0 ? batch.tokens[s] : drafts[s].back();
        const std::span<const float> before =
            depth == 0 ? std::span<const float>(wanted.states[s]->hidden)
                       : std::span<const float>(hidden).subspan(rows_before[s] * width, width);
        rows.add(token, batch.positions[s] + (keeps ? static_cast<int32_t>(depth) : -1), before, width);
        going.push_back(s);
      }
      rows.end_sequence();
    }
    if (going.empty()) return drafts;
    std::vector<int32_t> all_rows(going.size());
    std::iota(all_rows.begin(), all_rows.end(), 0);
    Batch head = rows.batch(keeps ? batch.kv.first(1) : batch.kv);
    head.rows = all_rows;
    const std::vector<int32_t> tokens = predict_next(pool, head, num_threads, hidden);
    rows_before.assign(drafts.size(), 0);
    for (size_t i = 0; i < going.size(); ++i) {
      wanted.states[going[i]]->has_kept_latest = keeps;
      rows_before[going[i]] = i;
      if (tokens[i] >= 0) drafts[going[i]].push_back(tokens[i]);
    }
  }
}

}  // namespace puna
