// Q2_K, Q4_K and Q5_K: a value is scale * integer - minimum, where scales and minimums of the groups are
// integers too, times two half floats of the super-block. The search is our own; it looks for the least sum
// of squared errors with the weights that ggml gives them (ggml-quants.c).
#include "kernels/quantizers/groups.h"
#include "kernels/quantizers/quantizers.h"

namespace puna::PUNA_ISA {
namespace {

template <int kGroupValues, int kMax, int kMaxScale>
struct Affine {
  typedef Groups<kGroupValues> Data;

  // Per group: value = scale * integer - minimum.
  struct Line {
    f32x16 scale, minimum;
  };
  // Integers that stand for scales and minimums, times these.
  struct Choice {
    f32x16 unit_scale, unit_minimum;  // the half floats
    f32x16 scale, minimum;            // integers
    f32x16 error;

    Line line() const { return {unit_scale * scale, unit_minimum * minimum}; }
  };
  // Weighted sums over a group's integers.
  struct Sums {
    f32x16 l, ll, xl;
  };

  static f32x16 integer(f32x16 x, const Line& line, f32x16 factor) {
    return round_within((x + line.minimum) * factor, 0.0f, (float)kMax);
  }

  static Sums sums(const Data& data, f32x16 minimum, f32x16 factor) {
    Sums s = {splat(0.0f), splat(0.0f), splat(0.0f)};
    for (int i = 0; i < kGroupValues; ++i) {
      const f32x16 l = integer(data.x[i], {factor, minimum}, factor), wl = data.weight[i] * l;
      s.l += wl;
      s.ll += wl * l;
      s.xl += wl * data.x[i];
    }
    return s;
  }

  // Replaces `best` where the line that fits those integers best leaves less of the squares.
  static void improve(const Data& data, const Sums& s, Line& best, f32x16& best_gain) {
    const f32x16 determinant = data.sum_weight * s.ll - s.l * s.l;
    const f32x16 free_scale = (data.sum_weight * s.xl - data.sum_wx * s.l) / determinant;
    const f32x16 free_minimum = (s.l * s.xl - s.ll * data.sum_wx) / determinant;
    const i32x16 is_free = (i32x16)(free_minimum >= splat(0.0f)) & (i32x16)(determinant > splat(0.0f));
    const f32x16 scale = select(is_free, free_scale, s.xl / s.ll);
    const f32x16 minimum = select(is_free, free_minimum, splat(0.0f));
    const f32x16 gain = scale * s.xl - minimum * data.sum_wx;
    const i32x16 better = (i32x16)(gain > best_gain) & (i32x16)(scale > splat(0.0f));
    best = {select(better, scale, best.scale), select(better, minimum, best.minimum)};
    best_gain = select(better, gain, best_gain);
  }

  static Line fit(const Data& data) {
    f32x16 lowest = splat(0.0f), highest = data.x[0];
    for (int i = 0; i < kGroupValues; ++i) {
      lowest = min(data.x[i], lowest);
      highest = max(data.x[i], highest);
    }
    const f32x16 range = highest - lowest, per_unit = inverse(range);
    Line best = {range * (1.0f / kMax), -lowest};
    f32x16 gain = splat(-INFINITY);
    for (int step = kFirstStep; step <= kLastStep; ++step)
      improve(data, sums(data, -lowest, per_unit * (kMax + kStep * (float)step)), best, gain);
    // The same from the best minimum, where clipping a few values pays.
    for (int step = kIsFine ? -3 : 0; step <= (kIsFine ? 3 : -1); ++step) {
      const f32x16 from_best = inverse(highest + best.minimum) * (kMax + kStep * (float)step);
      improve(data, sums(data, best.minimum, from_best), best, gain);
    }
    for (int i = 0; i < kRefinements; ++i)
      improve(data, sums(data, best.minimum, inverse(best.scale)), best, gain);
    return best;
  }

  static f32x16 error(const Data& data, const Line& line) {
    const f32x16 factor = inverse(line.scale);
    f32x16 sum = splat(0.0f);
    for (int i = 0; i < kGroupValues; ++i) {
      const f32x16 rest = line.scale * integer(data.x[i], line, factor) - line.minimum - data.x[i];
      sum += data.weight[i] * rest * rest;
    }
    return sum;
  }

