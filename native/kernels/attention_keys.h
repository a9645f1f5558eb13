// The products of queries and keys. Part of attention.cpp.
//
// A score's sum runs over d in order, in one chain: for quantized keys exactly in integers within a group of
// 32, then over the groups. Which rows and blocks share registers changes nothing.
#pragma once

#include "kernels/attention_rows.h"
#include "kernels/quantize_group.h"

namespace puna::PUNA_ISA {
namespace {

PUNA_INLINE f32x16 load_stored(const uint16_t* p) { return load_f16(p); }
PUNA_INLINE f32x16 load_stored(const float* p) { return load(p); }

// sums[r][b] = q[r] . k[lane] for the 16 tokens of each block.
template <int kRows, int kBlocks, typename T>
PUNA_INLINE void dot_floats(const Row* rows, const uint8_t* const* k, const uint8_t* const* ahead,
                            int64_t head_dim, f32x16 (&sums)[kRows][kBlocks]) {
  constexpr int kLineRows = 64 / (kBlockTokens * (int)sizeof(T));  // d's of a cache line
  const auto add = [&](int64_t d) {
    f32x16 key[kBlocks];
    PUNA_UNROLL(8)
    for (int b = 0; b < kBlocks; ++b)
      key[b] = load_stored(reinterpret_cast<const T*>(k[b]) + d * kBlockTokens);
    PUNA_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const f32x16 q = splat(rows[r].q[d]);
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = fma(q, key[b], sums[r][b]);
    }
  };
  int64_t d = 0;
  for (; d + kLineRows <= head_dim; d += kLineRows) {
    PUNA_UNROLL(8)
    for (int b = 0; b < kBlocks; ++b) __builtin_prefetch(ahead[b] + d * kBlockTokens * (int)sizeof(T));
    PUNA_UNROLL(2)
    for (int i = 0; i < kLineRows; ++i) add(d + i);
  }
  for (; d < head_dim; ++d) add(d);
}

// The query rows as integers, for quantized keys.
template <KvType kType>
void quantize_queries(Rows& rows, int64_t head_dim) {
  constexpr int32_t kBias = kType == KvType::kQ8_0 ? 128 : 8;
  for (int r = 0; r < rows.count; ++r) {
    for (int64_t d = 0; d < head_dim; d += kKvGroup) {
      const int64_t at = r * rows.values + d;
      i32x16 low, high;
      rows.q_scale[at / kKvGroup] = quantize_q8(load_group(rows.row[r].q + d, head_dim - d), low, high);
      store_bytes(reinterpret_cast<uint8_t*>(rows.q + at), low);
      store_bytes(reinterpret_cast<uint8_t*>(rows.q + at + kLanes), high);
      int32_t sum = 0;
      for (int i = 0; i < kKvGroup; ++i) sum += rows.q[at + i];
      rows.q_offset[at / kKvGroup] = -kBias * sum;
    }
  }
}

// Products of one group of 32 for the words of 4 keys' values at k[b].
template <KvType kType, int kRows, int kBlocks>
PUNA_INLINE void dot_group(const int8_t* q, int64_t stride, const uint8_t* const* k,
                           const uint8_t* const* ahead, int64_t offset, i32x16 (&products)[kRows][kBlocks]) {
  constexpr int kWords = kType == KvType::kQ8_0 ? 8 : 4;
  const auto multiply = [&](const i32x16(&key)[kBlocks], int word) {
    PUNA_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      int32_t bytes;
      std::memcpy(&bytes, q + r * stride + word * 4, 4);
      const i32x16 query = splat(bytes);
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) products[r][b] = dot4_u8s8(products[r][b], key[b], query);
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
  const int64_t groups = rows.values / kKvGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t at = first * groups + g;
    i32x16 products[kRows][kBlocks];
    PUNA_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) products[r][b] = splat(rows.q_offset[at + r * groups]);
    }
    dot_group<kType, kRows, kBlocks>(rows.q + at * kKvGroup, rows.values, group.k + block,
                                     group.k_ahead + block, g * kGroupBytes, products);
    PUNA_UNROLL(8)
    for (int b = 0; b < kBlocks; ++b) {
      const f32x16 scale = load_f16(group.k_scales[block + b] + g * kBlockTokens);
      PUNA_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const f32x16 scaled = to_float(products[r][b]) * splat(rows.q_scale[at + r * groups]);
        sums[r][b] = fma(scaled, scale, sums[r][b]);
      }
    }
  }
}

template <KvType kType, int kRows, int kBlocks>
PUNA_INLINE void dot_keys(const Rows& rows, int first, const Group& group, int block, int64_t head_dim,
                          f32x16 (&sums)[kRows][kBlocks]) {
  if constexpr (kType == KvType::kF16) {
    dot_floats<kRows, kBlocks, uint16_t>(rows.row + first, group.k + block, group.k_ahead + block, head_dim,
                                         sums);
  } else if constexpr (kType == KvType::kF32) {
    dot_floats<kRows, kBlocks, float>(rows.row + first, group.k + block, group.k_ahead + block, head_dim,
                                      sums);
  } else {
    dot_quantized<kType, kRows, kBlocks>(rows, first, group, block, sums);
  }
}

}  // namespace
}  // namespace puna::PUNA_ISA
