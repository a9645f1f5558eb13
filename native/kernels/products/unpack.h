// Formats with blocks of 32 values, of 16 rows at a time. Layouts as in ggml-common.h of the ggml
// project; "words" are the 32-bit words of a row's block, one vector for all 16 rows.
#pragma once

#include <numeric>
#include <utility>

#include "kernels/products/weight_block.h"
#include "quants/types.h"

namespace puna::PUNA_ISA {

PUNA_INLINE u32x16 low_nibbles(u32x16 v) { return v & 0x0f0f0f0fu; }
PUNA_INLINE u32x16 high_nibbles(u32x16 v) { return (v >> 4) & 0x0f0f0f0fu; }

// 32-bit word at byte kOffset of rows whose words are w.
template <int kOffset>
PUNA_INLINE u32x16 word(const u32x16* w) {
  constexpr int kIndex = kOffset / 4, kShift = kOffset % 4 * 8;
  if constexpr (kShift == 0)
    return w[kIndex];
  else
    return (w[kIndex] >> kShift) | (w[kIndex + 1] << (32 - kShift));
}
// The same where only the two bytes at kOffset matter: what is above them may be anything.
template <int kOffset>
PUNA_INLINE u32x16 half_word(const u32x16* w) {
  static_assert(kOffset % 4 <= 2);
  return w[kOffset / 4] >> (kOffset % 4 * 8);
}

// 16 bytes per row whose low nibbles are values 0..15, the high ones 16..31.
template <int kOffset>
PUNA_INLINE void nibbles(const u32x16* w, u32x16 q[8]) {
  const u32x16 words[4] = {word<kOffset>(w), word<kOffset + 4>(w), word<kOffset + 8>(w),
                           word<kOffset + 12>(w)};
  PUNA_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    q[g] = low_nibbles(words[g]);
    q[g + 4] = high_nibbles(words[g]);
  }
}

// Adds 16 to those of the 32 values whose bit is set.
PUNA_INLINE void add_fifth_bits(u32x16 bits, u32x16 q[8]) {
  PUNA_UNROLL(8)
  for (int g = 0; g < 8; ++g) {
    const u32x16 four = (bits >> (4 * g)) & 0xfu;
    q[g] |= ((four * 0x00204081u) & 0x01010101u) << 4;  // one bit to each byte
  }
}

// The 4-bit codebooks of ggml, plus 128.
inline constexpr uint8_t kIq4Values[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                           129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kMxfp4Values[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                             128, 127, 126, 125, 124, 122, 120, 116};

PUNA_INLINE void look_up(const uint8_t table[16], u32x16 q[8]) {
  PUNA_UNROLL(8)
  for (int g = 0; g < 8; ++g) q[g] = lookup16(table, q[g]);
}

// Two half floats: scale and minimum with the sign that the file has.
PUNA_INLINE void unpack_scale_and_min(u32x16 header, WeightBlock* out) {
  out->scale = f16_to_float(header);
  out->a = -f16_to_float(header >> 16);
}

// The first kBytes of each row, as words; bytes behind them in the last word may be anything.
template <int kBytes>
PUNA_INLINE void read_words(auto& in, u32x16* w) {
  int offset = 0;
  PUNA_UNROLL(16)
  for (; offset + 32 <= kBytes; offset += 32) in.words8(offset, w + offset / 4);
  if (offset + 16 <= kBytes) in.words4(offset, w + offset / 4), offset += 16;
  PUNA_UNROLL(4)
  for (; offset + 4 <= kBytes; offset += 4) w[offset / 4] = in.u32(offset);
  if constexpr (kBytes % 4 == 1) w[offset / 4] = in.u16(offset - 1) >> 8;
  if constexpr (kBytes % 4 == 2) w[offset / 4] = in.u16(offset);
}

// Decoder<type>::decode<offset>: the block of the file at that byte of words w to a WeightBlock.
template <TensorType kType>
struct Decoder;

template <>
struct Decoder<TensorType::kQ4_0> {
  static constexpr int kBytes = 18, kZero = 8;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    out->scale = f16_to_float(half_word<kOffset>(w));
    nibbles<kOffset + 2>(w, out->q);
  }
};

