// Attention over paged keys and values, with the softmax kept online (Milakov & Gimelshein, 2018; as in
// FlashAttention, Dao et al., 2022): scores exist only for a group of 64 positions at a time.
//
// A "row" is one query head of one query token. For every row the order of operations depends on its own
// position alone: groups lie at fixed positions, and what a row does not see contributes nothing, not even a
// zero. So a token's output is bit for bit the same alone, in a chunk of a prompt, or beside other sequences.
#include "kernels/attention_rows.h"
#include "kernels/attention_values.h"
#include "kernels/functions.h"
#include "simd/simd.h"

namespace puna::PUNA_ISA {
namespace {

// What overflows a half float is kept at the largest one: an infinite key or value would turn into NaN.
PUNA_INLINE f32x16 finite_f16(f32x16 v) { return min(max(v, splat(-65504.0f)), splat(65504.0f)); }

// scores[r * kGroupTokens + lane] = q[r] . k[lane] for the 16 tokens of a block.
template <int kRows, typename T>
void block_scores(const Row* rows, const T* k, const T* ahead, int64_t head_dim, float* scores) {
  f32x16 sums[kRows][kPartialSums] = {};
  int64_t d = 0;
  for (; d + kPartialSums <= head_dim; d += kPartialSums) {
#pragma GCC unroll 8
    for (int i = 0; i < kPartialSums * kBlockTokens; i += kLineValues<T>)
      __builtin_prefetch(ahead + d * kBlockTokens + i);
#pragma GCC unroll 8
    for (int i = 0; i < kPartialSums; ++i) {
      const f32x16 key = load_stored(k + (d + i) * kBlockTokens);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][i] = fma(splat(rows[r].q[d + i]), key, sums[r][i]);
    }
  }
  for (; d < head_dim; ++d) {
    const f32x16 key = load_stored(k + d * kBlockTokens);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][0] = fma(splat(rows[r].q[d]), key, sums[r][0]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    store(scores + r * kGroupTokens, (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]));
  }
}

template <typename T>
void scores_of_rows(Rows& rows, const Group<T>& group, int64_t head_dim) {
  for (int b = group.begin; b < group.end; ++b) {
    in_register_rows<kRegisterRows>(0, rows.count, [&](auto count, int first) {
      block_scores<count.value>(rows.row + first, group.k[b], group.k_ahead[b], head_dim,
                                rows.weight[first] + b * kBlockTokens);
    });
  }
}

// Scales, caps and masks a row's scores; returns the new maximum.
template <typename T>
float finish_scores(const AttentionArgs& args, const Group<T>& group, const Row& row, float maximum,
                    float* scores) {
  const i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  // Relative to the group, so that 32 bits hold them.
  const int64_t begin = row.begin - group.position, end = row.end - group.position;
  f32x16 highest = splat(maximum);
  for (int b = group.begin; b < group.end; ++b) {
    const int64_t offset = b * kBlockTokens;
    f32x16 score = load(scores + offset) * args.scale;
    if (args.softcap != 0.0f) score = tanh(score / args.softcap) * args.softcap;
    if (begin > offset || end < offset + kBlockTokens) {
      const int32_t from = (int32_t)(begin > kGroupTokens ? kGroupTokens : begin < 0 ? 0 : begin);
      const int32_t to = (int32_t)(end > kGroupTokens ? kGroupTokens : end < 0 ? 0 : end);
      const i32x16 at = lanes + (int32_t)offset;
      score = select((at >= from) & (at < to), score, splat(-INFINITY));
    }
    highest = max(score, highest);
    store(scores + offset, score);
  }
  return reduce_max(highest);
}

// Scores to weights e^(score - maximum), and their sum.
template <typename T>
PUNA_INLINE void weigh(const Group<T>& group, float maximum, float correction, float* weight, float* sum) {
  f32x16 total = load(sum) * correction;
  for (int b = group.begin; b < group.end; ++b) {
    const f32x16 w = exp(load(weight + b * kBlockTokens) - maximum);
    total += w;
    store(weight + b * kBlockTokens, w);
  }
  store(sum, total);
}

template <typename T>
void softmax_of_rows(const AttentionArgs& args, const Group<T>& group, Rows& rows) {
  for (int r = 0; r < rows.count; ++r) {
    const float highest = finish_scores(args, group, rows.row[r], rows.maximum[r], rows.weight[r]);
    rows.correction[r] = rows.maximum[r] - highest;
    rows.maximum[r] = highest;
  }
  for (int r = 0; r < rows.count; r += kLanes) store(rows.correction + r, exp(load(rows.correction + r)));
  for (int r = 0; r < rows.count; ++r) {
    weigh(group, rows.maximum[r], rows.correction[r], rows.weight[r], rows.sum[r]);
  }
}

