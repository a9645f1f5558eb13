#include "matrix_units/weight_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "matrix_units/bfloat16_parts.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,f16c")

namespace puna {
namespace {

template <typename Vector>
const Vector* vector_at(const uint8_t* bytes) {
  return reinterpret_cast<const Vector*>(bytes);
}

// What is fetched from memory meanwhile, a piece with each piece of work: more at once would have to wait for
// memory, and the work behind it, too. The processor does not see where the next rows lie: it finds many rows
// read at a time.
class Ahead {
 public:
  // nullptr: nothing.
  Ahead(const uint8_t* begin, int64_t num_bytes)
      : at_(begin), end_(begin == nullptr ? begin : begin + num_bytes) {}

  void fetch(int64_t num_bytes) {
    for (const uint8_t* end = std::min(at_ + num_bytes, end_); at_ < end; at_ += 64)
      _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T0);
  }

 private:
  const uint8_t *at_, *end_;
};

// 16 bytes of four rows.
inline __m512i load_quarters(const uint8_t* const (&rows)[kTile], int first, int apart, int64_t offset) {
  const auto quarter = [&](int i) {
    return _mm_loadu_si128(vector_at<__m128i>(rows[first + i * apart] + offset));
  };
  __m512i all = _mm512_castsi128_si512(quarter(0));
  all = _mm512_inserti32x4(all, quarter(1), 1);
  all = _mm512_inserti32x4(all, quarter(2), 2);
  return _mm512_inserti32x4(all, quarter(3), 3);
}

// --- floats: pairs of bfloat16 change places ---

// 8 columns of two rows.
inline __m512 load_halves(TensorType type, const uint8_t* low, const uint8_t* high) {
  if (type == TensorType::kF32) {
    const __m512 first = _mm512_castps256_ps512(_mm256_loadu_ps(reinterpret_cast<const float*>(low)));
    return _mm512_insertf32x8(first, _mm256_loadu_ps(reinterpret_cast<const float*>(high)), 1);
  }
  const __m256i first = _mm256_castsi128_si256(_mm_loadu_si128(vector_at<__m128i>(low)));
  return _mm512_cvtph_ps(_mm256_inserti128_si256(first, _mm_loadu_si128(vector_at<__m128i>(high)), 1));
}

// 8 columns of rows i, i + 4, i + 8 and i + 12.
template <TensorType type>
Parts load_parts(const uint8_t* const (&rows)[kTile], int i, int64_t offset) {
  if constexpr (type == TensorType::kBF16) return {load_quarters(rows, i, 4, offset), _mm512_setzero_si512()};
  return split(load_halves(type, rows[i] + offset, rows[i + 4] + offset),
               load_halves(type, rows[i + 8] + offset, rows[i + 12] + offset));
}

// Four pairs of rows i, i + 4, i + 8 and i + 12 are vector i; pair j of 16 rows becomes vector j.
inline void store_transposed(const __m512i (&rows)[4], uint8_t* out) {
  const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
  _mm512_store_si512(out, _mm512_unpacklo_epi64(low01, low23));
  _mm512_store_si512(out + 64, _mm512_unpackhi_epi64(low01, low23));
  _mm512_store_si512(out + 128, _mm512_unpacklo_epi64(high01, high23));
  _mm512_store_si512(out + 192, _mm512_unpackhi_epi64(high01, high23));
}

template <TensorType type>
void unpack_floats(const uint8_t* const (&rows)[kTile], int64_t offset, Ahead ahead, uint8_t* out) {
  constexpr int64_t kBytes = 8 * (type == TensorType::kF32 ? 4 : 2);
  for (int64_t k = 0; k < 4; ++k, offset += kBytes, out += 256) {
    ahead.fetch(kTile * kBytes);
    __m512i upper[4], rest[4];
    for (int i = 0; i < 4; ++i) {
      const Parts loaded = load_parts<type>(rows, i, offset);
      upper[i] = loaded.upper, rest[i] = loaded.rest;
    }
    store_transposed(upper, out);
    store_transposed(rest, out + kTileBytes);
  }
}

template <TensorType type>
void unpack_floats(const uint8_t* const (&rows)[kTile], int64_t cols, int64_t step, Ahead ahead,
                   uint8_t* out) {
  constexpr int64_t kElement = type == TensorType::kF32 ? 4 : 2;
  const int64_t offset = step * kTileCols * kElement;
  const int64_t left = (cols - step * kTileCols) * kElement;
  if (left >= kTileCols * kElement) return unpack_floats<type>(rows, offset, ahead, out);
  uint8_t last[kTile][kTileCols * kElement] = {};
  const uint8_t* padded[kTile];
  for (int64_t r = 0; r < kTile; ++r) {
    std::memcpy(last[r], rows[r] + offset, static_cast<size_t>(left));
    padded[r] = last[r];
  }
  unpack_floats<type>(padded, 0, ahead, out);
}

// --- Q8_0: bytes change places as they become floats ---

constexpr int64_t kBlockBytes = 34;  // of 32 columns: a float16, and 32 int8

// Where the bytes of a pair of columns are in 8 rows by 8 columns, of which rows i and i + 4 lie side by
// side: for each, the second byte of a word.
inline __m512i places(int pair) {
  alignas(64) uint8_t places[64] = {};
  for (int i = 0; i < 16; ++i) {
    const int row = i / 2;
    places[4 * i + 1] = static_cast<uint8_t>(row % 4 * 16 + row / 4 * 8 + 2 * pair + i % 2);
  }
  return _mm512_load_si512(places);
}

struct Scales {
  __m512 scale, shift;  // of 8 rows, each twice; shift: what the floats are too much
};

inline Scales gather_scales(const uint8_t* block, const int32_t* offsets) {
  const __m256i twice = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13,  //
                                         0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
  const __m256i at = _mm256_load_si256(reinterpret_cast<const __m256i*>(offsets));
  const __m256i halves = _mm256_i32gather_epi32(reinterpret_cast<const int*>(block), at, 1);
  const __m512 scale = _mm512_cvtph_ps(_mm256_shuffle_epi8(halves, twice));
  return {scale, _mm512_mul_ps(scale, _mm512_set1_ps(-(32768.0f + 128.0f)))};
}

// A byte x whose sign bit is flipped is x + 128 without sign; as the second byte of a float, it makes of 2^15
// the float 2^15 + 128 + x. From this to x times the scale is one operation, and exact: scales have 11 bits.
void unpack_q8_0(const uint8_t* const (&rows)[kTile], const int32_t (&offsets)[kTile], int64_t at,
                 Ahead ahead, uint8_t* out) {
  const __m512i pairs[4] = {places(0), places(1), places(2), places(3)};
  const __m512i power = _mm512_set1_epi32(0x47000000), signs = _mm512_set1_epi8(-128);
  const Scales low = gather_scales(rows[0] + at, offsets), high = gather_scales(rows[0] + at, offsets + 8);
  const auto scaled = [&](__m512i bytes, __m512i pair, const Scales& by) {
    const __m512i words = _mm512_mask_permutexvar_epi8(power, 0x2222222222222222, pair, bytes);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(words), by.scale, by.shift);
  };
  for (int64_t half = 0; half < 2; ++half) {
    ahead.fetch(kTile * kBlockBytes / 2);
    __m512i quarters[4];
    for (int i = 0; i < 4; ++i)
      quarters[i] = _mm512_xor_si512(load_quarters(rows, 4 * i, 1, at + 2 + 16 * half), signs);
    const __m512i lows[2] = {_mm512_unpacklo_epi64(quarters[0], quarters[1]),
                             _mm512_unpackhi_epi64(quarters[0], quarters[1])};
    const __m512i highs[2] = {_mm512_unpacklo_epi64(quarters[2], quarters[3]),
                              _mm512_unpackhi_epi64(quarters[2], quarters[3])};
    for (int eight = 0; eight < 2; ++eight)
      for (int pair = 0; pair < 4; ++pair, out += 64)
        _mm512_store_si512(
            out, rounded(scaled(lows[eight], pairs[pair], low), scaled(highs[eight], pairs[pair], high)));
  }
}

}  // namespace

