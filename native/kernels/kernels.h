// The functions of every instruction set. Chosen once, at run time (select_kernels). All functions are single
// threaded: the executor splits work over rows, heads and tokens, never over a sum, so results do not depend
// on the number of threads, tokens or sequences in a step (batch invariance).
#pragma once

#include <cstdint>

#include "kv/block_space.h"
#include "kv/layout.h"
#include "quants/types.h"

namespace puna {

inline constexpr int kRowTile = 16;  // weight rows that a linear kernel handles together

enum class Activation : int {
  kSilu,
  kGelu,
  kRelu,
  kSwigluOai,
  kSiluLimited,  // what SiLU gives is at most the limit
  kLimitedSilu,  // what SiLU gets is
  kSigmoid,
  kSoftplus,
  kReluSquared,
  kTanh,
};

// How a gate multiplies. limit: of the two that have one, which also keeps `up` within it.
struct Gating {
  Activation activation;
  float limit;
};

// x > 0: beta x + positive x^2, else beta x + negative (e^min(x, eps) - 1 - x).
struct Xielu {
  float positive, negative, beta, eps;
};

// out[t * out_stride + r] = sum_k W[r][k] * x[t][k]  (+ bias[r])  (+ residual[t * out_stride + r])
// for r in [row_begin, row_end), t in [0, num_tokens). row_begin is a multiple of kRowTile; row_end too, or
// the last row. residual may be out itself.
struct LinearArgs {
  const Weight* weight;
  const void* x;          // rows of quantized_row_bytes(cols) if needs_quantized_input, else of cols floats
  int64_t x_stride;       // bytes from one row to the next
  const int32_t* x_rows;  // [num_tokens] the row of each token; nullptr: in order
  int64_t num_tokens;
  int64_t row_begin;
  int64_t row_end;
  float* out;
  int64_t out_stride;
  const float* bias;      // nullptr or [rows]
  const float* residual;  // nullptr or like out
  const uint8_t* next;    // nullptr or the weights that the caller goes on with: fetched towards the end
};

// A matrix whose lanes are its rows: [(rows + 15) / 16][cols][16] of F32, F16 or BF16, with zeros behind the
// last row.
struct LaneWeight {
  TensorType type;
  const uint8_t* data;
  int64_t rows, cols;
};

// out[t][r - row_begin] = (adds: itself +) sum of W[r][c] * x[t][c] for r in [row_begin, row_end) and c in
// [col_begin, col_end). row_begin is a multiple of kRowTile. Strides are in floats.
struct LaneLinearArgs {
  const LaneWeight* weight;
  int64_t row_begin, row_end;
  int64_t col_begin, col_end;
  const float* x;
  int64_t x_stride;
  const int32_t* x_rows;  // [num_tokens] the row of each token; nullptr: in order
  int64_t num_tokens;
  float* out;
  int64_t out_stride;
  const int32_t* out_rows;  // as x_rows
  bool adds;
};

// Attention sums up segments of this many positions, each on its own, and adds those up in order: so a
// segment can be any thread's, and what comes out is always the same.
inline constexpr int kSegmentTokens = 256;
inline constexpr int kMaxAttentionRows = 48;  // query rows (tokens x heads of a KV head) of one task
inline constexpr int kMaxHeadDim = 2048;
inline constexpr int kMaxLatentDim = 512;

// One attention task: query tokens [token_begin, token_end) of one sequence, all query heads of one KV head.
struct AttentionArgs {
  const float* q;  // [num_tokens][num_heads * head_dim], of the sequence's first query token
  float* out;      // [num_tokens][num_heads * value_dim]
  int num_heads, num_kv_heads;
  int head_dim;   // of queries and keys
  int value_dim;  // of values: head_dim, but for latents
  int kv_head;
  int64_t token_begin, token_end;
  int64_t first_position;  // position of the sequence's first query token
  const int32_t* block_table;
  BlockSpace blocks;
  KvType kv_type;
  const KvLayout* layout;
  int64_t k_offset, v_offset;  // of this layer's K and V within a block
  bool is_latent;              // there is no V: values are the first value_dim columns of K
  float scale;
  float softcap;       // 0: none
  int64_t window;      // 0: all earlier tokens; else only the last `window` ones
  const float* sinks;  // [num_heads] a score that takes weight and has no value; nullptr: none
  float alibi;         // 0: none; else scores fall with distance

