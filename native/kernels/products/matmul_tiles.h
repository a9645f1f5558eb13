// The loops that all linear kernels share. Two tiles of 16 rows are unpacked, a chunk of columns at a time,
// into a buffer that stays in the first-level cache, and multiplied with all tokens, a few at a time.
//
// Lane r of every vector belongs to row r, and each (row, token) has one running sum to which blocks of 32
// columns are added in order. Neither the number of tokens nor how they are grouped changes a result.
//
// What differs between the types of weights is called through pointers, once per tile or pair and chunk
// (TileFormat), so these loops are compiled once.
#pragma once

#include "kernels/kernels.h"
#include "kernels/products/activation_block.h"
#include "kernels/products/weight_block.h"
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

inline constexpr int kMaxChunkBlocks = 20;  // two tiles of them fill a first-level cache of 32 KiB
inline constexpr int64_t kMaxChunkColumns = kMaxChunkBlocks * kBlockValues;
inline constexpr int64_t kChunkColumns = 512;       // that every type's blocks divide
inline constexpr int64_t kShortChunkColumns = 256;  // as many as are worth the way through the cache
inline constexpr int64_t kMaxBlockBytes = 34;       // of 32 values of any type

struct PairTask;

// A type of weights.
struct TileFormat {
  int64_t block_bytes;  // of a block in the file
  int columns_shift;    // log2 of its columns
  int zero_shift;       // log2 of WeightBlock's zero
  // 16 rows, `stride` bytes apart, to num_blocks blocks. The second one fetches as many bytes from `next` on.
  typedef void Unpack(const uint8_t* rows, int64_t stride, uintptr_t next, int64_t num_blocks,
                      WeightBlock* out);
  Unpack *unpack, *unpack_and_fetch;
  // An unpacked tile, or pair, with all tokens of the task: columns [k, k + columns).
  void (*multiply_tile)(PairTask& task, int64_t k, int64_t columns);
  void (*multiply_pair)(PairTask& task, int64_t k, int64_t columns);

  int64_t packed_bytes(int64_t columns) const { return (columns >> columns_shift) * block_bytes; }
};

struct alignas(64) PairBuffer {
  WeightBlock blocks[kPairTiles][kMaxChunkBlocks];
  PairSums sums[kMaxTokens];
  uint8_t tail[kRowTile][kMaxChunkBlocks * kMaxBlockBytes];
};

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

// A pair of tiles and the tokens it is multiplied with.
struct PairTask {
  const LinearArgs& args;
  const TileFormat& format;
  int64_t row, num_rows;      // of the weight
  int64_t token, num_tokens;  // at most kMaxTokens
  PairBuffer& buffer;
  SpreadFetch fetch = {};

  // Columns of one tile. A tile with fewer rows than 16 is copied first, so that nothing is read past the
  // weight's end; the other lanes' results are never stored.
  void unpack_tile(TileFormat::Unpack* unpack, int tile, int64_t k, int64_t columns, uintptr_t next) {
    const Weight& weight = *args.weight;
    const int64_t first = row + tile * kRowTile;
    const uint8_t* p = weight.row(first) + format.packed_bytes(k);
    int64_t stride = (int64_t)weight.row_bytes;
    if (weight.rows - first < kRowTile) {
      std::memset(buffer.tail, 0, sizeof buffer.tail);
      for (int64_t r = 0; r < weight.rows - first; ++r)
        std::memcpy(buffer.tail[r], p + r * stride, (size_t)format.packed_bytes(columns));
      p = buffer.tail[0];
      stride = sizeof buffer.tail[0];
    }
    unpack(p, stride, next, columns / kBlockValues, buffer.blocks[tile]);
  }

