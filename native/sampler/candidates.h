// The tokens that filters have left.
#pragma once

#include <cstdint>
#include <vector>

#include "sampler/cut.h"
#include "sampler/logit_row.h"
#include "sampler/scratch.h"

namespace puna {

// In the order of their ids. Holds a few MB once it had a whole vocabulary, to be used again.
class Candidates {
 public:
  // All tokens of a logit of at least `lowest`, except -infinity.
  void collect(const LogitRow& row, float lowest);
  // The `count` most likely ones of all that are not -infinity.
  void collect_most_likely(const LogitRow& row, int64_t count);

  void drop_below(const Kernels& kernels, float lowest);
  // Keeps the best ones until their weights sum up to `target`; the best one in any case.
  void keep_best(const Kernels& kernels, const Ranking& ranking, const Weighing& weighing, double target);

  int32_t token(int64_t i) const { return tokens_.get()[i]; }
  // Scanned.
  LogitRow row(const Kernels& kernels, float inverse_temperature) const;
  std::vector<Candidate> by_likelihood() const;

 private:
  TokenList list() const { return {logits_.get(), tokens_.get(), size_}; }
  void pad();
  void keep_scores(const Kernels& kernels, const float* scores, const Cut& cut);

  int64_t size_ = 0;
  Scratch<float> logits_;  // -infinity from size_ up to a multiple of kLogitBlock
  Scratch<int32_t> tokens_;
  Scratch<float> scores_;
  CutSearch search_;
};

}  // namespace puna
