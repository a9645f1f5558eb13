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
