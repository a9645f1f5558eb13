// Row-wise functions between the matrix products: one token's row at a time, each in one fixed order.
#include "kernels/activations.h"
#include "kernels/functions.h"

namespace puna::PUNA_ISA {
namespace {

// out[i] = f(a[i], b[i]) for any n.
template <typename Function>
PUNA_INLINE void map(const float* a, const float* b, int64_t n, float* out, Function f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(a + i), load(b + i)));
  if (i < n) store_partial(out + i, f(load_partial(a + i, n - i), load_partial(b + i, n - i)), n - i);
}

// Of term(values, previous sum) over all x, whose last values are filled up with `filler`. Four interleaved
// sums: enough to hide the latency of fma.
template <typename Term>
PUNA_INLINE float sum(const float* x, int64_t n, float filler, Term term) {
  f32x16 sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) sums[j] = term(load(x + i + j * kLanes), sums[j]);
  for (; i + kLanes <= n; i += kLanes) sums[0] = term(load(x + i), sums[0]);
  if (i < n) {
    float rest[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) rest[j] = i + j < n ? x[i + j] : filler;
    sums[1] = term(load(rest), sums[1]);
  }
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

PUNA_INLINE float sum_of_squares(const float* x, int64_t n) {
  return sum(x, n, 0, [](f32x16 v, f32x16 total) { return fma(v, v, total); });
}

constexpr int64_t kPairs = kLanes / 2;

// Each of the first n <= kPairs values twice.
PUNA_INLINE f32x16 load_twice(const float* p, int64_t n) {
  float values[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) values[2 * i] = values[2 * i + 1] = p[i];
  return load(values);
}

// Turns neighbouring values (x[2i], x[2i + 1]) of every head by angle i, for up to kPairs pairs.
PUNA_INLINE void rotate_pairs(float* x, int64_t num_heads, int64_t head_dim, const float* cos,
                              const float* sin, int64_t pairs) {
  const f32x16 sign = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
  const f32x16 c = load_twice(cos, pairs), s = load_twice(sin, pairs) * sign;
  for (int64_t head = 0; head < num_heads; ++head, x += head_dim) {
    if (pairs == kPairs) {
      const f32x16 v = load(x);
      store(x, fma(v, c, exchange<1>(v) * s));
    } else {
      const f32x16 v = load_partial(x, 2 * pairs);
      store_partial(x, fma(v, c, exchange<1>(v) * s), 2 * pairs);
    }
  }
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const float inverse = 1.0f / std::sqrt(sum_of_squares(x, n) / (float)n + eps);
  map(x, weight, n, out, [inverse](f32x16 v, f32x16 w) { return v * inverse * w; });
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* out) {
  const float mean = sum(x, n, 0, [](f32x16 v, f32x16 total) { return total + v; }) / (float)n;
  const float squares =
      sum(x, n, mean, [mean](f32x16 v, f32x16 total) { return fma(v - mean, v - mean, total); });
  const float inverse = 1.0f / std::sqrt(squares / (float)n + eps);
  map(x, weight, n, out, [=](f32x16 v, f32x16 w) { return (v - mean) * inverse * w; });
  if (bias != nullptr) add(out, bias, n, out);
}

void gaussian_top_k(const float* x, float deviations, int64_t n, float* out) {
  const float mean = sum(x, n, 0, [](f32x16 v, f32x16 total) { return total + v; }) / (float)n;
  const float squares =
      sum(x, n, mean, [mean](f32x16 v, f32x16 total) { return fma(v - mean, v - mean, total); });
  const float least = mean + deviations * std::sqrt(squares / (float)(n - 1));
  map(x, x, n, out, [least](f32x16 v, f32x16) { return relu(v - least); });
}

void rope_normal(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                 const float* sin) {
  const int64_t half = rotary_dim / 2;
  for (int64_t i = 0; i < half; i += kPairs) {
    const int64_t pairs = half - i < kPairs ? half - i : kPairs;
    rotate_pairs(x + 2 * i, num_heads, head_dim, cos + i, sin + i, pairs);
  }
}

void rope_neox(float* x, int64_t num_heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
               const float* sin) {
  const int64_t half = rotary_dim / 2;
  for (int64_t head = 0; head < num_heads; ++head) {
    float* a = x + head * head_dim;
    float* b = a + half;
    int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const f32x16 c = load(cos + i), s = load(sin + i), u = load(a + i), v = load(b + i);
      store(a + i, fma(u, c, -(v * s)));
      store(b + i, fma(v, c, u * s));
    }
    for (; i < half; ++i) {
      const float u = a[i], v = b[i];
      a[i] = u * cos[i] - v * sin[i];
      b[i] = v * cos[i] + u * sin[i];
    }
  }
}

