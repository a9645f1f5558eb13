// NEON (ARMv8-A), with or without the dot products of ARMv8.2 (dotprod) and ARMv8.6 (i8mm): a register has 4
// lanes.
#pragma once

#include <arm_neon.h>

#include "simd/part.h"
#include "simd/transpose4.h"

namespace puna::PUNA_ISA {

PUNA_INLINE F32Part fma(F32Part a, F32Part b, F32Part c) {
  return (F32Part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
PUNA_INLINE void load_f16(const uint16_t* p, F32Part& v) {
  v = (F32Part)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
PUNA_INLINE void store_f16(uint16_t* p, F32Part v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
}
PUNA_INLINE F32Part f16_to_float(U32Part halves) {
  return (F32Part)vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t)halves)));
}

// acc[lane] += sum of the products of kWords words' signed bytes; kMax: the magnitude of u, at most 128.
template <int kMax, int kWords>
PUNA_INLINE int32x4_t dot_s8s8(int32x4_t acc, const int8x16_t (&u)[kWords], const int8x16_t (&s)[kWords]) {
#if defined(__ARM_FEATURE_DOTPROD)
  PUNA_UNROLL(4)
  for (int i = 0; i < kWords; ++i) acc = vdotq_s32(acc, u[i], s[i]);
#else
  // 16 bits hold the sum of so many words' products, of two neighbours each.
  constexpr int kFit = kMax > 63 ? 1 : kMax > 31 ? 2 : 4;
  PUNA_UNROLL(4)
  for (int i = 0; i < kWords; i += kFit) {
    int16x8_t low = vmull_s8(vget_low_s8(u[i]), vget_low_s8(s[i])), high = vmull_high_s8(u[i], s[i]);
    PUNA_UNROLL(4)
    for (int j = i + 1; j < i + kFit; ++j) {
      low = vmlal_s8(low, vget_low_s8(u[j]), vget_low_s8(s[j]));
      high = vmlal_high_s8(high, u[j], s[j]);
    }
    acc = vpadalq_s16(acc, vpaddq_s16(low, high));
  }
#endif
  return acc;
}
template <int kMax, int kWords>
PUNA_INLINE I32Part dot_u8s8(I32Part acc, const U32Part (&u)[kWords], const I32Part (&s)[kWords]) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  PUNA_UNROLL(4)
  for (int i = 0; i < kWords; ++i)
    acc = (I32Part)vusdotq_s32((int32x4_t)acc, (uint8x16_t)u[i], (int8x16_t)s[i]);
  return acc;
#else
  // Bytes above 127 are no signed ones, but u = (u - 128) + 128, and the products of 128 are the same for all
  // rows that share s.
  int8x16_t values[kWords], signs[kWords], leasts[kWords];
  PUNA_UNROLL(4)
  for (int i = 0; i < kWords; ++i) {
    leasts[i] = vdupq_n_s8(-128);
    values[i] = kMax > 127 ? veorq_s8((int8x16_t)u[i], leasts[i]) : (int8x16_t)u[i];
    signs[i] = (int8x16_t)s[i];
  }
  const int32x4_t sums = dot_s8s8<kMax <= 127 ? kMax : 128>((int32x4_t)acc, values, signs);
  if (kMax <= 127) return (I32Part)sums;
  return (I32Part)vsubq_s32(sums, dot_s8s8<128>(vdupq_n_s32(0), leasts, signs));
#endif
}
PUNA_INLINE I32Part dot4_u8s8(I32Part acc, I32Part u, I32Part s) {
  const U32Part us[1] = {(U32Part)u};
  const I32Part ss[1] = {s};
  return dot_u8s8<255>(acc, us, ss);
}
constexpr int dot16_limit([[maybe_unused]] int max) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return 255;
#elif defined(__ARM_FEATURE_DOTPROD)
  return max <= 127 ? 127 : 255;
#else
  return max <= 31 ? 31 : max <= 63 ? 63 : max <= 127 ? 127 : 255;
#endif
}
template <int kMax>
PUNA_INLINE I32Part dot16_u8s8(I32Part acc, const U32Part (&u)[4], const I32Part (&s)[4]) {
  return dot_u8s8<kMax>(acc, u, s);
}

PUNA_INLINE U32Part lookup16(const uint8_t table[16], U32Part v) {
  return (U32Part)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)v);
}

PUNA_INLINE void load_u32_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  uint32x4_t rows = vdupq_n_u32(load_scalar<uint32_t>(p));
  rows = vsetq_lane_u32(load_scalar<uint32_t>(p + stride), rows, 1);
  rows = vsetq_lane_u32(load_scalar<uint32_t>(p + 2 * stride), rows, 2);
  v = (U32Part)vsetq_lane_u32(load_scalar<uint32_t>(p + 3 * stride), rows, 3);
}
PUNA_INLINE uint16x4_t load_u16_words(const uint8_t* p, int64_t stride) {
  uint16x4_t rows = vdup_n_u16(load_scalar<uint16_t>(p));
  rows = vset_lane_u16(load_scalar<uint16_t>(p + stride), rows, 1);
  rows = vset_lane_u16(load_scalar<uint16_t>(p + 2 * stride), rows, 2);
  return vset_lane_u16(load_scalar<uint16_t>(p + 3 * stride), rows, 3);
}
PUNA_INLINE void load_u16_rows(const uint8_t* p, int64_t stride, U32Part& v) {
  v = (U32Part)vmovl_u16(load_u16_words(p, stride));
}
PUNA_INLINE void load_f16_rows(const uint8_t* p, int64_t stride, F32Part& v) {
  v = (F32Part)vcvt_f32_f16(vreinterpret_f16_u16(load_u16_words(p, stride)));
}

}  // namespace puna::PUNA_ISA
