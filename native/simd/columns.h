// Columns of 16 weight rows: lane r of a vector holds bytes of row r. Loading transposes, so that everything
// behind it is plain arithmetic on whole vectors, whatever the format of the weights.
#pragma once

#include "simd/simd.h"

namespace puna::PUNA_ISA {

template <typename T>
PUNA_INLINE T load_scalar(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// A 32 or 16 bit integer of each of 16 rows that lie `stride` bytes apart.
#if defined(PUNA_AVX512)
PUNA_INLINE u32x16 load_u32_column(const uint8_t* p, int64_t stride) {
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
  return (u32x16)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
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
PUNA_INLINE u32x16 load_u16_column(const uint8_t* p, int64_t stride) {
  return (u32x16)_mm512_cvtepu16_epi32(load_u16_words(p, stride));
}
PUNA_INLINE f32x16 load_f16_column(const uint8_t* p, int64_t stride) {
  return (f32x16)_mm512_cvtph_ps(load_u16_words(p, stride));
}
// The half float in the low 16 bits of each lane.
PUNA_INLINE f32x16 f16_to_float(u32x16 halves) {
  return (f32x16)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)halves));
}
#else
// Not inlined: with vectors in pieces, that makes functions which compilers take minutes for.
template <typename T>
__attribute__((noinline)) u32x16 load_column(const uint8_t* p, int64_t stride) {
  uint32_t column[16];
  for (int r = 0; r < 16; ++r) column[r] = load_scalar<T>(p + r * stride);
  return load_scalar<u32x16>(reinterpret_cast<const uint8_t*>(column));
}
PUNA_INLINE u32x16 load_u32_column(const uint8_t* p, int64_t stride) {
  return load_column<uint32_t>(p, stride);
}
PUNA_INLINE u32x16 load_u16_column(const uint8_t* p, int64_t stride) {
  return load_column<uint16_t>(p, stride);
}
inline __attribute__((noinline)) f32x16 f16_to_float(u32x16 halves) {
  const u32x16 sign = (halves & 0x8000u) << 16, magnitude = (halves & 0x7fffu) << 13;
  // As in half_to_float; infinity and NaN keep their bits, with the greatest exponent.
  const u32x16 scaled = (u32x16)((f32x16)magnitude * 0x1p112f);
  return (f32x16)(sign | (magnitude >= 0x7c00u << 13 ? magnitude | 0x7f800000u : scaled));
}
PUNA_INLINE f32x16 load_f16_column(const uint8_t* p, int64_t stride) {
  return f16_to_float(load_u16_column(p, stride));
}
#endif

// Addresses, not pointers: they may lie behind the data, and a prefetch never faults.
PUNA_INLINE void prefetch_soon(uintptr_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 3);
}
PUNA_INLINE void prefetch_later(uintptr_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}
inline constexpr int kSoonBytes = 256;

// columns[j] = 32-bit word j of the 16, or 32, bytes that each of 16 rows has at p. As many bytes are
// prefetched from `ahead` on, one line between two loads: from a burst of prefetches, those are dropped that
// find the queue of misses full. A dropped line gets a second chance kSoonBytes before it is read.
#if defined(PUNA_AVX512)
// Transposes words within the 128-bit parts: out[j] part m = word j of z[0..3] part m.
PUNA_INLINE void transpose_parts(const __m512i z[4], __m512i out[4]) {
  const __m512i low01 = _mm512_unpacklo_epi32(z[0], z[1]), high01 = _mm512_unpackhi_epi32(z[0], z[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(z[2], z[3]), high23 = _mm512_unpackhi_epi32(z[2], z[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}
PUNA_INLINE void load_columns4(const uint8_t* p, int64_t stride, uintptr_t ahead, u32x16 columns[4]) {
  const auto row = [](const uint8_t* q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)); };
  __m512i z[4], words[4];
  PUNA_UNROLL(4)
  for (int i = 0; i < 4; ++i, p += stride) {
    prefetch_later(ahead + 64 * i);
    z[i] = _mm512_castsi128_si512(row(p));
    z[i] = _mm512_inserti32x4(z[i], row(p + 4 * stride), 1);
    z[i] = _mm512_inserti32x4(z[i], row(p + 8 * stride), 2);
    z[i] = _mm512_inserti32x4(z[i], row(p + 12 * stride), 3);
  }
  transpose_parts(z, words);
  PUNA_UNROLL(4)
  for (int j = 0; j < 4; ++j) columns[j] = (u32x16)words[j];
}
PUNA_INLINE void load_columns8(const uint8_t* p, int64_t stride, uintptr_t ahead, u32x16 columns[8]) {
  const auto row = [](const uint8_t* q) {
    prefetch_soon(reinterpret_cast<uintptr_t>(q) + kSoonBytes);
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  };
  __m512i z[2][4], words[2][4];  // of rows 0..7 and 8..15
  PUNA_UNROLL(4)
  for (int i = 0; i < 4; ++i, p += stride) {
    prefetch_later(ahead + 128 * i);
    z[0][i] = _mm512_inserti64x4(_mm512_castsi256_si512(row(p)), row(p + 4 * stride), 1);
    prefetch_later(ahead + 128 * i + 64);
    z[1][i] = _mm512_inserti64x4(_mm512_castsi256_si512(row(p + 8 * stride)), row(p + 12 * stride), 1);
  }
  transpose_parts(z[0], words[0]);
  transpose_parts(z[1], words[1]);
  PUNA_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    columns[j] = (u32x16)_mm512_shuffle_i32x4(words[0][j], words[1][j], 0x88);      // even parts
    columns[j + 4] = (u32x16)_mm512_shuffle_i32x4(words[0][j], words[1][j], 0xdd);  // odd parts
  }
}
#else
PUNA_INLINE void load_columns4(const uint8_t* p, int64_t stride, uintptr_t, u32x16 columns[4]) {
  for (int j = 0; j < 4; ++j) columns[j] = load_u32_column(p + 4 * j, stride);
}
PUNA_INLINE void load_columns8(const uint8_t* p, int64_t stride, uintptr_t, u32x16 columns[8]) {
  for (int j = 0; j < 8; ++j) columns[j] = load_u32_column(p + 4 * j, stride);
}
#endif

// Every byte of v, 0..15, replaced by that entry of a table of 16 bytes.
PUNA_INLINE u32x16 lookup16(const uint8_t table[16], u32x16 v) {
#if defined(PUNA_AVX512)
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (u32x16)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), (__m512i)v);
#else
  uint8_t bytes[64];
  std::memcpy(bytes, &v, 64);
  for (uint8_t& byte : bytes) byte = table[byte];
  std::memcpy(&v, bytes, 64);
  return v;
#endif
}

}  // namespace puna::PUNA_ISA