TileRows::TileRows(const Weight& weight, int64_t row, const uint8_t* ahead)
    : type_(weight.type),
      cols_(weight.cols),
      ahead_(ahead),
      ahead_bytes_(kTile * static_cast<int64_t>(weight.row_bytes) / steps_of(weight.cols)) {
  for (int64_t r = 0; r < kTile; ++r) {
    rows_[r] = weight.row(std::min(row + r, weight.rows - 1));
    offsets_[r] = static_cast<int32_t>(rows_[r] - rows_[0]);
  }
}

void TileRows::unpack(int64_t step, uint8_t* out) {
  const Ahead ahead(ahead_ == nullptr ? nullptr : ahead_ + step * ahead_bytes_, ahead_bytes_);
  switch (type_) {
    case TensorType::kF32:
      return unpack_floats<TensorType::kF32>(rows_, cols_, step, ahead, out);
    case TensorType::kF16:
      return unpack_floats<TensorType::kF16>(rows_, cols_, step, ahead, out);
    case TensorType::kBF16:
      return unpack_floats<TensorType::kBF16>(rows_, cols_, step, ahead, out);
    default:
      return unpack_q8_0(rows_, offsets_, step * kBlockBytes, ahead, out);
  }
}

}  // namespace puna

#pragma GCC pop_options
#endif
