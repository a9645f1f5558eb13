// The functions between linear layers, 16 values at a time.
#pragma once

#include "simd/simd.h"

namespace puna::PUNA_ISA {
namespace {

PUNA_INLINE f32x16 sigmoid(f32x16 x) { return 1.0f / (1.0f + exp(-x)); }

PUNA_INLINE f32x16 silu(f32x16 x) { return x / (1.0f + exp(-x)); }

// The tanh approximation (Hendrycks & Gimpel, 2016), as models are trained with it: (1 + tanh(y)) / 2 is the
// sigmoid of 2 y.
PUNA_INLINE f32x16 gelu(f32x16 x) {
  return x / (1.0f + exp(x * -1.5957691216057308f * (1.0f + 0.044715f * x * x)));
}

PUNA_INLINE f32x16 relu(f32x16 x) { return max(x, f32x16{}); }

PUNA_INLINE f32x16 relu_squared(f32x16 x) { return relu(x) * relu(x); }

// Of gpt-oss: sigmoid(1.702 gate) * gate * (up + 1), with both kept within 7.
PUNA_INLINE f32x16 swiglu_oai(f32x16 gate, f32x16 up) {
  const f32x16 x = min(gate, splat(7.0f)), y = max(min(up, splat(7.0f)), splat(-7.0f));
  return x / (1.0f + exp(x * -1.702f)) * (y + 1.0f);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + z) with z = e^-|x|; and ln(1 + z) = 2 artanh(z / (2 + z)), whose series
// in s <= 1/3 needs eight terms.
PUNA_INLINE f32x16 softplus(f32x16 x) {
  const f32x16 z = exp(-max(x, -x));
  const f32x16 s = z / (2.0f + z), s2 = s * s;
  f32x16 p = splat(2.0f / 15.0f);
  for (const float divisor : {13.0f, 11.0f, 9.0f, 7.0f, 5.0f, 3.0f, 1.0f})
    p = fma(p, s2, splat(2.0f / divisor));
  return fma(p, s, max(x, f32x16{}));
}

}  // namespace
}  // namespace puna::PUNA_ISA
