#include "sampler/cut.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace puna {
namespace {

constexpr int kBucketBits = std::countr_zero(unsigned{kLogitBuckets});
constexpr int64_t kSortable = 128;  // so few are sorted faster than counted into buckets

// Neighbouring floats are neighbouring integers, in the same order; both zeros are one.
int32_t sort_key(float x) {
  const auto bits = std::bit_cast<int32_t>(x + 0.0f);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
float from_sort_key(int64_t wide) {
  const auto key = static_cast<int32_t>(wide);
  return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff));
}

// Of equal scores: the tokens already stand in order.
Cut cut_tied(const Kernels& kernels, const TokenList& list, float score, const Weighing& weighing,
             double rest) {
  float weights[kLogitBlock];
  for (int64_t begin = 0; begin < list.size; begin += kLogitBlock) {
    kernels.logit_weights(list.logits + begin, kLogitBlock, weighing.max, weighing.inverse_temperature,
                          weights);
    double sums[8] = {};
    for (int i = 0; i < kLogitBlock; ++i) sums[i % 8] += double{weights[i]};
    const double sum = std::accumulate(sums, sums + 8, 0.0);
    if (sum < rest) {
      rest -= sum;
      continue;
    }
    for (int64_t i = 0; i < std::min<int64_t>(kLogitBlock, list.size - begin); ++i)
      if ((rest -= double{weights[i]}) <= 0) return {score, list.tokens[begin + i]};
  }
  return {score, list.tokens[list.size - 1]};
}

Cut cut_sorted(const Kernels& kernels, const TokenList& list, const float* scores, const Weighing& weighing,
               double rest) {
  struct Entry {
    float score;
    int32_t token;
    float weight;
  };
  float weights[kSortable];
  kernels.logit_weights(list.logits, kSortable, weighing.max, weighing.inverse_temperature, weights);
  Entry entries[kSortable];
  for (int64_t i = 0; i < list.size; ++i) entries[i] = {scores[i], list.tokens[i], weights[i]};
  std::sort(entries, entries + list.size, [](const Entry& a, const Entry& b) {
    return a.score > b.score || (a.score == b.score && a.token < b.token);
  });
  int64_t last = 0;
  for (double sum = entries[0].weight; sum < rest && last + 1 < list.size;)
    sum += double{entries[++last].weight};
  return {entries[last].score, entries[last].token};
}

// The bucket in which the weights reach `rest`, from which those before it are taken off; or the last one
// that has a weight.
int find_bucket(const double masses[kLogitBuckets], double& rest) {
  int bucket = 0;
  double sum = 0, before = 0;
  for (int b = 0; b < kLogitBuckets && (sum < rest || sum == 0); ++b) {
    if (masses[b] == 0) continue;
    bucket = b;
    before = sum;
    sum += masses[b];
  }
  rest -= before;
  return bucket;
}

// The scores of the bucket in which the weights reach `rest`, from which those before it are taken off.
ScoreRange bucket_of_cut(const Kernels& kernels, const TokenList& list, const float* scores,
                         const ScoreRange& range, const Weighing& weighing, double& rest) {
  const int64_t highest = sort_key(range.highest), lowest = sort_key(range.lowest);
  const auto num_keys = static_cast<uint64_t>(highest - lowest);
  const int shift = std::max(static_cast<int>(std::bit_width(num_keys)) - kBucketBits, 0);
  double masses[kLogitBuckets];
  kernels.logit_histogram({.scores = scores,
                           .logits = list.logits,
                           .count = pad_size(list.size),
                           .highest = range.highest,
                           .shift = shift,
                           .max = weighing.max,
                           .inverse_temperature = weighing.inverse_temperature},
                          masses);
  const int64_t top = highest - (int64_t{find_bucket(masses, rest)} << shift);
  const int64_t bottom = std::max(top - (int64_t{1} << shift) + 1, lowest);
  // -1 would be -0, which is equal to the 0 of the bucket before.
  return {from_sort_key(bottom), from_sort_key(top == -1 ? -2 : top)};
}

}  // namespace

const float* Ranking::scores(const TokenList& list, Scratch<float>& scratch) const {
  if (!center) return list.logits;
  const int64_t padded = pad_size(list.size);
  float* scores = scratch.reserve(padded);
  for (int64_t i = 0; i < padded; ++i) scores[i] = -std::abs(list.logits[i] - *center);
  return scores;
}

Cut CutSearch::find(const Kernels& kernels, TokenList list, const Ranking& ranking, const Weighing& weighing,
                    double target) {
  double rest = target;
  while (list.size > kSortable) {
    const float* scores = ranking.scores(list, scores_);
    const ScoreRange range = kernels.score_range(scores, pad_size(list.size));
    if (range.lowest == range.highest) return cut_tied(kernels, list, range.lowest, weighing, rest);
    list = in_range(kernels, list, scores, bucket_of_cut(kernels, list, scores, range, weighing, rest));
  }
  return cut_sorted(kernels, list, ranking.scores(list, scores_), weighing, rest);
}

TokenList CutSearch::in_range(const Kernels& kernels, const TokenList& list, const float* scores,
                              const ScoreRange& range) {
  const int64_t padded = pad_size(list.size);
  float* const logits = logits_.reserve(padded + 16);
  int32_t* const tokens = tokens_.reserve(padded + 16);
  const int64_t size = kernels.select_logits({.scores = scores,
                                              .logits = list.logits,
                                              .ids = list.tokens,
                                              .first_id = 0,
                                              .count = padded,
                                              .lowest = range.lowest,
                                              .highest = range.highest,
                                              .logits_out = logits,
                                              .ids_out = tokens});
  std::fill(logits + size, logits + pad_size(size), -std::numeric_limits<float>::infinity());
  return {logits, tokens, size};
}

}  // namespace puna
