#include "sampler/candidates.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace puna {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

int64_t pad_size(int64_t size) { return (size + kLogitBlock - 1) / kLogitBlock * kLogitBlock; }

// A logit that at least `count` tokens reach: as many blocks have a maximum at least as large.
float lowest_of_most_likely(const LogitRow& row, int64_t count) {
  if (count > row.num_blocks()) return kLowest;
  std::vector<float> maxima(row.maxima().begin(), row.maxima().end());
  const auto last = maxima.begin() + (count - 1);
  std::nth_element(maxima.begin(), last, maxima.end(), std::greater<>());
  return std::max(*last, kLowest);
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
  const float lowest = lowest_of_most_likely(row, count);
  collect(row, lowest);
  if (count >= size_) return;
  const float max = row.max();
  keep_best(row.kernels(), {{}, lowest, max}, {max, 0}, static_cast<double>(count));
}

void Candidates::drop_below(const Kernels& kernels, float lowest) {
  keep_scores(kernels, logits_.get(), std::max(lowest, kLowest));
}

void Candidates::keep_best(const Kernels& kernels, const Ranking& ranking, const Weighing& weighing,
                           double target) {
  const Cut cut = search_.find(kernels, list(), ranking, weighing, target);
  keep_scores(kernels, ranking.scores(list(), scores_), std::max(cut.score, kLowest));
  if (cut.has_ties) drop_ties_behind(ranking, cut);
}

void Candidates::drop_ties_behind(const Ranking& ranking, const Cut& cut) {
  const float* scores = ranking.scores(list(), scores_);
  float* const logits = logits_.get();
  int32_t* const tokens = tokens_.get();
  int64_t kept = 0;
  for (int64_t i = 0; i < size_; ++i) {
    const float logit = logits[i];
    const int32_t token = tokens[i];
    const bool behind = logit < cut.logit || (logit == cut.logit && token > cut.token);
    const bool keep = scores[i] != cut.score || !behind;
    logits[kept] = logit;
    tokens[kept] = token;
    kept += keep;
  }
  size_ = kept;
  pad();
}

void Candidates::keep_scores(const Kernels& kernels, const float* scores, float lowest) {
  size_ = kernels.select_logits({.scores = scores,
                                 .logits = logits_.get(),
                                 .ids = tokens_.get(),
                                 .first_id = 0,
                                 .count = pad_size(size_),
                                 .lowest = lowest,
                                 .highest = kInfinity,
                                 .logits_out = logits_.get(),
                                 .ids_out = tokens_.get()});
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
