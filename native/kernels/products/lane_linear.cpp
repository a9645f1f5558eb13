// Products with a matrix of few rows or few columns, whose lanes are rows of it: no sum over lanes is needed,
// and next to no work for each row.
#include "kernels/functions.h"
#include "kernels/products/float_rows.h"

namespace puna::PUNA_ISA {
namespace {

// A sum is split into as many: that of columns c of each kSums, added up in a fixed tree at the end.
inline constexpr int kSums = 4;
#if defined(PUNA_AVX512)
inline constexpr int kLaneTokens = 4;
#else
inline constexpr int kLaneTokens = 1;
#endif

// The hardware's streams end with each page: so far ahead, a matrix is fetched by hand.
inline constexpr uintptr_t kAhead = 2048;
template <uintptr_t kSize>
PUNA_INLINE void prefetch_lines(uintptr_t address) {
  PUNA_UNROLL(4)
  for (uintptr_t i = 0; i < kSize; i += 64) prefetch_later(address + i);
}

// 16 rows for kTokens tokens; w: of column args.col_begin.
template <TensorType kType, int kTokens>
PUNA_INLINE void multiply_lanes(const LaneLinearArgs& args, const uint8_t* w, const float* const* x,
                                f32x16* out) {
  constexpr int64_t kBytes = kLanes * kFloatBytes<kType>;
  f32x16 sums[kSums][kTokens];
  PUNA_UNROLL(4)
  for (int i = 0; i < kSums; ++i) {
    PUNA_UNROLL(4)
    for (int t = 0; t < kTokens; ++t) sums[i][t] = splat(0.0f);
  }
  int64_t c = args.col_begin;
  for (; c + kSums <= args.col_end; c += kSums, w += kSums * kBytes) {
    prefetch_lines<kSums * kBytes>(reinterpret_cast<uintptr_t>(w) + kAhead);
    PUNA_UNROLL(4)
    for (int i = 0; i < kSums; ++i) {
      const f32x16 weights = load_floats<kType>(w + i * kBytes);
      PUNA_UNROLL(4)
      for (int t = 0; t < kTokens; ++t) sums[i][t] = fma(weights, splat(x[t][c + i]), sums[i][t]);
    }
  }
  for (; c < args.col_end; ++c, w += kBytes) {
    const f32x16 weights = load_floats<kType>(w);
    PUNA_UNROLL(4)
    for (int t = 0; t < kTokens; ++t) sums[0][t] = fma(weights, splat(x[t][c]), sums[0][t]);
  }
  PUNA_UNROLL(4)
  for (int t = 0; t < kTokens; ++t) out[t] = (sums[0][t] + sums[1][t]) + (sums[2][t] + sums[3][t]);
}

template <TensorType kType, int kTokens>
void multiply_rows(const LaneLinearArgs& args, int64_t token) {
  const LaneWeight& weight = *args.weight;
  const float* x[kTokens];
  float* out[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    x[t] = args.x + (args.x_rows ? args.x_rows[token + t] : token + t) * args.x_stride;
    out[t] = args.out + (args.out_rows ? args.out_rows[token + t] : token + t) * args.out_stride;
  }
  for (int64_t row = args.row_begin; row < args.row_end; row += kLanes) {
    const uint8_t* w = weight.data + (row * weight.cols + args.col_begin * kLanes) * kFloatBytes<kType>;
    f32x16 sums[kTokens];
    multiply_lanes<kType, kTokens>(args, w, x, sums);
    const int64_t n = args.row_end - row < kLanes ? args.row_end - row : kLanes;
    for (int t = 0; t < kTokens; ++t) {
      float* to = out[t] + row - args.row_begin;
      store_partial(to, args.adds ? load_partial(to, n) + sums[t] : sums[t], n);
    }
  }
}

template <TensorType kType>
void multiply_all(const LaneLinearArgs& args) {
  int64_t token = 0;
  if constexpr (kLaneTokens > 1)
    for (; token + kLaneTokens <= args.num_tokens; token += kLaneTokens)
      multiply_rows<kType, kLaneTokens>(args, token);
  for (; token < args.num_tokens; ++token) multiply_rows<kType, 1>(args, token);
}

}  // namespace

void lane_linear(const LaneLinearArgs& args) {
  switch (args.weight->type) {
    case TensorType::kF32:
      return multiply_all<TensorType::kF32>(args);
    case TensorType::kF16:
      return multiply_all<TensorType::kF16>(args);
    default:
      return multiply_all<TensorType::kBF16>(args);
  }
}

}  // namespace puna::PUNA_ISA
