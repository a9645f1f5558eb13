#include "base/error.h"
#include "kernels/functions.h"
#include "kernels/quantizers/quantizers.h"

namespace puna::PUNA_ISA {
namespace {

QuantizeValues* quantizer(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return to_f32;
    case TensorType::kF16:
      return to_f16;
    case TensorType::kBF16:
      return to_bf16;
    case TensorType::kQ8_0:
      return to_q8_0;
    case TensorType::kQ4_0:
      return to_q4_0;
    case TensorType::kQ4_1:
      return to_q4_1;
    case TensorType::kQ5_0:
      return to_q5_0;
    case TensorType::kQ5_1:
      return to_q5_1;
    case TensorType::kQ2_K:
      return to_q2_k;
    case TensorType::kQ3_K:
      return to_q3_k;
    case TensorType::kQ4_K:
      return to_q4_k;
    case TensorType::kQ5_K:
      return to_q5_k;
    case TensorType::kQ6_K:
      return to_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

bool quantize_weights(TensorType type, const float* x, int64_t count, uint8_t* out) {
  QuantizeValues* function = quantizer(type);
  if (function != nullptr) function(x, count, out);
  return function != nullptr;
}

}  // namespace puna::PUNA_ISA
