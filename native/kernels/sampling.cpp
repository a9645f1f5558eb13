// What the sampler does with a vocabulary of logits. Sums run in one order of lanes and without fused
// operations, so that the same logits give the same tokens on every instruction set.
#include "kernels/functions.h"
#include "simd/compress.h"
#include "simd/simd.h"

namespace puna::PUNA_ISA {
namespace {

// Vectors as wide as registers are: comparisons of wider ones are done lane by lane.
#if defined(PUNA_AVX512)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef double Doubles __attribute__((vector_size(8 * kWidth)));

// Logits come from memory, as the output matrix went through the caches; the processor's own prefetching
// stops at the end of each page.
constexpr uintptr_t kAheadBytes = 8192;
constexpr int kSumLanes = 32;  // independent partial sums, whatever the width
constexpr int kSums = kSumLanes / kWidth;
constexpr int kCopies = 8;  // of a bucket: neighbours often share one, and need not wait for each other

PUNA_INLINE Floats load_floats(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PUNA_INLINE Floats all(float x) { return Floats{} + x; }
PUNA_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

PUNA_INLINE float add_lanes(const Floats sums[kSums]) {
  float x[kSumLanes];
  std::memcpy(x, sums, sizeof x);
  for (int width = kSumLanes / 2; width >= 1; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLowest = -125.0f;  // 2^-125 is nothing beside the 1 of the largest

// 2^x for x <= 0, and 0 below kLowest, NaN included: 2^n times a polynomial (minimax, with 2^0 exactly 1) on
// [-1/2, 1/2]. Relative error below 2e-7; that of e^y = exp2(y * log2(e)) grows with the rounding of the
// product, to 5e-6 at the smallest weights.
PUNA_INLINE Floats exp2_nonpositive(Floats x) {
  const Floats shifter = all(12582912.0f);  // 1.5 * 2^23: rounds to an integer
  const Floats shifted = x + shifter;
  const Floats f = x - (shifted - shifter);
  Floats p = f * 1.3264727e-3f + 9.6715130e-3f;
  p = p * f + 5.5507336e-2f;
  p = p * f + 2.4022242e-1f;
  p = p * f + 6.9314700e-1f;
  p = p * f + 1.0f;
  // The integer stands in the low bits of `shifted`; up by 23 it is added to the exponent.
  const Floats y = (Floats)((Words)p + ((Words)shifted << 23));
  return x > all(kLowest) ? y : Floats{};
}

// Larger floats have larger integers, and equal ones the same.
PUNA_INLINE Ints sort_key(Floats x) {
  const Ints bits = (Ints)(x + Floats{});  // -0 becomes 0
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

}  // namespace

void mask_logits(const float* logits, const uint32_t* words, float* out) {
  Words lane_bits;
  for (int lane = 0; lane < kWidth; ++lane) lane_bits[lane] = uint32_t{1} << lane;
  const Floats nothing = all(-__builtin_inff());
  for (int i = 0; i < kLogitBlock; i += kWidth) {
    const uint32_t bits = words[i / 32] >> (i % 32);
    const Floats x = load_floats(logits + i);
    const Floats kept = ((Words{} + bits) & lane_bits) != 0 ? x : nothing;
    std::memcpy(out + i, &kept, sizeof kept);
  }
}

void logit_maxima(const float* logits, int64_t num_blocks, float* max) {
  for (int64_t b = 0; b < num_blocks; ++b, logits += kLogitBlock) {
    Floats maxima[kSums];
    Ints is_nan = {};
    for (int s = 0; s < kSums; ++s) maxima[s] = all(-__builtin_inff());
    PUNA_UNROLL(8)
    for (int i = 0; i < kLogitBlock; i += kSumLanes) {
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(logits + i) + kAheadBytes;
      __builtin_prefetch(reinterpret_cast<const void*>(ahead));
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + 64));
      PUNA_UNROLL(8)
      for (int s = 0; s < kSums; ++s) {
        const Floats x = load_floats(logits + i + s * kWidth);
        maxima[s] = larger(x, maxima[s]);
        is_nan |= x != x;
      }
    }
    for (int s = 1; s < kSums; ++s) maxima[0] = larger(maxima[0], maxima[s]);
    max[b] = maxima[0][0];
    for (int lane = 0; lane < kWidth; ++lane)
      max[b] = is_nan[lane] ? __builtin_nanf("") : maxima[0][lane] > max[b] ? maxima[0][lane] : max[b];
  }
}

void logit_sums(const float* logits, int64_t num_blocks, const float* max, float inverse_temperature,
                float* sums) {
  const Floats factor = all(inverse_temperature * kLog2E);
  for (int64_t b = 0; b < num_blocks; ++b, logits += kLogitBlock) {
    const Floats largest = all(max[b]);
    Floats total[kSums] = {};
    PUNA_UNROLL(8)
    for (int i = 0; i < kLogitBlock; i += kSumLanes) {
      PUNA_UNROLL(8)
      for (int s = 0; s < kSums; ++s)
        total[s] += exp2_nonpositive((load_floats(logits + i + s * kWidth) - largest) * factor);
    }
    sums[b] = add_lanes(total);
  }
}

void logit_moments(const float* logits, int64_t num_blocks, const float* max, float* moments) {
  const Floats factor = all(kLog2E), lowest = all(kLowest);
  for (int64_t b = 0; b < num_blocks; ++b, logits += kLogitBlock) {
    const Floats largest = all(max[b]);
    Floats total[kSums] = {};
    for (int i = 0; i < kLogitBlock; i += kSumLanes) {
      PUNA_UNROLL(8)
      for (int s = 0; s < kSums; ++s) {
        const Floats x = load_floats(logits + i + s * kWidth) - largest;
        total[s] += exp2_nonpositive(x * factor) * larger(x, lowest);  // 0 times a number, not infinity
      }
    }
    moments[b] = add_lanes(total);
  }
}

void logit_weights(const float* logits, int64_t count, float max, float inverse_temperature, float* weights) {
  const Floats factor = all(inverse_temperature * kLog2E), largest = all(max);
  for (int64_t i = 0; i < count; i += kWidth) {
    const Floats weight = exp2_nonpositive((load_floats(logits + i) - largest) * factor);
    std::memcpy(weights + i, &weight, sizeof weight);
  }
}

ScoreRange score_range(const float* scores, int64_t count) {
  const Floats infinity = all(__builtin_inff());
  Floats lowest[kSums], highest[kSums];
  for (int s = 0; s < kSums; ++s) lowest[s] = infinity, highest[s] = -infinity;
  for (int64_t i = 0; i < count; i += kSumLanes) {
    PUNA_UNROLL(8)
    for (int s = 0; s < kSums; ++s) {
      const Floats x = load_floats(scores + i + s * kWidth);
      highest[s] = larger(x, highest[s]);
      const Floats finite = x > -infinity ? x : infinity;
      lowest[s] = finite < lowest[s] ? finite : lowest[s];
    }
  }
  ScoreRange range = {lowest[0][0], highest[0][0]};
  for (int i = 0; i < kSumLanes; ++i) {
    const float low = lowest[i / kWidth][i % kWidth], high = highest[i / kWidth][i % kWidth];
    range.lowest = low < range.lowest ? low : range.lowest;
    range.highest = high > range.highest ? high : range.highest;
  }
  return range;
}

int64_t select_logits(const SelectArgs& args) {
  static constexpr int32_t kCount[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  int64_t n = 0;
  for (int64_t i = 0; i < args.count; i += kLanes) {
    const bool counted = args.ids == nullptr;
    n += store_in_range(args.scores + i, args.lowest, args.highest, args.logits + i,
                        counted ? kCount : args.ids + i, counted ? args.first_id + (int32_t)i : 0,
                        args.logits_out + n, args.ids_out + n);
  }
  return n;
}

// Places in `copies` and what is added there, of one block.
struct Additions {
  uint32_t places[kLogitBlock];
  double weights[kLogitBlock];
};

PUNA_INLINE void find_additions(const HistogramArgs& args, int64_t begin, Additions& out) {
  const Floats factor = all(args.inverse_temperature * kLog2E), largest = all(args.max);
  const Words top = (Words)sort_key(all(args.highest)), last = Words{} + (kLogitBuckets - 1);
  for (int i = 0; i < kLogitBlock; i += kWidth) {
    const Words distance =
        (top - (Words)sort_key(load_floats(args.scores + begin + i))) >> (uint32_t)args.shift;
    const Words place = (distance < last ? distance : last) * kCopies;
    const Doubles weight = __builtin_convertvector(
        exp2_nonpositive((load_floats(args.logits + begin + i) - largest) * factor), Doubles);
    std::memcpy(out.places + i, &place, sizeof place);
    std::memcpy(out.weights + i, &weight, sizeof weight);
  }
}

void logit_histogram(const HistogramArgs& args, double* masses) {
  double copies[kLogitBuckets * kCopies] = {};
  for (int64_t i = 0; i < args.count; i += kLogitBlock) {
    Additions additions;
    find_additions(args, i, additions);
    for (int j = 0; j < kLogitBlock; j += kCopies) {
      PUNA_UNROLL(8)
      for (int c = 0; c < kCopies; ++c)
        copies[additions.places[j + c] + (uint32_t)c] += additions.weights[j + c];
    }
  }
  for (int b = 0; b < kLogitBuckets; ++b) {
    const double* c = copies + b * kCopies;
    masses[b] = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
  }
}

}  // namespace puna::PUNA_ISA
