// Rows of values whose lanes are columns: loading them, and adding up the lanes in the end.
#pragma once

#include "simd/simd.h"

namespace puna::PUNA_ISA {

// 16 bfloat16: the upper halves of floats.
PUNA_INLINE f32x16 load_bf16(const uint16_t* p) {
#if defined(PUNA_AVX512)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (f32x16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
#else
  int32_t words[kLanes];
  for (int i = 0; i < kLanes; ++i) words[i] = (int32_t)((uint32_t)p[i] << 16);
  return (f32x16)load(words);
#endif
}

// Lane i of the result is the sum of the lanes of v[i], added in a fixed tree.
#if defined(PUNA_AVX512)
// Halves the number of vectors each time: two become one, which has the sums of neighbouring parts of kWidth
// lanes of both.
template <int kWidth = kLanes / 2>
PUNA_INLINE f32x16 sum_lanes(const f32x16* v) {
  const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  // In parts of 2 * kWidth lanes: the first half of a part of v[i], then that of v[i + kWidth].
  const i32x16 first = (lane & ~(2 * kWidth - 1)) + (lane & (kWidth - 1)) + (lane & kWidth) / kWidth * kLanes;
  f32x16 sums[kWidth];
  PUNA_UNROLL(8)
  for (int i = 0; i < kWidth; ++i)
    sums[i] = __builtin_shuffle(v[i], v[i + kWidth], first) +
              __builtin_shuffle(v[i], v[i + kWidth], first + kWidth);
  if constexpr (kWidth > 1)
    return sum_lanes<kWidth / 2>(sums);
  else
    return sums[0];
}
#else
PUNA_INLINE f32x16 sum_lanes(const f32x16* v) {
  float sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = reduce_add(v[i]);
  return load(sums);
}
#endif

}  // namespace puna::PUNA_ISA
