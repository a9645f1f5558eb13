#include "sampler/cut.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

namespace puna {
namespace {

constexpr int kBucketBits = std::countr_zero(unsigned{kLogitBuckets});
constexpr int64_t kSortable = 128;  // so few are sorted faster than counted into buckets

// Neighbouring floats are neighbouring integers, in the same order; both zeros are one.
int32_t sort_key(float x) {
  const auto bits = std::bit_cast<int32_t>(x + 0.0f);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
float from_sort_key(int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff)); }

uint32_t distance(const Ranking& ranking) {
  return static_cast<uint32_t>(sort_key(ranking.highest)) - static_cast<uint32_t>(sort_key(ranking.lowest));
}

// Equal scores, equal logits: each weighs the same, and the tokens already stand in order.
Cut cut_equal(const TokenList& list, float score, double weight, double rest) {
  const double count = std::ceil(rest / weight);
  const int64_t i = count < 1                                ? 0
                    : count < static_cast<double>(list.size) ? static_cast<int64_t>(count) - 1
                                                             : list.size - 1;
  return {score, list.logits[i], list.tokens[i], i + 1 < list.size};
}

Cut cut_sorted(const Kernels& kernels, const TokenList& list, const float* scores, const Weighing& weighing,
               double rest) {
  struct Entry {
    float score, logit;
    int32_t token;
    float weight;
  };
  float weights[kSortable];
  kernels.logit_weights(list.logits, kSortable, weighing.max, weighing.inverse_temperature, weights);
  Entry entries[kSortable];
  Entry* const end = entries + list.size;
  for (int64_t i = 0; i < list.size; ++i)
    entries[i] = {scores[i], list.logits[i], list.tokens[i], weights[i]};
  std::sort(entries, end, [](const Entry& a, const Entry& b) {
    return std::tie(b.score, b.logit, a.token) < std::tie(a.score, a.logit, b.token);
  });
  const Entry* cut = entries;
  double sum = 0;
  for (const Entry* entry = entries; entry != end && (entry == entries || sum < rest); ++entry) {
    sum += double{entry->weight};
    cut = entry;
  }
  return {cut->score, cut->logit, cut->token, cut + 1 != end && cut[1].score == cut->score};
}

}  // namespace

const float* Ranking::scores(const TokenList& list, Scratch<float>& scratch) const {
  if (!center) return list.logits;
  const int64_t padded = (list.size + kLogitBlock - 1) / kLogitBlock * kLogitBlock;
  float* scores = scratch.reserve(padded);
  for (int64_t i = 0; i < padded; ++i) scores[i] = -std::abs(list.logits[i] - *center);
  return scores;
}

Cut CutSearch::find(const Kernels& kernels, TokenList list, Ranking ranking, const Weighing& weighing,
                    double target) {
  double rest = target;
  std::optional<float> tied;
  while (list.size > kSortable) {
    if (distance(ranking) > 0) {
      narrow(kernels, list, ranking, weighing, rest);
    } else if (ranking.center) {  // at the same distance on either side
      tied = ranking.highest;
      const auto [low, high] = std::minmax_element(list.logits, list.logits + list.size);
      ranking = {{}, *low, *high};
    } else {
      float weight[16];
      kernels.logit_weights(list.logits, 16, weighing.max, weighing.inverse_temperature, weight);
      return cut_equal(list, tied.value_or(ranking.highest), double{weight[0]}, rest);
    }
  }
  Cut cut = cut_sorted(kernels, list, ranking.scores(list, scores_), weighing, rest);
  if (tied) cut.score = *tied, cut.has_ties = true;
  return cut;
}

// To the bucket of the cut.
void CutSearch::narrow(const Kernels& kernels, TokenList& list, Ranking& ranking, const Weighing& weighing,
                       double& rest) {
  const int64_t padded = (list.size + kLogitBlock - 1) / kLogitBlock * kLogitBlock;
  const int shift = std::max(static_cast<int>(std::bit_width(distance(ranking))) - kBucketBits, 0);
  const float* scores = ranking.scores(list, scores_);
  double masses[kLogitBuckets];
  kernels.logit_histogram({.scores = scores,
                           .logits = list.logits,
                           .count = padded,
                           .highest = ranking.highest,
                           .shift = shift,
                           .max = weighing.max,
                           .inverse_temperature = weighing.inverse_temperature},
                          masses);
  int bucket = 0;
  double sum = 0, before = 0;  // up to the last bucket that has a mass, and up to that bucket
  for (int b = 0; b < kLogitBuckets && (sum < rest || sum == 0); ++b) {
    if (masses[b] == 0) continue;
    bucket = b;
    before = sum;
    sum += masses[b];
  }
  rest -= before;
  const int64_t width = int64_t{1} << shift, high = sort_key(ranking.highest) - bucket * width;
  const int64_t low = std::max<int64_t>(high - width + 1, sort_key(ranking.lowest));
  // -1 would be -0, which is equal to the 0 of the bucket before.
  ranking.highest = from_sort_key(static_cast<int32_t>(high == -1 ? -2 : high));
  ranking.lowest = from_sort_key(static_cast<int32_t>(low));
  float* const logits = logits_.reserve(padded + 16);
  int32_t* const tokens = tokens_.reserve(padded + 16);
  const int64_t size = kernels.select_logits({.scores = scores,
                                              .logits = list.logits,
                                              .ids = list.tokens,
                                              .first_id = 0,
                                              .count = padded,
                                              .lowest = ranking.lowest,
                                              .highest = ranking.highest,
                                              .logits_out = logits,
                                              .ids_out = tokens});
  std::fill(logits + size, logits + (size + kLogitBlock - 1) / kLogitBlock * kLogitBlock,
            -std::numeric_limits<float>::infinity());
  list = {logits, tokens, size};
}

}  // namespace puna
