#include "kernels/functions.h"
#include "kernels/matmul_tiles.h"
#include "kernels/weight_block.h"

namespace puna::PUNA_ISA {
namespace {

inline constexpr int kPieceBytes = 32;  // of a row, unpacked at once

struct FloatBlock {
  static constexpr int kColumns = 32;
  f32x16 w[kColumns];  // lane r: row r
};

template <TensorType kType>
PUNA_INLINE void convert_word(u32x16 word, f32x16* out) {
  if (kType == TensorType::kF32) {
    out[0] = (f32x16)word;
  } else if (kType == TensorType::kF16) {
    out[0] = f16_to_float(word);
    out[1] = f16_to_float(word >> 16);
  } else {
    out[0] = (f32x16)(word << 16);
    out[1] = (f32x16)(word & 0xffff0000u);
  }
}

// sums[tile][t] += the sum over the block's first `columns` columns, which has an accumulator of its own:
// long sums then lose less to rounding.
template <int kTiles, int kTokens>
PUNA_INLINE void multiply_block(const FloatBlock* const (&w)[kTiles], const float* const (&x)[kTokens],
                                int columns, f32x16 (&sums)[kTiles][kTokens]) {
  f32x16 block_sums[kTiles][kTokens] = {};
  PUNA_UNROLL(4)
  for (int k = 0; k < columns; ++k) {
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      const f32x16 activation = splat(x[t][k]);
      PUNA_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile)
        block_sums[tile][t] = fma(w[tile]->w[k], activation, block_sums[tile][t]);
    }
  }
  PUNA_UNROLL(8)
  for (int t = 0; t < kTokens; ++t) {
    PUNA_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) sums[tile][t] += block_sums[tile][t];
  }
}

template <TensorType kType>
struct FloatMethod {
  typedef FloatBlock Block;
  static constexpr int64_t kBlockColumns = FloatBlock::kColumns;
  static constexpr int64_t kMaxChunkColumns = 128, kChunkColumns = 128, kShortChunkColumns = 128;
  static constexpr int64_t kWeightBytes = kType == TensorType::kF32 ? 4 : 2;
  static constexpr int64_t kPieceColumns = kPieceBytes / kWeightBytes;

  static constexpr int64_t packed_bytes(int64_t columns) { return columns * kWeightBytes; }
  static constexpr int64_t activation_bytes(int64_t columns) { return columns * (int64_t)sizeof(float); }

  PUNA_INLINE void unpack_piece(TileReader& in, f32x16* out) {
    u32x16 words[8];
    in.words8(0, words);
    PUNA_UNROLL(8)
    for (int j = 0; j < 8; ++j) convert_word<kType>(words[j], out + j * kPieceColumns / 8);
  }

  static void unpack(const uint8_t* p, int64_t stride, int64_t columns, FloatBlock* blocks, uintptr_t ahead) {
    TileReader in{p, stride, ahead};
    f32x16* out = blocks->w;
    int64_t k = 0;
    for (; k + kPieceColumns <= columns; k += kPieceColumns, in.p += kPieceBytes) unpack_piece(in, out + k);
    if (k == columns) return;
    uint8_t rest[kRowTile][kPieceBytes] = {};
    for (int r = 0; r < kRowTile; ++r)
      std::memcpy(rest[r], in.p + r * stride, (size_t)packed_bytes(columns - k));
    TileReader last{rest[0], kPieceBytes, in.ahead};
    unpack_piece(last, out + k);
  }

  template <int kTiles, int kTokens>
  static void multiply(const FloatBlock* blocks, int64_t columns, const uint8_t* x, int64_t x_stride,
                       PairSums* pair_sums) {
    f32x16 sums[kTiles][kTokens];
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      PUNA_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) sums[tile][t] = load(pair_sums[t] + tile * kRowTile);
    }
    for (int64_t k = 0; k < columns; k += kBlockColumns) {
      const FloatBlock* w[kTiles];
      const float* activations[kTokens];
      PUNA_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) w[tile] = blocks + (tile * kMaxChunkColumns + k) / kBlockColumns;
      PUNA_UNROLL(8)
      for (int t = 0; t < kTokens; ++t) activations[t] = reinterpret_cast<const float*>(x + t * x_stride) + k;
      const int left = (int)(columns - k);
      multiply_block(w, activations, left < kBlockColumns ? left : (int)kBlockColumns, sums);
    }
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      PUNA_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) store(pair_sums[t] + tile * kRowTile, sums[tile][t]);
    }
  }
};

}  // namespace

void linear_float(const LinearArgs& args) {
  switch (args.weight->type) {
    case TensorType::kF32:
      return linear_tiles<FloatMethod<TensorType::kF32>>(args);
    case TensorType::kF16:
      return linear_tiles<FloatMethod<TensorType::kF16>>(args);
    default:
      return linear_tiles<FloatMethod<TensorType::kBF16>>(args);
  }
}

}  // namespace puna::PUNA_ISA
