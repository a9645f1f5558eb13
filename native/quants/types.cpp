#include "quants/types.h"

#include <iterator>

namespace puna {
namespace {

// Indexed by ggml's type number; numbers without a name were given up by ggml.
constexpr TypeTraits kTraits[] = {
    {"F32", 1, 4},         // 0
    {"F16", 1, 2},         // 1
    {"Q4_0", 32, 18},      // 2
    {"Q4_1", 32, 20},      // 3
    {},                    // 4
    {},                    // 5
    {"Q5_0", 32, 22},      // 6
    {"Q5_1", 32, 24},      // 7
    {"Q8_0", 32, 34},      // 8
    {"Q8_1", 32, 40},      // 9
    {"Q2_K", 256, 84},     // 10
    {"Q3_K", 256, 110},    // 11
    {"Q4_K", 256, 144},    // 12
    {"Q5_K", 256, 176},    // 13
    {"Q6_K", 256, 210},    // 14
    {"Q8_K", 256, 292},    // 15
    {"IQ2_XXS", 256, 66},  // 16
    {"IQ2_XS", 256, 74},   // 17
    {"IQ3_XXS", 256, 98},  // 18
    {"IQ1_S", 256, 50},    // 19
    {"IQ4_NL", 32, 18},    // 20
    {"IQ3_S", 256, 110},   // 21
    {"IQ2_S", 256, 82},    // 22
    {"IQ4_XS", 256, 136},  // 23
    {"I8", 1, 1},          // 24
    {"I16", 1, 2},         // 25
    {"I32", 1, 4},         // 26
    {"I64", 1, 8},         // 27
    {"F64", 1, 8},         // 28
    {"IQ1_M", 256, 56},    // 29
    {"BF16", 1, 2},        // 30
    {},                    // 31
    {},                    // 32
    {},                    // 33
    {"TQ1_0", 256, 54},    // 34
    {"TQ2_0", 256, 66},    // 35
    {},                    // 36
    {},                    // 37
    {},                    // 38
    {"MXFP4", 32, 17},     // 39
    {"NVFP4", 64, 36},     // 40
    {"Q1_0", 128, 18},     // 41
    {"Q2_0", 64, 18},      // 42
};

}  // namespace

const TypeTraits* type_traits(TensorType type) {
  const auto number = static_cast<uint32_t>(type);
  if (number >= std::size(kTraits) || kTraits[number].name == nullptr) return nullptr;
  return &kTraits[number];
}

}  // namespace puna
