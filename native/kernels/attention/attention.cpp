// Attention over paged keys and values, with the softmax kept online (Milakov & Gimelshein, 2018; as in
// FlashAttention, Dao et al., 2022): scores exist only for a group of 64 positions at a time. Long contexts
// are cut into segments at fixed positions (as in Flash-Decoding, Dao et al., 2023), each summed up on its
// own and then added to those before it.
//
// A "row" is one query head of one query token. For every row the order of operations depends on its own
// position alone: groups and segments lie at fixed positions, and what a row does not see has weight zero.
// Such positions were written by the same sequence, now or before, so that zero times them is zero. So a
// token's output is bit for bit the same alone, in a chunk of a prompt, beside other sequences, or split over
// threads.
#include "kernels/attention/attention_latents.h"
#include "kernels/attention/attention_queries.h"
#include "kernels/attention/attention_rows.h"
#include "kernels/attention/attention_softmax.h"
#include "kernels/functions.h"

namespace puna::PUNA_ISA {
namespace {

int64_t heads_of_group(const AttentionArgs& args) { return args.num_heads / args.num_kv_heads; }
int64_t num_rows(const AttentionArgs& args) {
  return (args.token_end - args.token_begin) * heads_of_group(args);
}

// Of ALiBi (Press et al., 2022): geometric over the largest power of two of heads; the others lie between.
float slope_of(const AttentionArgs& args, int64_t head) {
  if (args.alibi == 0.0f) return 0.0f;
  int64_t heads = 1;
  while (2 * heads <= args.num_heads) heads *= 2;
  const double step = head < heads ? (double)(head + 1) : (double)(head - heads) + 0.5;
  return (float)std::exp2(-args.alibi * step / (double)heads) * kLog2E;
}

// Row `index` of the task: token by token, all query heads of the KV head for each.
Row row_at(const AttentionArgs& args, int64_t index) {
  const int64_t heads = heads_of_group(args), token = args.token_begin + index / heads;
  const int64_t head = args.kv_head * heads + index % heads;
  const int64_t at = token * args.num_heads + head;
  const int64_t end = args.first_position + token + 1;
  const int64_t begin = args.window > 0 && end > args.window ? end - args.window : 0;
  return {head, args.q + at * args.head_dim, args.out + at * args.value_dim, begin,
          end,  slope_of(args, head)};
}

template <KvType kType>
void start_rows(const AttentionArgs& args, int64_t first, int count, Rows& rows) {
  rows.count = count;
  rows.q_values = padded(args.head_dim);
  rows.values = padded(args.value_dim);
  for (int r = 0; r < count; ++r) rows.row[r] = row_at(args, first + r);
  prepare_queries<kType>(rows, args.head_dim, query_factor(args));
}

Group group_at(const AttentionArgs& args, int64_t position, const Rows& rows) {
  const int64_t first = rows.row[0].begin / kBlockTokens;
  const int64_t last = (rows.row[rows.count - 1].end - 1) / kBlockTokens;
  const int64_t head = args.kv_head * args.layout->head;
  const int64_t scales = args.layout->scales + args.kv_head * args.layout->head_scales;
  const auto block_at = [&](int64_t index) {
    index = index < first ? first : index > last ? last : index;
    return static_cast<const uint8_t*>(args.blocks[args.block_table[index]]);
  };
  Group group;
  group.position = position;
  for (int b = 0; b < kGroupBlocks; ++b) {
    const uint8_t* block = block_at(position / kBlockTokens + b);
    const uint8_t* ahead = block_at(position / kBlockTokens + b + kGroupBlocks);
    group.k[b] = block + args.k_offset + head;
    group.k_ahead[b] = ahead + args.k_offset + head;
    group.k_scales[b] = reinterpret_cast<const uint16_t*>(block + args.k_offset + scales);
    group.v[b] = block + args.v_offset + head;
    group.v_ahead[b] = ahead + args.v_offset + head;
    group.v_scales[b] = reinterpret_cast<const uint16_t*>(block + args.v_offset + scales);
    if (args.layout->head_scales > 0) {
      __builtin_prefetch(ahead + args.k_offset + scales);
      __builtin_prefetch(ahead + args.v_offset + scales);
    }
  }
  return group;
}

// The rows' sums over one segment.
template <KvType kType>
void attend_segment(const AttentionArgs& args, Rows& rows, int64_t segment) {
  std::memset(rows.sums, 0, (size_t)(rows.count * rows.values) * sizeof(float));
  for (int r = 0; r < rows.count; ++r) {
    rows.maximum[r] = kNothingSeen;
    store(rows.total_weight[r], f32x16{});
  }
  const int64_t seen = rows.row[0].begin / kGroupTokens * kGroupTokens, begin = segment * kSegmentTokens;
  const int64_t seen_end = rows.row[rows.count - 1].end, end = begin + kSegmentTokens;
  for (int64_t position = seen > begin ? seen : begin; position < (seen_end < end ? seen_end : end);
       position += kGroupTokens) {
    Group group = group_at(args, position, rows);
    if (args.is_latent) unpack_latents<kType>(args.value_dim, rows.latents, group);
    in_register_rows<kRegisterRows>(0, rows.count, [&](auto count, int first) {
      attend_group<kType, count.value>(args, rows, first, group);
    });
  }
}

// A row's sums over the segments so far; those of values are in its output.
struct Total {
  float maximum = kNothingSeen;
  float weight = 0.0f;
};

// Adds one segment's sums.
void add_segment(Total& total, float* out, float maximum, float weight, const float* sums,
                 int64_t value_dim) {
  const float highest = total.maximum > maximum ? total.maximum : maximum;
  const f32x16 before = exp2(splat(total.maximum - highest)), now = exp2(splat(maximum - highest));
  total.maximum = highest;
  total.weight = total.weight * before[0] + weight * now[0];
  int64_t d = 0;
  for (; d + kLanes <= value_dim; d += kLanes)
    store(out + d, fma(load(out + d), before, load(sums + d) * now));
  if (d < value_dim) {
    const f32x16 sum = fma(load_partial(out + d, value_dim - d), before, load(sums + d) * now);
    store_partial(out + d, sum, value_dim - d);
  }
}

// A sink is like a segment with one position, whose value is zero. Adding zero to what comes out makes zeros
// positive: what a row does not see may have changed the sign of one.
void finish_row(const AttentionArgs& args, const Row& row, Total total) {
  alignas(64) static constexpr float kNoValue[kMaxHeadDim] = {};
  if (args.sinks != nullptr)
    add_segment(total, row.out, args.sinks[row.head] * kLog2E, 1.0f, kNoValue, args.value_dim);
  const float inverse = 1.0f / total.weight;
  for (int64_t d = 0; d < args.value_dim; ++d) row.out[d] = row.out[d] * inverse + 0.0f;
}

template <KvType kType>
void attend(const AttentionArgs& args, int64_t first, int count) {
  Rows rows;
  start_rows<kType>(args, first, count, rows);
  Total totals[kMaxAttentionRows];
  for (int r = 0; r < count; ++r) std::memset(rows.row[r].out, 0, (size_t)args.value_dim * sizeof(float));
  const int64_t end = rows.row[count - 1].end;
  for (int64_t s = rows.row[0].begin / kSegmentTokens; s * kSegmentTokens < end; ++s) {
    attend_segment<kType>(args, rows, s);
    for (int r = 0; r < count; ++r) {
      add_segment(totals[r], rows.row[r].out, rows.maximum[r], reduce_add(load(rows.total_weight[r])),
                  rows.sums + r * rows.values, args.value_dim);
    }
  }
  for (int r = 0; r < count; ++r) finish_row(args, rows.row[r], totals[r]);
}

float* partial_of(const AttentionArgs& args, int64_t row, int64_t segment) {
  const int64_t segments = args.last_segment - args.first_segment;
  return args.partial + (row * segments + segment - args.first_segment) * partial_floats(args.value_dim);
}

template <KvType kType>
void attend_segments(const AttentionArgs& args, int64_t segment_begin, int64_t segment_end, int64_t first,
                     int count) {
  Rows rows;
  start_rows<kType>(args, first, count, rows);
  const int64_t width = partial_floats(args.value_dim) - kLanes;
  for (int64_t s = segment_begin; s < segment_end; ++s) {
    attend_segment<kType>(args, rows, s);
    for (int r = 0; r < count; ++r) {
      float* partial = partial_of(args, first + r, s);
      std::memcpy(partial, rows.sums + r * rows.values, (size_t)width * sizeof(float));
      partial[width] = rows.maximum[r];
      partial[width + 1] = reduce_add(load(rows.total_weight[r]));
    }
  }
}

// f(type, first, count) for all of a task's rows, so many at a time.
template <typename Function>
void for_passes(const AttentionArgs& args, Function f) {
  const int64_t rows = num_rows(args), fit = kRowValues / padded(args.head_dim);
  const int64_t most = fit < kMaxAttentionRows ? fit : kMaxAttentionRows;
  for (int64_t first = 0; first < rows; first += most) {
    const int count = (int)(rows - first < most ? rows - first : most);
    switch (args.kv_type) {
      case KvType::kF16:
        f(Count<(int)KvType::kF16>{}, first, count);
        break;
      case KvType::kF32:
        f(Count<(int)KvType::kF32>{}, first, count);
        break;
      case KvType::kQ8_0:
        f(Count<(int)KvType::kQ8_0>{}, first, count);
        break;
      case KvType::kQ4_0:
        f(Count<(int)KvType::kQ4_0>{}, first, count);
        break;
    }
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  for_passes(args,
             [&](auto type, int64_t first, int count) { attend<(KvType)type.value>(args, first, count); });
}

void attention_segments(const AttentionArgs& args, int64_t segment_begin, int64_t segment_end) {
  for_passes(args, [&](auto type, int64_t first, int count) {
    attend_segments<(KvType)type.value>(args, segment_begin, segment_end, first, count);
  });
}

void combine_segments(const AttentionArgs& args) {
  const int64_t width = partial_floats(args.value_dim) - kLanes;
  for (int64_t r = 0, rows = num_rows(args); r < rows; ++r) {
    Total total;
    const Row row = row_at(args, r);
    std::memset(row.out, 0, (size_t)args.value_dim * sizeof(float));
    for (int64_t s = args.first_segment; s < args.last_segment; ++s) {
      const float* partial = partial_of(args, r, s);
      add_segment(total, row.out, partial[width], partial[width + 1], partial, args.value_dim);
    }
    finish_row(args, row, total);
  }
}

}  // namespace puna::PUNA_ISA
