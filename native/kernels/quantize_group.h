// Rounding of up to 32 floats to small integers with one scale, for keys, values and queries.
#pragma once

#include "kernels/kernels.h"
#include "simd/simd.h"

namespace puna::PUNA_ISA {
namespace {

constexpr float kLargestF16 = 65504.0f;

// What overflows a half float is kept at the largest one: an infinite key or value would turn into NaN.
PUNA_INLINE f32x16 finite_f16(f32x16 v) { return min(max(v, splat(-kLargestF16)), splat(kLargestF16)); }

struct FloatGroup {
  f32x16 low, high;  // values 0..15 and 16..31, zeros behind the last
};

PUNA_INLINE FloatGroup load_group(const float* x, int64_t count) {
  if (count >= kKvGroup) return {load(x), load(x + kLanes)};
  if (count >= kLanes) return {load(x), load_partial(x + kLanes, count - kLanes)};
  return {load_partial(x, count), f32x16{}};
}

// As GGML's q8_0: the largest magnitude becomes 127. Returns the scale.
PUNA_INLINE float quantize_q8(const FloatGroup& x, i32x16& low, i32x16& high) {
  const float largest = reduce_max(max(max(x.low, -x.low), max(x.high, -x.high)));
  const float scale = largest / 127.0f < kLargestF16 ? largest / 127.0f : kLargestF16;
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  const auto round = [&](f32x16 v) {
    const f32x16 shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const f32x16 n = (v * inverse + shifter) - shifter;
    return to_int(min(max(n, splat(-127.0f)), splat(127.0f)));
  };
  low = round(x.low), high = round(x.high);
  return scale;
}

// As GGML's q4_0: the value of the largest magnitude, the negative one of two, becomes -8; 8 is added to all.
// Returns the scale.
PUNA_INLINE float quantize_q4(const FloatGroup& x, i32x16& low, i32x16& high) {
  const float highest = reduce_max(max(x.low, x.high)), lowest = -reduce_max(max(-x.low, -x.high));
  const float largest = highest > -lowest ? highest : lowest;
  const float scale = reduce_max(finite_f16(splat(largest / -8.0f)));
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  const auto round = [&](f32x16 v) {
    const f32x16 n = v * inverse + 8.5f;
    return to_int(min(max(n, splat(0.0f)), splat(15.0f)));
  };
  low = round(x.low), high = round(x.high);
  return scale;
}

}  // namespace
}  // namespace puna::PUNA_ISA