  // For attention_segments and combine_segments, which together give what attention gives: the sums of
  // segment s go to partial[(row * (last_segment - first_segment) + s - first_segment) *
  // partial_floats(value_dim)].
  float* partial = nullptr;
  int64_t first_segment = 0, last_segment = 0;  // all that the task's tokens see: [first, last)
};

// Floats that attention_segments writes for one segment and query row.
constexpr int64_t partial_floats(int64_t value_dim) { return (value_dim + 15) / 16 * 16 + 16; }

// Queries of a head of a whole text, whose tokens see each other. Pointers are to what the head has of the
// text's first token.
struct EncoderAttentionArgs {
  const float *q, *k, *v;
  float* out;
  int64_t q_stride, kv_stride;  // floats from a token's to the next; of out as of q
  int64_t num_tokens, head_dim;
  int64_t query_begin, query_end;
  float scale;
  int64_t window;     // tokens seen on either side; -1: all
  const float* bias;  // nullptr, or what scores in base 2 gain where a key is [i] tokens behind the query
  float* scratch;     // encoder_scratch_floats()
};

constexpr int64_t padded_tokens(int64_t count) { return (count + 15) / 16 * 16; }
inline constexpr int64_t kMostRegisterRows = 8;  // of any instruction set

constexpr int64_t encoder_scratch_floats(int64_t num_tokens, int64_t head_dim) {
  return padded_tokens(num_tokens) * (head_dim + padded_tokens(head_dim) + kMostRegisterRows);
}

// Rows of floats, one for each of a sequence's tokens.
template <typename Float>
struct TokenRows {
  Float* data;     // nullptr: there are none
  int64_t stride;  // floats between tokens

  Float* of(int64_t token) const { return data + token * stride; }
};

// Neighbouring channels of a causal convolution, over the next tokens of one sequence.
struct ShortConvArgs {
  TokenRows<const float> x;
  TokenRows<float> out;  // may be nothing
  const float* weight;   // [size][stride], the last row meets the token itself
  const float* bias;     // nullptr or [channels]
  bool has_silu;
  int64_t num_tokens, size, channels, stride;
  const float* state_in;  // [size - 1][stride]; nullptr: zeros
  float* state_out;       // the same, nullptr or perhaps state_in itself
};

// A state's columns are shared out in runs of as many. The rows of a run lie one behind the other, each
// padded to whole vectors.
inline constexpr int64_t kStateColumns = 32;
constexpr int64_t state_stride(int64_t columns) { return (columns + 15) / 16 * 16; }

// The columns [rows][columns] of one head's state that a task takes the next tokens of a sequence through.
struct StateColumns {
  int64_t num_tokens, rows, columns;
  const float* before;  // nullptr: zeros
  float* after;         // perhaps the same memory
};

inline constexpr int64_t kMaxStateRows = 512;

struct DeltaNetArgs {
  StateColumns state;
  bool decays_rows;                             // decay has a value for each row of the state, not one
  TokenRows<const float> q, k, v, decay, beta;  // the head's; v: of the columns
  TokenRows<float> out;                         // of the columns; may be nothing
  float scale;
};

struct SelectiveScanArgs {
  StateColumns state;
  TokenRows<const float> x, b, c, dt;  // the head's; x: of the columns
  TokenRows<float> out;                // of the columns; may be nothing
  float a, d, dt_bias;
};

struct ChannelScanArgs {
  StateColumns state;
  TokenRows<const float> x, dt;  // of the columns
  TokenRows<const float> b, c;
  TokenRows<float> out;  // of the columns; may be nothing
  const float* a;        // [rows][a_stride], of the columns; rows are padded to whole vectors
  int64_t a_stride;
  const float* d;  // of the columns
};

inline constexpr int kLogitBlock = 256;    // logits are read in blocks of as many, padded with -infinity
inline constexpr int kLogitBuckets = 512;  // of a histogram

// Those of `count` candidates whose score is in [lowest, highest], in their order. May be done in place.
struct SelectArgs {
  const float* scores;
  const float* logits;
  const int32_t* ids;  // nullptr: they count up from first_id
  int32_t first_id;
  int64_t count;  // a multiple of 16
  float lowest, highest;
  float* logits_out;  // 16 places more than are selected may be written, here and to ids_out
  int32_t* ids_out;
};

struct ScoreRange {
  float lowest, highest;
};

// Buckets are ranges of scores, best first, of 2^shift neighbouring floats each; the last one has all the
// rest. What is summed up is exp((logit - max) * inverse_temperature).
struct HistogramArgs {
  const float* scores;
  const float* logits;
  int64_t count;  // a multiple of kLogitBlock
  float highest;  // of all scores
  int shift;
  float max;
  float inverse_temperature;
};

struct Kernels {
  const char* isa;
  bool uses_tiles;  // where the processor has a matrix unit (matrix_units/tile_linear.h)

  // --- matmul.cpp ---
  // Activations for block-quantized weights: int8 per 32 values with scale and sums, in a private layout.
  int64_t (*quantized_row_bytes)(int64_t cols);
  void (*quantize_row)(const float* x, int64_t cols, void* out);
  void (*linear)(const LinearArgs& args);

  // --- lane_linear.cpp ---
  void (*lane_linear)(const LaneLinearArgs& args);

