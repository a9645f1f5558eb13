// States that are a matrix for each head, which every token changes. Lanes are columns of the matrix, so that
// a sum over its rows needs no sum over lanes: it runs over them in order, even and odd ones apart where a
// single chain of sums would be waited for.
#include "kernels/activations.h"
#include "kernels/functions.h"
#include "simd/tile_sizes.h"

namespace puna::PUNA_ISA {
namespace {

// kChunks vectors of each row, from one column on.
template <int kChunks>
struct Columns {
  const StateColumns& state;
  int64_t first;
  const float* from;  // where the rows are read: behind the first token, where they are written
  float* to;

  Columns(const StateColumns& state, int64_t first)
      : state(state), first(first), from(state.before + first), to(state.after + first) {}

  f32x16 load_values(const float* values, int chunk) const {
    return load_partial(values + first + chunk * kLanes, left(chunk));
  }
  void store_values(float* values, int chunk, f32x16 v) const {
    store_partial(values + first + chunk * kLanes, v, left(chunk));
  }
  int64_t left(int chunk) const {
    const int64_t columns = state.columns - first - chunk * kLanes;
    return columns < kLanes ? columns : kLanes;
  }
};

template <int kChunks>
struct Sums {
  f32x16 of[kScanSums][kChunks] = {};

  f32x16 total(int chunk) const {
    return kScanSums == 1 ? of[0][chunk] : of[0][chunk] + of[kScanSums - 1][chunk];
  }
};

// row(i, n) for each row, which belongs to the n-th of kScanSums sums.
template <typename Function>
PUNA_INLINE void for_rows(int64_t rows, Function row) {
  int64_t i = 0;
  for (; i + kScanSums <= rows; i += kScanSums) {
    PUNA_UNROLL(2)
    for (int n = 0; n < kScanSums; ++n) row(i + n, n);
  }
  for (; i < rows; ++i) row(i, 0);
}

// sums += S^T x
template <int kChunks>
PUNA_INLINE void add_product(const Columns<kChunks>& s, const float* x, Sums<kChunks>& sums) {
  const int64_t stride = state_stride(s.state.columns);
  for_rows(s.state.rows, [&](int64_t i, int n) __attribute__((always_inline)) {
    PUNA_UNROLL(2)
    for (int j = 0; j < kChunks; ++j)
      sums.of[n][j] = fma(splat(x[i]), load(s.from + i * stride + j * kLanes), sums.of[n][j]);
  });
}

// S = decay(row) * S + x added^T; then outs += S^T y and, if kNext, next_sums += S^T next.
template <bool kOut, bool kNext, int kChunks, typename Decay>
PUNA_INLINE void update(const Columns<kChunks>& s, Decay decay, const float* x,
                        const f32x16 (&added)[kChunks], const float* y, Sums<kChunks>& outs,
                        const float* next, Sums<kChunks>& next_sums) {
  const int64_t stride = state_stride(s.state.columns);
  for_rows(s.state.rows, [&](int64_t i, int n) __attribute__((always_inline)) {
    PUNA_UNROLL(2)
    for (int j = 0; j < kChunks; ++j) {
      const int64_t at = i * stride + j * kLanes;
      const f32x16 v = fma(splat(x[i]), added[j], load(s.from + at) * decay(i));
      store(s.to + at, v);
      if constexpr (kOut) outs.of[n][j] = fma(splat(y[i]), v, outs.of[n][j]);
      if constexpr (kNext) next_sums.of[n][j] = fma(splat(next[i]), v, next_sums.of[n][j]);
    }
  });
}

// Tokens' rows lie far apart: processors would fetch them only once they are read.
PUNA_INLINE void prefetch_row(const float* row, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) __builtin_prefetch(row + i);
}

// What a token's state decays by, and what it reads of the state before it.
struct OneDecay {
  f32x16 factor;
  const float* key;

  void take(const DeltaNetArgs& args, int64_t t) {
    factor = exp(splat(*args.decay.of(t)));
    key = args.k.of(t);
  }
  f32x16 of_row(int64_t) const { return factor; }
  f32x16 of_read(f32x16 read) const { return factor * read; }
};

struct RowDecays {
  alignas(64) float factors[kMaxStateRows];
  alignas(64) float key[kMaxStateRows];  // times the factors

