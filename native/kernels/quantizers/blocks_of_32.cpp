// The types whose blocks are 32 values with one scale, to the bit as ggml's quantize_row_*_ref makes them:
// the same operations on float32, one by one. Where those overflow or meet what is no number, ggml's values
// are what x86 converts to integers then: 0.
#include <cfloat>

#include "kernels/quantizers/quantizers.h"
#include "quants/half.h"
#include "simd/simd.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int kValues = 32;
constexpr int32_t kInfinity = 0x7f800000, kSign = (int32_t)0x80000000;

struct Values {
  f32x16 low, high;  // 0..15 and 16..31
};

PUNA_INLINE Values load_values(const float* x) { return {load(x), load(x + kLanes)}; }

PUNA_INLINE float as_float(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The bits of the largest magnitude, which are in the order of the magnitudes.
PUNA_INLINE int32_t largest_bits(const Values& x) {
  return reduce_max(max((i32x16)x.low & ~kSign, (i32x16)x.high & ~kSign));
}

PUNA_INLINE float inverse(float scale) { return scale != 0.0f ? 1.0f / scale : 0.0f; }

PUNA_INLINE uint8_t* put_half(uint8_t* out, float value) {
  const uint16_t half = float_to_half(value);
  std::memcpy(out, &half, sizeof half);
  return out + sizeof half;
}

// --- Q8_0 ---

// What counts where something is infinite or NaN, which starts anew.
float largest_of_any(const float* x) {
  float largest = 0.0f;
  for (int i = 0; i < kValues; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = largest > magnitude ? largest : magnitude;
  }
  return largest;
}

// Ties go away from zero. What exceeds a byte, behind a NaN, keeps its lowest eight bits.
PUNA_INLINE i32x16 round_away(f32x16 x) {
  const f32x16 v = select(max(x, -x) < splat(0x1p31f), x, splat(0.0f));
  const i32x16 whole = to_int(v);
  const f32x16 rest = v - to_float(whole);
  return whole - (rest >= splat(0.5f)) + (rest <= splat(-0.5f));
}

// --- Q4_0, Q5_0: the value of the largest magnitude is the least of the integers ---

float first_of_largest_magnitude(const float* x) {
  float largest = 0.0f, value = 0.0f;
  for (int i = 0; i < kValues; ++i) {
    if (largest < std::fabs(x[i])) {
      largest = std::fabs(x[i]);
      value = x[i];
    }
  }
  return value;
}

PUNA_INLINE float largest_value(const float* x, const Values& v) {
  const int32_t largest = largest_bits(v);
  const int32_t highest = reduce_max(max((i32x16)v.low, (i32x16)v.high));
  const int32_t lowest = reduce_max(max((i32x16)v.low ^ kSign, (i32x16)v.high ^ kSign));
  if (largest == 0 || largest >= kInfinity || highest == lowest) return first_of_largest_magnitude(x);
  return as_float(highest == largest ? largest : largest | kSign);
}

// --- Q4_1, Q5_1: from the lowest value to the highest ---

struct Range {
  float lowest, highest;
};

Range range_of_any(const float* x) {
  Range range = {FLT_MAX, -FLT_MAX};
  for (int i = 0; i < kValues; ++i) {
    if (x[i] < range.lowest) range.lowest = x[i];
    if (x[i] > range.highest) range.highest = x[i];
  }
  return range;
}

PUNA_INLINE Range range_of(const float* x, const Values& v) {
  const Range range = {-reduce_max(max(-v.low, -v.high)), reduce_max(max(v.low, v.high))};
  // Which zero comes first is in its sign.
  if (largest_bits(v) >= kInfinity || range.lowest == 0.0f) return range_of_any(x);
  return range;
}

// --- the integers of all but Q8_0: 0..kMax ---

template <int kMax>
PUNA_INLINE i32x16 whole_part(f32x16 v) {
  const f32x16 known = select(v < splat(1024.0f), max(v, splat(0.0f)), splat(0.0f));
  return to_int(min(known, splat((float)kMax)));
}

template <int kMax>
PUNA_INLINE void put_integers(uint8_t* out, i32x16 low, i32x16 high) {
  if constexpr (kMax > 15) {  // the fifth bits first
    static constexpr int32_t kLane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const u32x16 bits = ((u32x16)low >> 4 | (u32x16)high >> 4 << 16) << (u32x16)load(kLane);
    const int32_t word = reduce_add((i32x16)bits);
    std::memcpy(out, &word, sizeof word);
    out += sizeof word;
  }
  store_bytes(out, (low & 15) | (high & 15) << 4);
}

template <int kMax>
void quantize_around_zero(const float* x, int64_t count, uint8_t* out) {
  constexpr float kHalf = (kMax + 1) / 2;
  constexpr int64_t kBytes = kMax > 15 ? 22 : 18;
  for (int64_t i = 0; i < count; i += kValues, out += kBytes) {
    const Values v = load_values(x + i);
    const float scale = largest_value(x + i, v) / -kHalf, factor = inverse(scale);
    const auto integers = [&](f32x16 y) { return whole_part<kMax>(y * factor + (kHalf + 0.5f)); };
    put_integers<kMax>(put_half(out, scale), integers(v.low), integers(v.high));
  }
}

template <int kMax>
void quantize_range(const float* x, int64_t count, uint8_t* out) {
  constexpr int64_t kBytes = kMax > 15 ? 24 : 20;
  for (int64_t i = 0; i < count; i += kValues, out += kBytes) {
    const Values v = load_values(x + i);
    const Range range = range_of(x + i, v);
    const float scale = (range.highest - range.lowest) / kMax, factor = inverse(scale);
    const auto integers = [&](f32x16 y) { return whole_part<kMax>((y - range.lowest) * factor + 0.5f); };
    put_integers<kMax>(put_half(put_half(out, scale), range.lowest), integers(v.low), integers(v.high));
  }
}

}  // namespace

void to_q8_0(const float* x, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; i += kValues, out += 34) {
    const Values v = load_values(x + i);
    const int32_t largest = largest_bits(v);
    const float scale = (largest < kInfinity ? as_float(largest) : largest_of_any(x + i)) / 127.0f;
    const float factor = inverse(scale);
    uint8_t* integers = put_half(out, scale);
    store_bytes(integers, round_away(v.low * factor));
    store_bytes(integers + kLanes, round_away(v.high * factor));
  }
}

void to_q4_0(const float* x, int64_t count, uint8_t* out) { quantize_around_zero<15>(x, count, out); }
void to_q5_0(const float* x, int64_t count, uint8_t* out) { quantize_around_zero<31>(x, count, out); }
void to_q4_1(const float* x, int64_t count, uint8_t* out) { quantize_range<15>(x, count, out); }
void to_q5_1(const float* x, int64_t count, uint8_t* out) { quantize_range<31>(x, count, out); }

}  // namespace puna::PUNA_ISA
