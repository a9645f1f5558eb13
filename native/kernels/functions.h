// The functions that each instruction set's kernel table is made of; the contracts are in kernels.h.
#pragma once

#include <type_traits>

#include "kernels/kernels.h"

// X(name) of each, in the order of the table.
#define PUNA_KERNELS(X)  \
  X(quantized_row_bytes) \
  X(quantize_row)        \
  X(linear)              \
  X(lane_linear)         \
  X(store_kv)            \
  X(attention)           \
  X(attention_segments)  \
  X(combine_segments)    \
  X(encoder_attention)   \
  X(rms_norm)            \
  X(layer_norm)          \
  X(rope_normal)         \
  X(rope_neox)           \
  X(l2_norm)             \
  X(activate)            \
  X(glu)                 \
  X(add)                 \
  X(weighted_sum)        \
  X(mul)                 \
  X(scale)               \
  X(softcap)             \
  X(gaussian_top_k)      \
  X(clamp)               \
  X(xielu)               \
  X(short_conv)          \
  X(delta_net)           \
  X(selective_scan)      \
  X(channel_scan)        \
  X(mask_logits)         \
  X(logit_maxima)        \
  X(logit_sums)          \
  X(logit_moments)       \
  X(logit_weights)       \
  X(score_range)         \
  X(select_logits)       \
  X(logit_histogram)     \
  X(widen)               \
  X(all_finite)          \
  X(quantize_weights)    \
  X(dot_burst)           \
  X(read_burst)

namespace puna::PUNA_ISA {

extern const Kernels kKernels;  // table.cpp

#define PUNA_DECLARE(name) std::remove_pointer_t<decltype(Kernels::name)> name;
PUNA_KERNELS(PUNA_DECLARE)
#undef PUNA_DECLARE

// Those of matmul.cpp: for types that need_quantized_input (matmul_quantized.cpp), for floats
// (matmul_float.cpp).
std::remove_pointer_t<decltype(Kernels::linear)> linear_quantized, linear_float;

}  // namespace puna::PUNA_ISA
