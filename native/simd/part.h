// One register of an instruction set, and what compilers can express for it without intrinsics.
// PUNA_PART_BYTES is its size; instruction sets add the rest in avx512.h, avx2.h, neon.h or portable.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(PUNA_AVX512)
#define PUNA_PART_BYTES 64
#elif defined(PUNA_AVX2)
#define PUNA_PART_BYTES 32
#else
#define PUNA_PART_BYTES 16
#endif

#define PUNA_INLINE static inline __attribute__((always_inline))

// Before loops whose vectors should stay in registers.
#define PUNA_PRAGMA(text) _Pragma(#text)
#define PUNA_UNROLL(n) PUNA_PRAGMA(GCC unroll n)

namespace puna::PUNA_ISA {

inline constexpr int kPartLanes = PUNA_PART_BYTES / 4;

typedef float F32Part __attribute__((vector_size(PUNA_PART_BYTES)));
typedef int32_t I32Part __attribute__((vector_size(PUNA_PART_BYTES)));
typedef uint32_t U32Part __attribute__((vector_size(PUNA_PART_BYTES)));

template <typename T, typename Part, int... i>
PUNA_INLINE void fill(T x, Part& v, std::integer_sequence<int, i...>) {
  v = Part{((void)i, x)...};
}
PUNA_INLINE void fill(float x, F32Part& v) { fill(x, v, std::make_integer_sequence<int, kPartLanes>()); }
PUNA_INLINE void fill(int32_t x, I32Part& v) { fill(x, v, std::make_integer_sequence<int, kPartLanes>()); }
PUNA_INLINE void load(const float* p, F32Part& v) { std::memcpy(&v, p, sizeof v); }
PUNA_INLINE void load(const int32_t* p, I32Part& v) { std::memcpy(&v, p, sizeof v); }
PUNA_INLINE void store(float* p, F32Part v) { std::memcpy(p, &v, sizeof v); }
PUNA_INLINE void store(int32_t* p, I32Part v) { std::memcpy(p, &v, sizeof v); }

PUNA_INLINE F32Part select(I32Part mask, F32Part a, F32Part b) { return mask ? a : b; }
PUNA_INLINE I32Part select(I32Part mask, I32Part a, I32Part b) { return mask ? a : b; }
PUNA_INLINE U32Part select(I32Part mask, U32Part a, U32Part b) { return mask ? a : b; }
#if defined(PUNA_AVX512) || defined(PUNA_AVX2)  // in one instruction, which compilers do not see
PUNA_INLINE F32Part max(F32Part a, F32Part b);
PUNA_INLINE F32Part min(F32Part a, F32Part b);
#else
PUNA_INLINE F32Part max(F32Part a, F32Part b) { return a > b ? a : b; }
PUNA_INLINE F32Part min(F32Part a, F32Part b) { return a < b ? a : b; }
#endif
PUNA_INLINE I32Part max(I32Part a, I32Part b) { return a > b ? a : b; }
PUNA_INLINE F32Part to_float(I32Part v) { return __builtin_convertvector(v, F32Part); }
PUNA_INLINE I32Part to_int(F32Part v) { return __builtin_convertvector(v, I32Part); }

// Integers of 8 or 16 bits, one to a lane, and the low byte of each lane.
template <typename T, typename Part>
PUNA_INLINE void load_narrow(const T* p, Part& v) {
  typedef T Narrow __attribute__((vector_size(kPartLanes * sizeof(T))));
  Narrow narrow;
  std::memcpy(&narrow, p, sizeof narrow);
  v = __builtin_convertvector(narrow, Part);
}
PUNA_INLINE void load_s8(const int8_t* p, I32Part& v) { load_narrow(p, v); }
PUNA_INLINE void load_u8(const uint8_t* p, I32Part& v) { load_narrow(p, v); }
PUNA_INLINE void load_bf16(const uint16_t* p, F32Part& v) {
  U32Part halves;
  load_narrow(p, halves);
  v = (F32Part)(halves << 16);
}
template <typename T>
PUNA_INLINE void store_bytes(T* p, I32Part v) {
  typedef T Bytes __attribute__((vector_size(kPartLanes)));
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  std::memcpy(p, &bytes, sizeof bytes);
}

PUNA_INLINE void store_u16(uint16_t* p, U32Part v) {
  typedef uint16_t Halves __attribute__((vector_size(2 * kPartLanes)));
  const Halves halves = __builtin_convertvector(v, Halves);
  std::memcpy(p, &halves, sizeof halves);
}

// Lane i of the result is lane i ^ kDistance.
template <int kDistance, typename Part>
PUNA_INLINE Part exchange(Part v) {
  return [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    return __builtin_shuffle(v, I32Part{(i ^ kDistance)...});
  }(std::make_integer_sequence<int, kPartLanes>());
}

// Over all lanes, halves first: the same order whatever the size of a register.
template <int kDistance, typename Part, typename Function>
PUNA_INLINE auto reduce(Part v, Function f) {
  if constexpr (kDistance == 0)
    return v[0];
  else
    return reduce<kDistance / 2>(f(v, exchange<kDistance>(v)), f);
}
PUNA_INLINE float reduce_add(F32Part v) {
  return reduce<kPartLanes / 2>(v, [](F32Part a, F32Part b) { return a + b; });
}
PUNA_INLINE int32_t reduce_add(I32Part v) {
  return reduce<kPartLanes / 2>(v, [](I32Part a, I32Part b) { return a + b; });
}
PUNA_INLINE float reduce_max(F32Part v) {
  return reduce<kPartLanes / 2>(v, [](F32Part a, F32Part b) { return max(a, b); });
}
PUNA_INLINE int32_t reduce_max(I32Part v) {
  return reduce<kPartLanes / 2>(v, [](I32Part a, I32Part b) { return max(a, b); });
}

// Lane i of the result is the sum of the lanes of v[i], in the order of reduce_add. Halves v each time: pairs
// of vectors become one, which has the sums of neighbouring runs of kWidth lanes of both.
template <int kWidth = kPartLanes / 2>
PUNA_INLINE F32Part sum_lanes(const F32Part* v) {
  F32Part sums[kWidth];
  PUNA_UNROLL(8)
  for (int i = 0; i < kWidth; ++i) {
    sums[i] = [&]<int... lane>(std::integer_sequence<int, lane...>) __attribute__((always_inline)) {
      // In runs of 2 * kWidth lanes: the first half of a run of v[i], then that of v[i + kWidth].
      const I32Part first = {
          ((lane & ~(2 * kWidth - 1)) + (lane & (kWidth - 1)) + (lane & kWidth) / kWidth * kPartLanes)...};
      return __builtin_shuffle(v[i], v[i + kWidth], first) +
             __builtin_shuffle(v[i], v[i + kWidth], first + kWidth);
    }(std::make_integer_sequence<int, kPartLanes>());
  }
  if constexpr (kWidth > 1)
    return sum_lanes<kWidth / 2>(sums);
  else
    return sums[0];
}

template <typename T>
PUNA_INLINE T load_scalar(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Addresses, not pointers: they may lie behind the data, and a prefetch never faults.
PUNA_INLINE void prefetch_soon(uintptr_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 3);
}
PUNA_INLINE void prefetch_later(uintptr_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

// What is fetched into the caches beside weights that are loaded: as many bytes from an address on, a line
// between two loads. From a burst of prefetches, those are dropped that find the queue of misses full.
struct FetchAhead {
  uintptr_t address;

  FetchAhead operator+(int64_t bytes) const { return {address + (uintptr_t)bytes}; }
  // Returns p as something new, so that compilers leave the prefetch between the loads before and behind it,
  // and don't keep the addresses of 16 rows in registers.
  inline __attribute__((always_inline)) const uint8_t* fetch(int64_t offset, const uint8_t* p) {
    prefetch_later(address + (uintptr_t)offset);
    asm("" : "+r"(p), "+r"(address));
    return p;
  }
  // A dropped line gets a second chance some time before it is loaded.
  static inline __attribute__((always_inline)) void fetch_again(const uint8_t* p) {
    constexpr uintptr_t kSoonBytes = 256;
    prefetch_soon(reinterpret_cast<uintptr_t>(p) + kSoonBytes);
  }
};
// Nothing is: the weights are fetched at other times.
struct FetchNothing {
  FetchNothing() = default;
  explicit FetchNothing(uintptr_t) {}
  FetchNothing operator+(int64_t) const { return {}; }
  static const uint8_t* fetch(int64_t, const uint8_t* p) { return p; }
  static void fetch_again(const uint8_t*) {}
};

}  // namespace puna::PUNA_ISA
