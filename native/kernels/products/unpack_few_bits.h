// Formats of one and two bits and of digits of base 3, and NVFP4; see unpack_k.h. Layouts as in ggml-common.h
// of the ggml project.
#pragma once

#include "kernels/products/unpack_k.h"

namespace puna::PUNA_ISA {

template <>
inline constexpr int kFileBlocks<TensorType::kQ1_0> = 4;
template <>
inline constexpr int kFileBlocks<TensorType::kQ2_0> = 2;
template <>
inline constexpr int kFileBlocks<TensorType::kNVFP4> = 2;

template <>
struct SuperBlock<TensorType::kQ1_0> {
  static constexpr int kBytes = 18, kZero = 1;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0);
    u32x16 words[4];
    in.words4(2, words);
    for (int b = 0; b < 4; ++b) {
      out[b].scale = d;
      PUNA_UNROLL(8)
      for (int g = 0; g < 8; ++g)  // one bit to each byte
        out[b].q[g] = ((((words[b] >> (4 * g)) & 0xfu) * 0x00204081u) & 0x01010101u) << 1;
    }
  }
};

template <>
struct SuperBlock<TensorType::kQ2_0> {
  static constexpr int kBytes = 18, kZero = 1;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0);
    u32x16 words[4];
    in.words4(2, words);
    for (int b = 0; b < 2; ++b) {
      out[b].scale = d;
      PUNA_UNROLL(8)
      for (int g = 0; g < 8; ++g) {  // two bits to each byte
        const u32x16 byte = byte_of(words + 2 * b, g);
        out[b].q[g] = (byte | (byte << 6) | (byte << 12) | (byte << 18)) & 0x03030303u;
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kTQ2_0> {
  static constexpr int kBytes = 66, kZero = 1;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(64);
    for (int half = 0; half < 2; ++half) {
      u32x16 words[8];  // bytes of four values that are 32 apart
      in.words8(32 * half, words);
      for (int j = 0; j < 4; ++j) {
        WeightBlock& block = out[4 * half + j];
        block.scale = d;
        PUNA_UNROLL(8)
        for (int g = 0; g < 8; ++g) block.q[g] = (words[g] >> (2 * j)) & 0x03030303u;
      }
    }
  }
};

// Four bytes, each a fraction, in 256ths, of up to five digits of base 3: multiplying by 3 moves the first
// digit above the byte, and leaves the others.
struct Trits {
  u32x16 even, odd;  // bytes, with room for what is above them

  inline __attribute__((always_inline)) explicit Trits(u32x16 word)
      : even(word & 0x00ff00ffu), odd((word >> 8) & 0x00ff00ffu) {}
  inline __attribute__((always_inline)) u32x16 next() {
    even = even * 3u;
    odd = odd * 3u;
    const u32x16 digits = ((even >> 8) & 0x00ff00ffu) | (odd & 0xff00ff00u);
    even = even & 0x00ff00ffu;
    odd = odd & 0x00ff00ffu;
    return digits;
  }
};

template <>
struct SuperBlock<TensorType::kTQ1_0> {
  static constexpr int kBytes = 54, kZero = 1;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const u32x16 last = in.u32(48);
    const f32x16 d = in.f16(52);
    PUNA_UNROLL(8)
    for (int b = 0; b < 8; ++b) out[b].scale = d;
    u32x16 words[8];
    in.words8(0, words);  // bytes of five values that are 32 apart
    for (int g = 0; g < 8; ++g) {
      Trits trits(words[g]);
      for (int b = 0; b < 5; ++b) out[b].q[g] = trits.next();
    }
    in.words4(32, words);  // bytes of five values that are 16 apart
    for (int g = 0; g < 4; ++g) {
      Trits trits(words[g]);
      for (int i = 0; i < 5; ++i) out[5 + i / 2].q[i % 2 * 4 + g] = trits.next();
    }
    Trits trits(last);  // of four values that are 4 apart
    for (int g = 4; g < 8; ++g) out[7].q[g] = trits.next();
  }
};

// E4M3 without a sign, halved because the codebook holds doubled values; 0x7f, which would be NaN, counts as
// zero.
PUNA_INLINE f32x16 fp8_scale(u32x16 byte) {
  const u32x16 magnitude = byte & 127u;
  // As a half float it is too small by 2^8, for normal and subnormal numbers alike, and once more by 2.
  const f32x16 scale = f16_to_float(magnitude << 7) * 128.0f;
  const u32x16 not_a_number = ((byte ^ 0x7fu) - 1u) >> 31;  // 1 or 0
  return scale * to_float((i32x16)(1u - not_a_number));
}

template <>
struct SuperBlock<TensorType::kNVFP4> {
  static constexpr int kBytes = 36, kZero = 128;
  static constexpr Correction kCorrection = Correction::kSubScales;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const u32x16 scales = in.u32(0);
    u32x16 words[8];
    in.words8(4, words);
    for (int b = 0; b < 2; ++b) {
      out[b].scale = splat(1.0f);
      out[b].a = fp8_scale(byte_of(&scales, 2 * b));
      out[b].b = fp8_scale(byte_of(&scales, 2 * b + 1));
      PUNA_UNROLL(2)
      for (int half = 0; half < 2; ++half) {  // low nibbles are the first 8 values, high ones the last
        const u32x16* two = words + 4 * b + 2 * half;
        u32x16* q = out[b].q + 4 * half;
        q[0] = low_nibbles(two[0]);
        q[1] = low_nibbles(two[1]);
        q[2] = high_nibbles(two[0]);
        q[3] = high_nibbles(two[1]);
      }
      look_up(kMxfp4Values, out[b].q);
    }
  }
};

}  // namespace puna::PUNA_ISA
