#include "speculation/match_rates.h"

#include <algorithm>

namespace puna {
namespace {

constexpr double kUnlikely = 0.02;    // drafts less likely than this are not worth a thought
constexpr double kMemory = 1.0 / 16;  // weight of the latest observation in an average

size_t class_of(size_t match_length) {
  constexpr std::array<size_t, 6> kLeast = {2, 3, 4, 8, 16, kLongestMatch};
  const auto above = std::ranges::upper_bound(kLeast, match_length);
  return static_cast<size_t>(std::max<ptrdiff_t>(above - kLeast.begin() - 1, 0));
}

}  // namespace

void MatchRates::observe(size_t match_length, bool was_right) {
  double& rate = rates_[class_of(match_length)];
  rate += kMemory * ((was_right ? 1 : 0) - rate);
}

size_t MatchRates::chances(size_t match_length, std::span<double> chances) const {
  double chance = 1;
  for (size_t i = 0; i < chances.size(); ++i) {
    chance *= rates_[class_of(match_length + i)];
    if (chance < kUnlikely) return i;
    chances[i] = chance;
  }
  return chances.size();
}

}  // namespace puna
