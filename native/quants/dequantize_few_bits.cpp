// Formats of one and two bits and of digits of base 3; NVFP4. See dequantize.cpp.
#include "quants/block.h"
#include "quants/codebooks.h"

namespace puna {
namespace {

// Digit i of the five of base 3 that a byte holds, less one. The byte is a fraction, in 256ths: multiplying
// it by 3^i, modulo 256, leaves the digits from i on, and another multiplication by 3 moves the first above
// the byte.
float trit(uint8_t byte, int i, float d) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[i]);
  return d * static_cast<float>((shifted * 3 >> 8) - 1);
}

// E4M3 without a sign, halved because kFp4Values are doubled; 0x7f, which would be NaN, counts as zero.
float fp8_scale(uint8_t byte) {
  const uint32_t exponent = (byte >> 3) & 15, mantissa = byte & 7;
  if (byte == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 127 - 8) << 23 | mantissa << 20);
}

}  // namespace

void dequantize_q1_0(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 128; ++i) out[i] = (in[2 + i / 8] >> (i % 8)) & 1 ? d : -d;
}

void dequantize_q2_0(const uint8_t* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 64; ++i) out[i] = d * static_cast<float>(((in[2 + i / 4] >> (i % 4 * 2)) & 3) - 1);
}

void dequantize_tq1_0(const uint8_t* in, float* out) {
  const float d = load_half(in + 52);
  // Bytes hold values 32 apart (five of them), then 16 apart, then 4 apart (four).
  for (int i = 0; i < 160; ++i) out[i] = trit(in[i % 32], i / 32, d);
  for (int i = 0; i < 80; ++i) out[160 + i] = trit(in[32 + i % 16], i / 16, d);
  for (int i = 0; i < 16; ++i) out[240 + i] = trit(in[48 + i % 4], i / 4, d);
}

void dequantize_tq2_0(const uint8_t* in, float* out) {
  const float d = load_half(in + 64);
  for (int i = 0; i < 256; ++i)  // bytes hold values 32 apart, 128 per 32 bytes
    out[i] = d * static_cast<float>(((in[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3) - 1);
}

void dequantize_nvfp4(const uint8_t* in, float* out) {
  for (int group = 0; group < 4; ++group) {  // of 16 values: low nibbles are the first 8, high ones the last
    const float scale = fp8_scale(in[group]);
    for (int i = 0; i < 8; ++i) {
      const uint8_t byte = in[4 + 8 * group + i];
      out[16 * group + i] = scale * static_cast<float>(kFp4Values[byte & 15]);
      out[16 * group + 8 + i] = scale * static_cast<float>(kFp4Values[byte >> 4]);
    }
  }
}

}  // namespace puna
