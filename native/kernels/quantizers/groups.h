// What the K-quants share: super-blocks of 256 values, in groups of 16 or 32 that each have a small integer
// as a scale. All 16 lanes search at once, each for one group, so that nothing is added up across lanes but a
// super-block's totals.
#pragma once

#include <algorithm>

#include "quants/half.h"
#include "simd/columns.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int kSuperBlock = 256;
constexpr float kLargestHalf = 65504.0f;

// What is infinite or no number counts as 0.
PUNA_INLINE f32x16 finite(f32x16 x) {
  return select(((i32x16)x & 0x7fffffff) < splat(0x7f800000), x, splat(0.0f));
}

// To the nearest integer in [lowest, highest], ties to even.
PUNA_INLINE f32x16 round_within(f32x16 x, float lowest, float highest) {
  const float shifter = 12582912.0f;  // 1.5 * 2^23
  return (min(max(x, splat(lowest)), splat(highest)) + shifter) - shifter;
}

PUNA_INLINE f32x16 inverse(f32x16 x) { return select(x == splat(0.0f), splat(0.0f), 1.0f / x); }

// A power of two, about the largest magnitude: values are divided by it, so that no square or sum of them
// overflows or vanishes. Division and multiplication by it are exact.
inline float unit_of(const float* x) {
  i32x16 largest = splat(0);
  for (int i = 0; i < kSuperBlock; i += kLanes)
    largest = max(largest, (i32x16)finite(load(x + i)) & 0x7fffffff);
  const int32_t exponent = reduce_max(largest) & 0x7f800000;
  float unit;
  std::memcpy(&unit, &exponent, sizeof unit);
  return std::max(unit, 0x1p-126f);
}

// The groups of one super-block (of 16 values), or of two (of 32), lane by lane.
template <int kValues>
struct Groups {
  static constexpr int kBlocks = kValues * kLanes / kSuperBlock;
  static constexpr int kBlockLanes = kLanes / kBlocks;

  f32x16 x[kValues];  // in units
  f32x16 weight[kValues];
  f32x16 sum_weight, sum_wx;
  float unit[kBlocks];

  // weigh(x, mean of x^2 in its group) is how much the square of an error counts.
  template <typename Weigh>
  Groups(const float* values, Weigh weigh) {
    float factors[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int block = lane / kBlockLanes;
      if (lane % kBlockLanes == 0) unit[block] = unit_of(values + block * kSuperBlock);
      factors[lane] = 1.0f / unit[block];
    }
    f32x16 squares = splat(0.0f);
    for (int i = 0; i < kValues; i += 8) {
      u32x16 columns[8];
      load_columns8(reinterpret_cast<const uint8_t*>(values + i), kValues * (int64_t)sizeof(float),
                    FetchNothing(), columns);
      for (int j = 0; j < 8; ++j) {
        x[i + j] = finite((f32x16)columns[j]) * load(factors);
        squares += x[i + j] * x[i + j];
      }
    }
    const f32x16 mean_square = squares * (1.0f / kValues);
    sum_weight = sum_wx = splat(0.0f);
    for (int i = 0; i < kValues; ++i) {
      weight[i] = weigh(x[i], mean_square);
      sum_weight += weight[i];
      sum_wx += weight[i] * x[i];
    }
  }

  // Of each super-block's lanes, in every one of them.
  static f32x16 total(f32x16 v) {
    float lanes[kLanes];
    store(lanes, v);
    for (int block = 0; block < kBlocks; ++block) {
      float sum = 0.0f;
      for (int lane = 0; lane < kBlockLanes; ++lane) sum += lanes[block * kBlockLanes + lane];
      std::fill_n(lanes + block * kBlockLanes, kBlockLanes, sum);
    }
    return load(lanes);
  }

  // Of each super-block's lanes the first of the greatest magnitude, in every one of them.
  static f32x16 largest(f32x16 v) {
    float lanes[kLanes];
    store(lanes, v);
    for (int block = 0; block < kBlocks; ++block) {
      float* first = lanes + block * kBlockLanes;
      const float found = *std::max_element(first, first + kBlockLanes,
                                            [](float a, float b) { return std::fabs(a) < std::fabs(b); });
      std::fill_n(first, kBlockLanes, found);
    }
    return load(lanes);
  }

  // As a half float will hold it, in units again.
  f32x16 as_half(f32x16 v) const {
    float lanes[kLanes];
    store(lanes, v);
    for (int lane = 0; lane < kLanes; ++lane) {
      const float scale = unit[lane / kBlockLanes];
      lanes[lane] = half_to_float(half_of(lanes[lane], scale)) / scale;
    }
    return load(lanes);
  }

  static uint16_t half_of(float v, float unit) {
    return float_to_half(std::clamp(v * unit, -kLargestHalf, kLargestHalf));
  }
};

}  // namespace
}  // namespace puna::PUNA_ISA