  void take(const DeltaNetArgs& args, int64_t t) {
    for (int64_t i = 0; i < args.state.rows; i += kLanes) {
      const int64_t left = args.state.rows - i < kLanes ? args.state.rows - i : kLanes;
      const f32x16 factor = exp(load_partial(args.decay.of(t) + i, left));
      store(factors + i, factor);
      store(key + i, factor * load_partial(args.k.of(t) + i, left));
    }
  }
  f32x16 of_row(int64_t i) const { return splat(factors[i]); }
  f32x16 of_read(f32x16 read) const { return read; }
};

template <bool kOut, bool kNext, int kChunks, typename Decay>
PUNA_INLINE void take_delta_token(const DeltaNetArgs& args, Columns<kChunks>& s, int64_t t,
                                  const Decay& decay, const float* next_key, Sums<kChunks>& reads) {
  if constexpr (kNext) {
    prefetch_row(args.k.of(t + 2), args.state.rows);
    if (kOut) prefetch_row(args.q.of(t + 1), args.state.rows);
    prefetch_row(args.v.of(t + 1) + s.first, kChunks * kLanes);
  }
  const f32x16 beta = splat(*args.beta.of(t));
  f32x16 delta[kChunks];
  for (int j = 0; j < kChunks; ++j)
    delta[j] = beta * (s.load_values(args.v.of(t), j) - decay.of_read(reads.total(j)));
  Sums<kChunks> outs, next;
  const auto of_row = [&](int64_t i) __attribute__((always_inline)) { return decay.of_row(i); };
  update<kOut, kNext>(s, of_row, args.k.of(t), delta, kOut ? args.q.of(t) : nullptr, outs, next_key, next);
  if constexpr (kOut)
    for (int j = 0; j < kChunks; ++j) s.store_values(args.out.of(t), j, outs.total(j) * args.scale);
  reads = next;
  s.from = s.to;
}

// While a token changes the state, what the next one reads of it is summed up.
template <typename Decay, bool kOut, int kChunks>
void delta_net_columns(const DeltaNetArgs& args, int64_t first) {
  Columns<kChunks> s(args.state, first);
  Sums<kChunks> reads;
  Decay decays[2];  // of a token and of the next one, in turn
  decays[0].take(args, 0);
  add_product(s, decays[0].key, reads);
  const int64_t last = args.state.num_tokens - 1;
  for (int64_t t = 0; t < last; ++t) {
    Decay& next = decays[(t + 1) % 2];
    next.take(args, t + 1);
    take_delta_token<kOut, true>(args, s, t, decays[t % 2], next.key, reads);
  }
  take_delta_token<kOut, false>(args, s, last, decays[last % 2], nullptr, reads);
}

template <typename Decay, int kChunks>
void delta_net_chunk(const DeltaNetArgs& args, int64_t first) {
  if (args.out.data != nullptr)
    delta_net_columns<Decay, true, kChunks>(args, first);
  else
    delta_net_columns<Decay, false, kChunks>(args, first);
}

template <bool kOut, int kChunks>
void selective_scan_columns(const SelectiveScanArgs& args, int64_t first) {
  Columns<kChunks> s(args.state, first);
  for (int64_t t = 0; t < args.state.num_tokens; ++t) {
    prefetch_row(args.b.of(t + 1), args.state.rows);
    if (kOut) prefetch_row(args.c.of(t + 1), args.state.rows);
    prefetch_row(args.x.of(t + 1) + first, kChunks * kLanes);
    const f32x16 dt = softplus(splat(*args.dt.of(t) + args.dt_bias)), decay = exp(dt * args.a);
    f32x16 x[kChunks], added[kChunks];
    for (int j = 0; j < kChunks; ++j) {
      x[j] = s.load_values(args.x.of(t), j);
      added[j] = x[j] * dt;
    }
    Sums<kChunks> outs, none;
    const auto of_row = [=](int64_t) __attribute__((always_inline)) { return decay; };
    update<kOut, false>(s, of_row, args.b.of(t), added, kOut ? args.c.of(t) : nullptr, outs, nullptr, none);
    if constexpr (kOut)
      for (int j = 0; j < kChunks; ++j)
        s.store_values(args.out.of(t), j, fma(splat(args.d), x[j], outs.total(j)));
    s.from = s.to;
  }
}

template <bool kOut, int kChunks>
void channel_scan_columns(const ChannelScanArgs& args, int64_t first) {
  Columns<kChunks> s(args.state, first);
  const int64_t stride = state_stride(args.state.columns);
  for (int64_t t = 0; t < args.state.num_tokens; ++t) {
    for (int j = 0; j < kChunks; ++j) {
      const f32x16 x = s.load_values(args.x.of(t), j), dt = softplus(s.load_values(args.dt.of(t), j));
      const f32x16 added = x * dt;
      f32x16 sum = {};
      for (int64_t i = 0; i < args.state.rows; ++i) {
        const f32x16 decay = exp(dt * load(args.a + i * args.a_stride + first + j * kLanes));
        const int64_t at = i * stride + j * kLanes;
        const f32x16 v = fma(splat(args.b.of(t)[i]), added, load(s.from + at) * decay);
        store(s.to + at, v);
        if constexpr (kOut) sum = fma(splat(args.c.of(t)[i]), v, sum);
      }
      if constexpr (kOut) s.store_values(args.out.of(t), j, fma(s.load_values(args.d, j), x, sum));
    }
    s.from = s.to;
  }
}

// scan(args, first, whether results are wanted, chunks) for all columns, `args` with a state to begin with.
template <typename Args, typename Function>
PUNA_INLINE void for_columns(Args args, Function scan) {
  StateColumns& state = args.state;
  const int64_t stride = state_stride(state.columns);
  if (state.num_tokens == 0) return;
  if (state.before == nullptr) {
    std::memset(state.after, 0, (size_t)(state.rows * stride) * sizeof(float));
    state.before = state.after;
  }
  int64_t first = 0;
  for (; first + kScanChunks * kLanes <= stride; first += kScanChunks * kLanes)
    scan(args, first, std::integral_constant<int, kScanChunks>());
  for (; first < stride; first += kLanes) scan(args, first, std::integral_constant<int, 1>());
}

}  // namespace

void delta_net(const DeltaNetArgs& args) {
  for_columns(args, [](const DeltaNetArgs& all, int64_t first, auto chunks) {
    if (all.decays_rows)
      delta_net_chunk<RowDecays, chunks()>(all, first);
    else
      delta_net_chunk<OneDecay, chunks()>(all, first);
  });
}

void selective_scan(const SelectiveScanArgs& args) {
  for_columns(args, [](const SelectiveScanArgs& all, int64_t first, auto chunks) {
    if (all.out.data != nullptr)
      selective_scan_columns<true, chunks()>(all, first);
    else
      selective_scan_columns<false, chunks()>(all, first);
  });
}

void channel_scan(const ChannelScanArgs& args) {
  for_columns(args, [](const ChannelScanArgs& all, int64_t first, auto chunks) {
    if (all.out.data != nullptr)
      channel_scan_columns<true, chunks()>(all, first);
    else
      channel_scan_columns<false, chunks()>(all, first);
  });
}

}  // namespace puna::PUNA_ISA
