// The weighted sums of values. Part of attention.cpp.
#pragma once

#include "kernels/attention_rows.h"

namespace puna::PUNA_ISA {
namespace {

// out[d..] = out[d..] * correction + sum of weight[t] * v[t][d..] for t in [begin, end) of the group, for a
// few rows and kChunks * 16 values of each.
template <int kRows, int kChunks, typename T>
PUNA_INLINE void add_values(const Row* rows, const float (*weight)[kGroupTokens], const float* correction,
                            const Group<T>& group, int begin, int end, int64_t head_dim, int64_t d) {
  f32x16 sums[kRows][kChunks];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kChunks; ++c) sums[r][c] = load(rows[r].out + d + c * kLanes) * correction[r];
  }
  for (int t = begin; t < end;) {
    const T* v = group.v[t / kBlockTokens] + (t % kBlockTokens) * head_dim + d;
    const int block_end = (t / kBlockTokens + 1) * kBlockTokens;
    const T* ahead = group.v_ahead[t / kBlockTokens] + (t % kBlockTokens) * head_dim + d;
    for (const int stop = end < block_end ? end : block_end; t < stop;
         ++t, v += head_dim, ahead += head_dim) {
#pragma GCC unroll 8
      for (int c = 0; c < kChunks * kLanes; c += kLineValues<T>) __builtin_prefetch(ahead + c);
      f32x16 value[kChunks];
#pragma GCC unroll 8
      for (int c = 0; c < kChunks; ++c) value[c] = load_stored(v + c * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < kChunks; ++c) sums[r][c] = fma(splat(weight[r][t]), value[c], sums[r][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kChunks; ++c) store(rows[r].out + d + c * kLanes, sums[r][c]);
  }
}

// The same for the last head_dim mod 16 values of one row.
template <typename T>
void add_last_values(const Row& row, const float* weight, float correction, const Group<T>& group, int begin,
                     int end, int64_t head_dim, int64_t d) {
  const int64_t rest = head_dim - d;
  f32x16 sum = load_partial(row.out + d, rest) * correction;
  for (int t = begin; t < end; ++t) {
    T value[kLanes] = {};
    std::memcpy(value, group.v[t / kBlockTokens] + (t % kBlockTokens) * head_dim + d,
                (size_t)rest * sizeof(T));
    sum = fma(splat(weight[t]), load_stored(value), sum);
  }
  store_partial(row.out + d, sum, rest);
}

template <int kRows, typename T>
void add_values_of(const Rows& rows, int first, const float* correction, const Group<T>& group, int begin,
                   int end, int64_t head_dim) {
  const Row* row = rows.row + first;
  const float (*weight)[kGroupTokens] = rows.weight + first;
  int64_t d = 0;
  for (; d + kRegisterChunks * kLanes <= head_dim; d += kRegisterChunks * kLanes) {
    add_values<kRows, kRegisterChunks>(row, weight, correction, group, begin, end, head_dim, d);
  }
  for (; d + kLanes <= head_dim; d += kLanes) {
    add_values<kRows, 1>(row, weight, correction, group, begin, end, head_dim, d);
  }
  if (d == head_dim) return;
  for (int r = 0; r < kRows; ++r) {
    add_last_values(row[r], weight[r], correction[r], group, begin, end, head_dim, d);
  }
}

// The positions [begin, end) of the group that a row sees.
struct Span {
  int begin, end;
};

template <typename T>
PUNA_INLINE Span seen_in_group(const Row& row, const Group<T>& group) {
  const int64_t low = group.begin * kBlockTokens, high = group.end * kBlockTokens;
  const int64_t begin = row.begin - group.position, end = row.end - group.position;
  return {(int)(begin < low    ? low
                : begin > high ? high
                               : begin),
          (int)(end < low    ? low
                : end > high ? high
                             : end)};
}

// Positions that all the rows see are added for all at once, those before and behind row by row. Adding the
// rest with weight 0 instead would be wrong: what lies there may not have been written yet and may be NaN.
//
//   row 0     |     begin ......................... end           |
//   row 1     |        begin ......................... end        |
//   of group  |    before  | all ....................  | behind   |
template <int kRows, typename T>
void group_values(const Rows& rows, int first, const Group<T>& group, int64_t head_dim) {
  constexpr float kKeep[6] = {1, 1, 1, 1, 1, 1};
  static_assert(kRows <= 6);
  const float* correction = rows.correction + first;
  Span seen[kRows];
  for (int r = 0; r < kRows; ++r) seen[r] = seen_in_group(rows.row[first + r], group);
  Span all = seen[0];
  int earliest = all.begin;
  for (int r = 1; r < kRows; ++r) {
    all.begin = all.begin > seen[r].begin ? all.begin : seen[r].begin;
    all.end = all.end < seen[r].end ? all.end : seen[r].end;
    earliest = earliest < seen[r].begin ? earliest : seen[r].begin;
  }
  if (all.end < all.begin) all.end = all.begin;
  if (earliest < all.begin) {
    for (int r = 0; r < kRows; ++r) {
      const int end = seen[r].end < all.begin ? seen[r].end : all.begin;
      add_values_of<1>(rows, first + r, correction + r, group, seen[r].begin, end, head_dim);
    }
    correction = kKeep;
  }
  add_values_of<kRows>(rows, first, correction, group, all.begin, all.end, head_dim);
  for (int r = 0; r < kRows; ++r) {
    if (seen[r].end > all.end) {
      add_values_of<1>(rows, first + r, kKeep, group, all.end, seen[r].end, head_dim);
    }
  }
}

template <typename T>
void values_of_rows(const Rows& rows, const Group<T>& group, int64_t head_dim) {
  in_register_rows<kRegisterRows>(
      0, rows.count, [&](auto count, int first) { group_values<count.value>(rows, first, group, head_dim); });
}

}  // namespace
}  // namespace puna::PUNA_ISA
