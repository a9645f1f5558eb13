// Values that are columns of the keys (MLA), brought from the keys' layout into that of float values: once
// for all rows of a task, which for a latent are those of all heads. Part of attention.cpp.
#pragma once

#include "kernels/attention/attention_keys.h"

namespace puna::PUNA_ISA {
namespace {

// Lane i of v[j] becomes lane j of v[i]: each round interleaves the first half of the vectors with the
// second.
template <int kRound = 1>
PUNA_INLINE void transpose(F32Part (&v)[kPartLanes]) {
  F32Part to[kPartLanes];
  PUNA_UNROLL(16)
  for (int i = 0; i < kPartLanes / 2; ++i) {
    [&]<int... lane>(std::integer_sequence<int, lane...>) __attribute__((always_inline)) {
      const I32Part low = {(lane / 2 + lane % 2 * kPartLanes)...};
      to[2 * i] = __builtin_shuffle(v[i], v[i + kPartLanes / 2], low);
      to[2 * i + 1] = __builtin_shuffle(v[i], v[i + kPartLanes / 2], low + kPartLanes / 2);
    }(std::make_integer_sequence<int, kPartLanes>());
  }
  PUNA_UNROLL(16)
  for (int i = 0; i < kPartLanes; ++i) v[i] = to[i];
  if constexpr (2 * kRound < kPartLanes) transpose<2 * kRound>(v);
}

typedef float Columns[kKvGroup][kBlockTokens];

// 32 columns of a block's keys, from column d on.
template <KvType kType>
PUNA_INLINE void unpack_columns(const uint8_t* k, const uint16_t* scales, int64_t d, Columns& columns) {
  if constexpr (is_float(kType)) {
    using T = std::conditional_t<kType == KvType::kF16, uint16_t, float>;
    const T* from = reinterpret_cast<const T*>(k) + d * kBlockTokens;
    for (int i = 0; i < kKvGroup; ++i) store(columns[i], load_stored(from + i * kBlockTokens));
  } else {
    constexpr bool kBytes = kType == KvType::kQ8_0;
    const f32x16 scale = load_f16(scales + d / kKvGroup * kBlockTokens);
    const uint8_t* words = k + d * kBlockTokens / (kBytes ? 1 : 2);
    for (int i = 0; i < kKvGroup / (kBytes ? 1 : 2); ++i) {
      const i32x16 word = load(reinterpret_cast<const int32_t*>(words + i / 4 * 64)) >> (i % 4 * 8);
      if constexpr (kBytes) {
        store(columns[i], to_float((word & 255) - 128) * scale);
      } else {
        store(columns[i], to_float((word & 15) - 8) * scale);
        store(columns[kKvGroup / 2 + i], to_float(((word >> 4) & 15) - 8) * scale);
      }
    }
  }
}

// The group's values into `latents`, where it then finds them. value_dim: a multiple of 32.
template <KvType kType>
void unpack_latents(int64_t value_dim, float* latents, Group& group) {
  for (int b = 0; b < kGroupBlocks; ++b) {
    float* values = latents + b * kBlockTokens * value_dim;
    group.v[b] = group.v_ahead[b] = reinterpret_cast<const uint8_t*>(values);
    for (int64_t d = 0; d < value_dim; d += kKvGroup) {
      alignas(64) Columns columns;
      unpack_columns<kType>(group.k[b], group.k_scales[b], d, columns);
      for (int i = 0; i < kKvGroup; i += kPartLanes) {
        for (int t = 0; t < kBlockTokens; t += kPartLanes) {
          F32Part tile[kPartLanes];
          for (int j = 0; j < kPartLanes; ++j) std::memcpy(&tile[j], &columns[i + j][t], sizeof tile[j]);
          transpose(tile);
          for (int j = 0; j < kPartLanes; ++j)
            std::memcpy(values + (t + j) * value_dim + d + i, &tile[j], sizeof tile[j]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace puna::PUNA_ISA
