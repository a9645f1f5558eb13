#include "kernels/functions.h"

namespace puna::PUNA_ISA {

void linear(const LinearArgs& args) {
  if (needs_quantized_input(args.weight->type))
    linear_quantized(args);
  else if (is_float(args.weight->type))
    linear_float(args);
  else
    linear_generic(args);
}

}  // namespace puna::PUNA_ISA
