// Q3_K and Q6_K: a value is scale * integer, where the scales of the groups are integers too, times a half
// float of the super-block. The search is our own; it looks for the least sum of squared errors with weights
// close to those that ggml gives them (ggml-quants.c).
#include "kernels/quantizers/groups.h"
#include "kernels/quantizers/quantizers.h"

namespace puna::PUNA_ISA {
namespace {

constexpr int kGroupValues = 16, kGroups = 16;
typedef Groups<kGroupValues> Data;

// Integers from -kMax to kMax - 1; so are the scales.
template <int kMax, int kMaxScale>
struct Symmetric {
  struct Choice {
    f32x16 unit_scale;  // the half float
    f32x16 scale;       // integer
    f32x16 error;
  };
  // Weighted sums over a group's integers.
  struct Sums {
    f32x16 ll, xl;
  };

  static f32x16 integer(f32x16 x, f32x16 factor) {
    return round_within(x * factor, (float)-kMax, (float)(kMax - 1));
  }
  static f32x16 scale_integer(f32x16 x) { return round_within(x, (float)-kMaxScale, (float)(kMaxScale - 1)); }

  static Sums sums(const Data& data, f32x16 factor) {
    Sums s = {splat(0.0f), splat(0.0f)};
    for (int i = 0; i < kGroupValues; ++i) {
      const f32x16 l = integer(data.x[i], factor), wl = data.weight[i] * l;
      s.ll += wl * l;
      s.xl += wl * data.x[i];
    }
    return s;
  }

  // Replaces `best` where the scale that fits those integers best leaves less of the squares.
  static void improve(const Sums& s, f32x16& best, f32x16& best_gain) {
    const f32x16 scale = s.xl / s.ll, gain = scale * s.xl;
    const i32x16 better = gain > best_gain * kNoise;
    best = select(better, scale, best);
    best_gain = select(better, gain, best_gain);
  }

  static f32x16 fit(const Data& data) {
    f32x16 largest = splat(0.0f);
    for (int i = 0; i < kGroupValues; ++i) {
      const f32x16 x = data.x[i];
      largest = select(max(x, -x) > max(largest, -largest), x, largest);
    }
    const f32x16 per_unit = inverse(largest);
    f32x16 best = splat(0.0f), gain = splat(0.0f);
    improve(sums(data, per_unit * (float)-kMax), best, gain);
    for (int step = kFirstStep; step <= kLastStep; ++step) {
      const f32x16 factor = per_unit * (kMax + kStep * (float)step);
      improve(sums(data, -factor), best, gain);
      if (kMax < 8) improve(sums(data, factor), best, gain);
    }
    for (int i = 0; i < kRefinements; ++i) improve(sums(data, inverse(best)), best, gain);
    return best;
  }

  static f32x16 error(const Data& data, f32x16 scale) {
    const f32x16 factor = inverse(scale);
    f32x16 sum = splat(0.0f);
    for (int i = 0; i < kGroupValues; ++i) {
      const f32x16 rest = scale * integer(data.x[i], factor) - data.x[i];
      sum += data.weight[i] * rest * rest;
    }
    return sum;
  }

  // The integers next to what a group wants.
  static Choice choose(const Data& data, f32x16 unit_scale, f32x16 wanted) {
    const f32x16 middle = scale_integer(wanted * inverse(unit_scale));
    Choice best = {unit_scale, middle, splat(INFINITY)};
    for (int step = -kNeighbours; step <= kNeighbours; ++step) {
      const f32x16 scale = scale_integer(middle + (float)step), next = error(data, unit_scale * scale);
      const i32x16 better = next < best.error;
      best.scale = select(better, scale, best.scale);
      best.error = select(better, next, best.error);
    }
    return best;
  }

  static void keep_better(const Choice& next, Choice& best) {
    const i32x16 better = Data::total(next.error) < Data::total(best.error);
    best = {select(better, next.unit_scale, best.unit_scale), select(better, next.scale, best.scale),
            select(better, next.error, best.error)};
  }

  static Choice search(const Data& data) {
    const f32x16 wanted = fit(data), largest = Data::largest(wanted);
    Choice best = choose(data, data.as_half(largest * (-1.0f / kMaxScale)), wanted);
    for (int i = 1; i <= kSmallerScales; ++i)
      keep_better(choose(data, data.as_half(largest * (-1.0f / (kMaxScale - i))), wanted), best);
    for (int i = 0; i < kRounds; ++i) {
      const Sums s = sums(data, inverse(best.unit_scale * best.scale));
      const f32x16 scales = Data::total(best.scale * best.scale * s.ll);
      const f32x16 refitted = Data::total(best.scale * s.xl) * inverse(scales);
      keep_better(choose(data, data.as_half(refitted), wanted), best);
    }
    return best;
  }

