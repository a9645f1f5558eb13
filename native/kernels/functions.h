// The functions that each instruction set's kernel table is made of; the contracts are in kernels.h.
#pragma once

#include "kernels/kernels.h"

namespace puna::PUNA_ISA {

extern const Kernels kKernels;  // table.cpp

// quantize_row.cpp
int64_t quantized_row_bytes(int64_t cols);
void quantize_row(const float* x, int64_t cols, void* out);

// matmul.cpp
void linear(const LinearArgs& args);
void linear_quantized(const LinearArgs& args);  // matmul_quantized.cpp: types that need_quantized_input
void linear_float(const LinearArgs& args);      // matmul_float.cpp: F32, F16, BF16

// store_kv.cpp
void store_kv(KvType type, const KvLayout& layout, const float* k, const float* v, int head, int num_kv_heads,
              int head_dim, int slot, uint8_t* k_block, uint8_t* v_block);

// attention.cpp
void attention(const AttentionArgs& args);
void attention_segments(const AttentionArgs& args, int64_t segment_begin, int64_t segment_end);
void combine_segments(const AttentionArgs& args);

// elementwise.cpp
void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out);
void rope_normal(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                 const float* sin);
void rope_neox(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
               const float* sin);
void glu(Activation activation, const float* gate, const float* up, int64_t n, float* out);
void add(const float* a, const float* b, int64_t n, float* out);
void mul(const float* a, const float* b, int64_t n, float* out);
void scale(const float* x, float factor, int64_t n, float* out);
void softcap(const float* x, float cap, int64_t n, float* out);

// sampling.cpp
void logit_maxima(const float* logits, int64_t num_blocks, float* max);
void logit_sums(const float* logits, int64_t num_blocks, const float* max, float inverse_temperature,
                float* sums);
void logit_moments(const float* logits, int64_t num_blocks, const float* max, float* moments);
void logit_weights(const float* logits, int64_t count, float max, float inverse_temperature, float* weights);
ScoreRange score_range(const float* scores, int64_t count);
int64_t select_logits(const SelectArgs& args);
void logit_histogram(const HistogramArgs& args, double* masses);

// peak.cpp
int64_t dot_burst(int64_t repeats, int32_t* sink);
void read_burst(const uint8_t* data, int64_t num_bytes, int32_t* sink);

}  // namespace puna::PUNA_ISA
