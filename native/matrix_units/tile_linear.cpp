#include "matrix_units/tile_linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace puna {
namespace {

constexpr int64_t kTile = 16;      // rows of a tile, and columns of floats
constexpr int64_t kTileCols = 32;  // columns of bfloat16
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPairRows = 2 * kTile;  // two tiles by two are in the unit's registers

constexpr int64_t steps_of(int64_t cols) { return (cols + kTileCols - 1) / kTileCols; }

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

struct Parts {
  __m512i upper, rest;  // 32 bfloat16
};

inline __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

inline __m512i rounded(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

inline Parts split(__m512 first, __m512 second) {
  const __m512i upper = rounded(first, second);
  const __m512 f = _mm512_sub_ps(first, widened(_mm512_castsi512_si256(upper)));
  const __m512 s = _mm512_sub_ps(second, widened(_mm512_extracti64x4_epi64(upper, 1)));
  return {upper, rounded(f, s)};
}

inline __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>(count <= 0 ? 0 : count >= 16 ? 0xFFFF : (1 << count) - 1);
}

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

// --- weights: 16 rows by 32 columns become a tile of 16 pairs of columns by 16 rows ---

Parts load_floats(const Weight& weight, int64_t row, int64_t k) {
  const uint8_t* p = weight.row(row);
  const __mmask16 first = mask_of(weight.cols - k), second = mask_of(weight.cols - k - 16);
  if (weight.type == TensorType::kF32) {
    const float* w = reinterpret_cast<const float*>(p) + k;
    return split(_mm512_maskz_loadu_ps(first, w), _mm512_maskz_loadu_ps(second, w + 16));
  }
  const uint16_t* w = reinterpret_cast<const uint16_t*>(p) + k;
  const __m256i low = _mm256_maskz_loadu_epi16(first, w), high = _mm256_maskz_loadu_epi16(second, w + 16);
  if (weight.type == TensorType::kF16) return split(_mm512_cvtph_ps(low), _mm512_cvtph_ps(high));
  return {_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), _mm512_setzero_si512()};
}

struct Q8Block {
  uint16_t scale;
  int8_t values[32];
};

__m512i load_q8_0(const Weight& weight, int64_t row, int64_t k) {
  const auto* block = reinterpret_cast<const Q8Block*>(weight.row(row)) + k / 32;
  const __m512 scale = _mm512_set1_ps(_cvtsh_ss(block->scale));
  const auto values = [&](int at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block->values + at));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), scale);
  };
  return rounded(values(0), values(16));
}

