#include "matrix_units/tile_linear.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "matrix_units/bfloat16_parts.h"
#include "matrix_units/weight_tiles.h"

namespace puna {
namespace {

constexpr int64_t kPairRows = 2 * kTile;  // two tiles by two are in the unit's registers

bool has_two_parts(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
}

}  // namespace

int tile_parts(TensorType type, int64_t cols) {
  const int parts = has_two_parts(type) ? 2 : type == TensorType::kQ8_0 ? 1 : 0;
  return steps_of(cols) * 2 * kTileBytes * parts <= kTileScratchBytes ? parts : 0;
}

#if defined(__x86_64__)
namespace {

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,amx-tile,amx-bf16")

// --- rows of x ---

int64_t row_bytes(int64_t cols, int num_parts) { return steps_of(cols) * kTileCols * 2 * num_parts; }

void split_row(const float* x, int64_t cols, int num_parts, void* out) {
  auto* to = static_cast<uint8_t*>(out);
  const int64_t part_bytes = row_bytes(cols, 1);
  for (int64_t k = 0; k < cols; k += kTileCols, to += 2 * kTileCols) {
    const __m512 first = _mm512_maskz_loadu_ps(mask_of(cols - k), x + k);
    const __m512 second = _mm512_maskz_loadu_ps(mask_of(cols - k - 16), x + k + 16);
    if (num_parts == 1) {
      _mm512_storeu_si512(to, rounded(first, second));
    } else {
      const Parts parts = split(first, second);
      _mm512_storeu_si512(to, parts.upper);
      _mm512_storeu_si512(to + part_bytes, parts.rest);
    }
  }
}

// --- the product ---

// Registers: 0 to 3 are sums (two runs of tokens by two of weights' rows), 4 and 5 tokens, 6 and 7 weights.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// For so many tokens, 32 or fewer.
void configure(int64_t tokens) {
  const int64_t first = std::min(tokens, kTile), second = tokens - first;
  Configuration c;
  const int64_t rows[8] = {first, first, second, second, first, second, kTile, kTile};
  for (int i = 0; i < 8; ++i) {
    c.rows[i] = static_cast<uint8_t>(std::max(rows[i], int64_t{1}));
    c.row_bytes[i] = 64;
  }
  _tile_loadconfig(&c);
}

// 32 tokens or fewer by 32 of the weight's rows or fewer.
struct Block {
  const uint8_t* x;
  int64_t x_stride, part_bytes;
  uint8_t* tiles;
  int64_t strip_bytes;  // tiles of 16 rows: of all steps, or else of those at hand
  TileRows* unpacked;   // [2], of which the tiles are to be made; nullptr: they are there
  bool has_second_tokens, has_second_rows;
  int64_t steps;
  int parts;
};

// What a product of upper parts and one of what they lack have in common.
#define PUNA_MULTIPLY(x_offset, w_offset)                            \
  _tile_loadd(4, x + (x_offset), b.x_stride);                        \
  _tile_loadd(6, w + (w_offset), 64);                                \
  _tile_dpbf16ps(0, 4, 6);                                           \
  if (b.has_second_rows) {                                           \
    _tile_loadd(7, v + (w_offset), 64);                              \
    _tile_dpbf16ps(1, 4, 7);                                         \
  }                                                                  \
  if (b.has_second_tokens) {                                         \
    _tile_loadd(5, x + (x_offset) + kTile * b.x_stride, b.x_stride); \
    _tile_dpbf16ps(2, 5, 6);                                         \
    if (b.has_second_rows) _tile_dpbf16ps(3, 5, 7);                  \
  }

// Weights are unpacked between products, so that the unit works meanwhile.
void multiply(const Block& b) {
  const uint8_t* x = b.x;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  int64_t at = 0;
  for (int64_t step = 0; step < b.steps; ++step, x += 2 * kTileCols) {
    uint8_t *w = b.tiles + at, *v = w + b.strip_bytes;
    if (b.unpacked != nullptr) {
      b.unpacked[0].unpack(step, w);
      if (b.has_second_rows) b.unpacked[1].unpack(step, v);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler does not see that tiles are loaded
    }
    if (b.parts == 2) {
      PUNA_MULTIPLY(b.part_bytes, 0)
      PUNA_MULTIPLY(0, kTileBytes)
    }
    PUNA_MULTIPLY(0, 0)
    at += b.parts * kTileBytes;
    if (at == b.strip_bytes) at = 0;
  }
}
#undef PUNA_MULTIPLY

void store_sums(const LinearArgs& args, const float (&sums)[kTile][kTile], int64_t token, int64_t tokens,
                int64_t row) {
  const __mmask16 mask = mask_of(args.row_end - row);
  const __m512 bias =
      args.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, args.bias + row);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t at = (token + t) * args.out_stride + row;
    __m512 sum = _mm512_add_ps(_mm512_load_ps(sums[t]), bias);
    if (args.residual != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, args.residual + at));
    _mm512_mask_storeu_ps(args.out + at, mask, sum);
  }
}

