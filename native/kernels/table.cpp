#include "kernels/functions.h"

namespace puna::PUNA_ISA {

#if defined(PUNA_AVX512)
constexpr bool kUsesTiles = true;
#else
constexpr bool kUsesTiles = false;
#endif

#define PUNA_ENTRY(kernel) .kernel = kernel,
const Kernels kKernels = {
    .isa = PUNA_ISA_NAME, .uses_tiles = kUsesTiles, PUNA_KERNELS(PUNA_ENTRY, PUNA_ENTRY)};
#undef PUNA_ENTRY

}  // namespace puna::PUNA_ISA
