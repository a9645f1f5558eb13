// Formats with blocks of 256 values, to 8 blocks of 32; see unpack.h.
#pragma once

#include "kernels/products/unpack.h"

namespace puna::PUNA_ISA {

// Byte j mod 4 of words[j / 4].
PUNA_INLINE u32x16 byte_of(const u32x16* words, int j) { return (words[j / 4] >> (8 * (j % 4))) & 0xffu; }
PUNA_INLINE i32x16 signed_byte_of(const u32x16* words, int j) {
  return (i32x16)(words[j / 4] << (24 - 8 * (j % 4))) >> 24;
}

// SuperBlock<type>::unpack: one block of the file to kFileBlocks<type> WeightBlocks.
template <TensorType kType>
struct SuperBlock;
template <TensorType kType>
inline constexpr int kFileBlocks = 8;

// Q4_K and Q5_K: two half floats, then 8 scales and 8 minimums of 6 bits in 12 bytes.
PUNA_INLINE void unpack_k_scales(auto& in, WeightBlock out[8]) {
  u32x16 words[4];
  in.words4(0, words);
  const f32x16 d = f16_to_float(words[0]), dmin = f16_to_float(words[0] >> 16);
  const u32x16 scales[2] = {words[1] & 0x3f3f3f3fu, low_nibbles(words[3]) | ((words[1] >> 2) & 0x30303030u)};
  const u32x16 mins[2] = {words[2] & 0x3f3f3f3fu, high_nibbles(words[3]) | ((words[2] >> 2) & 0x30303030u)};
  PUNA_UNROLL(8)
  for (int b = 0; b < 8; ++b) {
    out[b].scale = d * to_float((i32x16)byte_of(scales, b));
    out[b].a = dmin * to_float((i32x16)byte_of(mins, b));
  }
}

template <>
struct SuperBlock<TensorType::kQ4_K> {
  static constexpr int kBytes = 144, kZero = 0;
  static constexpr Correction kCorrection = Correction::kMin;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    unpack_k_scales(in, out);
    for (int pair = 0; pair < 4; ++pair) {  // 32 bytes: low nibbles of one block, high ones of the next
      u32x16 words[8];
      in.words8(16 + 32 * pair, words);
      PUNA_UNROLL(8)
      for (int g = 0; g < 8; ++g) {
        out[2 * pair].q[g] = low_nibbles(words[g]);
        out[2 * pair + 1].q[g] = high_nibbles(words[g]);
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kQ5_K> {
  static constexpr int kBytes = 176, kZero = 0;
  static constexpr Correction kCorrection = Correction::kMin;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    unpack_k_scales(in, out);
    u32x16 fifth[8];  // bit b of a byte belongs to block b
    in.words8(16, fifth);
    for (int pair = 0; pair < 4; ++pair) {
      u32x16 words[8];
      in.words8(48 + 32 * pair, words);
      PUNA_UNROLL(8)
      for (int g = 0; g < 8; ++g) {
        out[2 * pair].q[g] = low_nibbles(words[g]) | ((fifth[g] << 4) & 0x10101010u);
        out[2 * pair + 1].q[g] = high_nibbles(words[g]) | ((fifth[g] << 3) & 0x10101010u);
        fifth[g] >>= 2;
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kQ6_K> {
  static constexpr int kBytes = 210, kZero = 32;
  static constexpr Correction kCorrection = Correction::kSubScales;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(208);
    u32x16 scales[4];
    in.words4(192, scales);
    PUNA_UNROLL(8)
    for (int b = 0; b < 8; ++b) {
      out[b].scale = d;
      out[b].a = to_float(signed_byte_of(scales, 2 * b));
      out[b].b = to_float(signed_byte_of(scales, 2 * b + 1));
    }
    for (int half = 0; half < 2; ++half) {
      WeightBlock* blocks = out + 4 * half;
      u32x16 even[8], odd[8], high[8];
      in.words8(128 + 32 * half, high);
      in.words8(64 * half, even);
      PUNA_UNROLL(8)
      for (int g = 0; g < 8; ++g) {
        blocks[0].q[g] = low_nibbles(even[g]) | ((high[g] << 4) & 0x30303030u);
        blocks[2].q[g] = high_nibbles(even[g]) | (high[g] & 0x30303030u);
      }
      in.words8(64 * half + 32, odd);
      PUNA_UNROLL(8)
      for (int g = 0; g < 8; ++g) {
        blocks[1].q[g] = low_nibbles(odd[g]) | ((high[g] << 2) & 0x30303030u);
        blocks[3].q[g] = high_nibbles(odd[g]) | ((high[g] >> 2) & 0x30303030u);
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kQ2_K> {
  static constexpr int kBytes = 84, kZero = 0;
  static constexpr Correction kCorrection = Correction::kHalfMins;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const u32x16 header = in.u32(80);
    const f32x16 d = f16_to_float(header), dmin = f16_to_float(header >> 16);
    u32x16 scales[4];  // of 16 values each: scale in the low nibble, minimum in the high one
    in.words4(0, scales);
    for (int part = 0; part < 4; ++part) {
      u32x16 words[4];
      in.words4(16 + 16 * part, words);
      for (int j = 0; j < 4; ++j) {
        WeightBlock& block = out[part / 2 * 4 + j];
        const u32x16 packed = byte_of(scales, part / 2 * 8 + 2 * j + part % 2);
        // 3 * 15 fits a byte: the product folds the scale into the values, all four of a word at once.
        PUNA_UNROLL(4)
        for (int g = 0; g < 4; ++g)
          block.q[part % 2 * 4 + g] = ((words[g] >> (2 * j)) & 0x03030303u) * (packed & 0xfu);
        (part % 2 ? block.b : block.a) = dmin * to_float((i32x16)(packed >> 4));
        block.scale = d;
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kQ3_K> {
  static constexpr int kBytes = 110, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(108);
    u32x16 packed[3], scales[4];  // 16 scales of 6 bits, in nibbles and pairs of bits
    PUNA_UNROLL(3)
    for (int i = 0; i < 3; ++i) packed[i] = in.u32(96 + 4 * i);
    scales[0] = low_nibbles(packed[0]) | ((packed[2] << 4) & 0x30303030u);
    scales[1] = low_nibbles(packed[1]) | ((packed[2] << 2) & 0x30303030u);
    scales[2] = high_nibbles(packed[0]) | (packed[2] & 0x30303030u);
    scales[3] = high_nibbles(packed[1]) | ((packed[2] >> 2) & 0x30303030u);
    for (int part = 0; part < 4; ++part) {
      u32x16 words[4], third[4];
      in.words4(32 + 16 * part, words);
      in.words4(part % 2 * 16, third);  // bit b of a byte belongs to block b
      for (int j = 0; j < 4; ++j) {
        const int b = part / 2 * 4 + j;
        const u32x16 scale = byte_of(scales, 2 * b + part % 2) - 32u;
        // (4 - u) * scale + 128 fits a byte (0..252; (u - 4) * scale + 128 would not), so it is computed for
        // all four of a word at once. The sign goes into the scale.
        const u32x16 base = (4u * scale + 128u) * 0x01010101u;
        PUNA_UNROLL(4)
        for (int g = 0; g < 4; ++g) {
          const u32x16 u = ((words[g] >> (2 * j)) & 0x03030303u) | (((third[g] >> b) & 0x01010101u) << 2);
          out[b].q[part % 2 * 4 + g] = base - u * scale;
        }
        out[b].scale = -d;
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kIQ4_XS> {
  static constexpr int kBytes = 136, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const u32x16 header = in.u32(0), low = in.u32(4);
    const f32x16 d = f16_to_float(header);
    for (int b = 0; b < 8; ++b) {
      const u32x16 scale = ((low >> (4 * b)) & 0xfu) | (((header >> (16 + 2 * b)) & 3u) << 4);
      out[b].scale = d * to_float((i32x16)scale - 32);
      u32x16 words[4];
      in.words4(8 + 16 * b, words);
      nibbles<0>(words, out[b].q);
      look_up(kIq4Values, out[b].q);
    }
  }
};

template <TensorType kType>
  requires requires { SuperBlock<kType>::kBytes; }
struct Unpacker<kType> : SuperBlock<kType> {
  static constexpr int kBlocks = kFileBlocks<kType>;
  PUNA_INLINE void unpack(auto& in, int64_t num_blocks, WeightBlock* out) {
    for (int64_t i = 0; i < num_blocks; i += kBlocks, in.p += SuperBlock<kType>::kBytes)
      SuperBlock<kType>::unpack(in, out + i);
  }
};

}  // namespace puna::PUNA_ISA
