// Exact (to the bit) as ggml's reference: the same products and sums of float32 in the same order. Block
// layouts are those of ggml-common.h.
#include <string>

#include "base/error.h"
#include "quants/block.h"
#include "quants/codebooks.h"
#include "quants/types.h"

namespace puna {
namespace {

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void f32(const uint8_t* in, float* out) { *out = load_bytes<float>(in); }

void f16(const uint8_t* in, float* out) { *out = load_half(in); }

void bf16(const uint8_t* in, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(load_bytes<uint16_t>(in)) << 16);
}

// Blocks of 32: low nibbles are the first 16 values, high nibbles the last.

void q4_0(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((in[2 + i] >> 4) - 8);
  }
}

void q4_1(const uint8_t* in, float* out) {
  const float d = load_half(in), m = load_half(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(in[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(in[4 + i] >> 4) + m;
  }
}

// The fifth bits of all 32 values are one word.
int fifth_bit(uint32_t word, int i) { return static_cast<int>((word >> i) & 1) << 4; }

void q5_0(const uint8_t* in, float* out) {
  const float d = load_half(in);
  const uint32_t high = load_bytes<uint32_t>(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((in[6 + i] & 15) | fifth_bit(high, i)) - 16);
    out[i + 16] = d * static_cast<float>(((in[6 + i] >> 4) | fifth_bit(high, i + 16)) - 16);
  }
}

void q5_1(const uint8_t* in, float* out) {
  const float d = load_half(in), m = load_half(in + 2);
  const uint32_t high = load_bytes<uint32_t>(in + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[8 + i] & 15) | fifth_bit(high, i)) + m;
    out[i + 16] = d * static_cast<float>((in[8 + i] >> 4) | fifth_bit(high, i + 16)) + m;
  }
}

void q8_0(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(in[2 + i]));
}

void iq4_nl(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4Values[in[2 + i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4Values[in[2 + i] >> 4]);
  }
}

void mxfp4(const uint8_t* in, float* out) {
  // The scale is a power of two, 2^(e - 128); for e < 2 it is a subnormal float.
  const uint32_t e = in[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kFp4Values[in[1 + i] & 15]);
    out[i + 16] = d * static_cast<float>(kFp4Values[in[1 + i] >> 4]);
  }
}

