// What every processor has, in the vectors that compilers know on their own: a register has 4 lanes.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "simd/part.h"
#include "simd/transpose4.h"

namespace puna::PUNA_ISA {

PUNA_INLINE F32Part fma(F32Part a, F32Part b, F32Part c) {
  return a * b + c;  // rounds twice: results differ between instruction sets, never within one
}

// The half float in the low 16 bits of each lane. Multiplying by 2^112 moves the exponent's bias from 15 to
// 127 and makes subnormals normal; infinity and NaN keep their bits, with the greatest exponent.
PUNA_INLINE F32Part f16_to_float(U32Part halves) {
  const U32Part rest = (halves & 0x7fffu) << 13;
  const U32Part finite = (U32Part)((F32Part)rest * 0x1p112f);
  const U32Part bits = (I32Part)rest >= 0x0f800000 ? rest | 0x7f800000u : finite;
  return (F32Part)(bits | (halves & 0x8000u) << 16);
}
PUNA_INLINE void load_f16(const uint16_t* p, F32Part& v) {
  U32Part halves;
  load_narrow(p, halves);
  v = f16_to_float(halves);
}
PUNA_INLINE void store_f16(uint16_t* p, F32Part v) {
  const U32Part bits = (U32Part)v;
  const I32Part magnitude = (I32Part)(bits & 0x7fffffffu);
  const U32Part odd = (bits >> 13) & 1u;
  const I32Part rounded = (I32Part)((U32Part)magnitude + 0xfffu + odd - 0x38000000u) >> 13;
  // A subnormal half: the adder rounds.
  const I32Part small = (I32Part)((F32Part)magnitude + 0.5f) - 0x3f000000;
  I32Part half = magnitude < 0x38800000 ? small : rounded;
  half = magnitude >= 0x477ff000 ? I32Part{} + 0x7c00 : half;  // rounds to infinity
  half = magnitude > 0x7f800000 ? I32Part{} + 0x7e00 : half;   // NaN
  half |= (I32Part)((bits >> 16) & 0x8000u);
  for (int i = 0; i < kPartLanes; ++i) p[i] = (uint16_t)half[i];
}

// Products of bytes fit 16 bits: 255 * -128 is above -2^15.
PUNA_INLINE I32Part dot4_u8s8(I32Part acc, I32Part u, I32Part s) {
  typedef int16_t I16Part __attribute__((vector_size(PUNA_PART_BYTES)));
  const I16Part even_u = (I16Part)(u & 0x00ff00ff), even_s = (I16Part)s << 8 >> 8;
  const I16Part odd_u = (I16Part)((u >> 8) & 0x00ff00ff), odd_s = (I16Part)s >> 8;
#if defined(__SSE2__)
  return acc + (I32Part)_mm_madd_epi16((__m128i)even_u, (__m128i)even_s) +
         (I32Part)_mm_madd_epi16((__m128i)odd_u, (__m128i)odd_s);
#else
  const I32Part even = (I32Part)(even_u * even_s), odd = (I32Part)(odd_u * odd_s);
  return acc + (even >> 16) + (odd >> 16) + (even << 16 >> 16) + (odd << 16 >> 16);
#endif
}
constexpr int dot16_limit(int) { return 255; }
template <int kMax>
PUNA_INLINE I32Part dot16_u8s8(I32Part acc, const U32Part (&u)[4], const I32Part (&s)[4]) {
  return dot4_u8s8(
      dot4_u8s8(dot4_u8s8(dot4_u8s8(acc, (I32Part)u[0], s[0]), (I32Part)u[1], s[1]), (I32Part)u[2], s[2]),
      (I32Part)u[3], s[3]);
}

// Not inlined: byte by byte it is long, and kernels look up dozens of times.
inline __attribute__((noinline)) U32Part lookup16(const uint8_t table[16], U32Part v) {
  uint8_t bytes[sizeof v];
  std::memcpy(bytes, &v, sizeof v);
  for (uint8_t& byte : bytes) byte = table[byte];
  std::memcpy(&v, bytes, sizeof v);
  return v;
}

template <typename T>
PUNA_INLINE U32Part load_four(const uint8_t* p, int64_t stride) {
  return U32Part{load_scalar<T>(p), load_scalar<T>(p + stride), load_scalar<T>(p + 2 * stride),
                 load_scalar<T>(p + 3 * stride)};
}
PUNA_INLINE void load_u32_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  v = load_four<uint32_t>(p, stride);
}
PUNA_INLINE void load_u16_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  v = load_four<uint16_t>(p, stride);
}
PUNA_INLINE void load_f16_rows(const uint8_t* p, int64_t stride, F32Part& v) {
  v = f16_to_float(load_four<uint16_t>(p, stride));
}

}  // namespace puna::PUNA_ISA
