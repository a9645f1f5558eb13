// Formats whose values come, 8 or 4 at a time, from a codebook. Blocks of 256 values; see dequantize.cpp.
#include "quants/block.h"
#include "quants/codebooks.h"

namespace puna {
namespace {

// out[i] = scale * value i of the entry, negated where bit i of `signs` is set.
template <typename Entry>
void signed_point(Entry entry, uint32_t signs, float scale, float* out) {
  for (size_t i = 0; i < sizeof entry; ++i) {
    const float value = scale * static_cast<float>((entry >> (8 * i)) & 0xff);
    out[i] = (signs >> i) & 1 ? -value : value;
  }
}

// Eight values of IQ1: scale * (value + delta).
void shifted_point(uint64_t entry, float delta, float scale, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = scale * (static_cast<float>((entry >> (8 * i)) & 0xff) - 1.0f + delta);
}

float iq1_delta(bool negative) { return negative ? -0.125f : 0.125f; }

// Scale number i of 16 values, of four bits.
float iq2_scale(float d, const uint8_t* scales, int i) {
  return d * (0.5f + static_cast<float>((scales[i / 2] >> (i % 2 * 4)) & 15)) * 0.25f;
}

}  // namespace

void dequantize_iq1_s(const uint8_t* in, float* out) {
  const float d = load_half(in);
  const uint8_t *low = in + 2, *words = in + 34;
  for (int group = 0; group < 8; ++group) {  // of 32 values
    const uint32_t word = load_bytes<uint16_t>(words + 2 * group);
    const float scale = d * static_cast<float>(2 * ((word >> 12) & 7) + 1);
    for (int i = 0; i < 4; ++i) {
      const uint32_t index = low[4 * group + i] | ((word >> (3 * i)) & 7) << 8;
      shifted_point(kIq1Codebook[index], iq1_delta(word >> 15), scale, out + 32 * group + 8 * i);
    }
  }
}

void dequantize_iq1_m(const uint8_t* in, float* out) {
  const uint8_t *low = in, *high = in + 32;
  uint32_t scales[4], d = 0;  // four scales of three bits in each, and four bits of d
  for (int i = 0; i < 4; ++i) {
    scales[i] = load_bytes<uint16_t>(in + 48 + 2 * i);
    d |= scales[i] >> 12 << (4 * i);
  }
  for (int i = 0; i < 32; ++i) {
    const uint32_t nibble = (high[i / 2] >> (i % 2 * 4)) & 15;
    const uint32_t three_bits = (scales[i / 8] >> (i % 8 / 2 * 3)) & 7;
    const float scale = half_to_float(static_cast<uint16_t>(d)) * static_cast<float>(2 * three_bits + 1);
    shifted_point(kIq1Codebook[low[i] | (nibble & 7) << 8], iq1_delta(nibble & 8), scale, out + 8 * i);
  }
}

void dequantize_iq2_xxs(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int group = 0; group < 8; ++group) {  // of 32 values: four indices, then signs and scale
    const uint8_t* indices = in + 2 + 8 * group;
    const uint32_t word = load_bytes<uint32_t>(indices + 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i)
      signed_point(kIq2XxsCodebook[indices[i]], eight_signs((word >> (7 * i)) & 127), scale,
                   out + 32 * group + 8 * i);
  }
}

void dequantize_iq2_xs(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 32; ++i) {
    const uint32_t word = load_bytes<uint16_t>(in + 2 + 2 * i);
    signed_point(kIq2XsCodebook[word & 511], eight_signs(word >> 9), iq2_scale(d, in + 66, i / 2),
                 out + 8 * i);
  }
}

void dequantize_iq2_s(const uint8_t* in, float* out) {
  const float d = load_half(in);
  const uint8_t *low = in + 2, *signs = in + 34, *high = in + 66, *scales = in + 74;
  for (int i = 0; i < 32; ++i) {
    const uint32_t index = low[i] | ((high[i / 4] >> (i % 4 * 2)) & 3u) << 8;
    signed_point(kIq2SCodebook[index], signs[i], iq2_scale(d, scales, i / 2), out + 8 * i);
  }
}

void dequantize_iq3_xxs(const uint8_t* in, float* out) {
  const float d = load_half(in);
  const uint8_t *indices = in + 2, *words = in + 66;
  for (int i = 0; i < 64; ++i) {
    const uint32_t word = load_bytes<uint32_t>(words + i / 8 * 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    const uint32_t signs = eight_signs((word >> (i % 8 / 2 * 7)) & 127);
    signed_point(kIq3XxsCodebook[indices[i]], signs >> (i % 2 * 4), scale, out + 4 * i);
  }
}

void dequantize_iq3_s(const uint8_t* in, float* out) {
  const float d = load_half(in);
  const uint8_t *low = in + 2, *high = in + 66, *signs = in + 74, *scales = in + 106;
  for (int i = 0; i < 64; ++i) {
    const uint32_t index = low[i] | ((high[i / 8] >> (i % 8)) & 1u) << 8;
    const int four_bits = (scales[i / 16] >> (i % 16 / 8 * 4)) & 15;  // of 32 values
    const float scale = d * static_cast<float>(1 + 2 * four_bits);
    signed_point(kIq3SCodebook[index], static_cast<uint32_t>(signs[i / 2]) >> (i % 2 * 4), scale,
                 out + 4 * i);
  }
}

}  // namespace puna
