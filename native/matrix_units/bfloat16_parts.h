// Floats as sums of bfloat16: what rows of x and of weights become for the matrix unit.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c")

namespace puna {

struct Parts {
  __m512i upper, rest;  // 32 bfloat16
};

inline __m512i rounded(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// The 16 of them from `first` on.
inline __m512 widened(__m512i bfloat16, int first) {
  alignas(64) uint16_t places[32] = {};
  for (int i = 0; i < 16; ++i) places[2 * i + 1] = static_cast<uint16_t>(first + i);
  const __m512i at = _mm512_load_si512(places);
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, at, bfloat16));
}

inline Parts split(__m512 first, __m512 second) {
  const __m512i upper = rounded(first, second);
  return {upper, rounded(_mm512_sub_ps(first, widened(upper, 0)), _mm512_sub_ps(second, widened(upper, 16)))};
}

inline __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>(count <= 0 ? 0 : count >= 16 ? 0xFFFF : (1 << count) - 1);
}

}  // namespace puna

#pragma GCC pop_options
#endif
