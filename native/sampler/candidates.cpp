#include "sampler/candidates.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "sampler/exp.h"

namespace puna {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;  // independent accumulators, which compilers keep in vector registers

// The `count` most likely of `kept` move to its front; the last of them is the one to beat.
float shrink(std::vector<Candidate>& kept, size_t count) {
  const auto last = kept.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(kept.begin(), last, kept.end(), more_likely);
  kept.resize(count);
  return kept.back().logit;
}

}  // namespace

float checked_max(std::span<const float> logits) {
  float max[kLanes];
  uint32_t is_nan[kLanes] = {};
  std::fill(max, max + kLanes, -kInfinity);
  const auto take = [&](size_t lane, float x) {
    max[lane] = x > max[lane] ? x : max[lane];
    is_nan[lane] |= x == x ? 0u : 1u;
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, logits[i + lane]);
  for (; i < logits.size(); ++i) take(0, logits[i]);
  if (std::find(is_nan, is_nan + kLanes, 1u) != is_nan + kLanes) throw Error("a logit is NaN");
  const float result = *std::max_element(max, max + kLanes);
  if (!std::isfinite(result)) throw Error("the largest logit is " + std::to_string(result));
  return result;
}

double sum_exp(std::span<const float> logits, float max, float temperature) {
  double total = 0;
  // Short float sums, added up as doubles: fast, and no less exact than the terms.
  constexpr size_t kChunk = 1024;
  while (logits.size() >= kChunk) {
    Floats sums = {};
    for (size_t i = 0; i < kChunk; i += 4) {
      Floats x;
      std::memcpy(&x, logits.data() + i, sizeof x);
      sums += exp_nonpositive((x - max) / temperature);
    }
    total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    logits = logits.subspan(kChunk);
  }
  for (const float logit : logits) total += exp_nonpositive((logit - max) / temperature);
  return total;
}

double sum_exp(std::span<const Candidate> candidates, float max) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += exp_nonpositive(candidate.logit - max);
  return total;
}

std::vector<Candidate> most_likely(std::span<const float> logits, size_t count) {
  if (count == 0) return {};
  std::vector<Candidate> kept;
  const size_t capacity = 2 * std::min(count, logits.size()) + 64;
  kept.reserve(capacity);
  float to_beat = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    // Ids ascend, so a later token of the same logit comes behind all that are kept.
    if (!(logits[i] > to_beat)) continue;
    kept.push_back({logits[i], static_cast<int32_t>(i)});
    if (kept.size() == capacity) to_beat = shrink(kept, count);
  }
  if (kept.size() > count) shrink(kept, count);
  std::sort(kept.begin(), kept.end(), more_likely);
  return kept;
}

std::vector<Candidate> at_least(std::span<const float> logits, float lowest) {
  std::vector<Candidate> kept;
  kept.reserve(logits.size());  // address space, until it is written to
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= lowest && logits[i] > -kInfinity) kept.push_back({logits[i], static_cast<int32_t>(i)});
  return kept;
}

}  // namespace puna
