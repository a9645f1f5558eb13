// AVX2 with FMA and F16C, with or without AVX-VNNI: a register has 8 lanes.
#pragma once

#include <immintrin.h>

#include "simd/part.h"

namespace puna::PUNA_ISA {

PUNA_INLINE F32Part fma(F32Part a, F32Part b, F32Part c) {
  return (F32Part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
PUNA_INLINE F32Part max(F32Part a, F32Part b) { return (F32Part)_mm256_max_ps((__m256)a, (__m256)b); }
PUNA_INLINE F32Part min(F32Part a, F32Part b) { return (F32Part)_mm256_min_ps((__m256)a, (__m256)b); }
PUNA_INLINE void load_f16(const uint16_t* p, F32Part& v) {
  v = (F32Part)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
PUNA_INLINE void store_f16(uint16_t* p, F32Part v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#if defined(__AVXVNNI__)
PUNA_INLINE I32Part dot4_u8s8(I32Part acc, I32Part u, I32Part s) {
  return (I32Part)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)u, (__m256i)s);
}
constexpr int dot16_limit(int) { return 255; }
template <int kMax>
PUNA_INLINE I32Part dot16_u8s8(I32Part acc, const U32Part (&u)[4], const I32Part (&s)[4]) {
  return dot4_u8s8(
      dot4_u8s8(dot4_u8s8(dot4_u8s8(acc, (I32Part)u[0], s[0]), (I32Part)u[1], s[1]), (I32Part)u[2], s[2]),
      (I32Part)u[3], s[3]);
}
#else
// vpmaddubsw adds two products in 16 bits, which saturates from 2 * 129 * 127 on. So even and odd bytes are
// multiplied apart, as 16-bit numbers.
PUNA_INLINE I32Part dot4_u8s8(I32Part acc, I32Part u, I32Part s) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256((__m256i)u, _mm256_set1_epi16(0xff)),
                                         _mm256_srai_epi16(_mm256_slli_epi16((__m256i)s, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16((__m256i)u, 8), _mm256_srai_epi16((__m256i)s, 8));
  return acc + (I32Part)even + (I32Part)odd;
}
constexpr int dot16_limit(int max) { return max <= 31 ? 31 : max <= 63 ? 63 : max <= 127 ? 127 : 255; }
// Small u leave room for the sums of more products in 16 bits.
template <int kMax>
PUNA_INLINE I32Part dot16_u8s8(I32Part acc, const U32Part (&u)[4], const I32Part (&s)[4]) {
  if constexpr (kMax > 127)
    return dot4_u8s8(
        dot4_u8s8(dot4_u8s8(dot4_u8s8(acc, (I32Part)u[0], s[0]), (I32Part)u[1], s[1]), (I32Part)u[2], s[2]),
        (I32Part)u[3], s[3]);
  const __m256i ones = _mm256_set1_epi16(1);
  const auto products = [&](int i) { return _mm256_maddubs_epi16((__m256i)u[i], (__m256i)s[i]); };
  const auto widen = [&](__m256i sums) { return (I32Part)_mm256_madd_epi16(sums, ones); };
  if constexpr (kMax > 63)
    return acc + widen(products(0)) + widen(products(1)) + widen(products(2)) + widen(products(3));
  const __m256i low = _mm256_add_epi16(products(0), products(1));
  const __m256i high = _mm256_add_epi16(products(2), products(3));
  if constexpr (kMax > 31) return acc + widen(low) + widen(high);
  return acc + widen(_mm256_add_epi16(low, high));
}
#endif

PUNA_INLINE F32Part f16_to_float(U32Part halves) {
  const __m256i low = _mm256_and_si256((__m256i)halves, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return (F32Part)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
PUNA_INLINE U32Part lookup16(const uint8_t table[16], U32Part v) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (U32Part)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), (__m256i)v);
}

PUNA_INLINE __m128i load_u32_words(const uint8_t* p, int64_t stride) {
  const __m128i rows = _mm_cvtsi32_si128(load_scalar<int32_t>(p));
  return _mm_insert_epi32(_mm_insert_epi32(_mm_insert_epi32(rows, load_scalar<int32_t>(p + stride), 1),
                                           load_scalar<int32_t>(p + 2 * stride), 2),
                          load_scalar<int32_t>(p + 3 * stride), 3);
}
PUNA_INLINE void load_u32_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  v = (U32Part)_mm256_inserti128_si256(_mm256_castsi128_si256(load_u32_words(p, stride)),
                                       load_u32_words(p + 4 * stride, stride), 1);
}
PUNA_INLINE __m128i load_u16_words(const uint8_t* p, int64_t stride) {
  __m128i rows = _mm_cvtsi32_si128(load_scalar<uint16_t>(p));
  rows = _mm_insert_epi16(rows, load_scalar<int16_t>(p + stride), 1);
  rows = _mm_insert_epi16(rows, load_scalar<int16_t>(p + 2 * stride), 2);
  rows = _mm_insert_epi16(rows, load_scalar<int16_t>(p + 3 * stride), 3);
  rows = _mm_insert_epi16(rows, load_scalar<int16_t>(p + 4 * stride), 4);
  rows = _mm_insert_epi16(rows, load_scalar<int16_t>(p + 5 * stride), 5);
  rows = _mm_insert_epi16(rows, load_scalar<int16_t>(p + 6 * stride), 6);
  return _mm_insert_epi16(rows, load_scalar<int16_t>(p + 7 * stride), 7);
}
PUNA_INLINE void load_u16_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  v = (U32Part)_mm256_cvtepu16_epi32(load_u16_words(p, stride));
}
PUNA_INLINE void load_f16_rows(const uint8_t* p, int64_t stride, F32Part& v) {
  v = (F32Part)_mm256_cvtph_ps(load_u16_words(p, stride));
}

template <typename Ahead>
PUNA_INLINE void load_rows4(const uint8_t* p, int64_t stride, Ahead ahead, U32Part columns[4]) {
  const auto row = [](const uint8_t* q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)); };
  __m256i z[4];  // rows i and i + 4
  PUNA_UNROLL(4)
  for (int i = 0; i < 4; ++i, p += stride) {
    if (i % 2 == 0) p = ahead.fetch(32 * i, p);
    z[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(row(p)), row(p + 4 * stride), 1);
  }
  const __m256i low01 = _mm256_unpacklo_epi32(z[0], z[1]), high01 = _mm256_unpackhi_epi32(z[0], z[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(z[2], z[3]), high23 = _mm256_unpackhi_epi32(z[2], z[3]);
  columns[0] = (U32Part)_mm256_unpacklo_epi64(low01, low23);
  columns[1] = (U32Part)_mm256_unpackhi_epi64(low01, low23);
  columns[2] = (U32Part)_mm256_unpacklo_epi64(high01, high23);
  columns[3] = (U32Part)_mm256_unpackhi_epi64(high01, high23);
}

}  // namespace puna::PUNA_ISA
