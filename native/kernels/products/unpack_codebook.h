// Formats whose values come, 8 or 4 at a time, from a codebook; see unpack_k.h. Layouts as in ggml-common.h
// of the ggml project.
#pragma once

#include "kernels/products/unpack_k.h"
#include "quants/codebooks.h"
#include "simd/look_up_words.h"

namespace puna::PUNA_ISA {

// Lane r of words[i] is word i of the entry that lane r of `index` names.
template <typename Entry, size_t kSize>
PUNA_INLINE void look_up_entries(const std::array<Entry, kSize>& codebook, u32x16 index, u32x16* words) {
  const uint8_t* entries = reinterpret_cast<const uint8_t*>(codebook.data());
  PUNA_UNROLL(2)
  for (int i = 0; i < (int)sizeof(Entry) / 4; ++i)
    words[i] = look_up_words<sizeof(Entry)>(entries + 4 * i, index);
}

// Magnitudes below 128, four to a word, to 128 plus or minus them; `signs`: a bit for each.
PUNA_INLINE u32x16 add_signs(u32x16 magnitudes, u32x16 signs) {
  const u32x16 negative = ((signs & 0xfu) * 0x00204081u) & 0x01010101u;  // one bit to each byte
  return (magnitudes ^ (((negative << 8) - negative) ^ 0x80808080u)) + negative;
}
PUNA_INLINE void add_eight_signs(u32x16 signs, u32x16 q[2]) {
  q[0] = add_signs(q[0], signs);
  q[1] = add_signs(q[1], signs >> 4);
}
// eight_signs() of every lane's lowest seven bits.
PUNA_INLINE u32x16 complete_signs(u32x16 word) {
  const u32x16 seven = word & 127u;
  u32x16 parity = seven ^ (seven >> 4);
  parity = parity ^ (parity >> 2);
  parity = (parity ^ (parity >> 1)) & 1u;
  return seven | (parity << 7);
}

// Four bits s to the integer 2s + 1: IQ formats add one half to their scales.
PUNA_INLINE f32x16 odd_scale(u32x16 four_bits) { return to_float((i32x16)((four_bits & 15u) * 2u + 1u)); }

template <>
struct SuperBlock<TensorType::kIQ2_XXS> {
  static constexpr int kBytes = 66, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0) * 0.125f;
    for (int half = 0; half < 2; ++half) {
      u32x16 words[8];  // of each block: four indices, then signs and scale
      in.words8(2 + 32 * half, words);
      for (int j = 0; j < 4; ++j) {
        WeightBlock& block = out[4 * half + j];
        const u32x16 packed = words[2 * j + 1];
        block.scale = d * odd_scale(packed >> 28);
        PUNA_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          look_up_entries(kIq2XxsCodebook, byte_of(words + 2 * j, i), block.q + 2 * i);
          add_eight_signs(complete_signs(packed >> (7 * i)), block.q + 2 * i);
        }
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kIQ2_XS> {
  static constexpr int kBytes = 74, kZero = 128;
  static constexpr Correction kCorrection = Correction::kSubScales;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0) * 0.125f;
    const u32x16 scales[2] = {in.u32(66), in.u32(70)};
    for (int half = 0; half < 2; ++half) {
      u32x16 words[8];  // of each 8 values: nine bits of index, seven signs
      in.words8(2 + 32 * half, words);
      for (int j = 0; j < 4; ++j) {
        WeightBlock& block = out[4 * half + j];
        block.scale = d;
        block.a = odd_scale(scales[half] >> (8 * j));
        block.b = odd_scale(scales[half] >> (8 * j + 4));
        PUNA_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          const u32x16 packed = words[2 * j + i / 2] >> (i % 2 * 16);
          look_up_entries(kIq2XsCodebook, packed & 511u, block.q + 2 * i);
          add_eight_signs(complete_signs(packed >> 9), block.q + 2 * i);
        }
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kIQ2_S> {
  static constexpr int kBytes = 82, kZero = 128;
  static constexpr Correction kCorrection = Correction::kSubScales;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0) * 0.125f;
    u32x16 low[8], signs[8];
    in.words8(2, low);
    in.words8(34, signs);
    const u32x16 high[2] = {in.u32(66), in.u32(70)}, scales[2] = {in.u32(74), in.u32(78)};
    for (int b = 0; b < 8; ++b) {
      const u32x16 high_bits = byte_of(high, b), scale = byte_of(scales, b);
      out[b].scale = d;
      out[b].a = odd_scale(scale);
      out[b].b = odd_scale(scale >> 4);
      PUNA_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const u32x16 index = byte_of(low + b, i) | (((high_bits >> (2 * i)) & 3u) << 8);
        look_up_entries(kIq2SCodebook, index, out[b].q + 2 * i);
        add_eight_signs(signs[b] >> (8 * i), out[b].q + 2 * i);
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kIQ3_XXS> {
  static constexpr int kBytes = 98, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0) * 0.25f;
    u32x16 packed[8];  // of each block: signs and scale
    in.words8(66, packed);
    for (int half = 0; half < 2; ++half) {
      u32x16 indices[8];
      in.words8(2 + 32 * half, indices);
      for (int j = 0; j < 4; ++j) {
        const int b = 4 * half + j;
        out[b].scale = d * odd_scale(packed[b] >> 28);
        PUNA_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          look_up_entries(kIq3XxsCodebook, byte_of(indices + 2 * j, 2 * i), out[b].q + 2 * i);
          look_up_entries(kIq3XxsCodebook, byte_of(indices + 2 * j, 2 * i + 1), out[b].q + 2 * i + 1);
          add_eight_signs(complete_signs(packed[b] >> (7 * i)), out[b].q + 2 * i);
        }
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kIQ3_S> {
  static constexpr int kBytes = 110, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0);
    u32x16 signs[8];
    in.words8(74, signs);
    const u32x16 high[2] = {in.u32(66), in.u32(70)}, scales = in.u32(106);
    for (int half = 0; half < 2; ++half) {
      u32x16 low[8];
      in.words8(2 + 32 * half, low);
      for (int j = 0; j < 4; ++j) {
        const int b = 4 * half + j;
        out[b].scale = d * odd_scale(scales >> (4 * b));
        const u32x16 ninth_bits = byte_of(high, b);
        PUNA_UNROLL(8)
        for (int g = 0; g < 8; ++g) {
          const u32x16 index = byte_of(low + 2 * j, g) | (((ninth_bits >> g) & 1u) << 8);
          look_up_entries(kIq3SCodebook, index, out[b].q + g);
          out[b].q[g] = add_signs(out[b].q[g], signs[b] >> (4 * g));
        }
      }
    }
  }
};

// Eight values of IQ1: an entry has them plus one, and all are to be shifted by an eighth, up or down. So
// this is 128 plus eight times the shifted value.
PUNA_INLINE void unpack_iq1_entry(u32x16 index, u32x16 down, u32x16 q[2]) {
  look_up_entries(kIq1Codebook, index, q);
  const u32x16 base = (121u - 2u * down) * 0x01010101u;
  q[0] = (q[0] << 3) + base;
  q[1] = (q[1] << 3) + base;
}

template <>
struct SuperBlock<TensorType::kIQ1_S> {
  static constexpr int kBytes = 50, kZero = 128;
  static constexpr Correction kCorrection = Correction::kZeroPoint;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    const f32x16 d = in.f16(0) * 0.125f;
    u32x16 low[8], words[4];
    in.words8(2, low);
    in.words4(34, words);
    for (int b = 0; b < 8; ++b) {
      const u32x16 word = words[b / 2] >> (b % 2 * 16);
      out[b].scale = d * odd_scale((word >> 12) & 7u);
      PUNA_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const u32x16 index = byte_of(low + b, i) | (((word >> (3 * i)) & 7u) << 8);
        unpack_iq1_entry(index, (word >> 15) & 1u, out[b].q + 2 * i);
      }
    }
  }
};

template <>
struct SuperBlock<TensorType::kIQ1_M> {
  static constexpr int kBytes = 56, kZero = 128;
  static constexpr Correction kCorrection = Correction::kSubScales;
  PUNA_INLINE void unpack(auto& in, WeightBlock* out) {
    u32x16 low[8], high[4];
    in.words8(0, low);
    in.words4(32, high);
    // Four times: four scales of three bits, and four bits of a half float.
    const u32x16 scales[2] = {in.u32(48), in.u32(52)};
    const u32x16 half_float = ((scales[0] >> 12) & 0xfu) | ((scales[0] >> 24) & 0xf0u) |
                              ((scales[1] >> 4) & 0xf00u) | ((scales[1] >> 16) & 0xf000u);
    const f32x16 d = f16_to_float(half_float) * 0.125f;
    for (int b = 0; b < 8; ++b) {
      const u32x16 two_scales = scales[b / 4] >> (b % 4 / 2 * 16 + b % 2 * 6);
      out[b].scale = d;
      out[b].a = odd_scale(two_scales & 7u);
      out[b].b = odd_scale((two_scales >> 3) & 7u);
      PUNA_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const u32x16 nibble = high[b / 2] >> (b % 2 * 16 + 4 * i);
        unpack_iq1_entry(byte_of(low + b, i) | ((nibble & 7u) << 8), (nibble >> 3) & 1u, out[b].q + 2 * i);
      }
    }
  }
};

}  // namespace puna::PUNA_ISA
