// SplitMix64 (Steele, Lea, Flood 2014) read by index instead of in sequence: a draw depends on the seed and
// on how many tokens were drawn before, on nothing else, and drawing changes no state.
#pragma once

#include <cstdint>

namespace puna {

inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1).
inline double uniform(uint64_t seed, uint64_t index) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  // The seed is mixed first, so that neighbouring seeds do not share a sequence.
  const uint64_t bits = mix_bits(mix_bits(seed + kGolden) + (index + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace puna
