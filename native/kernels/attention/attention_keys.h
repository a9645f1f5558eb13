// The products of queries and keys. Part of attention.cpp.
//
// A score's sum runs over d in order, in one chain: for quantized keys exactly in integers within a group of
// 32, then over the groups. Which rows and blocks share registers changes nothing.
#pragma once

#include <type_traits>

#include "kernels/attention/attention_rows.h"
#include "kernels/quantize_group.h"

namespace puna::PUNA_ISA {
namespace {

PUNA_INLINE f32x16 load_stored(const uint16_t* p) { return load_f16(p); }
PUNA_INLINE f32x16 load_stored(const float* p) { return load(p); }

// sums[r][b] += q[r] . k[lane] for the 16 tokens of each block.
template <int kRows, int kBlocks, typename T>
PUNA_INLINE void dot_floats(const float* q, const uint8_t* const* blocks, const uint8_t* const* blocks_ahead,
                            int64_t head_dim, f32x16 (&sums)[kRows][kBlocks]) {
  const uint8_t *k[kBlocks], *ahead[kBlocks];
  std::memcpy(k, blocks, sizeof k);
  std::memcpy(ahead, blocks_ahead, sizeof ahead);
  for (int64_t d = 0; d < head_dim; q += (kRows - 1) * kLanes) {
    for (const int64_t end = d + kLanes < head_dim ? d + kLanes : head_dim; d < end; ++d, ++q) {
      const int64_t offset = d * kBlockTokens * (int)sizeof(T);
      f32x16 key[kBlocks];
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) {
        __builtin_prefetch(ahead[b] + offset);
        key[b] = load_stored(reinterpret_cast<const T*>(k[b] + offset));
      }
      PUNA_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        PUNA_UNROLL(8)
        for (int b = 0; b < kBlocks; ++b) sums[r][b] = fma(splat(q[r * kLanes]), key[b], sums[r][b]);
      }
    }
  }
}

// sums += products of a group of 32, for the words of 4 values at k[b] + offset.
template <KvType kType, int kRows, int kBlocks>
PUNA_INLINE void dot_group(const int8_t* q, const uint8_t* const* k, const uint8_t* const* ahead,
                           int64_t offset, i32x16 (&sums)[kRows][kBlocks]) {
  constexpr int kWords = kType == KvType::kQ8_0 ? 8 : 4;
  const auto multiply = [&](const i32x16(&key)[kBlocks], int word) {
    PUNA_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      int32_t bytes;
      std::memcpy(&bytes, q + r * kKvGroup + word * 4, 4);
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = dot4_u8s8(sums[r][b], key[b], splat(bytes));
    }
  };
  PUNA_UNROLL(8)
  for (int word = 0; word < kWords; ++word) {
    i32x16 key[kBlocks];
    PUNA_UNROLL(8)
    for (int b = 0; b < kBlocks; ++b) {
      __builtin_prefetch(ahead[b] + offset + word * 64);
      key[b] = load(reinterpret_cast<const int32_t*>(k[b] + offset + word * 64));
    }
    if constexpr (kType == KvType::kQ8_0) {
      multiply(key, word);
    } else {
      i32x16 low[kBlocks], high[kBlocks];
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) low[b] = key[b] & 0x0f0f0f0f, high[b] = (key[b] >> 4) & 0x0f0f0f0f;
      multiply(low, word);
      multiply(high, word + 4);
    }
  }
}

template <KvType kType, int kRows, int kBlocks>
PUNA_INLINE void dot_quantized(const Rows& rows, int first, const Group& group, int block,
                               f32x16 (&sums)[kRows][kBlocks]) {
  constexpr int kGroupBytes = (kType == KvType::kQ8_0 ? kKvGroup : kKvGroup / 2) * kBlockTokens;
  const int64_t groups = rows.q_values / kKvGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t at = first * groups + g * kRows;
    i32x16 products[kRows][kBlocks];
    PUNA_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) products[r][b] = splat(rows.q_offset[at + r]);
    }
    dot_group<kType>(rows.rounded_q + at * kKvGroup, group.k + block, group.k_ahead + block, g * kGroupBytes,
                     products);
    PUNA_UNROLL(8)
    for (int b = 0; b < kBlocks; ++b) {
      const f32x16 scale = load_f16(group.k_scales[block + b] + g * kBlockTokens);
      PUNA_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const f32x16 scaled = to_float(products[r][b]) * splat(rows.q_scale[at + r]);
        sums[r][b] = fma(scaled, scale, sums[r][b]);
      }
    }
  }
}

template <KvType kType, int kRows, int kBlocks>
PUNA_INLINE void dot_keys(const Rows& rows, int first, const Group& group, int block, int64_t head_dim,
                          f32x16 (&sums)[kRows][kBlocks]) {
  if constexpr (is_float(kType)) {
    using T = std::conditional_t<kType == KvType::kF16, uint16_t, float>;
    dot_floats<kRows, kBlocks, T>(rows.q + first * rows.q_values, group.k + block, group.k_ahead + block,
                                  head_dim, sums);
  } else {
    dot_quantized<kType>(rows, first, group, block, sums);
  }
}

}  // namespace
}  // namespace puna::PUNA_ISA
