// The loops that all linear kernels share. Two tiles of 16 rows are unpacked, a chunk of columns at a time,
// into a buffer that stays in the first-level cache, and multiplied with all tokens, a few at a time.
//
// Lane r of every vector belongs to row r, and each (row, token) has one running sum to which blocks of 32
// columns are added in order. Neither the number of tokens nor how they are grouped changes a result.
//
// A Method (matmul_quantized.cpp) provides
//   Block                        32 columns of a tile, unpacked
//   kMaxChunkColumns             columns that fit the cache, unpacked
//   kChunkColumns                the same, a multiple of what is unpacked most easily
//   kShortChunkColumns           as many columns as are worth the way through the cache
//   packed_bytes(columns)        of a weight row in the file
//   activation_bytes(columns)    of a row of x
//   unpack(p, stride, columns, blocks, ahead)   columns of 16 rows; ahead: what is fetched meanwhile
//   multiply<tiles, tokens>(blocks, columns, x, sums, fetch)   the second tile's blocks follow a whole chunk
//                                of the first's; a whole group of tokens fetches some of `fetch` beside every
//                                kBlockValues columns
#pragma once

#include "kernels/activation_block.h"
#include "kernels/kernels.h"
#include "simd/columns.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {

inline constexpr int kPairTiles = 2;
inline constexpr int kPairRows = kPairTiles * kRowTile;
// Tokens per unpacked chunk: their sums stay in the second-level cache.
inline constexpr int kMaxTokens = 512;

typedef float PairSums[kPairRows];  // of one token

// Where a few tokens' activations begin, and those of the tokens that come next: new streams, which the
// hardware would notice too late.
template <int kTokens>
struct TokenRows {
  const uint8_t* row[kTokens];
  const uint8_t* next[kTokens];
};

template <typename Method>
struct alignas(64) PairBuffer {
  static constexpr int kChunkBlocks = Method::kMaxChunkColumns / kBlockValues;
  typename Method::Block blocks[kPairTiles][kChunkBlocks];
  PairSums sums[kMaxTokens];
  uint8_t tail[kRowTile][Method::packed_bytes(Method::kMaxChunkColumns)];
};

// Unpacks columns of one tile. A tile with fewer rows than 16 is copied first, so that nothing is read past
// the weight's end; the other lanes' results are never stored.
template <typename Method, typename Ahead>
PUNA_INLINE void unpack_tile(const Weight& weight, int64_t row, int64_t k, int64_t columns, Ahead ahead,
                             typename Method::Block* blocks,
                             uint8_t (*tail)[Method::packed_bytes(Method::kMaxChunkColumns)]) {
  const uint8_t* p = weight.row(row) + Method::packed_bytes(k);
  int64_t stride = (int64_t)weight.row_bytes;
  if (weight.rows - row < kRowTile) {
    std::memset(tail, 0, sizeof tail[0] * kRowTile);
    for (int64_t r = 0; r < weight.rows - row; ++r)
      std::memcpy(tail[r], p + r * stride, (size_t)Method::packed_bytes(columns));
    p = tail[0];
    stride = sizeof tail[0];
  }
  Method::unpack(p, stride, columns, blocks, ahead);
}

// Rows [row, row + num_rows) of tokens [token, token + num_tokens) of what `sums` holds.
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

// What is fetched while a chunk is multiplied: so many bytes from an address on beside each block of columns
// and group of tokens, evenly, since memory is slower than bursts.
struct SpreadFetch {
  uintptr_t address = 0, due = 0, step = 0;

  static SpreadFetch over(int64_t steps, uintptr_t address, int64_t bytes) {
    return {address, address, (uintptr_t)((bytes + steps - 1) / steps)};
  }
  inline __attribute__((always_inline)) void fetch_some() {
    due += step;
    for (; address < due; address += 64) prefetch_later(address);
  }
};

// A pair of tiles, unpacked, and the tokens it is multiplied with.
template <typename Method>
struct PairTask {
  const LinearArgs& args;
  int64_t row, num_rows;      // of the weight
  int64_t token, num_tokens;  // at most kMaxTokens
  PairBuffer<Method>& buffer;
  SpreadFetch fetch = {};

  template <typename Ahead>
  void unpack(int64_t k, int64_t columns, int tiles, Ahead ahead) {
    for (int tile = 0; tile < tiles; ++tile) {
      unpack_tile<Method>(*args.weight, row + tile * kRowTile, k, columns, ahead, buffer.blocks[tile],
                          buffer.tail);
      ahead = ahead + kRowTile * Method::packed_bytes(columns);
    }
  }