// Rows [first, first + count) of the task, token by token, all query heads of the KV head for each.
void start_rows(const AttentionArgs& args, int64_t first, int count, Rows& rows) {
  const int64_t heads = args.num_heads / args.num_kv_heads;
  rows.count = count;
  for (int r = 0; r < count; ++r) {
    const int64_t token = args.token_begin + (first + r) / heads;
    const int64_t head = args.kv_head * heads + (first + r) % heads;
    const int64_t at = token * args.stride + head * args.head_dim;
    const int64_t end = args.first_position + token + 1;
    const int64_t begin = args.window > 0 && end > args.window ? end - args.window : 0;
    rows.row[r] = {args.q + at, args.out + at, begin, end};
    rows.maximum[r] = kNothingSeen;
    std::memset(args.out + at, 0, (size_t)args.head_dim * sizeof(float));
  }
  std::memset(rows.correction, 0, sizeof rows.correction);
  std::memset(rows.sum, 0, sizeof rows.sum);
}

template <typename T>
Group<T> group_at(const AttentionArgs& args, int64_t position, const Rows& rows) {
  const int64_t before = rows.row[0].begin - position;  // seen by no row
  const int64_t end = rows.row[rows.count - 1].end;     // seen by some row up to here
  const int64_t first = position / kBlockTokens, last = (end - 1) / kBlockTokens;
  const int64_t head = (int64_t)args.kv_head * args.head_dim * kBlockTokens;
  const auto stored = [&](int64_t index, int64_t offset) {
    const uint8_t* block = args.arena + args.block_table[index < last ? index : last] * args.block_bytes;
    return reinterpret_cast<const T*>(block + offset) + head;
  };
  Group<T> group;
  group.position = position;
  group.begin = before > 0 ? (int)(before / kBlockTokens) : 0;
  group.end = last - first < kGroupBlocks ? (int)(last - first) + 1 : kGroupBlocks;
  for (int b = group.begin; b < group.end; ++b) {
    group.k[b] = stored(first + b, args.k_offset);
    group.v[b] = stored(first + b, args.v_offset);
    group.k_ahead[b] = stored(first + b + kGroupBlocks, args.k_offset);
    group.v_ahead[b] = stored(first + b + kGroupBlocks, args.v_offset);
  }
  return group;
}

template <typename T>
void attend(const AttentionArgs& args, int64_t first, int count) {
  Rows rows;
  start_rows(args, first, count, rows);
  const int64_t end = rows.row[count - 1].end;
  int64_t position = rows.row[0].begin / kGroupTokens * kGroupTokens;
  for (; position < end; position += kGroupTokens) {
    const Group<T> group = group_at<T>(args, position, rows);
    scores_of_rows(rows, group, args.head_dim);
    softmax_of_rows(args, group, rows);
    values_of_rows(rows, group, args.head_dim);
  }
  for (int r = 0; r < count; ++r) {
    float* out = rows.row[r].out;
    scale(out, 1.0f / reduce_add(load(rows.sum[r])), args.head_dim, out);
  }
}

// All of a task's rows, so many at a time.
template <typename T>
void attend_all(const AttentionArgs& args) {
  const int64_t rows = (args.token_end - args.token_begin) * (args.num_heads / args.num_kv_heads);
  for (int64_t first = 0; first < rows; first += kMaxRows) {
    attend<T>(args, first, (int)(rows - first < kMaxRows ? rows - first : kMaxRows));
  }
}

PUNA_INLINE void store_stored(uint16_t* p, f32x16 v) { store_f16(p, finite_f16(v)); }
PUNA_INLINE void store_stored(float* p, f32x16 v) { store(p, v); }

template <typename T>
void store_token(const float* k, const float* v, int num_kv_heads, int head_dim, int slot, uint8_t* k_block,
                 uint8_t* v_block) {
  T* keys = reinterpret_cast<T*>(k_block) + slot;
  const int64_t head_values = (int64_t)head_dim * kBlockTokens;
  // The heads' rows of K follow one another, so d runs over all of them.
  for (int64_t d = 0, n = (int64_t)num_kv_heads * head_dim; d < n; d += kLanes) {
    T stored[kLanes];
    const int64_t count = n - d < kLanes ? n - d : kLanes;
    store_stored(stored, load_partial(k + d, count));
    for (int64_t i = 0; i < count; ++i) keys[(d + i) * kBlockTokens] = stored[i];
  }
  for (int head = 0; head < num_kv_heads; ++head, v += head_dim) {
    T* row = reinterpret_cast<T*>(v_block) + head * head_values + (int64_t)slot * head_dim;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      T stored[kLanes];
      const int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
      store_stored(stored, load_partial(v + d, count));
      std::memcpy(row + d, stored, (size_t)count * sizeof(T));
    }
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.kv_type == KvType::kF16) return attend_all<uint16_t>(args);
  attend_all<float>(args);
}

void store_kv(KvType type, const float* k, const float* v, int num_kv_heads, int head_dim, int slot,
              uint8_t* k_block, uint8_t* v_block) {
  if (type == KvType::kF16)
    return store_token<uint16_t>(k, v, num_kv_heads, head_dim, slot, k_block, v_block);
  store_token<float>(k, v, num_kv_heads, head_dim, slot, k_block, v_block);
}

}  // namespace puna::PUNA_ISA
