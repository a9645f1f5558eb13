// Dequantization of one block: the functions that dequantize() chooses from, and what they read blocks with.
#pragma once

#include <cstdint>
#include <cstring>

#include "quants/half.h"

namespace puna {

template <typename T>
T load_bytes(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

inline float load_half(const uint8_t* p) { return half_to_float(load_bytes<uint16_t>(p)); }

using DequantizeBlock = void (*)(const uint8_t* in, float* out);

// dequantize_codebook.cpp
void dequantize_iq1_s(const uint8_t* in, float* out);
void dequantize_iq1_m(const uint8_t* in, float* out);
void dequantize_iq2_xxs(const uint8_t* in, float* out);
void dequantize_iq2_xs(const uint8_t* in, float* out);
void dequantize_iq2_s(const uint8_t* in, float* out);
void dequantize_iq3_xxs(const uint8_t* in, float* out);
void dequantize_iq3_s(const uint8_t* in, float* out);

// dequantize_few_bits.cpp
void dequantize_q1_0(const uint8_t* in, float* out);
void dequantize_q2_0(const uint8_t* in, float* out);
void dequantize_tq1_0(const uint8_t* in, float* out);
void dequantize_tq2_0(const uint8_t* in, float* out);
void dequantize_nvfp4(const uint8_t* in, float* out);

}  // namespace puna
