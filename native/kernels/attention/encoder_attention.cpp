// Attention of a whole text to itself: one head, some of its queries. Keys are brought into lanes first; then
// all scores of a few queries are there before their softmax, so that sums run over keys in order.
#include "kernels/attention/encoder_tiles.h"
#include "kernels/functions.h"
#include "simd/columns.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
static_assert(kRegisterRows <= kMostRegisterRows && kEncoderTaskQueries % kRegisterRows == 0);

// What a task keeps in its scratch memory.
struct Scratch {
  float* keys;     // [head_dim][tokens], scaled: e^(scale * q . k) is 2^score
  float* values;   // [tokens][columns]
  float* weights;  // [queries of a set][tokens]: scores, then weights
  int64_t tokens;  // a multiple of 16
  int64_t columns;
};

template <int N>
struct Count {
  static constexpr int value = N;
};

// f(Count<n>, first) for runs of n <= kMost, n being known to the compiler.
template <int kMost, typename Function>
PUNA_INLINE void in_runs(int64_t first, int64_t end, Function f) {
  for (; first + kMost <= end; first += kMost) f(Count<kMost>{}, first);
  if constexpr (kMost > 1) in_runs<kMost - 1>(first, end, f);
}

Scratch scratch_of(const EncoderAttentionArgs& args) {
  Scratch s;
  s.tokens = padded_tokens(args.num_tokens), s.columns = padded_tokens(args.head_dim);
  s.keys = args.scratch;
  s.values = s.keys + args.head_dim * s.tokens;
  s.weights = s.values + s.tokens * s.columns;
  return s;
}

void load_keys(const EncoderAttentionArgs& args, const Scratch& s) {
  const float factor = args.scale * kLog2E;
  const int64_t whole = args.num_tokens / kLanes * kLanes, groups = args.head_dim / 4 * 4;
  for (int64_t token = 0; token < whole; token += kLanes) {
    const float* k = args.k + token * args.kv_stride;
    for (int64_t d = 0; d < groups; d += 4) {
      u32x16 columns[4];
      load_columns4(reinterpret_cast<const uint8_t*>(k + d), args.kv_stride * (int64_t)sizeof(float),
                    FetchNothing(), columns);
      for (int i = 0; i < 4; ++i) store(s.keys + (d + i) * s.tokens + token, (f32x16)columns[i] * factor);
    }
    for (int64_t d = groups; d < args.head_dim; ++d)
      for (int64_t i = 0; i < kLanes; ++i)
        s.keys[d * s.tokens + token + i] = k[i * args.kv_stride + d] * factor;
  }
  for (int64_t token = whole; token < s.tokens; ++token)
    for (int64_t d = 0; d < args.head_dim; ++d)
      s.keys[d * s.tokens + token] =
          token < args.num_tokens ? args.k[token * args.kv_stride + d] * factor : 0.0f;
}

void load_values(const EncoderAttentionArgs& args, const Scratch& s) {
  for (int64_t token = 0; token < args.num_tokens; ++token)
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      const int64_t n = args.head_dim - d < kLanes ? args.head_dim - d : kLanes;
      store(s.values + token * s.columns + d, load_partial(args.v + token * args.kv_stride + d, n));
    }
}

// Scores of queries [query, query + kQueries) with the keys [begin, end), both multiples of 16.
template <int kQueries>
void score(const EncoderAttentionArgs& args, const Scratch& s, int64_t query, int64_t begin, int64_t end) {
  const float* q = args.q + query * args.q_stride;
  in_runs<kRegisterBlocks>(begin / kLanes, end / kLanes, [&](auto blocks, int64_t block) {
    f32x16 sums[kQueries][blocks.value] = {};
    for (int64_t d = 0; d < args.head_dim; ++d) {
      const float* k = s.keys + d * s.tokens + block * kLanes;
      f32x16 keys[blocks.value];
      PUNA_UNROLL(8)
      for (int b = 0; b < blocks.value; ++b) keys[b] = load(k + b * kLanes);
      PUNA_UNROLL(8)
      for (int r = 0; r < kQueries; ++r) {
        const f32x16 x = splat(q[r * args.q_stride + d]);
        PUNA_UNROLL(8)
        for (int b = 0; b < blocks.value; ++b) sums[r][b] = fma(x, keys[b], sums[r][b]);
      }
    }
    PUNA_UNROLL(8)
    for (int r = 0; r < kQueries; ++r) PUNA_UNROLL(8)
    for (int b = 0; b < blocks.value; ++b) store(s.weights + r * s.tokens + (block + b) * kLanes, sums[r][b]);
  });
}