void l2_norm(const float* x, float eps, int64_t n, float* out) {
  scale(x, 1.0f / std::sqrt(sum_of_squares(x, n) + eps), n, out);
}

void activate(Activation activation, const float* x, int64_t n, float* out) {
  const auto all = [&](auto function) { map(x, x, n, out, [=](f32x16 v, f32x16) { return function(v); }); };
  switch (activation) {
    case Activation::kSilu:
      return all([](f32x16 v) { return silu(v); });
    case Activation::kGelu:
      return all([](f32x16 v) { return gelu(v); });
    case Activation::kRelu:
      return all([](f32x16 v) { return relu(v); });
    case Activation::kSigmoid:
      return all([](f32x16 v) { return sigmoid(v); });
    case Activation::kSoftplus:
      return all([](f32x16 v) { return softplus(v); });
    case Activation::kReluSquared:
      return all([](f32x16 v) { return relu_squared(v); });
    case Activation::kTanh:
      return all([](f32x16 v) { return tanh(v); });
    case Activation::kSwigluOai:
    case Activation::kSiluLimited:
    case Activation::kLimitedSilu:
      break;
  }
}

void glu(Gating gating, const float* gate, const float* up, int64_t n, float* out) {
  const f32x16 limit = splat(gating.limit);
  const auto within = [=](f32x16 x) { return max(min(x, limit), -limit); };
  switch (gating.activation) {
    case Activation::kSilu:
      map(gate, up, n, out, [](f32x16 g, f32x16 u) { return silu(g) * u; });
      break;
    case Activation::kGelu:
      map(gate, up, n, out, [](f32x16 g, f32x16 u) { return gelu(g) * u; });
      break;
    case Activation::kRelu:
      map(gate, up, n, out, [](f32x16 g, f32x16 u) { return relu(g) * u; });
      break;
    case Activation::kSwigluOai:
      map(gate, up, n, out, [](f32x16 g, f32x16 u) { return swiglu_oai(g, u); });
      break;
    case Activation::kSiluLimited:
      map(gate, up, n, out, [=](f32x16 g, f32x16 u) { return min(silu(g), limit) * within(u); });
      break;
    case Activation::kLimitedSilu:
      map(gate, up, n, out, [=](f32x16 g, f32x16 u) { return silu(min(g, limit)) * within(u); });
      break;
    case Activation::kSigmoid:
    case Activation::kSoftplus:
    case Activation::kReluSquared:
    case Activation::kTanh:
      break;
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
  map(a, b, n, out, [](f32x16 u, f32x16 v) { return u + v; });
}

void weighted_sum(const float* x, int64_t stride, const int32_t* rows, const float* weights, int64_t count,
                  int64_t n, float* out) {
  for (int64_t c = 0; c < n; c += kLanes) {
    const int64_t lanes = n - c < kLanes ? n - c : kLanes;
    f32x16 sum = {};
    for (int64_t i = 0; i < count; ++i)
      sum = fma(load_partial(x + rows[i] * stride + c, lanes), splat(weights[i]), sum);
    store_partial(out + c, sum, lanes);
  }
}

void mul(const float* a, const float* b, int64_t n, float* out) {
  map(a, b, n, out, [](f32x16 u, f32x16 v) { return u * v; });
}

void scale(const float* x, float factor, int64_t n, float* out) {
  map(x, x, n, out, [factor](f32x16 v, f32x16) { return v * factor; });
}

void softcap(const float* x, float cap, int64_t n, float* out) {
  map(x, x, n, out, [cap](f32x16 v, f32x16) { return tanh(v / cap) * cap; });
}

void clamp(const float* x, float limit, int64_t n, float* out) {
  map(x, x, n, out, [limit](f32x16 v, f32x16) { return max(min(v, splat(limit)), splat(-limit)); });
}

void xielu(const Xielu& f, const float* x, int64_t n, float* out) {
  map(x, x, n, out, [&f](f32x16 v, f32x16) {
    const f32x16 bent =
        select(v > 0.0f, v * v * f.positive, (exp(min(v, splat(f.eps))) - 1.0f - v) * f.negative);
    return fma(v, splat(f.beta), bent);
  });
}

}  // namespace puna::PUNA_ISA