  // Those of kTokens tokens from `first` on, from column k on.
  template <int kTokens>
  inline __attribute__((always_inline)) TokenRows<kTokens> rows(int64_t first, int64_t k) const {
    const uint8_t* x =
        static_cast<const uint8_t*>(args.x) + k / kBlockValues * (int64_t)sizeof(ActivationBlock);
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
};

// Columns [k, k + columns) of kTokens tokens from `first` on. Behind the last chunk their sums are complete
// and leave at once: the stores, a cache line here and there, then drain while the next tokens' are computed.
template <typename Product, int kTiles, int kTokens>
PUNA_INLINE void multiply_tokens(PairTask& task, int64_t k, int64_t columns, int64_t first) {
  const bool last = k + columns == task.args.weight->cols;
  if (last) task.prefetch_results(first + kTokenGroup);
  PairSums* sums = task.buffer.sums + first;
  Product::template multiply<kTiles, kTokens>(task.buffer.blocks[0], kMaxChunkBlocks, columns / kBlockValues,
                                              task.format.zero_shift, task.rows<kTokens>(first, k), sums,
                                              task.fetch);
  if (last) store_sums(task.args, sums, task.token + first, kTokens, task.row, task.num_rows);
}

// Product::multiply<tiles, tokens>(blocks, tile_blocks, num_blocks, zero_shift, x, sums, fetch): the second
// tile's blocks are `tile_blocks` behind the first's; a whole group of tokens fetches some of `fetch` beside
// every block.
template <typename Product, int kTiles>
void multiply_all(PairTask& task, int64_t k, int64_t columns) {
  int64_t first = 0;
  for (; first + kTokenGroup <= task.num_tokens; first += kTokenGroup)
    multiply_tokens<Product, kTiles, kTokenGroup>(task, k, columns, first);
  switch (task.num_tokens - first) {
    case 1:
      return multiply_tokens<Product, kTiles, 1>(task, k, columns, first);
    case 2:
      if constexpr (kTokenGroup > 2) return multiply_tokens<Product, kTiles, 2>(task, k, columns, first);
      break;
    case 3:
      if constexpr (kTokenGroup > 3) return multiply_tokens<Product, kTiles, 3>(task, k, columns, first);
  }
}

// For few tokens, when memory is what takes the time, chunks are short: weights are fetched all the time
// rather than in bursts.
inline int64_t chunk_columns(int64_t cols, int64_t num_tokens) {
  constexpr int64_t kFewTokens = 32;
  if (num_tokens < kFewTokens) return kShortChunkColumns;
  return cols <= kMaxChunkColumns ? cols : kChunkColumns;
}

// `next`: the weights to be fetched, as many bytes as the pair's. That is done while a chunk is unpacked,
// which takes most of the time of few tokens, or else, then undisturbed, while it is multiplied.
inline void linear_pair(const LinearArgs& args, const TileFormat& format, int64_t row, int tiles,
                        uintptr_t next, int64_t token, int64_t num_tokens) {
  constexpr int64_t kSpreadTokens = 8;
  alignas(64) PairBuffer buffer;
  const int64_t cols = args.weight->cols;
  const int64_t rows = args.row_end - row < tiles * kRowTile ? args.row_end - row : tiles * kRowTile;
  PairTask task{args, format, row, rows, token, num_tokens, buffer};
  std::memset(buffer.sums, 0, sizeof(PairSums) * (size_t)num_tokens);
  const int64_t chunk = chunk_columns(cols, args.num_tokens);
  for (int64_t k = 0; k < cols; k += chunk) {
    const int64_t columns = cols - k < chunk ? cols - k : chunk;
    const int64_t tile_bytes = kRowTile * format.packed_bytes(columns);
    const bool spread = num_tokens >= kSpreadTokens;
    for (int tile = 0; tile < tiles; ++tile)
      task.unpack_tile(spread ? format.unpack : format.unpack_and_fetch, tile, k, columns,
                       next + (uintptr_t)(tile * tile_bytes));
    if (spread)
      task.fetch =
          SpreadFetch::over(num_tokens / kTokenGroup * (columns / kBlockValues), next, tiles * tile_bytes);
    next += (uintptr_t)(tiles * tile_bytes);
    (tiles == 2 ? format.multiply_pair : format.multiply_tile)(task, k, columns);
  }
}

inline void linear_tiles(const LinearArgs& args, const TileFormat& format) {
  for (int64_t row = args.row_begin; row < args.row_end; row += kPairRows) {
    const int tiles = args.row_end - row > kRowTile ? 2 : 1;
    // The next pair's rows follow in memory.
    const bool last = row + kPairRows >= args.row_end;
    const uint8_t* next = last && args.next ? args.next : args.weight->row(last ? row : row + kPairRows);
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(next);
    for (int64_t token = 0; token < args.num_tokens; token += kMaxTokens) {
      const int64_t tokens = args.num_tokens - token < kMaxTokens ? args.num_tokens - token : kMaxTokens;
      linear_pair(args, format, row, tiles, ahead, token, tokens);
    }
  }
}

}  // namespace puna::PUNA_ISA
