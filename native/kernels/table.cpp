#include "kernels/functions.h"

namespace puna::PUNA_ISA {

#define PUNA_ENTRY(kernel) .kernel = kernel,
const Kernels kKernels = {.isa = PUNA_ISA_NAME, PUNA_KERNELS(PUNA_ENTRY)};
#undef PUNA_ENTRY

}  // namespace puna::PUNA_ISA
