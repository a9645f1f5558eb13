// Products of rows of floats, whatever they are stored as. Lanes are columns: lane l of a sum adds columns l,
// l + 16, l + 32, ... in order, and at the end the lanes are added in a fixed tree. Neither the number of
// tokens nor how rows and tokens are grouped changes a result.
#pragma once

#include "kernels/kernels.h"
#include "simd/columns.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {

typedef f32x16 TokenSums[kFloatTokens];  // of one row

template <TensorType kType>
inline constexpr int64_t kFloatBytes = kType == TensorType::kF32 ? 4 : 2;

template <TensorType kType>
PUNA_INLINE f32x16 load_floats(const uint8_t* p) {
  if constexpr (kType == TensorType::kF32) {
    return load(reinterpret_cast<const float*>(p));
  } else if constexpr (kType == TensorType::kF16) {
    return load_f16(reinterpret_cast<const uint16_t*>(p));
  } else {
    return load_bf16(reinterpret_cast<const uint16_t*>(p));
  }
}
// n < 16 of them, zeros behind them.
template <TensorType kType>
PUNA_INLINE f32x16 load_partial_floats(const uint8_t* p, int64_t n) {
  alignas(64) uint8_t bytes[64] = {};
  std::memcpy(bytes, p, (size_t)(n * kFloatBytes<kType>));
  return load_floats<kType>(bytes);
}

// sums[r][t] += the products of `columns` columns of kRows rows that lie `stride` bytes apart; `first`: there
// are no sums yet. kPrefetch: of as many rows behind them, which lie too far apart for the hardware to see
// that they follow one another.
template <TensorType kType, bool kPrefetch, int kRows, int kTokens>
void multiply_rows(const uint8_t* w, int64_t stride, const float* const* x, int64_t columns, bool first,
                   TokenSums* group_sums) {
  f32x16 sums[kRows][kTokens];
  PUNA_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) sums[r][t] = splat(0.0f);
  }
  if (!first) {
    PUNA_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      PUNA_UNROLL(8)
      for (int t = 0; t < kTokens; ++t) sums[r][t] = group_sums[r][t];
    }
  }
  int64_t k = 0;
  for (; k + kLanes <= columns; k += kLanes) {
    f32x16 weights[kRows];
    PUNA_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* p = w + r * stride + k * kFloatBytes<kType>;
      if (kPrefetch) prefetch_later(reinterpret_cast<uintptr_t>(p + kRows * stride));
      weights[r] = load_floats<kType>(p);
    }
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      const f32x16 activations = load(x[t] + k);
      PUNA_UNROLL(4)
      for (int r = 0; r < kRows; ++r) sums[r][t] = fma(weights[r], activations, sums[r][t]);
    }
  }
  if (k < columns) {
    PUNA_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const f32x16 weights = load_partial_floats<kType>(w + r * stride + k * kFloatBytes<kType>, columns - k);
      PUNA_UNROLL(8)
      for (int t = 0; t < kTokens; ++t)
        sums[r][t] = fma(weights, load_partial(x[t] + k, columns - k), sums[r][t]);
    }
  }
  PUNA_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) group_sums[r][t] = sums[r][t];
  }
}

// multiply_rows for 1 to kFloatTokens tokens and any number of rows.
template <TensorType kType, bool kPrefetch, int kRows, int kTokens = kFloatTokens>
void multiply_tokens(int64_t num_tokens, const uint8_t* w, int64_t stride, const float* const* x,
                     int64_t columns, bool first, TokenSums* sums) {
  if constexpr (kTokens > 1) {
    if (num_tokens < kTokens)
      return multiply_tokens<kType, kPrefetch, kRows, kTokens - 1>(num_tokens, w, stride, x, columns, first,
                                                                   sums);
  }
  multiply_rows<kType, kPrefetch, kRows, kTokens>(w, stride, x, columns, first, sums);
}
template <TensorType kType, bool kPrefetch>
void multiply_group(int64_t num_rows, int64_t num_tokens, const uint8_t* w, int64_t stride,
                    const float* const* x, int64_t columns, bool first, TokenSums* sums) {
  int64_t r = 0;
  for (; r + kFloatRows <= num_rows; r += kFloatRows)
    multiply_tokens<kType, kPrefetch, kFloatRows>(num_tokens, w + r * stride, stride, x, columns, first,
                                                  sums + r);
  for (; r < num_rows; ++r)
    multiply_tokens<kType, kPrefetch, 1>(num_tokens, w + r * stride, stride, x, columns, first, sums + r);
}

// Adds bias and residual, and stores rows [row, row + num_rows) of tokens [token, token + num_tokens).
// sums: of the rows, up to a multiple of 16.
inline void store_group(const LinearArgs& args, const TokenSums* sums, int64_t row, int64_t num_rows,
                        int64_t token, int64_t num_tokens) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t to = (token + t) * args.out_stride + row;
    for (int64_t r = 0; r < num_rows; r += kLanes) {
      const int64_t n = num_rows - r < kLanes ? num_rows - r : kLanes;
      f32x16 rows[kLanes];
      PUNA_UNROLL(16)
      for (int i = 0; i < kLanes; ++i) rows[i] = sums[r + i][t];
      f32x16 sum = sum_lanes(rows);
      if (args.bias) sum += load_partial(args.bias + row + r, n);
      if (args.residual) sum += load_partial(args.residual + to + r, n);
      store_partial(args.out + to + r, sum, n);
    }
  }
}

}  // namespace puna::PUNA_ISA