  // Columns [k, k + columns) of kTokens tokens from `first` on. Behind the last chunk their sums are complete
  // and leave at once: the stores, a cache line here and there, then drain while the next tokens' are
  // computed.
  template <int kTiles, int kTokens>
  inline __attribute__((always_inline)) void multiply(int64_t k, int64_t columns, int64_t first) {
    const bool last = k + columns == args.weight->cols;
    if (last) prefetch_results(first + kTokenGroup);
    Method::template multiply<kTiles, kTokens>(buffer.blocks[0], columns, rows<kTokens>(first, k),
                                               buffer.sums + first, fetch);
    if (last) store_sums(args, buffer.sums + first, token + first, kTokens, row, num_rows);
  }

  // From column k on.
  template <int kTokens>
  inline __attribute__((always_inline)) TokenRows<kTokens> rows(int64_t first, int64_t k) const {
    const uint8_t* x = static_cast<const uint8_t*>(args.x) + Method::activation_bytes(k);
    TokenRows<kTokens> rows;
    PUNA_UNROLL(8)
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = token + first + t;
      const int64_t next = at + kTokens < token + num_tokens ? at + kTokens : at;
      rows.row[t] = x + (args.x_rows ? args.x_rows[at] : at) * args.x_stride;
      rows.next[t] = x + (args.x_rows ? args.x_rows[next] : next) * args.x_stride;
    }
    return rows;
  }

  inline __attribute__((always_inline)) void prefetch_results(int64_t first) const {
    for (int64_t t = token + first; t < token + num_tokens && t < token + first + kTokenGroup; ++t) {
      for (int64_t r = 0; r < num_rows; r += kRowTile) {
        __builtin_prefetch(args.out + t * args.out_stride + row + r, 1);
        if (args.residual) __builtin_prefetch(args.residual + t * args.out_stride + row + r);
      }
    }
  }

  template <int kTiles>
  void multiply_all(int64_t k, int64_t columns) {
    int64_t first = 0;
    for (; first + kTokenGroup <= num_tokens; first += kTokenGroup)
      multiply<kTiles, kTokenGroup>(k, columns, first);
    switch (num_tokens - first) {
      case 1:
        return multiply<kTiles, 1>(k, columns, first);
      case 2:
        return multiply<kTiles, 2>(k, columns, first);
      case 3:
        return multiply<kTiles, 3>(k, columns, first);
    }
  }
};

// For few tokens, when memory is what takes the time, chunks are short: weights are fetched all the time
// rather than in bursts.
template <typename Method>
int64_t chunk_columns(int64_t cols, int64_t num_tokens) {
  constexpr int64_t kFewTokens = 32;
  if (num_tokens < kFewTokens) return Method::kShortChunkColumns;
  return cols <= Method::kMaxChunkColumns ? cols : Method::kChunkColumns;
}

// `next`: the weights to be fetched, as many bytes as the pair's. That is done while a chunk is unpacked,
// which takes most of the time of few tokens, or else, then undisturbed, while it is multiplied.
template <typename Method>
void linear_pair(const LinearArgs& args, int64_t row, int tiles, uintptr_t next, int64_t token,
                 int64_t num_tokens) {
  constexpr int64_t kSpreadTokens = 8;
  alignas(64) PairBuffer<Method> buffer;
  const Weight& weight = *args.weight;
  const int64_t rows = args.row_end - row < tiles * kRowTile ? args.row_end - row : tiles * kRowTile;
  PairTask<Method> task{args, row, rows, token, num_tokens, buffer};
  std::memset(buffer.sums, 0, sizeof(PairSums) * (size_t)num_tokens);
  const int64_t chunk = chunk_columns<Method>(weight.cols, args.num_tokens);
  for (int64_t k = 0; k < weight.cols; k += chunk) {
    const int64_t columns = weight.cols - k < chunk ? weight.cols - k : chunk;
    const int64_t bytes = tiles * kRowTile * Method::packed_bytes(columns);
    if (num_tokens < kSpreadTokens) {
      task.unpack(k, columns, tiles, FetchAhead{next});
    } else {
      task.unpack(k, columns, tiles, FetchNothing{});
      task.fetch = SpreadFetch::over(num_tokens / kTokenGroup * (columns / kBlockValues), next, bytes);
    }
    next += (uintptr_t)bytes;
    if (tiles == 2)
      task.template multiply_all<2>(k, columns);
    else
      task.template multiply_all<1>(k, columns);
  }
}

template <typename Method>
void linear_tiles(const LinearArgs& args) {
  for (int64_t row = args.row_begin; row < args.row_end; row += kPairRows) {
    const int tiles = args.row_end - row > kRowTile ? 2 : 1;
    // The next pair's rows follow in memory.
    const bool last = row + kPairRows >= args.row_end;
    const uint8_t* next = last && args.next ? args.next : args.weight->row(last ? row : row + kPairRows);
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(next);
    for (int64_t token = 0; token < args.num_tokens; token += kMaxTokens) {
      const int64_t tokens = args.num_tokens - token < kMaxTokens ? args.num_tokens - token : kMaxTokens;
      linear_pair<Method>(args, row, tiles, ahead, token, tokens);
    }
  }
}

}  // namespace puna::PUNA_ISA
