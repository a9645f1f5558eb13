// Tokens that may be drawn, and the order among them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace puna {

struct Candidate {
  float logit;
  int32_t token;
};

// A strict order: equal logits by token id, so that no result depends on how something was sorted.
inline bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The largest logit. Error unless it is finite and no logit is NaN.
float checked_max(std::span<const float> logits);

// Sum of exp((logit - max) / temperature).
double sum_exp(std::span<const float> logits, float max, float temperature);
// The same at temperature 1.
double sum_exp(std::span<const Candidate> candidates, float max);

// The `count` most likely tokens in order, or fewer: never one of logit -infinity.
std::vector<Candidate> most_likely(std::span<const float> logits, size_t count);

// All tokens of a logit of at least `lowest`, except -infinity, by id.
std::vector<Candidate> at_least(std::span<const float> logits, float lowest);

// Orders candidates by `before` and drops those behind the first one for which stop(candidate) is true. Only
// about as many as are kept get sorted: the usual nucleus is a handful of 256k tokens.
template <typename Before, typename Stop>
void keep_until(std::vector<Candidate>& candidates, Before before, Stop stop) {
  size_t chunk = 64;
  for (size_t begin = 0; begin < candidates.size(); chunk *= 4) {
    const auto first = candidates.begin() + static_cast<ptrdiff_t>(begin);
    const size_t end = std::min(begin + chunk, candidates.size());
    const auto last = candidates.begin() + static_cast<ptrdiff_t>(end);
    if (last != candidates.end()) std::nth_element(first, last, candidates.end(), before);
    std::sort(first, last, before);
    for (; begin < end; ++begin) {
      if (stop(candidates[begin])) {
        candidates.resize(begin + 1);
        return;
      }
    }
  }
}

}  // namespace puna
