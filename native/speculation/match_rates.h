// How often a sequence goes on as it did at an earlier place.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace puna {

// Longer matches count as this long.
inline constexpr size_t kLongestMatch = 32;

// Rates by the length of the match. They are observed at every token that has such a place, whether or not it
// was drafted. So speculation that does not pay ends at no cost, and begins again when it would pay.
class MatchRates {
 public:
  void observe(size_t match_length, bool was_right);

  // Entry i becomes the probability that the first i + 1 drafts are all right; returns how many entries are
  // worth a thought. A right draft makes the match longer, and so the next one more likely.
  size_t chances(size_t match_length, std::span<double> chances) const;

 private:
  // Before anything is known of the sequence: of matches of at least 2, 3, 4, 8, 16 and 32 tokens.
  std::array<double, 6> rates_ = {0.35, 0.5, 0.65, 0.8, 0.9, 0.97};
};

}  // namespace puna
