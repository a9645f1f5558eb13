// 32 activations as linear kernels for quantized weights read them: x[i] ~ scale * q[i], |q[i]| <= 127.
// The sums are kept negated, as the corrections need them: sum (scale_w * u - min) * x =
// scale_w * scale * (sum u * q) + min * negative_scaled_sum.
#pragma once

#include <cstdint>

namespace puna::PUNA_ISA {

inline constexpr int kBlockValues = 32;

struct ActivationBlock {
  float scale;
  float negative_scaled_sum;  // -scale * sum of q
  int32_t negative_sum;       // -sum of q
  int32_t negative_low_sum;   // -sum of the first 16 of q
  int8_t q[kBlockValues];
};
static_assert(sizeof(ActivationBlock) == 48);

}  // namespace puna::PUNA_ISA
