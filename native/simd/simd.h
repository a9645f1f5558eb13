// The thin SIMD layer: 16 lanes of 32 bits, on every instruction set. Included only by native/kernels/*.cpp,
// which are compiled once per instruction set with PUNA_ISA naming the namespace.
//
// f32x16, i32x16 and u32x16 have the usual operators, between lanes and with a scalar; comparisons give lanes
// of 0 or -1, for select. A cast between the types keeps the bits. What is particular to one instruction set
// is in a header of its own (avx512.h, avx2.h, neon.h, portable.h), written for one register; pair.h makes 16
// lanes of it.
#pragma once

#include <cmath>

#if defined(PUNA_AVX512)
#include "simd/avx512.h"
#else
#include "simd/pair.h"
#endif

namespace puna::PUNA_ISA {

inline constexpr int kLanes = 16;

#if defined(PUNA_AVX512)
typedef F32Part f32x16;
typedef I32Part i32x16;
typedef U32Part u32x16;
#elif defined(PUNA_AVX2)
typedef Pair<F32Part> f32x16;
typedef Pair<I32Part> i32x16;
typedef Pair<U32Part> u32x16;
#else
typedef Pair<Pair<F32Part> > f32x16;
typedef Pair<Pair<I32Part> > i32x16;
typedef Pair<Pair<U32Part> > u32x16;
#endif

PUNA_INLINE f32x16 load(const float* p) {
  f32x16 v;
  load(p, v);
  return v;
}
PUNA_INLINE i32x16 load(const int32_t* p) {
  i32x16 v;
  load(p, v);
  return v;
}
// The first n <= 16 values, zeros behind them: for what a length leaves over.
#if defined(PUNA_AVX512)
PUNA_INLINE f32x16 load_partial(const float* p, int64_t n) {
  return (f32x16)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
PUNA_INLINE void store_partial(float* p, f32x16 v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
#else
PUNA_INLINE f32x16 load_partial(const float* p, int64_t n) {
  if (n == kLanes) return load(p);
  float values[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) values[i] = p[i];  // memcpy of an unknown length is far slower
  return load(values);
}
PUNA_INLINE void store_partial(float* p, f32x16 v, int64_t n) {
  if (n == kLanes) return store(p, v);
  float values[kLanes];
  store(values, v);
  for (int64_t i = 0; i < n; ++i) p[i] = values[i];
}
#endif

PUNA_INLINE f32x16 splat(float x) {
  f32x16 v;
  fill(x, v);
  return v;
}
PUNA_INLINE i32x16 splat(int32_t x) {
  i32x16 v;
  fill(x, v);
  return v;
}

// Half floats (IEEE binary16), 16 at a time.
PUNA_INLINE f32x16 load_f16(const uint16_t* p) {
  f32x16 v;
  load_f16(p, v);
  return v;
}

// 16 bfloat16: the upper halves of floats.
PUNA_INLINE f32x16 load_bf16(const uint16_t* p) {
  f32x16 v;
  load_bf16(p, v);
  return v;
}
// 16 bytes, each as an integer.
PUNA_INLINE i32x16 load_u8(const uint8_t* p) {
  i32x16 v;
  load_u8(p, v);
  return v;
}
PUNA_INLINE i32x16 load_s8(const int8_t* p) {
  i32x16 v;
  load_s8(p, v);
  return v;
}

// These work on 16 lanes as on one register; the contracts:
//   fma(a, b, c)             a * b + c; rounds twice where there is no such instruction
//   select(mask, a, b)       per lane; mask from a comparison
//   max, min                 b where a lane is not a number
//   to_float, to_int         to_int truncates
//   reduce_add, reduce_max   horizontally, in one fixed tree order on every instruction set
//   sum_lanes(v)             of 16 vectors: lane i is reduce_add(v[i])
//   exchange<n>(v)           lane i is lane i ^ n, n being 1 or 2
//   store_f16(p, v)          rounded to nearest, ties to even
//   store_bytes(p, v)        the low byte of each lane
//   store_u16(p, v)          the low half of each lane
//   dot4_u8s8(acc, u, s)     acc[lane] += sum of 4 products of the lane's unsigned bytes of u and signed
//                            bytes of s, which are -127..127; exact in int32
//   dot16_u8s8<n>(acc, u, s) the same for four words, u[4] and s[4], whose bytes u are at most n; cheaper for
//                            n of 127, 63 and 31 where there is no instruction for dot4
//   dot16_limit(max)         the n that is best for bytes of at most max

// e^x, relative error below 2e-7: 2^n times a degree-6 polynomial on [-ln2/2, ln2/2] (Cephes expf).
// Below -87 the result is 0, which is what a masked score needs.
PUNA_INLINE f32x16 exp(f32x16 x) {
  const f32x16 clamped = min(max(x, splat(-87.33654f)), splat(88.02f));
  const f32x16 shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const f32x16 n = fma(clamped, splat(1.44269504088896341f), shifter) - shifter;
  f32x16 r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  f32x16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  const i32x16 exponent = (to_int(n) + 127) << 23;
  const f32x16 y = p * (f32x16)exponent;
  return select(x < splat(-87.33654f), f32x16{}, y);
}

// 2^x for x <= 0, relative error below 3e-7, exactly 1 for 0 and 0 below -126.5: 2^n times a minimax
// polynomial of degree 5 on [-1/2, 1/2].
PUNA_INLINE f32x16 exp2(f32x16 x) {
  const f32x16 clamped = max(x, splat(-127.0f));
  // Rounds to an integer and adds the bias of the exponent: n + 127 is in the low bits.
  const f32x16 shifter = splat(12582912.0f + 127.0f);
  const f32x16 shifted = clamped + shifter;
  const f32x16 r = clamped - (shifted - shifter);
  f32x16 p = splat(1.3264726390e-3f);
  p = fma(p, r, splat(9.6715126972e-3f));
  p = fma(p, r, splat(5.5507337459e-2f));
  p = fma(p, r, splat(2.4022242084e-1f));
  p = fma(p, r, splat(6.9314697760e-1f));
  p = fma(p, r, splat(1.0f));
  return p * (f32x16)((i32x16)shifted << 23);
}

// Absolute value below 0.625: a polynomial, since 1 - 2 / (e^2x + 1) cancels there (Cephes tanhf).
PUNA_INLINE f32x16 tanh(f32x16 x) {
  const f32x16 magnitude = max(x, -x);
  const f32x16 far = 1.0f - 2.0f / (exp(magnitude * 2.0f) + 1.0f);
  const f32x16 z = x * x;
  f32x16 p = splat(-5.70498872745e-3f);
  p = fma(p, z, splat(2.06390887954e-2f));
  p = fma(p, z, splat(-5.37397155531e-2f));
  p = fma(p, z, splat(1.33314422036e-1f));
  p = fma(p, z, splat(-3.33332819422e-1f));
  const f32x16 near = fma(p * z, x, x);
  return select(magnitude < splat(0.625f), near, select(x < f32x16{}, -far, far));
}

}  // namespace puna::PUNA_ISA
