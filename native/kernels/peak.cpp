// Peak throughput of this instruction set: the roofs that measured kernels are held against.
#include "kernels/functions.h"
#include "simd/simd.h"

namespace puna::PUNA_ISA {

// Independent sums, enough to hide the latency of a dot product and few enough to stay in registers.
#if defined(PUNA_AVX512)
static constexpr int kSums = 12;
#else
static constexpr int kSums = 6;
#endif

int64_t dot_burst(int64_t repeats, int32_t* sink) {
  i32x16 sums[kSums];
  PUNA_UNROLL(12)
  for (int j = 0; j < kSums; ++j) sums[j] = splat(j);  // equal sums would be computed once
  i32x16 u = splat(0x01020304), s = splat(0x04030201);
  for (int64_t i = 0; i < repeats; ++i) {
    asm volatile("" : "+m"(u), "+m"(s));  // or the products would be computed once, before the loop
    const i32x16 a = u, b = s;
    PUNA_UNROLL(12)
    for (int j = 0; j < kSums; ++j) sums[j] = dot4_u8s8(sums[j], a, b);
  }
  i32x16 total = {};
  PUNA_UNROLL(12)  // an index that is not a constant would keep the sums in memory
  for (int j = 0; j < kSums; ++j) total += sums[j];
  *sink = total[0];
  return repeats * kSums * kLanes * 4 * 2;
}

void read_burst(const uint8_t* data, int64_t num_bytes, int32_t* sink) {
  constexpr int64_t kStep = 4 * 64;
  u32x16 sums[4] = {};
  for (int64_t at = 0; at + kStep <= num_bytes; at += kStep) {
    PUNA_UNROLL(4)
    for (int j = 0; j < 4; ++j) {
      u32x16 v;
      std::memcpy(&v, data + at + 64 * j, sizeof v);
      sums[j] ^= v;
    }
  }
  const u32x16 total = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  *sink = (int32_t)total[0];
}

}  // namespace puna::PUNA_ISA
