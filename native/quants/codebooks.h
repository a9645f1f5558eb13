// The codebooks of the IQ1, IQ2 and IQ3 formats: a few thousand points of a lattice, each 8 (IQ1, IQ2) or 4
// (IQ3) values. Byte i of an entry is value i; those of IQ1 are -1, 0 and 1, plus one.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace puna {

extern const std::array<uint64_t, 2048> kIq1Codebook;  // of IQ1_S and IQ1_M
extern const std::array<uint64_t, 256> kIq2XxsCodebook;
extern const std::array<uint64_t, 512> kIq2XsCodebook;
extern const std::array<uint64_t, 1024> kIq2SCodebook;
extern const std::array<uint32_t, 256> kIq3XxsCodebook;
extern const std::array<uint32_t, 512> kIq3SCodebook;

// The values of E2M1, doubled so that they are integers; the formats' scales are halved in turn.
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Where a format keeps seven of eight signs: bit i set makes value i negative, and their number is even.
constexpr uint32_t eight_signs(uint32_t seven) {
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7;
}

}  // namespace puna
