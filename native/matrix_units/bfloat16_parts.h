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

inline __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

inline __m512i rounded(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

inline Parts split(__m512 first, __m512 second) {
  const __m512i upper = rounded(first, second);
  const __m512 f = _mm512_sub_ps(first, widened(_mm512_castsi512_si256(upper)));
  const __m512 s = _mm512_sub_ps(second, widened(_mm512_extracti64x4_epi64(upper, 1)));
  return {upper, rounded(f, s)};
}

inline __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>(count <= 0 ? 0 : count >= 16 ? 0xFFFF : (1 << count) - 1);
}

}  // namespace puna

#pragma GCC pop_options
#endif