// Super-blocks of 256. Value i of a 2-bit plane: bytes hold values 32 apart, 128 per 32 bytes.
int two_bits(const uint8_t* plane, int i) { return (plane[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3; }

void q2_k(const uint8_t* in, float* out) {
  const uint8_t *scales = in, *quants = in + 16;
  const float d = load_half(in + 80), dmin = load_half(in + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(scales[i / 16] & 15);
    const float min = dmin * static_cast<float>(scales[i / 16] >> 4);
    out[i] = scale * static_cast<float>(two_bits(quants, i)) - min;
  }
}

void q3_k(const uint8_t* in, float* out) {
  const uint8_t *mask = in, *quants = in + 32, *packed = in + 96;
  const float d = load_half(in + 108);
  for (int group = 0; group < 16; ++group) {
    // Six bits: the low four in the first eight bytes, the high two in the last four.
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    for (int i = group * 16; i < (group + 1) * 16; ++i) {
      const int offset = (mask[i % 32] >> (i / 32)) & 1 ? 0 : 4;  // a set bit means no offset
      out[i] = scale * static_cast<float>(two_bits(quants, i) - offset);
    }
  }
}

struct ScaleMin {
  float scale, min;
};

// Group j of the eight of a Q4_K or Q5_K super-block: six bits each, packed into 12 bytes.
ScaleMin scale_min(const uint8_t* packed, int j) {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  const int scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4);
  const int min = (packed[j + 4] >> 4) | (packed[j] >> 6 << 4);
  return {static_cast<float>(scale), static_cast<float>(min)};
}

// Value i of a 4-bit plane: bytes hold values 32 apart, 64 per 32 bytes.
int nibble(const uint8_t* plane, int i) { return (plane[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 15; }

void q4_k(const uint8_t* in, float* out) {
  const float d = load_half(in), dmin = load_half(in + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin six = scale_min(in + 4, group);
    const float scale = d * six.scale, min = dmin * six.min;
    for (int i = group * 32; i < (group + 1) * 32; ++i)
      out[i] = scale * static_cast<float>(nibble(in + 16, i)) - min;
  }
}

void q5_k(const uint8_t* in, float* out) {
  const uint8_t *high = in + 16, *low = in + 48;
  const float d = load_half(in), dmin = load_half(in + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin six = scale_min(in + 4, group);
    const float scale = d * six.scale, min = dmin * six.min;
    for (int i = group * 32; i < (group + 1) * 32; ++i) {
      const int q = nibble(low, i) | ((high[i % 32] >> group) & 1) << 4;
      out[i] = scale * static_cast<float>(q) - min;
    }
  }
}

void q6_k(const uint8_t* in, float* out) {
  const uint8_t *low = in, *high = in + 128, *scales = in + 192;
  const float d = load_half(in + 208);
  for (int i = 0; i < 256; ++i) {
    // Low nibbles: bytes hold values 64 apart, 128 per 64 bytes.
    const int nibble = (low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4)) & 15;
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = scale * static_cast<float>((nibble | two_bits(high, i) << 4) - 32);
  }
}

void iq4_xs(const uint8_t* in, float* out) {
  const float d = load_half(in);
  const uint32_t high = load_bytes<uint16_t>(in + 2);
  const uint8_t *low = in + 4, *quants = in + 8;
  for (int group = 0; group < 8; ++group) {
    const int six = ((low[group / 2] >> (group % 2 * 4)) & 15) | static_cast<int>((high >> 2 * group) & 3)
                                                                     << 4;
    const float scale = d * static_cast<float>(six - 32);
    for (int i = 0; i < 16; ++i) {
      const uint8_t byte = quants[group * 16 + i];
      out[group * 32 + i] = scale * static_cast<float>(kIq4Values[byte & 15]);
      out[group * 32 + i + 16] = scale * static_cast<float>(kIq4Values[byte >> 4]);
    }
  }
}

constexpr struct {
  TensorType type;
  DequantizeBlock function;
} kFunctions[] = {
    {TensorType::kF32, f32},
    {TensorType::kF16, f16},
    {TensorType::kQ4_0, q4_0},
    {TensorType::kQ4_1, q4_1},
    {TensorType::kQ5_0, q5_0},
    {TensorType::kQ5_1, q5_1},
    {TensorType::kQ8_0, q8_0},
    {TensorType::kQ2_K, q2_k},
    {TensorType::kQ3_K, q3_k},
    {TensorType::kQ4_K, q4_k},
    {TensorType::kQ5_K, q5_k},
    {TensorType::kQ6_K, q6_k},
    {TensorType::kIQ4_NL, iq4_nl},
    {TensorType::kIQ4_XS, iq4_xs},
    {TensorType::kBF16, bf16},
    {TensorType::kMXFP4, mxfp4},
    {TensorType::kIQ1_S, dequantize_iq1_s},
    {TensorType::kIQ1_M, dequantize_iq1_m},
    {TensorType::kIQ2_XXS, dequantize_iq2_xxs},
    {TensorType::kIQ2_XS, dequantize_iq2_xs},
    {TensorType::kIQ2_S, dequantize_iq2_s},
    {TensorType::kIQ3_XXS, dequantize_iq3_xxs},
    {TensorType::kIQ3_S, dequantize_iq3_s},
    {TensorType::kQ1_0, dequantize_q1_0},
    {TensorType::kQ2_0, dequantize_q2_0},
    {TensorType::kTQ1_0, dequantize_tq1_0},
    {TensorType::kTQ2_0, dequantize_tq2_0},
    {TensorType::kNVFP4, dequantize_nvfp4},
};

DequantizeBlock block_function(TensorType type) {
  for (const auto& entry : kFunctions)
    if (entry.type == type) return entry.function;
  return nullptr;
}

}  // namespace

bool can_dequantize(TensorType type) { return block_function(type) != nullptr; }

void dequantize(TensorType type, const uint8_t* src, float* dst, int64_t num_values) {
  const DequantizeBlock function = block_function(type);
  if (function == nullptr)
    throw Error("type " + std::to_string(static_cast<uint32_t>(type)) + " is not supported");
  const TypeTraits& traits = *type_traits(type);
  const int64_t blocks = num_values / traits.block_elements;
  for (int64_t i = 0; i < blocks; ++i)
    function(src + i * traits.block_bytes, dst + i * traits.block_elements);
}

}  // namespace puna
