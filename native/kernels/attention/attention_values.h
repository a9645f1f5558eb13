// The weighted sums of values. Part of attention.cpp.
//
// An output's sum runs over the positions in order, in one chain.
#pragma once

#include "kernels/attention/attention_keys.h"
#include "kernels/attention/attention_rows.h"

namespace puna::PUNA_ISA {
namespace {

// Bytes of d values of a token.
template <KvType kType>
constexpr int64_t value_bytes(int64_t d) {
  return kType == KvType::kF16 ? d * 2 : kType == KvType::kF32 ? d * 4 : kType == KvType::kQ8_0 ? d : d / 2;
}

// kChunks * 16 values of a token, without their scales.
template <KvType kType, int kChunks>
PUNA_INLINE void load_values(const uint8_t* p, f32x16 (&value)[kChunks]) {
  if constexpr (kType == KvType::kQ4_0) {
    PUNA_UNROLL(8)
    for (int c = 0; c < kChunks; c += 2) {
      const i32x16 bytes = load_u8(p + c * 8);
      value[c] = to_float((bytes & 15) - 8);
      value[c + 1] = to_float((bytes >> 4) - 8);
    }
  } else {
    PUNA_UNROLL(8)
    for (int c = 0; c < kChunks; ++c) {
      const uint8_t* chunk = p + value_bytes<kType>(c * kLanes);
      if constexpr (kType == KvType::kF16)
        value[c] = load_f16(reinterpret_cast<const uint16_t*>(chunk));
      else if constexpr (kType == KvType::kF32)
        value[c] = load(reinterpret_cast<const float*>(chunk));
      else
        value[c] = to_float(load_s8(reinterpret_cast<const int8_t*>(chunk)));
    }
  }
}

template <KvType kType>
PUNA_INLINE f32x16 load_last_values(const uint8_t* p, int64_t rest) {
  if constexpr (kType == KvType::kF16) {
    uint16_t values[kLanes] = {};
    std::memcpy(values, p, (size_t)rest * sizeof(uint16_t));
    return load_f16(values);
  } else {
    return load_partial(reinterpret_cast<const float*>(p), rest);
  }
}

template <int64_t kBytes>
PUNA_INLINE void prefetch_lines(const uint8_t* p) {
  __builtin_prefetch(p);
  if constexpr (kBytes > 64) prefetch_lines<kBytes - 64>(p + 64);
}

// Adds a group of 64 positions to the output rows of one set of registers.
template <int kRows>
struct Weighting {
  alignas(64) float weight[kRows][kGroupTokens];
  float correction[kLanes];  // what the new maximum makes of the sums so far
  int begin, end;            // positions that some row sees, the first one that of its block
};

// Weights times the values' scales of the groups of 32 from value d on.
template <KvType kType, int kRows, int kGroups>
PUNA_INLINE void scale_weights(const Weighting<kRows>& w, const Group& group, int64_t d,
                               float (&scaled)[kRows][kGroups][kGroupTokens]) {
  for (int b = w.begin / kBlockTokens; b * kBlockTokens < w.end; ++b) {
    PUNA_UNROLL(8)
    for (int g = 0; g < kGroups; ++g) {
      const f32x16 scale = load_f16(group.v_scales[b] + (d / kKvGroup + g) * kBlockTokens);
      PUNA_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        store(scaled[r][g] + b * kBlockTokens, load(w.weight[r] + b * kBlockTokens) * scale);
      }
    }
  }
}

// sums[d..] = sums[d..] * correction + sum of weight[t] * v[t][d..], for kChunks * 16 values of each row.
// rest: how many of them there are, if kLast.
template <KvType kType, int kRows, int kChunks, bool kLast>
PUNA_INLINE void add_values(const Weighting<kRows>& w, const Group& group, int64_t token_bytes, int64_t d,
                            int64_t rest, float* row_sums, int64_t stride) {
  constexpr int kGroups = is_float(kType) ? 1 : kChunks / 2;
  alignas(64) float scaled[kRows][kGroups][kGroupTokens];
  if constexpr (!is_float(kType)) scale_weights<kType>(w, group, d, scaled);
  f32x16 sums[kRows][kChunks];
  PUNA_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    PUNA_UNROLL(8)
    for (int c = 0; c < kChunks; ++c)
      sums[r][c] = load(row_sums + r * stride + d + c * kLanes) * w.correction[r];
  }
  for (int t = w.begin; t < w.end;) {
    const int64_t at = (t % kBlockTokens) * token_bytes + value_bytes<kType>(d);
    const uint8_t* v = group.v[t / kBlockTokens] + at;
    const uint8_t* ahead = group.v_ahead[t / kBlockTokens] + at;
    const int block_end = (t / kBlockTokens + 1) * kBlockTokens;
    for (const int stop = w.end < block_end ? w.end : block_end; t < stop;
         ++t, v += token_bytes, ahead += token_bytes) {
      prefetch_lines<value_bytes<kType>(kChunks * kLanes)>(ahead);
      f32x16 value[kChunks];
      if constexpr (kLast)
        value[0] = load_last_values<kType>(v, rest);
      else
        load_values<kType>(v, value);
      PUNA_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        PUNA_UNROLL(8)
        for (int c = 0; c < kChunks; ++c) {
          const float weight = is_float(kType) ? w.weight[r][t] : scaled[r][c / 2 % kGroups][t];
          sums[r][c] = fma(splat(weight), value[c], sums[r][c]);
        }
      }
    }
  }
  PUNA_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    PUNA_UNROLL(8)
    for (int c = 0; c < kChunks; ++c) store(row_sums + r * stride + d + c * kLanes, sums[r][c]);
  }
}

template <KvType kType, int kRows>
PUNA_INLINE void add_all_values(const Weighting<kRows>& w, const Group& group, int64_t value_dim, float* sums,
                                int64_t stride) {
  constexpr int kStep = is_float(kType) ? 1 : 2;  // chunks that go together
  const int64_t width = is_float(kType) ? value_dim : stride, token_bytes = value_bytes<kType>(width);
  int64_t d = 0;
  for (; d + kRegisterChunks * kLanes <= width; d += kRegisterChunks * kLanes)
    add_values<kType, kRows, kRegisterChunks, false>(w, group, token_bytes, d, 0, sums, stride);
  for (; d + kStep * kLanes <= width; d += kStep * kLanes)
    add_values<kType, kRows, kStep, false>(w, group, token_bytes, d, 0, sums, stride);
  if constexpr (is_float(kType)) {
    if (d < width) add_values<kType, kRows, 1, true>(w, group, token_bytes, d, width - d, sums, stride);
  }
}

}  // namespace
}  // namespace puna::PUNA_ISA
