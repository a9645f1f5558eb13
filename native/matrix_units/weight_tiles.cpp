#include "matrix_units/weight_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#include "matrix_units/bfloat16_parts.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c")

namespace puna {
namespace {

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

// --- floats: rows become vectors, then words change places ---

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

void unpack_floats(const Weight& weight, int64_t row, uint8_t* out) {
  const int64_t count = std::min(kTile, weight.rows - row);
  FetchAhead ahead(weight, row, steps_of(weight.cols));
  for (int64_t k = 0; k < weight.cols; k += kTileCols, out += 2 * kTileBytes) {
    ahead.step();
    __m512i upper[16], rest[16];
    for (int64_t r = 0; r < kTile; ++r) {
      const Parts loaded = load_floats(weight, row + std::min(r, count - 1), k);
      upper[r] = loaded.upper, rest[r] = loaded.rest;
    }
    store_transposed(upper, out);
    store_transposed(rest, out + kTileBytes);
  }
}

// --- Q8_0: pairs of columns change places while they are two bytes, then become vectors ---

constexpr int64_t kBlockBytes = 34;  // of 32 columns: a float16, and 32 int8

// Vector j: pair j of rows 0 to 7, pair j + 8 of these, pair j of rows 8 to 15, pair j + 8 of these.
void transpose_pairs(const uint8_t* const (&rows)[kTile], int64_t offset, uint8_t (&pairs)[8][64]) {
  __m512i a[8], b[8];
  for (int r = 0; r < 8; ++r) {
    const auto* low = reinterpret_cast<const __m256i*>(rows[r] + offset);
    const auto* high = reinterpret_cast<const __m256i*>(rows[r + 8] + offset);
    a[r] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(low)), _mm256_loadu_si256(high), 1);
  }
  for (int r = 0; r < 8; r += 2) {
    b[r] = _mm512_unpacklo_epi16(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_epi16(a[r], a[r + 1]);
  }
  for (int r = 0; r < 8; r += 4)
    for (int i = 0; i < 2; ++i) {
      a[r + 2 * i] = _mm512_unpacklo_epi32(b[r + i], b[r + i + 2]);
      a[r + 2 * i + 1] = _mm512_unpackhi_epi32(b[r + i], b[r + i + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    _mm512_store_si512(pairs[2 * i], _mm512_unpacklo_epi64(a[i], a[i + 4]));
    _mm512_store_si512(pairs[2 * i + 1], _mm512_unpackhi_epi64(a[i], a[i + 4]));
  }
}

inline __m512 widened_bytes(const uint8_t* bytes) {
  const __m128i narrow = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(narrow));
}

void unpack_q8_0(const Weight& weight, int64_t row, uint8_t* out) {
  const uint8_t* rows[kTile];
  alignas(64) int32_t offsets[kTile];  // of rows behind the first
  for (int64_t r = 0; r < kTile; ++r) {
    rows[r] = weight.row(std::min(row + r, weight.rows - 1));
    offsets[r] = static_cast<int32_t>(rows[r] - rows[0]);
  }
  const __m512i each_twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512i eight = _mm512_set1_epi32(8);
  FetchAhead ahead(weight, row, steps_of(weight.cols));
  for (int64_t at = 0; at < steps_of(weight.cols) * kBlockBytes; at += kBlockBytes, out += kTileBytes) {
    ahead.step();
    const __m512i halves = _mm512_i32gather_epi32(_mm512_load_si512(offsets), rows[0] + at, 1);
    const __m512 scales = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves));
    const __m512 low_scales = _mm512_permutexvar_ps(each_twice, scales);
    const __m512 high_scales = _mm512_permutexvar_ps(_mm512_add_epi32(each_twice, eight), scales);
    alignas(64) uint8_t pairs[8][64];
    transpose_pairs(rows, at + 2, pairs);
    for (int pair = 0; pair < 16; ++pair) {
      const uint8_t* bytes = pairs[pair % 8] + pair / 8 * 16;
      const __m512 low = _mm512_mul_ps(widened_bytes(bytes), low_scales);
      const __m512 high = _mm512_mul_ps(widened_bytes(bytes + 32), high_scales);
      _mm512_store_si512(out + 64 * pair, rounded(low, high));
    }
  }
}

}  // namespace

void unpack_rows(const Weight& weight, int64_t row, int parts, uint8_t* out) {
  parts == 1 ? unpack_q8_0(weight, row, out) : unpack_floats(weight, row, out);
}

}  // namespace puna

#pragma GCC pop_options
#endif
