#include "sampler/candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace puna {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

// A logit that `count` tokens reach, since as many blocks have such a maximum. If there are fewer blocks, an
// estimate: blocks have several tokens as likely as the least maximum.
float lowest_of_most_likely(const LogitRow& row, int64_t count) {
  std::vector<float> maxima(row.maxima().begin(), row.maxima().end());
  const auto last = maxima.begin() + (std::min(count, row.num_blocks()) - 1);
  std::nth_element(maxima.begin(), last, maxima.end(), std::greater<>());
  return *last;
}

}  // namespace

void Candidates::collect(const LogitRow& row, float lowest) {
  const int64_t capacity = row.num_blocks() * kLogitBlock + 16;
  float* const logits = logits_.reserve(capacity);
  int32_t* const tokens = tokens_.reserve(capacity);
  size_ = 0;
  for (int64_t b = 0; b < row.num_blocks(); ++b) {
    if (row.maxima()[static_cast<size_t>(b)] < lowest) continue;
    size_ += row.kernels().select_logits({.scores = row.block(b),
                                          .logits = row.block(b),
                                          .ids = nullptr,
                                          .first_id = static_cast<int32_t>(b * kLogitBlock),
                                          .count = kLogitBlock,
                                          .lowest = std::max(lowest, kLowest),
                                          .highest = kInfinity,
                                          .logits_out = logits + size_,
                                          .ids_out = tokens + size_});
  }
  pad();
}

void Candidates::collect_most_likely(const LogitRow& row, int64_t count) {
  collect(row, lowest_of_most_likely(row, count));
  if (size_ < count) collect(row, kLowest);
  if (size_ > count) keep_best(row.kernels(), {}, {row.max(), 0}, static_cast<double>(count));
}

void Candidates::drop_below(const Kernels& kernels, float lowest) {
  keep_scores(kernels, logits_.get(), {lowest, std::numeric_limits<int32_t>::max()});
}

void Candidates::keep_best(const Kernels& kernels, const Ranking& ranking, const Weighing& weighing,
                           double target) {
  const Cut cut = search_.find(kernels, list(), ranking, weighing, target);
  keep_scores(kernels, ranking.scores(list(), scores_), cut);
}

// scores: of all candidates, the logits themselves or others.
void Candidates::keep_scores(const Kernels& kernels, const float* scores, const Cut& cut) {
  constexpr int64_t kStep = 16;
  float* const logits = logits_.get();
  int32_t* const tokens = tokens_.get();
  const float lowest = std::max(cut.score, kLowest);
  const auto keep_range = [&](int64_t kept, int64_t begin, int64_t end, float at_least) {
    return kept + kernels.select_logits({.scores = scores + begin,
                                         .logits = logits + begin,
                                         .ids = tokens + begin,
                                         .first_id = 0,
                                         .count = end - begin,
                                         .lowest = at_least,
                                         .highest = kInfinity,
                                         .logits_out = logits + kept,
                                         .ids_out = tokens + kept});
  };
  // Up to the last token all of the lowest score stay, behind it none.
  const int64_t turn = std::upper_bound(tokens, tokens + size_, cut.token) - tokens,
                step = turn / kStep * kStep;
  int64_t kept = keep_range(0, 0, step, lowest);
  for (int64_t i = step; i < std::min(step + kStep, size_); ++i) {
    if (scores[i] < lowest || (scores[i] == lowest && i >= turn)) continue;
    logits[kept] = logits[i];
    tokens[kept++] = tokens[i];
  }
  if (step + kStep < size_)
    kept = keep_range(kept, step + kStep, pad_size(size_), std::nextafter(lowest, kInfinity));
  size_ = kept;
  pad();
}

void Candidates::pad() { std::fill(logits_.get() + size_, logits_.get() + pad_size(size_), -kInfinity); }

LogitRow Candidates::row(const Kernels& kernels, float inverse_temperature) const {
  LogitRow row(kernels, {logits_.get(), static_cast<size_t>(pad_size(size_))}, inverse_temperature);
  row.scan(0, row.num_blocks());
  row.finish_scan();
  return row;
}

std::vector<Candidate> Candidates::by_likelihood() const {
  std::vector<Candidate> sorted;
  for (int64_t i = 0; i < size_; ++i) sorted.push_back({logits_.get()[i], token(i)});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  return sorted;
}

}  // namespace puna
