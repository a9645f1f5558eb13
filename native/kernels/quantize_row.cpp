#include "kernels/functions.h"
#include "kernels/products/activation_block.h"
#include "simd/simd.h"

namespace puna::PUNA_ISA {
namespace {

// The largest magnitude; infinity and NaN count as larger than any number, so that they are not lost but make
// the scale, and with it the result, infinite or NaN.
PUNA_INLINE float largest_magnitude(f32x16 low, f32x16 high) {
  const int32_t largest = reduce_max(max((i32x16)low & 0x7fffffff, (i32x16)high & 0x7fffffff));
  float magnitude;
  std::memcpy(&magnitude, &largest, sizeof magnitude);
  return magnitude;
}

// Rounds to the nearest integer, ties to even, as adding 1.5 * 2^23 leaves no bits for a fraction. v: within
// [-127, 127], or NaN, which becomes -127.
PUNA_INLINE i32x16 round_to_int(f32x16 v) {
  const float shifter = 12582912.0f;
  return (i32x16)(max(v, splat(-127.0f)) + shifter) - (i32x16)splat(shifter);
}

void quantize_block(const float* x, ActivationBlock& block) {
  const f32x16 low = load(x), high = load(x + 16);
  const float magnitude = largest_magnitude(low, high);
  block.scale = magnitude / 127.0f;
  // Below, 127 / magnitude would be infinite; such values are as good as zero.
  const float inverse = magnitude > 1e-36f ? 127.0f / magnitude : 0.0f;
  const i32x16 q_low = round_to_int(low * inverse), q_high = round_to_int(high * inverse);
  const int32_t low_sum = reduce_add(q_low);
  const int32_t sum = low_sum + reduce_add(q_high);
  block.negative_scaled_sum = -(block.scale * (float)sum);
  block.negative_sum = -sum;
  block.negative_low_sum = -low_sum;
  store_bytes(block.q, q_low);
  store_bytes(block.q + kLanes, q_high);
}

}  // namespace

int64_t quantized_row_bytes(int64_t cols) { return cols / kBlockValues * (int64_t)sizeof(ActivationBlock); }

void quantize_row(const float* x, int64_t cols, void* out) {
  ActivationBlock* blocks = static_cast<ActivationBlock*>(out);
  for (int64_t k = 0; k < cols; k += kBlockValues) quantize_block(x + k, blocks[k / kBlockValues]);
}

}  // namespace puna::PUNA_ISA