  // --- store_kv.cpp ---
  // Heads [head, head + num_kv_heads) of one token's K and V (nullptr: of K alone), found at k and v, into
  // slot `slot` of a layer's block, as kv/layout.h says.
  void (*store_kv)(KvType type, const KvLayout& layout, const float* k, const float* v, int head,
                   int num_kv_heads, int head_dim, int slot, uint8_t* k_block, uint8_t* v_block);

  // --- attention.cpp ---
  void (*attention)(const AttentionArgs& args);
  void (*attention_segments)(const AttentionArgs& args, int64_t segment_begin, int64_t segment_end);
  void (*combine_segments)(const AttentionArgs& args);

  // --- encoder_attention.cpp ---
  void (*encoder_attention)(const EncoderAttentionArgs& args);

  // --- elementwise.cpp --- rows of n floats
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // bias: nullptr for none.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* out);
  void (*rope_normal)(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                      const float* sin);
  void (*rope_neox)(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                    const float* sin);
  void (*l2_norm)(const float* x, float eps, int64_t n, float* out);
  // Of one value: not swiglu_oai, nor what has a limit.
  void (*activate)(Activation activation, const float* x, int64_t n, float* out);
  // Not of sigmoid, softplus, relu_squared and tanh.
  void (*glu)(Gating gating, const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  // The sum of `count` rows of x, each times its weight, in order: row rows[i] begins at x + rows[i] *
  // stride.
  void (*weighted_sum)(const float* x, int64_t stride, const int32_t* rows, const float* weights,
                       int64_t count, int64_t n, float* out);
  void (*mul)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  // How far each value exceeds the mean by more than so many standard deviations; 0 for the others.
  void (*gaussian_top_k)(const float* x, float deviations, int64_t n, float* out);
  // Into [-limit, limit].
  void (*clamp)(const float* x, float limit, int64_t n, float* out);
  void (*xielu)(const Xielu& f, const float* x, int64_t n, float* out);

  // --- short_conv.cpp, scan.cpp --- token by token in order, each sum in one fixed order
  void (*short_conv)(const ShortConvArgs& args);
  void (*delta_net)(const DeltaNetArgs& args);
  void (*selective_scan)(const SelectiveScanArgs& args);
  void (*channel_scan)(const ChannelScanArgs& args);

  // --- sampling.cpp --- the same results on every instruction set
  // Of one block: the logits whose bits are 1, the lowest bit of the first word for the first logit; of the
  // others -infinity.
  void (*mask_logits)(const float* logits, const uint32_t* words, float* out);
  // Of each block: the largest logit, NaN if one is.
  void (*logit_maxima)(const float* logits, int64_t num_blocks, float* max);
  // Of each block: the sum of exp((logit - max[block]) * inverse_temperature).
  void (*logit_sums)(const float* logits, int64_t num_blocks, const float* max, float inverse_temperature,
                     float* sums);
  // Of each block: the sum of (logit - max[block]) * exp(logit - max[block]).
  void (*logit_moments)(const float* logits, int64_t num_blocks, const float* max, float* moments);
  // exp((logit - max) * inverse_temperature) of `count` logits, a multiple of 16.
  void (*logit_weights)(const float* logits, int64_t count, float max, float inverse_temperature,
                        float* weights);
  // Of `count` scores, a multiple of kLogitBlock, not counting -infinity.
  ScoreRange (*score_range)(const float* scores, int64_t count);
  // Returns how many were selected.
  int64_t (*select_logits)(const SelectArgs& args);
  // masses[kLogitBuckets]
  void (*logit_histogram)(const HistogramArgs& args, double* masses);

  // --- quantizers/ --- the same results on every instruction set
  // Of type F32, F16 or BF16 to floats.
  void (*widen)(TensorType type, const uint8_t* x, int64_t count, float* out);
  bool (*all_finite)(const float* x, int64_t count);
  // `count` values to whole blocks; of none, it only tells whether there is a quantizer of the type.
  bool (*quantize_weights)(TensorType type, const float* x, int64_t count, uint8_t* out);

  // --- peak.cpp --- for measuring the machine (machine/roofs.h); *sink keeps the work from being dropped
  int64_t (*dot_burst)(int64_t repeats, int32_t* sink);  // returns operations, two per product of bytes
  void (*read_burst)(const uint8_t* data, int64_t num_bytes, int32_t* sink);
};

// True for types whose linear kernel reads quantized activations; others' rows of x are floats.
inline bool needs_quantized_input(TensorType type) { return !is_float(type); }

// isa: "auto" or the name of an instruction set, such as "portable". Throws Error if unknown or if this
// machine lacks it. In select.cpp of executor/, since kernels/ is compiled once per instruction set.
const Kernels& select_kernels(const char* isa);

}  // namespace puna
