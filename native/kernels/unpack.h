// Formats with blocks of 32 values: one block of 16 rows at a time. Layouts as in ggml-common.h of the ggml
// project; "words" are the 32-bit words of a row's block, one vector for all 16 rows.
#pragma once

#include "kernels/weight_block.h"
#include "quants/types.h"

namespace puna::PUNA_ISA {

PUNA_INLINE u32x16 low_nibbles(u32x16 v) { return v & 0x0f0f0f0fu; }
PUNA_INLINE u32x16 high_nibbles(u32x16 v) { return (v >> 4) & 0x0f0f0f0fu; }

// 16 bytes per row whose low nibbles are values 0..15, the high ones 16..31.
PUNA_INLINE void split_nibbles(const u32x16 words[4], u32x16 q[8]) {
  PUNA_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    q[g] = low_nibbles(words[g]);
    q[g + 4] = high_nibbles(words[g]);
  }
}
PUNA_INLINE void unpack_nibbles(TileReader& in, int64_t offset, u32x16 q[8]) {
  u32x16 words[4];
  in.words4(offset, words);
  split_nibbles(words, q);
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

// Unpacker<type>::unpack: one block of the file to kBlocks WeightBlocks.
template <TensorType kType>
struct Unpacker;

template <>
struct Unpacker<TensorType::kQ4_0> {
  static constexpr int kBytes = 18, kBlocks = 1, kZero = 8;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    out->scale = in.f16(0);
    unpack_nibbles(in, 2, out->q);
  }
};

template <>
struct Unpacker<TensorType::kQ4_1> {
  static constexpr int kBytes = 20, kBlocks = 1, kZero = 0;
  static constexpr Correction kCorrection = Correction::kMin;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    unpack_scale_and_min(in.u32(0), out);
    unpack_nibbles(in, 4, out->q);
  }
};

template <>
struct Unpacker<TensorType::kQ5_0> {
  static constexpr int kBytes = 22, kBlocks = 1, kZero = 16;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    out->scale = in.f16(0);
    unpack_nibbles(in, 6, out->q);
    add_fifth_bits(in.u32(2), out->q);
  }
};

template <>
struct Unpacker<TensorType::kQ5_1> {
  static constexpr int kBytes = 24, kBlocks = 1, kZero = 0;
  static constexpr Correction kCorrection = Correction::kMin;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    unpack_scale_and_min(in.u32(0), out);
    unpack_nibbles(in, 8, out->q);
    add_fifth_bits(in.u32(4), out->q);
  }
};

template <>
struct Unpacker<TensorType::kQ8_0> {
  static constexpr int kBytes = 34, kBlocks = 1, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    out->scale = in.f16(0);
    in.words8(2, out->q);
    PUNA_UNROLL(8)
    for (int g = 0; g < 8; ++g) out->q[g] ^= 0x80808080u;  // adds 128 to each byte
  }
};

template <>
struct Unpacker<TensorType::kIQ4_NL> {
  static constexpr int kBytes = 18, kBlocks = 1, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    out->scale = in.f16(0);
    unpack_nibbles(in, 2, out->q);
    look_up(kIq4Values, out->q);
  }
};

template <>
struct Unpacker<TensorType::kMXFP4> {
  static constexpr int kBytes = 17, kBlocks = 1, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(TileReader& in, WeightBlock* out) {
    // The scale is 2^(e - 127), halved because the codebook holds doubled values.
    const u32x16 e = in.u16(0) & 0xffu;
    const u32x16 subnormal = select(e > 0u, u32x16{} + 0x00400000u, u32x16{} + 0x00200000u);
    out->scale = (f32x16)select(e > 1u, (e - 1u) << 23, subnormal);
    unpack_nibbles(in, 1, out->q);
    look_up(kMxfp4Values, out->q);
  }
};

}  // namespace puna::PUNA_ISA
