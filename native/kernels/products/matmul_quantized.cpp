#include <bit>

#include "kernels/functions.h"
#include "kernels/products/activation_block.h"
#include "kernels/products/matmul_tiles.h"
#include "kernels/products/unpack_codebook.h"
#include "kernels/products/unpack_few_bits.h"

namespace puna::PUNA_ISA {
namespace {

// Of the unsigned bytes that the type's weights are unpacked to: for some instruction sets, small ones make
// products cheaper.
constexpr int largest_value(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ4_K:
    case TensorType::kTQ1_0:
    case TensorType::kTQ2_0:
    case TensorType::kQ1_0:
    case TensorType::kQ2_0:
      return 15;
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ5_K:
      return 31;
    case TensorType::kQ2_K:
    case TensorType::kQ6_K:
      return 63;
    default:
      return 255;
  }
}

// What dot products of the unsigned weights need to be exact: they start from -zero * sum of activations.
PUNA_INLINE i32x16 minus_zero_times(int32_t negative_sum, int zero_shift) {
  return splat(negative_sum) << zero_shift;
}

PUNA_INLINE int32_t four_activations(const ActivationBlock& x, int g) {
  int32_t four;
  std::memcpy(&four, x.q + 4 * g, sizeof four);
  return four;
}

// sums[tile][t] += block of w times block of x.
template <Correction kCorrection, int kLargest, int kTiles, int kTokens>
PUNA_INLINE void multiply_block(const WeightBlock* const (&w)[kTiles],
                                const ActivationBlock* const (&x)[kTokens], int zero_shift,
                                f32x16 (&sums)[kTiles][kTokens]) {
  constexpr bool kSplit = kCorrection == Correction::kSubScales;
  i32x16 dots[kTiles][kTokens], low_dots[kTiles][kTokens];
  PUNA_UNROLL(8)
  for (int t = 0; t < kTokens; ++t) {
    i32x16 start = {}, low_start = {};
    if (kCorrection == Correction::kZeroPoint || kSplit)
      start = minus_zero_times(x[t]->negative_sum, zero_shift);
    if (kSplit) {
      low_start = minus_zero_times(x[t]->negative_low_sum, zero_shift);
      start -= low_start;
    }
    PUNA_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) dots[tile][t] = start, low_dots[tile][t] = low_start;
  }
  PUNA_UNROLL(2)
  for (int g = 0; g < 8; g += 4) {
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      const i32x16 activations[4] = {splat(four_activations(*x[t], g)), splat(four_activations(*x[t], g + 1)),
                                     splat(four_activations(*x[t], g + 2)),
                                     splat(four_activations(*x[t], g + 3))};
      PUNA_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) {
        const u32x16* q = w[tile]->q + g;
        const u32x16 weights[4] = {q[0], q[1], q[2], q[3]};
        i32x16& dot = kSplit && g < 4 ? low_dots[tile][t] : dots[tile][t];
        dot = dot16_u8s8<kLargest>(dot, weights, activations);
      }
    }
  }
  PUNA_UNROLL(8)
  for (int t = 0; t < kTokens; ++t) {
    PUNA_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) {
      f32x16 dot = to_float(dots[tile][t]);
      // Exact for integers a and b: both products and their sum stay below 2^24.
      if (kSplit) dot = fma(dot, w[tile]->b, to_float(low_dots[tile][t]) * w[tile]->a);
      f32x16 sum = fma(dot, w[tile]->scale * x[t]->scale, sums[tile][t]);
      if (kCorrection == Correction::kMin) sum = fma(w[tile]->a, splat(x[t]->negative_scaled_sum), sum);
      if (kCorrection == Correction::kHalfMins) {
        const int32_t low = x[t]->negative_low_sum, high = x[t]->negative_sum - low;
        sum = fma(fma(w[tile]->a, splat((float)low), w[tile]->b * (float)high), splat(x[t]->scale), sum);
      }
      sums[tile][t] = sum;
    }
  }
}

template <Correction kCorrection, int kLargest, int kTiles, int kTokens>
void multiply_blocks(const WeightBlock* blocks, int64_t tile_blocks, int64_t num_blocks, int zero_shift,
                     const TokenRows<kTokens>& x, PairSums* pair_sums, SpreadFetch& fetch) {
  SpreadFetch weights = fetch;  // in registers
  f32x16 sums[kTiles][kTokens];
  PUNA_UNROLL(8)
  for (int t = 0; t < kTokens; ++t) {
    PUNA_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) sums[tile][t] = load(pair_sums[t] + tile * kRowTile);
  }
  for (int64_t i = 0; i < num_blocks; ++i) {
    const WeightBlock* w[kTiles];
    const ActivationBlock* activations[kTokens];
    PUNA_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) w[tile] = blocks + tile * tile_blocks + i;
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      activations[t] = reinterpret_cast<const ActivationBlock*>(x.row[t]) + i;
      if (kTokens == kTokenGroup)
        prefetch_soon(reinterpret_cast<uintptr_t>(x.next[t]) + i * sizeof(ActivationBlock));
    }
    if (kTokens == kTokenGroup) weights.fetch_some();
    multiply_block<kCorrection, kLargest>(w, activations, zero_shift, sums);
  }
  fetch = weights;
  PUNA_UNROLL(8)
  for (int t = 0; t < kTokens; ++t) {
    PUNA_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) store(pair_sums[t] + tile * kRowTile, sums[tile][t]);
  }
}

