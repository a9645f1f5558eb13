// Where a ranking of tokens is cut off, found without sorting them: a histogram of weights by score tells in
// which bucket the cut lies, and only that bucket is looked at more closely.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/kernels.h"
#include "sampler/scratch.h"

namespace puna {

inline int64_t pad_size(int64_t size) { return (size + kLogitBlock - 1) / kLogitBlock * kLogitBlock; }

// Tokens ascend. Behind the last one stand logits of -infinity, up to pad_size().
struct TokenList {
  const float* logits;
  const int32_t* tokens;
  int64_t size;
};

// What the best is: the largest logit or, with a center, the one nearest to it; among equals the lower token.
// A strict order, so that no result depends on how something was sorted.
struct Ranking {
  std::optional<float> center;

  // Of a list: its logits, or the distances from the center, negative, in `scratch`.
  const float* scores(const TokenList& list, Scratch<float>& scratch) const;
};

// A token counts exp((logit - max) * inverse_temperature); at an inverse temperature of 0, each one 1.
struct Weighing {
  float max;
  float inverse_temperature;
};

// The last token that is kept.
struct Cut {
  float score;
  int32_t token;
};

class CutSearch {
 public:
  // The first token, best first, with which the sum of weights reaches `target`, or the last one with a
  // weight. The list has tokens.
  Cut find(const Kernels& kernels, TokenList list, const Ranking& ranking, const Weighing& weighing,
           double target);

 private:
  TokenList in_range(const Kernels& kernels, const TokenList& list, const float* scores,
                     const ScoreRange& range);

  Scratch<float> logits_, scores_;
  Scratch<int32_t> tokens_;
};

}  // namespace puna
