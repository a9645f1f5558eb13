// The unit of work of attention: query rows against a group of blocks. Part of attention.cpp.
#pragma once

#include "kernels/kernels.h"
#include "simd/simd.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int kGroupBlocks = 4;
constexpr int kGroupTokens = kGroupBlocks * kBlockTokens;
static_assert(kSegmentTokens % kGroupTokens == 0);
constexpr float kNothingSeen = -1e30f;
// Values of all rows of a task: 48 of up to 576, as heads of latents are, or fewer wider ones.
constexpr int kRowValues = kMaxAttentionRows * 576;
static_assert(kRowValues >= kMaxHeadDim);

constexpr bool is_float(KvType type) { return type == KvType::kF16 || type == KvType::kF32; }
constexpr int64_t padded(int64_t head_dim) { return (head_dim + kKvGroup - 1) / kKvGroup * kKvGroup; }

// A query head of a query token. It sees the positions [begin, end).
struct Row {
  int64_t head;
  const float* q;
  float* out;
  int64_t begin, end;
  float slope;  // by how much its scores fall with each position between
};

// The rows of a task, with the state of the online softmax over one segment.
struct Rows {
  int count;
  int64_t q_values;  // of a query: head_dim, padded
  int64_t values;    // floats between the sums of two rows: value_dim, padded
  Row row[kMaxAttentionRows];
  alignas(64) float maximum[kMaxAttentionRows];               // of the scores so far
  alignas(64) float total_weight[kMaxAttentionRows][kLanes];  // so far, lane by lane
  alignas(64) float sums[kRowValues];                         // of weighted values, so far

  // Scaled queries: [chunks of 16 values][rows of a set][16], a set being what goes through the registers
  // together. That of row `first` starts at first * q_values.
  alignas(64) float q[kRowValues];
  // For quantized keys [groups][rows of a set][32], rounded, and for each [groups][rows of a set] the scale
  // and what the bias of the keys must be compensated by.
  alignas(64) int8_t rounded_q[kRowValues];
  float q_scale[kRowValues / kKvGroup];
  int32_t q_offset[kRowValues / kKvGroup];

  // A group's values, [positions][value_dim], where they are columns of the keys.
  alignas(64) float latents[kGroupTokens * kMaxLatentDim];
};

// Four blocks, from a position that is a multiple of 64 on. Where some lie before or behind everything that
// the task sees, the first or last one it does see stands in.
struct Group {
  int64_t position;
  const uint8_t* k[kGroupBlocks];
  const uint8_t* v[kGroupBlocks];
  const uint16_t* k_scales[kGroupBlocks];
  const uint16_t* v_scales[kGroupBlocks];
  // The same of the next group. Blocks lie far apart, so the processor does not find the next one by itself:
  // fetched ahead line by line while this group is computed, a long context is read almost twice as fast.
  const uint8_t* k_ahead[kGroupBlocks];
  const uint8_t* v_ahead[kGroupBlocks];
};

template <int N>
struct Count {
  static constexpr int value = N;
};

// f(Count<n>, first) for runs of n <= kRows rows, n being known to the compiler.
template <int kRows, typename Function>
PUNA_INLINE void in_register_rows(int first, int count, Function f) {
  for (; first + kRows <= count; first += kRows) f(Count<kRows>{}, first);
  if constexpr (kRows > 1) in_register_rows<kRows - 1>(first, count, f);
}

}  // namespace
}  // namespace puna::PUNA_ISA