  // Sums that are the same but for rounding: what comes first stays.
  static constexpr float kNoise = 1.0f + 0x1p-23f;
  static constexpr float kStep = 0.2f;
  static constexpr int kFirstStep = -5, kLastStep = 5, kRefinements = 2, kRounds = 1, kNeighbours = 1,
                       kSmallerScales = 3;
};

// A super-block as it will be packed.
struct Block {
  uint16_t scale;  // half float
  int8_t scales[kGroups];
  uint8_t integers[kSuperBlock];  // from 0 on
};

template <int kMax, int kMaxScale>
Block make_block(const float* values, const Data& data,
                 const typename Symmetric<kMax, kMaxScale>::Choice& choice) {
  Block block;
  block.scale = Data::half_of(choice.unit_scale[0], data.unit[0]);
  store_bytes(block.scales, to_int(choice.scale));
  float factors[kLanes];
  store(factors, inverse(choice.unit_scale * choice.scale));
  const f32x16 per_unit = splat(1.0f / data.unit[0]);
  for (int i = 0; i < kGroups; ++i) {
    const f32x16 x = finite(load(values + i * kGroupValues)) * per_unit;
    const f32x16 l = Symmetric<kMax, kMaxScale>::integer(x, splat(factors[i]));
    store_bytes(block.integers + i * kGroupValues, to_int(l) + kMax);
  }
  return block;
}

// Two bits of each value, from bit `shift` on: bytes hold values 32 apart, 128 per 32 bytes.
uint8_t* put_two_bits(uint8_t* out, const uint8_t* integers, int shift) {
  for (int j = 0; j < kSuperBlock; j += 128, out += 32)
    for (int i = 0; i < 32; ++i) {
      const auto bits = [&](int k) { return (integers[j + k * 32 + i] >> shift & 3) << 2 * k; };
      out[i] = (uint8_t)(bits(0) | bits(1) | bits(2) | bits(3));
    }
  return out;
}

void put_q3_k(uint8_t* out, const Block& block) {
  std::memset(out, 0, 32);
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 32; ++i) out[i] |= (uint8_t)(block.integers[j * 32 + i] >> 2 << j);
  out = put_two_bits(out + 32, block.integers, 0);
  // Six bits: the low four in the first eight bytes, the high two in the last four.
  std::memset(out, 0, 12);
  for (int j = 0; j < kGroups; ++j) {
    const int scale = block.scales[j] + 32;
    out[j % 8] |= (uint8_t)((scale & 15) << j / 8 * 4);
    out[8 + j % 4] |= (uint8_t)(scale >> 4 << j / 4 * 2);
  }
  std::memcpy(out + 12, &block.scale, sizeof block.scale);
}

void put_q6_k(uint8_t* out, const Block& block) {
  // Low nibbles: bytes hold values 64 apart, 128 per 64 bytes.
  for (int j = 0; j < kSuperBlock; j += 128, out += 64)
    for (int i = 0; i < 64; ++i)
      out[i] = (uint8_t)((block.integers[j + i] & 15) | (block.integers[j + 64 + i] & 15) << 4);
  out = put_two_bits(out, block.integers, 4);
  std::memcpy(out, block.scales, kGroups);
  std::memcpy(out + kGroups, &block.scale, sizeof block.scale);
}

template <int kMax, int kMaxScale, typename Put>
void quantize(const float* x, int64_t count, uint8_t* out, int64_t block_bytes, float even, Put put_block) {
  for (int64_t i = 0; i < count; i += kSuperBlock, out += block_bytes) {
    const Data data(x + i, [=](f32x16 v, f32x16 mean_square) { return v * v + mean_square * even; });
    put_block(out, make_block<kMax, kMaxScale>(x + i, data, Symmetric<kMax, kMaxScale>::search(data)));
  }
}

}  // namespace

// The part of the weight that is the same for a group's values keeps small ones from being forgotten.
void to_q3_k(const float* x, int64_t count, uint8_t* out) {
  quantize<4, 32>(x, count, out, 110, 1.0f, put_q3_k);
}
void to_q6_k(const float* x, int64_t count, uint8_t* out) {
  quantize<32, 128>(x, count, out, 210, 0.25f, put_q6_k);
}

}  // namespace puna::PUNA_ISA
