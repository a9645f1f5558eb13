// The functions that each instruction set's kernel table is made of; the contracts are in kernels.h.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

// All, in the order of the table. Instruction sets that differ in nothing but dot products of bytes share the
// kernels that have none, with the set PUNA_SHARED_ISA; what is OWN is in DOT_SOURCES of CMakeLists.txt.
#define PUNA_KERNELS(SHARED, OWN) \
  SHARED(quantized_row_bytes)     \
  SHARED(quantize_row)            \
  OWN(linear)                     \
  SHARED(lane_linear)             \
  SHARED(store_kv)                \
  OWN(attention)                  \
  OWN(attention_segments)         \
  OWN(combine_segments)           \
  SHARED(encoder_attention)       \
  SHARED(rms_norm)                \
  SHARED(layer_norm)              \
  SHARED(rope_normal)             \
  SHARED(rope_neox)               \
  SHARED(l2_norm)                 \
  SHARED(activate)                \
  SHARED(glu)                     \
  SHARED(add)                     \
  SHARED(weighted_sum)            \
  SHARED(mul)                     \
  SHARED(scale)                   \
  SHARED(softcap)                 \
  SHARED(gaussian_top_k)          \
  SHARED(clamp)                   \
  SHARED(xielu)                   \
  SHARED(short_conv)              \
  SHARED(delta_net)               \
  SHARED(selective_scan)          \
  SHARED(channel_scan)            \
  SHARED(mask_logits)             \
  SHARED(logit_maxima)            \
  SHARED(logit_sums)              \
  SHARED(logit_moments)           \
  SHARED(logit_weights)           \
  SHARED(score_range)             \
  SHARED(select_logits)           \
  SHARED(logit_histogram)         \
  SHARED(widen)                   \
  SHARED(all_finite)              \
  SHARED(quantize_weights)        \
  OWN(dot_burst)                  \
  OWN(read_burst)

#define PUNA_NOTHING(name)
#define PUNA_DECLARE(name) std::remove_pointer_t<decltype(Kernels::name)> name;

namespace puna::PUNA_SHARED_ISA {

PUNA_KERNELS(PUNA_DECLARE, PUNA_NOTHING)
std::remove_pointer_t<decltype(Kernels::linear)> linear_float;  // of matmul.cpp, for weights that are floats

}  // namespace puna::PUNA_SHARED_ISA

namespace puna::PUNA_ISA {

extern const Kernels kKernels;  // table.cpp

PUNA_KERNELS(PUNA_NOTHING, PUNA_DECLARE)
std::remove_pointer_t<decltype(Kernels::linear)> linear_quantized;  // of matmul.cpp, for all others

#define PUNA_SHARE(name) using PUNA_SHARED_ISA::name;
PUNA_KERNELS(PUNA_SHARE, PUNA_NOTHING)
using PUNA_SHARED_ISA::linear_float;

#undef PUNA_SHARE
#undef PUNA_NOTHING
#undef PUNA_DECLARE

}  // namespace puna::PUNA_ISA