// 16 words of 16 vectors, the other way round.
void store_transposed(const __m512i (&rows)[16], uint8_t* out) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
  for (int i = 0; i < 4; ++i) {  // b[4 g + i] has words i, i + 4, i + 8, i + 12 of rows 4 g to 4 g + 3
    const __m512i low01 = _mm512_shuffle_i32x4(b[i], b[4 + i], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(b[i], b[4 + i], 0xDD);
    const __m512i low23 = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0xDD);
    _mm512_store_si512(out + 64 * i, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_store_si512(out + 64 * (i + 4), _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_store_si512(out + 64 * (i + 8), _mm512_shuffle_i32x4(low01, low23, 0xDD));
    _mm512_store_si512(out + 64 * (i + 12), _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}

// The next rows lie behind these, which the processor does not see: it finds 16 rows read at a time.
class FetchAhead {
 public:
  FetchAhead(const Weight& weight, int64_t row, int64_t steps)
      : at_(weight.row(std::min(row + kTile, weight.rows))),
        end_(weight.row(std::min(row + 2 * kTile, weight.rows))),
        step_bytes_(kTile * static_cast<int64_t>(weight.row_bytes) / steps + 64) {}

  void step() {
    for (const uint8_t* until = std::min(at_ + step_bytes_, end_); at_ < until; at_ += 64)
      _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T0);
  }

 private:
  const uint8_t *at_, *end_;
  int64_t step_bytes_;
};

// Rows [row, row + 16), zeros behind the last: [steps][parts] tiles.
void unpack_rows(const Weight& weight, int64_t row, int parts, uint8_t* out) {
  const int64_t count = std::min(kTile, weight.rows - row);
  FetchAhead ahead(weight, row, steps_of(weight.cols));
  for (int64_t k = 0; k < weight.cols; k += kTileCols) {
    ahead.step();
    __m512i upper[16], rest[16];
    for (int64_t r = 0; r < kTile; ++r) upper[r] = rest[r] = _mm512_setzero_si512();
    for (int64_t r = 0; r < count; ++r) {
      if (parts == 1) {
        upper[r] = load_q8_0(weight, row + r, k);
      } else {
        const Parts loaded = load_floats(weight, row + r, k);
        upper[r] = loaded.upper, rest[r] = loaded.rest;
      }
    }
    store_transposed(upper, out);
    out += kTileBytes;
    if (parts == 1) continue;
    store_transposed(rest, out);
    out += kTileBytes;
  }
}

// --- the product ---

// Registers: 0 to 3 are sums (two runs of tokens by two of weights' rows), 4 and 5 tokens, 6 and 7 weights.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// So many tokens in the first run, and in the second.
void configure(int64_t first, int64_t second) {
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
  const uint8_t *weights, *second_weights;  // second_weights: nullptr if there are no more than 16 rows
  bool has_second_tokens;
  int64_t steps;
  int parts;
};

// What a product of upper parts and one of what they lack have in common.
#define PUNA_MULTIPLY(x_offset, w_offset)                            \
  _tile_loadd(4, x + (x_offset), b.x_stride);                        \
  _tile_loadd(6, w + (w_offset), 64);                                \
  _tile_dpbf16ps(0, 4, 6);                                           \
  if (b.second_weights != nullptr) {                                 \
    _tile_loadd(7, v + (w_offset), 64);                              \
    _tile_dpbf16ps(1, 4, 7);                                         \
  }                                                                  \
  if (b.has_second_tokens) {                                         \
    _tile_loadd(5, x + (x_offset) + kTile * b.x_stride, b.x_stride); \
    _tile_dpbf16ps(2, 5, 6);                                         \
    if (b.second_weights != nullptr) _tile_dpbf16ps(3, 5, 7);        \
  }

void multiply(const Block& b) {
  const uint8_t *x = b.x, *w = b.weights, *v = b.second_weights;
  const int64_t step_bytes = b.parts * kTileBytes;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < b.steps; ++step, x += 2 * kTileCols, w += step_bytes) {
    if (b.parts == 2) {
      PUNA_MULTIPLY(b.part_bytes, 0)
      PUNA_MULTIPLY(0, kTileBytes)
    }
    PUNA_MULTIPLY(0, 0)
    if (v != nullptr) v += step_bytes;
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
  if (block.second_weights != nullptr) {
    _tile_stored(1, sums, 64);
    store_sums(args, sums, token, first, row + kTile);
  }
  if (second <= 0) return;
  _tile_stored(2, sums, 64);
  store_sums(args, sums, token + kTile, second, row);
  if (block.second_weights == nullptr) return;
  _tile_stored(3, sums, 64);
  store_sums(args, sums, token + kTile, second, row + kTile);
}

// Tokens [begin, end) by rows [row, row_end), whose tiles are at `weights`.
void multiply_tokens(const LinearArgs& args, int parts, int64_t begin, int64_t end, int64_t row,
                     int64_t row_end, const uint8_t* weights) {
  const int64_t steps = steps_of(args.weight->cols), strip = steps * parts * kTileBytes;
  for (int64_t r = row; r < row_end; r += kPairRows, weights += 2 * strip)
    for (int64_t token = begin; token < end; token += kPairRows) {
      const int64_t tokens = std::min(end - token, kPairRows);
      if (tokens < kPairRows) configure(std::min(tokens, kTile), tokens - kTile);
      multiply_and_store(args,
                         {.x = static_cast<const uint8_t*>(args.x) + token * args.x_stride,
                          .x_stride = args.x_stride,
                          .part_bytes = row_bytes(args.weight->cols, 1),
                          .weights = weights,
                          .second_weights = r + kTile < row_end ? weights + strip : nullptr,
                          .has_second_tokens = tokens > kTile,
                          .steps = steps,
                          .parts = parts},
                         token, tokens, r);
      if (tokens < kPairRows) configure(kTile, kTile);
    }
}

// As many rows at a time as fit half of the second-level cache, and as many tokens as fit a quarter.
void tile_linear(const LinearArgs& args, uint8_t* scratch) {
  constexpr int64_t kTokenBytes = int64_t{1} << 19;
  const Weight& weight = *args.weight;
  const int parts = tile_parts(weight.type, weight.cols);
  const int64_t strip = steps_of(weight.cols) * parts * kTileBytes;
  const int64_t most_rows = kTileScratchBytes / strip / 2 * kPairRows;
  const int64_t most_tokens =
      std::max(kTokenBytes / row_bytes(weight.cols, parts) / kPairRows, int64_t{1}) * kPairRows;
  configure(kTile, kTile);
  for (int64_t row = args.row_begin; row < args.row_end; row += most_rows) {
    const int64_t end = std::min(row + most_rows, args.row_end);
    for (int64_t r = row; r < end; r += kTile)
      unpack_rows(weight, r, parts, scratch + (r - row) / kTile * strip);
    std::atomic_signal_fence(
        std::memory_order_seq_cst);  // the compiler does not see that tiles are loaded from it
    for (int64_t token = 0; token < args.num_tokens; token += most_tokens)
      multiply_tokens(args, parts, token, std::min(token + most_tokens, args.num_tokens), row, end, scratch);
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