template <Correction kCorrection, int kLargest>
struct Product {
  template <int kTiles, int kTokens>
  PUNA_INLINE void multiply(const WeightBlock* blocks, int64_t tile_blocks, int64_t num_blocks,
                            int zero_shift, const TokenRows<kTokens>& x, PairSums* sums, SpreadFetch& fetch) {
    multiply_blocks<kCorrection, kLargest, kTiles, kTokens>(blocks, tile_blocks, num_blocks, zero_shift, x,
                                                            sums, fetch);
  }
};

template <TensorType kType, typename Ahead>
void unpack_rows(const uint8_t* rows, int64_t stride, uintptr_t next, int64_t num_blocks, WeightBlock* out) {
  TileReader<Ahead> in{rows, stride, Ahead{next}};
  Unpacker<kType>::unpack(in, num_blocks, out);
}

template <TensorType kType>
constexpr TileFormat tile_format() {
  typedef Unpacker<kType> Format;
  typedef std::conditional_t<kFetchesAhead, FetchAhead, FetchNothing> Fetching;
  typedef Product<Format::kCorrection, dot16_limit(largest_value(kType))> Products;
  static_assert(Format::kBytes <= Format::kBlocks * kMaxBlockBytes);
  return {Format::kBytes,
          std::countr_zero((unsigned)(Format::kBlocks * kBlockValues)),
          std::countr_zero((unsigned)Format::kZero),
          unpack_rows<kType, FetchNothing>,
          unpack_rows<kType, Fetching>,
          multiply_all<Products, 1>,
          multiply_all<Products, 2>};
}

template <TensorType kType>
void linear_of(const LinearArgs& args) {
  static constexpr TileFormat kFormat = tile_format<kType>();
  linear_tiles(args, kFormat);
}

}  // namespace

void linear_quantized(const LinearArgs& args) {
  switch (args.weight->type) {
    case TensorType::kQ4_0:
      return linear_of<TensorType::kQ4_0>(args);
    case TensorType::kQ4_1:
      return linear_of<TensorType::kQ4_1>(args);
    case TensorType::kQ5_0:
      return linear_of<TensorType::kQ5_0>(args);
    case TensorType::kQ5_1:
      return linear_of<TensorType::kQ5_1>(args);
    case TensorType::kQ8_0:
      return linear_of<TensorType::kQ8_0>(args);
    case TensorType::kQ2_K:
      return linear_of<TensorType::kQ2_K>(args);
    case TensorType::kQ3_K:
      return linear_of<TensorType::kQ3_K>(args);
    case TensorType::kQ4_K:
      return linear_of<TensorType::kQ4_K>(args);
    case TensorType::kQ5_K:
      return linear_of<TensorType::kQ5_K>(args);
    case TensorType::kQ6_K:
      return linear_of<TensorType::kQ6_K>(args);
    case TensorType::kIQ4_NL:
      return linear_of<TensorType::kIQ4_NL>(args);
    case TensorType::kIQ4_XS:
      return linear_of<TensorType::kIQ4_XS>(args);
    case TensorType::kMXFP4:
      return linear_of<TensorType::kMXFP4>(args);
    case TensorType::kIQ1_S:
      return linear_of<TensorType::kIQ1_S>(args);
    case TensorType::kIQ1_M:
      return linear_of<TensorType::kIQ1_M>(args);
    case TensorType::kIQ2_XXS:
      return linear_of<TensorType::kIQ2_XXS>(args);
    case TensorType::kIQ2_XS:
      return linear_of<TensorType::kIQ2_XS>(args);
    case TensorType::kIQ2_S:
      return linear_of<TensorType::kIQ2_S>(args);
    case TensorType::kIQ3_XXS:
      return linear_of<TensorType::kIQ3_XXS>(args);
    case TensorType::kIQ3_S:
      return linear_of<TensorType::kIQ3_S>(args);
    case TensorType::kTQ1_0:
      return linear_of<TensorType::kTQ1_0>(args);
    case TensorType::kTQ2_0:
      return linear_of<TensorType::kTQ2_0>(args);
    case TensorType::kNVFP4:
      return linear_of<TensorType::kNVFP4>(args);
    case TensorType::kQ1_0:
      return linear_of<TensorType::kQ1_0>(args);
    case TensorType::kQ2_0:
      return linear_of<TensorType::kQ2_0>(args);
    default:
      __builtin_unreachable();
  }
}

}  // namespace puna::PUNA_ISA
