// What every instruction set provides. Chosen once, at run time (select_kernels). All functions are single
// threaded: the executor splits work over rows, heads and tokens, never over a sum, so results do not depend
// on the number of threads, tokens or sequences in a step (batch invariance).
#pragma once

#include <cstdint>

#include "quants/types.h"

namespace puna {

inline constexpr int kBlockTokens = 16;  // tokens of one KV block; also the lanes of a vector
inline constexpr int kRowTile = 16;      // weight rows that a linear kernel handles together

// What keys and values are stored as.
enum class KvType : int { kF16 = 0, kF32 = 1 };

inline int64_t kv_value_bytes(KvType type) { return type == KvType::kF16 ? 2 : 4; }

enum class Activation : int { kSilu = 0, kGelu = 1, kRelu = 2 };

// out[t * out_stride + r] = sum_k W[r][k] * x[t][k]  (+ bias[r])  (+ residual[t * out_stride + r])
// for r in [row_begin, row_end), t in [0, num_tokens). row_begin is a multiple of kRowTile; row_end too, or
// the last row. residual may be out itself.
struct LinearArgs {
  const Weight* weight;
  const void* x;  // rows of quantized_row_bytes(cols) for block types, of cols floats for F32/F16/BF16
  int64_t num_tokens;
  int64_t row_begin;
  int64_t row_end;
  float* out;
  int64_t out_stride;
  const float* bias;      // nullptr or [rows]
  const float* residual;  // nullptr or like out
};

// One attention task: query tokens [token_begin, token_end) of one sequence, all query heads of one KV head.
struct AttentionArgs {
  const float* q;  // [num_tokens][num_heads * head_dim], of the sequence's first query token
  float* out;      // same shape
  int64_t stride;  // floats between tokens of q and out
  int num_heads, num_kv_heads, head_dim;
  int kv_head;
  int64_t token_begin, token_end;
  int64_t first_position;  // position of the sequence's first query token
  const int32_t* block_table;
  const uint8_t* arena;  // block b starts at arena + b * block_bytes
  int64_t block_bytes;
  KvType kv_type;
  int64_t k_offset, v_offset;  // of this layer's K and V within a block
  float scale;
  float softcap;   // 0: none
  int64_t window;  // 0: all earlier tokens; else only the last `window` ones
};

struct Kernels {
  const char* isa;

  // --- matmul.cpp ---
  // Activations for block-quantized weights: int8 per 32 values with scale and sums, in a private layout.
  int64_t (*quantized_row_bytes)(int64_t cols);
  void (*quantize_row)(const float* x, int64_t cols, void* out);
  void (*linear)(const LinearArgs& args);

  // --- attention.cpp ---
  // One token's K and V of one layer into its block. Layout per KV head: K [head_dim][16 tokens],
  // V [16 tokens][head_dim]; heads follow one another.
  void (*store_kv)(KvType type, const float* k, const float* v, int num_kv_heads, int head_dim, int slot,
                   uint8_t* k_block, uint8_t* v_block);
  void (*attention)(const AttentionArgs& args);

  // --- elementwise.cpp --- rows of n floats
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*rope_normal)(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                      const float* sin);
  void (*rope_neox)(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                    const float* sin);
  void (*glu)(Activation activation, const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*mul)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
};

// True for types whose linear kernel reads quantized activations.
inline bool needs_quantized_input(TensorType type) {
  return type != TensorType::kF32 && type != TensorType::kF16 && type != TensorType::kBF16;
}

// isa: "auto" or the name of an instruction set, such as "portable". Throws Error if unknown or if this
// machine lacks it. In select.cpp of executor/, since kernels/ is compiled once per instruction set.
const Kernels& select_kernels(const char* isa);

}  // namespace puna