void multiply_and_store(const LinearArgs& args, const Block& block, int64_t token, int64_t tokens,
                        int64_t row) {
  alignas(64) float sums[kTile][kTile];
  const int64_t first = std::min(tokens, kTile), second = tokens - first;
  multiply(block);
  _tile_stored(0, sums, 64);
  store_sums(args, sums, token, first, row);
  if (block.has_second_rows) {
    _tile_stored(1, sums, 64);
    store_sums(args, sums, token, first, row + kTile);
  }
  if (second <= 0) return;
  _tile_stored(2, sums, 64);
  store_sums(args, sums, token + kTile, second, row);
  if (!block.has_second_rows) return;
  _tile_stored(3, sums, 64);
  store_sums(args, sums, token + kTile, second, row + kTile);
}

// Rows [row, row_end), whose tiles have their place at `tiles`.
struct RowRun {
  int64_t row, row_end;
  uint8_t* tiles;
  int64_t strip_bytes;
  int parts;
};

const uint8_t* weights_ahead(const LinearArgs& args, int64_t row) {
  const int64_t ahead = row + kPairRows;
  if (ahead < args.row_end) return args.weight->row(ahead);
  if (args.next == nullptr) return nullptr;
  return args.next + (ahead - args.row_end) * static_cast<int64_t>(args.weight->row_bytes);
}

// Tokens [begin, end). The first ones of all leave the weights unpacked for others. configured: for so many
// tokens.
void multiply_tokens(const LinearArgs& args, const RowRun& run, int64_t begin, int64_t end,
                     int64_t& configured) {
  const Weight& weight = *args.weight;
  uint8_t* tiles = run.tiles;
  for (int64_t row = run.row; row < run.row_end; row += kPairRows, tiles += 2 * run.strip_bytes) {
    std::optional<std::array<TileRows, 2>> rows;
    if (begin == 0)
      rows = {
          {{weight, row, weights_ahead(args, row)}, {weight, row + kTile, weights_ahead(args, row + kTile)}}};
    for (int64_t token = begin; token < end; token += kPairRows) {
      const int64_t tokens = std::min(end - token, kPairRows);
      if (tokens != configured) configure(configured = tokens);
      multiply_and_store(args,
                         {.x = static_cast<const uint8_t*>(args.x) + token * args.x_stride,
                          .x_stride = args.x_stride,
                          .part_bytes = row_bytes(weight.cols, 1),
                          .tiles = tiles,
                          .strip_bytes = run.strip_bytes,
                          .unpacked = token == 0 ? rows->data() : nullptr,
                          .has_second_tokens = tokens > kTile,
                          .has_second_rows = row + kTile < run.row_end,
                          .steps = steps_of(weight.cols),
                          .parts = run.parts},
                         token, tokens, row);
    }
  }
}

// As many tokens at a time as fit a quarter of the second-level cache, and as many rows as fit half of it
// where these are not all. Tiles that no other tokens meet take turns, so that they stay in the first-level
// cache.
void tile_linear(const LinearArgs& args, uint8_t* scratch) {
  constexpr int64_t kTokenBytes = int64_t{1} << 19;
  const Weight& weight = *args.weight;
  const int parts = tile_parts(weight.type, weight.cols);
  const int64_t kept_steps = args.num_tokens <= kPairRows ? 2 : steps_of(weight.cols);
  const int64_t strip = kept_steps * parts * kTileBytes;
  const int64_t most_tokens =
      std::max(kTokenBytes / row_bytes(weight.cols, parts) / kPairRows, int64_t{1}) * kPairRows;
  const int64_t most_rows =
      args.num_tokens <= most_tokens ? kPairRows : kTileScratchBytes / strip / 2 * kPairRows;
  int64_t configured = 0;
  for (int64_t row = args.row_begin; row < args.row_end; row += most_rows) {
    const RowRun run = {row, std::min(row + most_rows, args.row_end), scratch, strip, parts};
    for (int64_t token = 0; token < args.num_tokens; token += most_tokens)
      multiply_tokens(args, run, token, std::min(token + most_tokens, args.num_tokens), configured);
  }
  _tile_release();
}

#pragma GCC pop_options

constexpr TileKernels kTileKernels = {row_bytes, split_row, tile_linear};

// The system saves the unit's registers only for processes that ask for it, in every signal's frame from then
// on.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const bool has_tiles = (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0;
  return has_tiles && __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vbmi") != 0 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const TileKernels* tile_kernels() {
  static const bool may_use = may_use_tiles();
  return may_use ? &kTileKernels : nullptr;
}
#else
const TileKernels* tile_kernels() { return nullptr; }
#endif

}  // namespace puna
