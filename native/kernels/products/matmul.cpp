#include "kernels/functions.h"

namespace puna::PUNA_ISA {

void linear(const LinearArgs& args) {
  if (needs_quantized_input(args.weight->type))
    linear_quantized(args);
  else
    linear_float(args);
}

}  // namespace puna::PUNA_ISA
