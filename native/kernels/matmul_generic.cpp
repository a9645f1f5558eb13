// Types without a kernel of their own: a few rows at a time become floats, which stay in the cache while they
// are multiplied with many tokens.
#include "kernels/float_rows.h"
#include "kernels/functions.h"

namespace puna::PUNA_ISA {
namespace {

inline constexpr int kTileColumns = 256;  // whole blocks of any type
inline constexpr int kMaxGroups = 8;      // of tokens; their sums stay in the second-level cache

struct alignas(64) Tile {
  float weights[kRowTile][kTileColumns];
  TokenSums sums[kMaxGroups][kRowTile];
};

// Rows [row, row + num_rows), at most kRowTile, of at most kMaxGroups groups of tokens.
void linear_tile(const LinearArgs& args, int64_t row, int64_t num_rows, int64_t token, int64_t num_tokens) {
  const Weight& weight = *args.weight;
  const TypeTraits& traits = *type_traits(weight.type);
  Tile tile;
  const int64_t groups = (num_tokens + kFloatTokens - 1) / kFloatTokens;
  std::memset(tile.sums, 0, sizeof tile.sums[0] * (size_t)groups);
  for (int64_t k = 0; k < weight.cols; k += kTileColumns) {
    const int64_t columns = weight.cols - k < kTileColumns ? weight.cols - k : kTileColumns;
    const int64_t offset = k / traits.block_elements * traits.block_bytes;
    for (int64_t r = 0; r < num_rows; ++r)
      dequantize(weight.type, weight.row(row + r) + offset, tile.weights[r], columns);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * kFloatTokens;
      const int64_t tokens = num_tokens - first < kFloatTokens ? num_tokens - first : kFloatTokens;
      const float* x = static_cast<const float*>(args.x) + (token + first) * weight.cols + k;
      multiply_group<TensorType::kF32, false>(num_rows, tokens,
                                              reinterpret_cast<const uint8_t*>(tile.weights[0]),
                                              sizeof tile.weights[0], x, weight.cols, columns, tile.sums[g]);
    }
  }
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * kFloatTokens;
    const int64_t tokens = num_tokens - first < kFloatTokens ? num_tokens - first : kFloatTokens;
    store_group(args, tile.sums[g], row, num_rows, token + first, tokens);
  }
}

}  // namespace

void linear_generic(const LinearArgs& args) {
  constexpr int64_t kMaxTokens = kMaxGroups * kFloatTokens;
  for (int64_t row = args.row_begin; row < args.row_end; row += kRowTile) {
    const int64_t rows = args.row_end - row < kRowTile ? args.row_end - row : kRowTile;
    for (int64_t token = 0; token < args.num_tokens; token += kMaxTokens) {
      const int64_t tokens = args.num_tokens - token < kMaxTokens ? args.num_tokens - token : kMaxTokens;
      linear_tile(args, row, rows, token, tokens);
    }
  }
}

}  // namespace puna::PUNA_ISA