// Scores to weights of the keys that the query sees; those of others between begin and end are 0. Returns 1 /
// their sum.
float weigh(const EncoderAttentionArgs& args, float* weights, int64_t query, int64_t begin, int64_t end) {
  const i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const bool all = args.window < 0;
  const int64_t first = all || query < args.window ? 0 : query - args.window;
  const int64_t after = all ? args.num_tokens : query + args.window + 1;
  const int64_t last = after < args.num_tokens ? after : args.num_tokens;
  f32x16 highest = splat(-INFINITY);
  for (int64_t t = begin; t < end; t += kLanes) {
    f32x16 x = load(weights + t);
    if (args.bias != nullptr) x += load(args.bias + t - query);
    if (t < first || t + kLanes > last) {
      const i32x16 at = lanes + (int32_t)t;
      x = select((at >= (int32_t)first) & (at < (int32_t)last), x, splat(-INFINITY));
    }
    highest = max(x, highest);
    store(weights + t, x);
  }
  const float maximum = reduce_max(highest);
  f32x16 total = {};
  for (int64_t t = begin; t < end; t += kLanes) {
    const f32x16 w = exp2(load(weights + t) - maximum);
    total += w;
    store(weights + t, w);
  }
  return 1.0f / reduce_add(total);
}

template <int kQueries>
void add_values(const EncoderAttentionArgs& args, const Scratch& s, int64_t query, int64_t begin, int64_t end,
                const float* inverse) {
  in_runs<kRegisterChunks>(0, s.columns / kLanes, [&](auto chunks, int64_t chunk) {
    f32x16 sums[kQueries][chunks.value] = {};
    for (int64_t t = begin; t < end; ++t) {
      const float* v = s.values + t * s.columns + chunk * kLanes;
      f32x16 values[chunks.value];
      PUNA_UNROLL(8)
      for (int c = 0; c < chunks.value; ++c) values[c] = load(v + c * kLanes);
      PUNA_UNROLL(8)
      for (int r = 0; r < kQueries; ++r) {
        const f32x16 w = splat(s.weights[r * s.tokens + t]);
        PUNA_UNROLL(8)
        for (int c = 0; c < chunks.value; ++c) sums[r][c] = fma(w, values[c], sums[r][c]);
      }
    }
    for (int r = 0; r < kQueries; ++r)
      for (int c = 0; c < chunks.value; ++c) {
        const int64_t d = (chunk + c) * kLanes, left = args.head_dim - d;
        store_partial(args.out + (query + r) * args.q_stride + d, sums[r][c] * inverse[r],
                      left < kLanes ? left : kLanes);
      }
  });
}

template <int kQueries>
void attend(const EncoderAttentionArgs& args, const Scratch& s, int64_t query) {
  int64_t begin = 0, end = args.num_tokens;
  if (args.window >= 0) {
    begin = query < args.window ? 0 : (query - args.window) / kLanes * kLanes;
    const int64_t after = query + kQueries + args.window;
    end = after < end ? after : end;
  }
  const int64_t padded_end = padded_tokens(end);
  score<kQueries>(args, s, query, begin, padded_end);
  float inverse[kQueries];
  for (int r = 0; r < kQueries; ++r)
    inverse[r] = weigh(args, s.weights + r * s.tokens, query + r, begin, padded_end);
  add_values<kQueries>(args, s, query, begin, end, inverse);
}

}  // namespace

void encoder_attention(const EncoderAttentionArgs& args) {
  const Scratch scratch = scratch_of(args);
  load_keys(args, scratch);
  load_values(args, scratch);
  in_runs<kRegisterRows>(args.query_begin, args.query_end,
                         [&](auto count, int64_t query) { attend<count.value>(args, scratch, query); });
}

}  // namespace puna::PUNA_ISA
