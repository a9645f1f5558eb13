// IEEE binary16, one value at a time.
#pragma once

#include <bit>
#include <cstdint>

namespace puna {

static inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if ((half & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
  // Multiplying by 2^112 moves the exponent's bias from 15 to 127, and makes subnormals normal.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f));
}

}  // namespace puna
