// Weights rounded to the types of GGUF. Every type's blocks are made one after the other, each of its own
// values alone, so that they do not depend on where rows begin or how work is shared out.
#pragma once

#include <cstdint>

namespace puna::PUNA_ISA {

// `count` values, a whole number of blocks, to `out`.
using QuantizeValues = void(const float* x, int64_t count, uint8_t* out);

// float_types.cpp
QuantizeValues to_f32, to_f16, to_bf16;

// blocks_of_32.cpp
QuantizeValues to_q8_0, to_q4_0, to_q4_1, to_q5_0, to_q5_1;

// k_affine.cpp
QuantizeValues to_q2_k, to_q4_k, to_q5_k;

// k_symmetric.cpp
QuantizeValues to_q3_k, to_q6_k;

}  // namespace puna::PUNA_ISA
