#include "scheduling/step_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace puna {
namespace {

constexpr std::array<int64_t, 18> kBounds = {1,  2,  3,  4,  6,   8,   12,  16,  24,
                                             32, 48, 64, 96, 128, 192, 256, 384, 512};
constexpr double kWeight = 0.2;  // of a new observation
constexpr double kWeightOfLess =
    0.5;  // of one that is less: things may hold a step up, but nothing speeds it up
constexpr int64_t kForgottenAfter = 300;  // observations of other sizes
constexpr double kShortestS = 1e-9;       // of a step, on whatever clock

size_t bucket_of(int64_t num_tokens) {
  return static_cast<size_t>(std::ranges::lower_bound(kBounds, num_tokens) - kBounds.begin());
}

}  // namespace

std::vector<StepCosts::Average>::iterator StepCosts::find(size_t bucket) {
  return std::ranges::lower_bound(averages_, bucket, {}, &Average::bucket);
}

void StepCosts::observe(int64_t num_tokens, double seconds) {
  if (!(seconds > 0)) return;  // it failed at once
  ++num_observed_;
  seconds = std::max(seconds, kShortestS);
  const size_t bucket = bucket_of(num_tokens);
  const auto own = find(bucket);
  if (own == averages_.end() || own->bucket != bucket) {
    averages_.insert(own, {bucket, static_cast<double>(num_tokens), seconds, num_observed_});
    return;
  }
  own->seen = num_observed_;
  const double before = own->seconds;
  // A step that something held up for long says little about the next.
  double change = std::min(seconds / before, 2.0) - 1;
  change *= change > 0 ? kWeight : kWeightOfLess;
  // What slows one size down slows all down: half as much, on a scale on which ups and downs even out.
  const double factor = std::sqrt(1 + change);
  for (Average& average : averages_) average.seconds *= factor;
  own->seconds = before * (1 + change);
  own->num_tokens += kWeight * (static_cast<double>(num_tokens) - own->num_tokens);
  forget();
}

void StepCosts::forget() {
  if (averages_.size() < 3) return;
  const auto oldest =
      std::ranges::min_element(averages_.begin() + 1, averages_.end() - 1, {}, &Average::seen);
  if (num_observed_ - oldest->seen > kForgottenAfter) averages_.erase(oldest);
}

double StepCosts::fewest_tokens() const {
  return averages_.empty() ? std::numeric_limits<double>::infinity() : averages_.front().num_tokens;
}

bool StepCosts::has_seen(int64_t num_tokens) const {
  return std::ranges::binary_search(averages_, bucket_of(num_tokens), {}, &Average::bucket);
}

std::optional<double> StepCosts::estimate(int64_t num_tokens) const {
  if (averages_.empty()) return std::nullopt;
  const auto wanted = static_cast<double>(num_tokens);
  const auto high = std::ranges::lower_bound(averages_, wanted, {}, &Average::num_tokens);
  if (high == averages_.begin()) return high->seconds;
  const auto low = high - 1;
  if (high == averages_.end()) return low->seconds * wanted / low->num_tokens;
  const double share = (wanted - low->num_tokens) / (high->num_tokens - low->num_tokens);
  return low->seconds + share * (high->seconds - low->seconds);
}

}  // namespace puna
