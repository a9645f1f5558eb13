#include "speculation/draft_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace puna {
namespace {

// Of a token's share of the step: what a further one costs at most, until it was tried.
constexpr double kMostUntried = 0.5;
// Speculation must look better than none by this factor: costs are measured, so inexact.
constexpr double kMargin = 1.02;

struct Gain {
  double value;    // by how much the draft raises the logarithm of its sequence's rate
  uint32_t draft;  // its place in chances.values
};

// Best first, those that gain as much in their order. A radix sort: of the thousands of gains of a large
// batch many are nearly the same, so that comparing them would take several times as long.
void sort_best_first(std::vector<Gain>& gains) {
  constexpr int kDigitBits = 11, kBits = 64;
  constexpr size_t kDigits = size_t{1} << kDigitBits;
  // The bits of positive numbers are in the numbers' order.
  const auto digit_of = [](const Gain& gain, int shift) {
    return static_cast<size_t>(~std::bit_cast<uint64_t>(gain.value) >> shift) & (kDigits - 1);
  };
  std::vector<Gain> sorted(gains.size());
  std::vector<uint32_t> places(kDigits + 1);
  for (int shift = 0; shift < kBits; shift += kDigitBits) {
    std::ranges::fill(places, 0);
    for (const Gain& gain : gains) ++places[digit_of(gain, shift) + 1];
    std::partial_sum(places.begin(), places.end(), places.begin());
    for (const Gain& gain : gains) sorted[places[digit_of(gain, shift)]++] = gain;
    gains.swap(sorted);
  }
}

// Best first. Of each sequence a draft gains less than the one before, so the first ones are a sequence's
// first drafts.
std::vector<Gain> gains_of(const Chances& chances) {
  std::vector<Gain> gains;
  gains.reserve(chances.values.size());
  for (size_t s = 0; s < chances.num_sequences(); ++s) {
    double expected = 1;
    for (const double chance : chances.of(s)) {
      gains.push_back({std::log1p(chance / expected), static_cast<uint32_t>(gains.size())});
      expected += chance;
    }
  }
  sort_best_first(gains);
  return gains;
}

}  // namespace

std::vector<size_t> plan_drafts(const Chances& chances, StepSize step, const StepCosts& costs,
                                double round_s) {
  std::vector<size_t> counts(chances.num_sequences(), 0);
  std::vector<uint32_t> sequences;  // of each draft
  for (size_t s = 0; s < counts.size(); ++s)
    sequences.resize(chances.starts[s + 1], static_cast<uint32_t>(s));
  const auto num_decodes = static_cast<double>(step.num_decodes);
  if (num_decodes < costs.fewest_tokens() && !costs.has_seen(step.num_decodes))
    return counts;  // how long it takes without drafts is not known
  const double step_s = costs.estimate(step.num_tokens).value();
  const double decode_s = costs.estimate(step.num_decodes).value();
  const std::vector<Gain> gains = gains_of(chances);
  double total = 0, best = 0;
  size_t num_best = 0, num_rounds = 0;
  for (size_t n = 1; n <= gains.size(); ++n) {
    total += gains[n - 1].value;
    const size_t draft = gains[n - 1].draft;
    num_rounds = std::max(num_rounds, draft - chances.starts[sequences[draft]] + 1);
    const int64_t num_tokens = step.num_tokens + static_cast<int64_t>(n);
    double longer_s = costs.estimate(num_tokens).value() - step_s;
    const double untried_s = static_cast<double>(n) * kMostUntried * decode_s / num_decodes;
    if (longer_s > untried_s && !costs.has_seen(num_tokens)) longer_s = untried_s;
    const double drafting_s = static_cast<double>(num_rounds) * round_s;
    const double slowdown = (1 + (std::max(longer_s, 0.0) + drafting_s) / decode_s) * kMargin;
    // A logarithm takes long, and is at least 1 - 1 / slowdown.
    if (total - num_decodes * (1 - 1 / slowdown) <= best) continue;
    const double value = total - num_decodes * std::log(slowdown);
    if (value > best) best = value, num_best = n;
  }
  for (size_t i = 0; i < num_best; ++i) ++counts[sequences[gains[i].draft]];
  return counts;
}

}  // namespace puna
