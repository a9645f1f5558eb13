// AVX-512 with VNNI: one register has all 16 lanes.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of gcc 12's own headers (gcc bug 105593)
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "simd/part.h"

namespace puna::PUNA_ISA {

PUNA_INLINE F32Part fma(F32Part a, F32Part b, F32Part c) {
  return (F32Part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
PUNA_INLINE F32Part max(F32Part a, F32Part b) { return (F32Part)_mm512_max_ps((__m512)a, (__m512)b); }
PUNA_INLINE F32Part min(F32Part a, F32Part b) { return (F32Part)_mm512_min_ps((__m512)a, (__m512)b); }
PUNA_INLINE void load_f16(const uint16_t* p, F32Part& v) {
  v = (F32Part)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
PUNA_INLINE void store_f16(uint16_t* p, F32Part v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

PUNA_INLINE I32Part dot4_u8s8(I32Part acc, I32Part u, I32Part s) {
  return (I32Part)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)u, (__m512i)s);
}
constexpr int dot16_limit(int) { return 255; }
template <int kMax>
PUNA_INLINE I32Part dot16_u8s8(I32Part acc, const U32Part (&u)[4], const I32Part (&s)[4]) {
  return dot4_u8s8(
      dot4_u8s8(dot4_u8s8(dot4_u8s8(acc, (I32Part)u[0], s[0]), (I32Part)u[1], s[1]), (I32Part)u[2], s[2]),
      (I32Part)u[3], s[3]);
}

PUNA_INLINE F32Part f16_to_float(U32Part halves) {
  return (F32Part)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)halves));
}
PUNA_INLINE U32Part lookup16(const uint8_t table[16], U32Part v) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (U32Part)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), (__m512i)v);
}

PUNA_INLINE void load_u32_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  __m128i rows[4];
  PUNA_UNROLL(4)
  for (int i = 0; i < 4; ++i, p += 4 * stride) {
    rows[i] = _mm_cvtsi32_si128(load_scalar<int32_t>(p));
    rows[i] = _mm_insert_epi32(rows[i], load_scalar<int32_t>(p + stride), 1);
    rows[i] = _mm_insert_epi32(rows[i], load_scalar<int32_t>(p + 2 * stride), 2);
    rows[i] = _mm_insert_epi32(rows[i], load_scalar<int32_t>(p + 3 * stride), 3);
  }
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(rows[0]), rows[1], 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(rows[2]), rows[3], 1);
  v = (U32Part)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
PUNA_INLINE __m256i load_u16_words(const uint8_t* p, int64_t stride) {
  __m128i rows[2];
  PUNA_UNROLL(2)
  for (int i = 0; i < 2; ++i, p += 8 * stride) {
    rows[i] = _mm_cvtsi32_si128(load_scalar<uint16_t>(p));
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + stride), 1);
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + 2 * stride), 2);
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + 3 * stride), 3);
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + 4 * stride), 4);
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + 5 * stride), 5);
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + 6 * stride), 6);
    rows[i] = _mm_insert_epi16(rows[i], load_scalar<int16_t>(p + 7 * stride), 7);
  }
  return _mm256_inserti128_si256(_mm256_castsi128_si256(rows[0]), rows[1], 1);
}
PUNA_INLINE void load_u16_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  v = (U32Part)_mm512_cvtepu16_epi32(load_u16_words(p, stride));
}
PUNA_INLINE void load_f16_rows(const uint8_t* p, int64_t stride, F32Part& v) {
  v = (F32Part)_mm512_cvtph_ps(load_u16_words(p, stride));
}

// Transposes words within the 128-bit parts: out[j] part m = word j of z[0..3] part m.
PUNA_INLINE void transpose_parts(const __m512i z[4], __m512i out[4]) {
  const __m512i low01 = _mm512_unpacklo_epi32(z[0], z[1]), high01 = _mm512_unpackhi_epi32(z[0], z[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(z[2], z[3]), high23 = _mm512_unpackhi_epi32(z[2], z[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}
template <typename Ahead>
PUNA_INLINE void load_rows4(const uint8_t* p, int64_t stride, Ahead ahead, U32Part columns[4]) {
  const auto row = [](const uint8_t* q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)); };
  __m512i z[4], words[4];
  PUNA_UNROLL(4)
  for (int i = 0; i < 4; ++i, p += stride) {
    p = ahead.fetch(64 * i, p);
    z[i] = _mm512_castsi128_si512(row(p));
    z[i] = _mm512_inserti32x4(z[i], row(p + 4 * stride), 1);
    z[i] = _mm512_inserti32x4(z[i], row(p + 8 * stride), 2);
    z[i] = _mm512_inserti32x4(z[i], row(p + 12 * stride), 3);
  }
  transpose_parts(z, words);
  PUNA_UNROLL(4)
  for (int j = 0; j < 4; ++j) columns[j] = (U32Part)words[j];
}
template <typename Ahead>
PUNA_INLINE void load_rows8(const uint8_t* p, int64_t stride, Ahead ahead, U32Part columns[8]) {
  const auto row = [](const uint8_t* q) {
    Ahead::fetch_again(q);
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  };
  __m512i z[2][4], words[2][4];  // of rows 0..7 and 8..15
  PUNA_UNROLL(4)
  for (int i = 0; i < 4; ++i, p += stride) {
    p = ahead.fetch(128 * i, p);
    z[0][i] = _mm512_inserti64x4(_mm512_castsi256_si512(row(p)), row(p + 4 * stride), 1);
    p = ahead.fetch(128 * i + 64, p);
    z[1][i] = _mm512_inserti64x4(_mm512_castsi256_si512(row(p + 8 * stride)), row(p + 12 * stride), 1);
  }
  transpose_parts(z[0], words[0]);
  transpose_parts(z[1], words[1]);
  PUNA_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    columns[j] = (U32Part)_mm512_shuffle_i32x4(words[0][j], words[1][j], 0x88);      // even parts
    columns[j + 4] = (U32Part)_mm512_shuffle_i32x4(words[0][j], words[1][j], 0xdd);  // odd parts
  }
}

}  // namespace puna::PUNA_ISA