  // The integers next to what a group wants, and the minimum that goes best with each of them.
  static Choice choose(const Data& data, f32x16 unit_scale, f32x16 unit_minimum, const Line& wanted) {
    const f32x16 per_minimum = inverse(unit_minimum);
    const auto minimum_of = [&](f32x16 m) { return round_within(m * per_minimum, 0.0f, (float)kMaxScale); };
    const f32x16 middle = round_within(wanted.scale * inverse(unit_scale), 0.0f, (float)kMaxScale);
    const f32x16 per_weight = inverse(data.sum_weight);
    Choice best = {unit_scale, unit_minimum, middle, minimum_of(wanted.minimum), splat(INFINITY)};
    for (int step = -1; step <= 1; ++step) {
      Choice next = best;
      next.scale = min(max(middle + (float)step, splat(0.0f)), splat((float)kMaxScale));
      next.minimum = minimum_of(wanted.minimum);
      const Line line = next.line();
      const Sums s = sums(data, line.minimum, inverse(line.scale));
      next.minimum = minimum_of((line.scale * s.l - data.sum_wx) * per_weight);
      next.error = error(data, next.line());
      const i32x16 better = next.error < best.error;
      best.scale = select(better, next.scale, best.scale);
      best.minimum = select(better, next.minimum, best.minimum);
      best.error = select(better, next.error, best.error);
    }
    return best;
  }

  // The half floats that go best with a choice's integers.
  static void refit(const Data& data, const Choice& choice, f32x16& unit_scale, f32x16& unit_minimum) {
    const Line line = choice.line();
    const Sums s = sums(data, line.minimum, inverse(line.scale));
    const f32x16 aa = Data::total(choice.scale * choice.scale * s.ll);
    const f32x16 ab = Data::total(choice.scale * choice.minimum * s.l);
    const f32x16 bb = Data::total(choice.minimum * choice.minimum * data.sum_weight);
    const f32x16 ax = Data::total(choice.scale * s.xl), bx = Data::total(choice.minimum * data.sum_wx);
    const f32x16 determinant = aa * bb - ab * ab;
    const f32x16 scale = (ax * bb - ab * bx) / determinant, minimum = (ab * ax - aa * bx) / determinant;
    const i32x16 is_sound = (i32x16)(scale > splat(0.0f)) & (i32x16)(minimum > splat(0.0f)) &
                            (i32x16)(determinant > aa * bb * 1e-5f);
    unit_scale = select(is_sound, scale, unit_scale);
    unit_minimum = select(is_sound, minimum, unit_minimum);
  }

  static void keep_better(const Choice& next, Choice& best) {
    const i32x16 better = Data::total(next.error) < Data::total(best.error);
    best = {select(better, next.unit_scale, best.unit_scale),
            select(better, next.unit_minimum, best.unit_minimum), select(better, next.scale, best.scale),
            select(better, next.minimum, best.minimum), select(better, next.error, best.error)};
  }

  static Choice search(const Data& data) {
    const Line wanted = fit(data);
    const f32x16 scale = Data::largest(wanted.scale), minimum = Data::largest(wanted.minimum);
    const auto choose_below = [&](int largest) {  // the integers of the largest scale and minimum
      const float share = 1.0f / (float)largest;
      return choose(data, data.as_half(scale * share), data.as_half(minimum * share), wanted);
    };
    Choice best = choose_below(kMaxScale);
    for (int i = 1; i <= kSmallerScales; ++i) keep_better(choose_below(kMaxScale - i), best);
    for (int i = 0; i < kRounds; ++i) {
      f32x16 unit_scale = best.unit_scale, unit_minimum = best.unit_minimum;
      refit(data, best, unit_scale, unit_minimum);
      keep_better(choose(data, data.as_half(unit_scale), data.as_half(unit_minimum), wanted), best);
    }
    return best;
  }

