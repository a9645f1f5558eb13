// The loops that all linear kernels share. Two tiles of 16 rows are unpacked, a chunk of columns at a time,
// into a buffer that stays in the first-level cache, and multiplied with all tokens, a few at a time.
//
// Lane r of every vector belongs to row r, and each (row, token) has one running sum to which blocks of 32
// columns are added in order. Neither the number of tokens nor how they are grouped changes a result.
//
// A Method (matmul_quantized.cpp, matmul_float.cpp) provides
//   Block                        32 columns of a tile, unpacked
//   kChunkColumns
//   packed_bytes(columns)        of a weight row in the file
//   activation_bytes(columns)    of a row of x
//   unpack(p, stride, columns, blocks, ahead)   columns of 16 rows; prefetches what is at `ahead`
//   multiply<tiles, tokens>(blocks, columns, x, x_stride, sums)   the second tile's blocks follow a whole
//                                                                 chunk of the first's
#pragma once

#include "kernels/kernels.h"
#include "simd/columns.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {

inline constexpr int kPairTiles = 2;
inline constexpr int kPairRows = kPairTiles * kRowTile;
inline constexpr int kMaxTokens = 256;  // tokens per unpacked chunk: their sums stay in the cache

typedef float PairSums[kPairRows];  // of one token

template <typename Method>
struct alignas(64) PairBuffer {
  static constexpr int kChunkBlocks = (Method::kChunkColumns + 31) / 32;
  typename Method::Block blocks[kPairTiles][kChunkBlocks];
  PairSums sums[kMaxTokens];
  uint8_t tail[kRowTile][Method::packed_bytes(Method::kChunkColumns)];
};

// Unpacks columns of one tile. A tile with fewer rows than 16 is copied first, so that nothing is read past
// the weight's end; the other lanes' results are never stored.
template <typename Method>
PUNA_INLINE void unpack_tile(const Weight& weight, int64_t row, int64_t k, int64_t columns, uintptr_t ahead,
                             typename Method::Block* blocks,
                             uint8_t (*tail)[Method::packed_bytes(Method::kChunkColumns)]) {
  const uint8_t* p = weight.row(row) + Method::packed_bytes(k);
  if (weight.rows - row >= kRowTile) {
    Method::unpack(p, (int64_t)weight.row_bytes, columns, blocks, ahead);
    return;
  }
  std::memset(tail, 0, sizeof tail[0] * kRowTile);
  for (int64_t r = 0; r < weight.rows - row; ++r)
    std::memcpy(tail[r], p + r * (int64_t)weight.row_bytes, (size_t)Method::packed_bytes(columns));
  Method::unpack(tail[0], sizeof tail[0], columns, blocks, ahead);
}

template <typename Method, int kTiles>
void multiply_tokens(const typename Method::Block* blocks, int64_t columns, const uint8_t* x,
                     int64_t x_stride, int64_t num_tokens, PairSums* sums) {
  int64_t t = 0;
  for (; t + kTokenGroup <= num_tokens; t += kTokenGroup)
    Method::template multiply<kTiles, kTokenGroup>(blocks, columns, x + t * x_stride, x_stride, sums + t);
  x += t * x_stride;
  sums += t;
  switch (num_tokens - t) {
    case 1:
      return Method::template multiply<kTiles, 1>(blocks, columns, x, x_stride, sums);
    case 2:
      return Method::template multiply<kTiles, 2>(blocks, columns, x, x_stride, sums);
    case 3:
      return Method::template multiply<kTiles, 3>(blocks, columns, x, x_stride, sums);
  }
}

// Rows [row, row + num_rows) of tokens [token, token + num_tokens).
PUNA_INLINE void store_sums(const LinearArgs& args, const PairSums* sums, int64_t token, int64_t num_tokens,
                            int64_t row, int64_t num_rows) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t to = (token + t) * args.out_stride + row;
    for (int64_t r = 0; r < num_rows; r += kRowTile) {
      const int64_t n = num_rows - r < kRowTile ? num_rows - r : kRowTile;
      f32x16 sum = load(sums[t] + r);
      if (args.bias) sum += load_partial(args.bias + row + r, n);
      if (args.residual) sum += load_partial(args.residual + to + r, n);
      store_partial(args.out + to + r, sum, n);
    }
  }
}

// `tiles` of them, multiplied with at most kMaxTokens tokens.
template <typename Method>
void linear_pair(const LinearArgs& args, int64_t row, int tiles, uintptr_t ahead, int64_t token,
                 int64_t num_tokens) {
  typedef PairBuffer<Method> Buffer;
  alignas(64) Buffer buffer;
  const Weight& weight = *args.weight;
  const int64_t x_stride = Method::activation_bytes(weight.cols);
  const uint8_t* x = static_cast<const uint8_t*>(args.x) + token * x_stride;
  std::memset(buffer.sums, 0, sizeof(PairSums) * (size_t)num_tokens);
  for (int64_t k = 0; k < weight.cols; k += Method::kChunkColumns) {
    const int64_t columns = weight.cols - k < Method::kChunkColumns ? weight.cols - k : Method::kChunkColumns;
    for (int tile = 0; tile < tiles; ++tile) {
      unpack_tile<Method>(weight, row + tile * kRowTile, k, columns, ahead, buffer.blocks[tile], buffer.tail);
      ahead += (uintptr_t)(kRowTile * Method::packed_bytes(columns));
    }
    const uint8_t* x_chunk = x + Method::activation_bytes(k);
    if (tiles == 2)
      multiply_tokens<Method, 2>(buffer.blocks[0], columns, x_chunk, x_stride, num_tokens, buffer.sums);
    else
      multiply_tokens<Method, 1>(buffer.blocks[0], columns, x_chunk, x_stride, num_tokens, buffer.sums);
  }
  const int64_t rows = args.row_end - row < tiles * kRowTile ? args.row_end - row : tiles * kRowTile;
  store_sums(args, buffer.sums, token, num_tokens, row, rows);
}

template <typename Method>
void linear_tiles(const LinearArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; row += kPairRows) {
    const int tiles = args.row_end - row > kRowTile ? 2 : 1;
    // The next pair's rows follow in memory; they are prefetched evenly while this pair is multiplied. Behind
    // the last whole pair may be another thread's rows: then this pair's own.
    const int64_t next = row + 2 * kPairRows <= args.row_end ? row + kPairRows : row;
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(args.weight->row(next));
    for (int64_t token = 0; token < args.num_tokens; token += kMaxTokens) {
      const int64_t tokens = args.num_tokens - token < kMaxTokens ? args.num_tokens - token : kMaxTokens;
      linear_pair<Method>(args, row, tiles, ahead, token, tokens);
    }
  }
}

}  // namespace puna::PUNA_ISA
