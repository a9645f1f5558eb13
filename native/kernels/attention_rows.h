// What attention works on at a time: query rows against a group of blocks. Part of attention.cpp.
#pragma once

#include "kernels/kernels.h"
#include "simd/simd.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int kGroupBlocks = 4;
constexpr int kGroupTokens = kGroupBlocks * kBlockTokens;
constexpr int kMaxRows = 48;     // rows that share a group's keys and values while those are in cache
constexpr int kPartialSums = 4;  // of a score, over d mod 4: hides the latency of fma for few rows
constexpr float kNothingSeen = -1e30f;

// A stored key or value is a T: uint16_t for a half float, or float.
template <typename T>
constexpr int kLineValues = 64 / (int)sizeof(T);  // of a cache line

PUNA_INLINE f32x16 load_stored(const uint16_t* p) { return load_f16(p); }
PUNA_INLINE f32x16 load_stored(const float* p) { return load(p); }

struct Row {
  const float* q;
  float* out;     // the weighted sum of values while running, divided by the weights' sum at the end
  int64_t begin;  // positions [begin, end) are seen
  int64_t end;
};

// The state of the online softmax.
struct Rows {
  int count;
  Row row[kMaxRows];
  alignas(64) float maximum[kMaxRows];            // of the scores so far
  alignas(64) float correction[kMaxRows];         // what the new maximum makes of the sums so far
  alignas(64) float sum[kMaxRows][kBlockTokens];  // of the weights, lane by lane
  alignas(64) float weight[kMaxRows][kGroupTokens];
};

// The blocks of one group that some row sees: [begin, end) of kGroupBlocks.
template <typename T>
struct Group {
  int64_t position;
  int begin, end;
  const T* k[kGroupBlocks];
  const T* v[kGroupBlocks];
  // The same of the next group. Blocks lie far apart, so the processor does not find the next one by itself:
  // fetched ahead line by line while this group is computed, a long context is read almost twice as fast.
  const T* k_ahead[kGroupBlocks];
  const T* v_ahead[kGroupBlocks];
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
