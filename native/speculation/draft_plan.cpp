#include "speculation/draft_plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace puna {
namespace {

// Of a token's share of the step: what a further one costs at most, until it was tried.
constexpr double kMostUntried = 0.5;
// Speculation must look better than none by this factor: costs are measured, so inexact.
constexpr double kMargin = 1.02;

struct Gain {
  double value;  // by how much the draft raises the logarithm of its sequence's rate
  size_t sequence;
  size_t nth;
};

// Best first. Of each sequence a draft gains less than the one before, so the first ones are a sequence's
// first drafts.
std::vector<Gain> gains_of(const Chances& chances) {
  std::vector<Gain> gains;
  gains.reserve(chances.values.size());
  for (size_t s = 0; s < chances.num_sequences(); ++s) {
    double expected = 1;
    size_t nth = 0;
    for (const double chance : chances.of(s)) {
      gains.push_back({std::log1p(chance / expected), s, ++nth});
      expected += chance;
    }
  }
  std::ranges::sort(gains, [](const Gain& a, const Gain& b) {
    return std::tuple(-a.value, a.sequence, a.nth) < std::tuple(-b.value, b.sequence, b.nth);
  });
  return gains;
}

}  // namespace

std::vector<size_t> plan_drafts(const Chances& chances, StepSize step, const StepCosts& costs,
                                double round_s) {
  std::vector<size_t> counts(chances.num_sequences(), 0);
  const auto num_decodes = static_cast<double>(step.num_decodes);
  if (num_decodes < costs.fewest_tokens()) return counts;  // how long it takes without drafts is not known
  const double step_s = costs.estimate(step.num_tokens).value();
  const double decode_s = costs.estimate(step.num_decodes).value();
  const std::vector<Gain> gains = gains_of(chances);
  double total = 0, best = 0;
  size_t num_best = 0, num_rounds = 0;
  for (size_t n = 1; n <= gains.size(); ++n) {
    total += gains[n - 1].value;
    num_rounds = std::max(num_rounds, gains[n - 1].nth);
    const int64_t num_tokens = step.num_tokens + static_cast<int64_t>(n);
    double longer_s = costs.estimate(num_tokens).value() - step_s;
    if (!costs.has_seen(num_tokens))
      longer_s = std::min(longer_s, static_cast<double>(n) * kMostUntried * decode_s / num_decodes);
    const double drafting_s = static_cast<double>(num_rounds) * round_s;
    const double slowdown = (1 + (std::max(longer_s, 0.0) + drafting_s) / decode_s) * kMargin;
    const double value = total - num_decodes * std::log(slowdown);
    if (value > best) best = value, num_best = n;
  }
  for (size_t i = 0; i < num_best; ++i) ++counts[gains[i].sequence];
  return counts;
}

}  // namespace puna
