// Scores of a set of rows against a group, and the weights they become. Part of attention.cpp.
#pragma once

#include "kernels/attention/attention_keys.h"
#include "kernels/attention/attention_values.h"

namespace puna::PUNA_ISA {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Scores are kept in base 2, so that e^(scale * q . k) = 2^score. With a soft cap they become that when they
// are capped.
PUNA_INLINE float query_factor(const AttentionArgs& args) {
  return args.softcap == 0.0f ? args.scale * kLog2E : args.scale / args.softcap;
}

// Scores into weight; highest[r] = their maximum, lane by lane.
template <KvType kType, int kRows>
PUNA_INLINE void score_rows(const AttentionArgs& args, const Rows& rows, int first, const Group& group,
                            float (&weight)[kRows][kGroupTokens], f32x16 (&highest)[kRows]) {
  // Quantized keys need twice the registers.
  constexpr bool kAllBlocks = is_float(kType) || kRows <= kRegisterRows / 2;
  constexpr int kBlocks = kAllBlocks ? kRegisterBlocks : kRegisterBlocks / 2;
  PUNA_UNROLL(8)
  for (int r = 0; r < kRows; ++r) highest[r] = splat(kNothingSeen);
  for (int block = 0; block < kGroupBlocks; block += kBlocks) {
    f32x16 sums[kRows][kBlocks] = {};
    dot_keys<kType>(rows, first, group, block, args.head_dim, sums);
    PUNA_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      PUNA_UNROLL(8)
      for (int b = 0; b < kBlocks; ++b) {
        highest[r] = max(sums[r][b], highest[r]);
        store(weight[r] + (block + b) * kBlockTokens, sums[r][b]);
      }
    }
  }
}

PUNA_INLINE int32_t within_group(int64_t position, const Group& group) {
  const int64_t at = position - group.position;
  return (int32_t)(at < 0 ? 0 : at > kGroupTokens ? kGroupTokens : at);
}

// Caps scores, lets them fall with distance and takes away those that the row does not see; returns the
// maximum of the others, lane by lane.
inline f32x16 adjust_scores(const AttentionArgs& args, const Row& row, const Group& group, float* scores) {
  const i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int32_t begin = within_group(row.begin, group), end = within_group(row.end, group);
  const auto distance = (int32_t)(row.end - 1 - group.position);  // from the group's first position
  f32x16 highest = splat(kNothingSeen);
  for (int t = 0; t < kGroupTokens; t += kLanes) {
    const i32x16 at = lanes + t;
    f32x16 score = load(scores + t);
    if (args.softcap != 0.0f) score = tanh(score) * (args.softcap * kLog2E);
    if (row.slope != 0.0f) score = fma(to_float(at - distance), splat(row.slope), score);
    score = select((at >= begin) & (at < end), score, splat(-INFINITY));
    highest = max(score, highest);
    store(scores + t, score);
  }
  return highest;
}

// Scores to weights 2^(score - maximum), and their sum.
PUNA_INLINE void weigh(float maximum, float correction, float* weight, float* total) {
  f32x16 w[kGroupBlocks];
  PUNA_UNROLL(4)
  for (int b = 0; b < kGroupBlocks; ++b) {
    w[b] = exp2(load(weight + b * kBlockTokens) - maximum);
    store(weight + b * kBlockTokens, w[b]);
  }
  store(total, load(total) * correction + ((w[0] + w[1]) + (w[2] + w[3])));
}

// A set of rows against a group: scores, weights, weighted values.
template <KvType kType, int kRows>
void attend_group(const AttentionArgs& args, Rows& rows, int first, const Group& group) {
  const Row* row = rows.row + first;
  Weighting<kRows> w;
  // Views only move on from row to row.
  w.begin = within_group(row[0].begin, group) / kBlockTokens * kBlockTokens;
  w.end = within_group(row[kRows - 1].end, group);
  if (w.begin >= w.end) return;
  f32x16 highest[kRows];
  score_rows<kType>(args, rows, first, group, w.weight, highest);
  const bool masked = row[kRows - 1].begin > group.position || row[0].end < group.position + kGroupTokens;
  if (masked || args.softcap != 0.0f || args.alibi != 0.0f) {
    for (int r = 0; r < kRows; ++r) highest[r] = adjust_scores(args, row[r], group, w.weight[r]);
  }
  std::memset(w.correction, 0, sizeof w.correction);
  for (int r = 0; r < kRows; ++r) {
    float& maximum = rows.maximum[first + r];
    const float seen = reduce_max(highest[r]), before = maximum;
    maximum = seen > before ? seen : before;
    w.correction[r] = before - maximum;
  }
  store(w.correction, exp2(load(w.correction)));
  PUNA_UNROLL(8)
  for (int r = 0; r < kRows; ++r)
    weigh(rows.maximum[first + r], w.correction[r], w.weight[r], rows.total_weight[first + r]);
  float* sums = rows.sums + first * rows.values;
  if (args.is_latent)
    add_all_values<KvType::kF32>(w, group, args.value_dim, sums, rows.values);
  else
    add_all_values<kType>(w, group, args.value_dim, sums, rows.values);
}

}  // namespace
}  // namespace puna::PUNA_ISA
