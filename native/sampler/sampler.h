// From logits to a token. The chain is llama.cpp's, in its order: logit bias, penalties, top-k, typical-p,
// top-p, min-p, temperature, draw. A draw walks the tokens that are left in the order of their ids.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sampler/candidates.h"
#include "sampler/logit_row.h"
#include "sampler/recent_tokens.h"

namespace puna {

struct SamplingParams {
  float temperature;      // <= 0: the likeliest token after bias and penalties, whatever the filters say
  int64_t top_k;          // <= 0: off
  float top_p;            // >= 1: off
  float min_p;            // <= 0: off
  float typical_p;        // >= 1: off
  int64_t repeat_last_n;  // tokens that penalties look at; 0: off, -1: all
  float repeat_penalty;   // 1: off
  float presence_penalty;
  float frequency_penalty;
  uint64_t seed;
  std::vector<std::pair<int64_t, float>> logit_bias;  // ids beyond the vocabulary are ignored
  int64_t num_logprobs;  // -1: off; 0: the chosen token's; n: the likeliest n too
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};

struct Sample {
  int32_t token;
  float logprob;  // in the model's own distribution, before the chain; NaN if num_logprobs is -1
  std::vector<TokenLogprob> top;  // likeliest first
};

// One request's parameters, random sequence and recent tokens.
class Sampler {
 public:
  // Error names the parameter that is out of range.
  explicit Sampler(SamplingParams params);

  // Counts for the penalties: tokens of the prompt.
  void accept(int32_t token) { recent_.add(token); }
  void accept(std::span<const int32_t> tokens) { recent_.add(tokens); }

  // The inverse temperature at which the row to be sampled should be scanned; 0: none.
  float scan_inverse_temperature() const;

  // Whether the model's own distribution is wanted beside what is drawn.
  bool wants_logprobs() const { return params_.num_logprobs >= 0; }

  // Changes nothing, so that a failed batch leaves all samplers as they were; commit() ends the turn. The row
  // is scanned; what `candidates` holds does not matter.
  // Error: NaN among the logits, or none finite.
  Sample sample(LogitRow& row, Candidates& candidates) const;
  // The same under a mask. masked: the row under it, scanned unless the mask has an only() token; row: needed
  // for log-probabilities alone.
  Sample sample(LogitRow& row, LogitRow& masked, const TokenMask& mask, Candidates& candidates) const;

  void commit(const Sample& sample);

 private:
  float inverse_temperature() const;
  bool is_filtered() const;
  bool is_banned(int32_t token) const;
  bool changes_logits() const;
  void change_logits(LogitRow& row) const;
  int32_t draw(const LogitRow& row, Candidates& candidates) const;
  int32_t choose(const LogitRow& row, Candidates& candidates) const;
  void filter(const LogitRow& row, Candidates& candidates) const;
  void keep_typical(Candidates& candidates, const LogitRow& row) const;
  float nucleus_bound(const LogitRow& row) const;
  void keep_nucleus(Candidates& candidates, const LogitRow& row) const;
  void add_logprobs(const LogitRow& row, Candidates& candidates, Sample& sample) const;

  SamplingParams params_;
  RecentTokens recent_;
  uint64_t num_drawn_ = 0;
};

}  // namespace puna