  static constexpr bool kIsFine = kMax > 3;
  static constexpr float kStep = kIsFine ? 0.4f : 0.2f;
  static constexpr int kFirstStep = kIsFine ? -7 : -5, kLastStep = kIsFine ? 5 : 4;
  static constexpr int kRefinements = 2, kRounds = 1, kSmallerScales = 2;
};

// A super-block as it will be packed.
struct Block {
  uint16_t scale, minimum;  // half floats
  uint8_t scales[16], minimums[16];
  uint8_t integers[kSuperBlock];
};

template <typename Type, int kGroupValues, int kMax>
void make_blocks(const float* values, const Groups<kGroupValues>& data, const typename Type::Choice& choice,
                 Block* blocks) {
  typedef Groups<kGroupValues> Data;
  constexpr int kGroups = kSuperBlock / kGroupValues;
  float scales[kLanes], minimums[kLanes], steps[kLanes], lows[kLanes];
  store(scales, choice.unit_scale), store(minimums, choice.unit_minimum);
  const typename Type::Line line = choice.line();
  store(steps, inverse(line.scale)), store(lows, line.minimum);
  uint8_t integers[2][kLanes];
  store_bytes(integers[0], to_int(choice.scale)), store_bytes(integers[1], to_int(choice.minimum));
  for (int b = 0; b < Data::kBlocks; ++b) {
    Block& block = blocks[b];
    block.scale = Data::half_of(scales[b * kGroups], data.unit[b]);
    block.minimum = Data::half_of(minimums[b * kGroups], data.unit[b]);
    std::memcpy(block.scales, integers[0] + b * kGroups, kGroups);
    std::memcpy(block.minimums, integers[1] + b * kGroups, kGroups);
    const f32x16 per_unit = splat(1.0f / data.unit[b]);
    for (int i = 0; i < kSuperBlock; i += kLanes) {
      const int lane = b * kGroups + i / kGroupValues;
      const f32x16 x = finite(load(values + b * kSuperBlock + i)) * per_unit;
      const f32x16 l = round_within((x + lows[lane]) * steps[lane], 0.0f, (float)kMax);
      store_bytes(block.integers + i, to_int(l));
    }
  }
}

uint8_t* put(uint8_t* out, uint16_t half) {
  std::memcpy(out, &half, sizeof half);
  return out + sizeof half;
}

// Six bits each: the low four of the last four groups fill bytes, their high two those of the first four.
uint8_t* put_scales(uint8_t* out, const Block& block) {
  for (int j = 0; j < 4; ++j) {
    const int scale = block.scales[j + 4], minimum = block.minimums[j + 4];
    out[j] = (uint8_t)(block.scales[j] | scale >> 4 << 6);
    out[j + 4] = (uint8_t)(block.minimums[j] | minimum >> 4 << 6);
    out[j + 8] = (uint8_t)((scale & 15) | (minimum & 15) << 4);
  }
  return out + 12;
}

// The low four bits: bytes hold values 32 apart, 64 per 32 bytes.
uint8_t* put_nibbles(uint8_t* out, const uint8_t* integers) {
  for (int j = 0; j < kSuperBlock; j += 64, out += 32)
    for (int i = 0; i < 32; ++i)
      out[i] = (uint8_t)((integers[j + i] & 15) | (integers[j + 32 + i] & 15) << 4);
  return out;
}

void put_q2_k(uint8_t* out, const Block& block) {
  for (int i = 0; i < 16; ++i) *out++ = (uint8_t)(block.scales[i] | block.minimums[i] << 4);
  for (int j = 0; j < kSuperBlock; j += 128, out += 32)
    for (int i = 0; i < 32; ++i) {
      const uint8_t* q = block.integers + j + i;
      out[i] = (uint8_t)(q[0] | q[32] << 2 | q[64] << 4 | q[96] << 6);
    }
  put(put(out, block.scale), block.minimum);
}

void put_q4_k(uint8_t* out, const Block& block) {
  put_nibbles(put_scales(put(put(out, block.scale), block.minimum), block), block.integers);
}

void put_q5_k(uint8_t* out, const Block& block) {
  uint8_t* high = put_scales(put(put(out, block.scale), block.minimum), block);
  std::memset(high, 0, 32);
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 32; ++i) high[i] |= (uint8_t)(block.integers[j * 32 + i] >> 4 << j);
  put_nibbles(high + 32, block.integers);
}

template <int kGroupValues, int kMax, int kMaxScale, typename Weigh, typename Put>
void quantize(const float* x, int64_t count, uint8_t* out, int64_t block_bytes, Weigh weigh, Put put_block) {
  typedef Groups<kGroupValues> Data;
  typedef Affine<kGroupValues, kMax, kMaxScale> Type;
  constexpr int64_t kTaken = Data::kBlocks * kSuperBlock;
  for (int64_t i = 0; i < count; i += kTaken) {
    float last[kTaken];  // zeros behind the last super-block, where two are taken at a time
    const float* values = x + i;
    if (count - i < kTaken) {
      std::fill(std::copy(x + i, x + count, last), last + kTaken, 0.0f);
      values = last;
    }
    const Data data(values, weigh);
    Block blocks[Data::kBlocks];
    make_blocks<Type, kGroupValues, kMax>(values, data, Type::search(data), blocks);
    for (int64_t b = 0; b < std::min(kTaken, count - i) / kSuperBlock; ++b, out += block_bytes)
      put_block(out, blocks[b]);
  }
}

PUNA_INLINE f32x16 magnitude(f32x16 x) { return max(x, -x); }
PUNA_INLINE f32x16 root(f32x16 x) {
  float lanes[kLanes];
  store(lanes, x);
  for (float& lane : lanes) lane = std::sqrt(lane);
  return load(lanes);
}

}  // namespace

void to_q2_k(const float* x, int64_t count, uint8_t* out) {
  const auto weigh = [](f32x16 v, f32x16 mean_square) { return magnitude(v) + root(mean_square) * 0.1f; };
  quantize<16, 3, 15>(x, count, out, 84, weigh, put_q2_k);
}
void to_q4_k(const float* x, int64_t count, uint8_t* out) {
  const auto weigh = [](f32x16 v, f32x16 mean_square) { return magnitude(v) + root(mean_square); };
  quantize<32, 15, 63>(x, count, out, 144, weigh, put_q4_k);
}
void to_q5_k(const float* x, int64_t count, uint8_t* out) {
  const auto weigh = [](f32x16 v, f32x16 mean_square) { return magnitude(v) + root(mean_square); };
  quantize<32, 31, 63>(x, count, out, 176, weigh, put_q5_k);
}

}  // namespace puna::PUNA_ISA