template <>
struct Decoder<TensorType::kQ4_1> {
  static constexpr int kBytes = 20, kZero = 0;
  static constexpr Correction kCorrection = Correction::kMin;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    unpack_scale_and_min(word<kOffset>(w), out);
    nibbles<kOffset + 4>(w, out->q);
  }
};

template <>
struct Decoder<TensorType::kQ5_0> {
  static constexpr int kBytes = 22, kZero = 16;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    out->scale = f16_to_float(half_word<kOffset>(w));
    nibbles<kOffset + 6>(w, out->q);
    add_fifth_bits(word<kOffset + 2>(w), out->q);
  }
};

template <>
struct Decoder<TensorType::kQ5_1> {
  static constexpr int kBytes = 24, kZero = 0;
  static constexpr Correction kCorrection = Correction::kMin;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    unpack_scale_and_min(word<kOffset>(w), out);
    nibbles<kOffset + 8>(w, out->q);
    add_fifth_bits(word<kOffset + 4>(w), out->q);
  }
};

template <>
struct Decoder<TensorType::kQ8_0> {
  static constexpr int kBytes = 34, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    out->scale = f16_to_float(half_word<kOffset>(w));
    const u32x16 words[8] = {word<kOffset + 2>(w),  word<kOffset + 6>(w),  word<kOffset + 10>(w),
                             word<kOffset + 14>(w), word<kOffset + 18>(w), word<kOffset + 22>(w),
                             word<kOffset + 26>(w), word<kOffset + 30>(w)};
    PUNA_UNROLL(8)
    for (int g = 0; g < 8; ++g) out->q[g] = words[g] ^ 0x80808080u;  // adds 128 to each byte
  }
};

template <>
struct Decoder<TensorType::kIQ4_NL> {
  static constexpr int kBytes = 18, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    out->scale = f16_to_float(half_word<kOffset>(w));
    nibbles<kOffset + 2>(w, out->q);
    look_up(kIq4Values, out->q);
  }
};

template <>
struct Decoder<TensorType::kMXFP4> {
  static constexpr int kBytes = 17, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  template <int kOffset>
  PUNA_INLINE void decode(const u32x16* w, WeightBlock* out) {
    // The scale is 2^(e - 127), halved because the codebook holds doubled values; for an e of 0 the first is
    // a subnormal float.
    constexpr int kShift = kOffset % 4 * 8;
    const u32x16 e = kShift < 24 ? w[kOffset / 4] << (23 - kShift) : w[kOffset / 4] >> 1;
    const i32x16 scale = max((i32x16)(e & 0x7f800000u), splat(0x00400000));
    out->scale = (f32x16)scale * 0.5f;
    nibbles<kOffset + 1>(w, out->q);
    look_up(kMxfp4Values, out->q);
  }
};

// Unpacker<type>::unpack: blocks of the file to kBlocks WeightBlocks each, as many as `columns` hold.
template <TensorType kType>
struct Unpacker {
  typedef Decoder<kType> Format;
  static constexpr int kBytes = Format::kBytes, kBlocks = 1, kZero = Format::kZero;
  static constexpr Correction kCorrection = Format::kCorrection;
  // Blocks are read in groups whose bytes are a multiple of 16: transposing whole vectors costs a few
  // instructions per word, gathering the odd ones (a block's scale) dozens.
  static constexpr int kGroup = 16 / std::gcd(kBytes, 16);

  template <int kCount>
  PUNA_INLINE void unpack_blocks(auto& in, WeightBlock* out) {
    u32x16 w[(kCount * kBytes + 3) / 4];
    read_words<kCount * kBytes>(in, w);
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
      (Format::template decode<kIndex * kBytes>(w, out + kIndex), ...);
    }(std::make_integer_sequence<int, kCount>{});
    in.p += kCount * kBytes;
  }
  PUNA_INLINE void unpack(auto& in, int64_t num_blocks, WeightBlock* out) {
    int64_t i = 0;
    for (; i + kGroup <= num_blocks; i += kGroup) unpack_blocks<kGroup>(in, out + i);
    for (; i < num_blocks; ++i) unpack_blocks<1>(in, out + i);
  }
};

}  // namespace puna::PUNA_ISA
