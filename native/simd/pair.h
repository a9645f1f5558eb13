// 16 lanes out of registers that hold fewer: pairs of registers, or pairs of pairs. Every operation is that
// of the halves, so compilers see nothing but whole registers; given vectors wider than the machine's they
// would go through memory, lane by lane.
#pragma once

#include <type_traits>

#if defined(PUNA_AVX2)
#include "simd/avx2.h"
#elif defined(PUNA_NEON)
#include "simd/neon.h"
#else
#include "simd/portable.h"
#endif

namespace puna::PUNA_ISA {

template <typename Half>
struct Pair {
  typedef std::remove_cvref_t<decltype(std::declval<Half>()[0])> Scalar;
  static constexpr int kHalf = sizeof(Half) / 4;  // lanes

  Half low, high;

  Scalar operator[](int lane) const { return lane < kHalf ? low[lane] : high[lane - kHalf]; }
  template <typename Other>  // the same bits
  __attribute__((always_inline)) explicit operator Pair<Other>() const {
    return {(Other)low, (Other)high};
  }
};

template <typename Half>
using Scalar = typename Pair<Half>::Scalar;

#define PUNA_PAIR_OPERATOR(op)                                               \
  template <typename Half>                                                   \
  PUNA_INLINE auto operator op(const Pair<Half>& a, const Pair<Half>& b) {   \
    return Pair<decltype(a.low op b.low)>{a.low op b.low, a.high op b.high}; \
  }                                                                          \
  template <typename Half>                                                   \
  PUNA_INLINE auto operator op(const Pair<Half>& a, Scalar<Half> b) {        \
    return Pair<decltype(a.low op b)>{a.low op b, a.high op b};              \
  }                                                                          \
  template <typename Half>                                                   \
  PUNA_INLINE auto operator op(Scalar<Half> a, const Pair<Half>& b) {        \
    return Pair<decltype(a op b.low)>{a op b.low, a op b.high};              \
  }
#define PUNA_PAIR_OPERATORS(op)                                       \
  PUNA_PAIR_OPERATOR(op)                                              \
  template <typename Half, typename Other>                            \
  PUNA_INLINE Pair<Half>& operator op## = (Pair<Half> & a, Other b) { \
    return a = a op b;                                                \
  }
PUNA_PAIR_OPERATORS(+)
PUNA_PAIR_OPERATORS(-)
PUNA_PAIR_OPERATORS(*)
PUNA_PAIR_OPERATORS(/)
PUNA_PAIR_OPERATORS(&)
PUNA_PAIR_OPERATORS(|)
PUNA_PAIR_OPERATORS(^)
PUNA_PAIR_OPERATORS(<<)
PUNA_PAIR_OPERATORS(>>)
PUNA_PAIR_OPERATOR(>)
PUNA_PAIR_OPERATOR(<)
PUNA_PAIR_OPERATOR(>=)
PUNA_PAIR_OPERATOR(<=)
PUNA_PAIR_OPERATOR(==)
#undef PUNA_PAIR_OPERATORS
#undef PUNA_PAIR_OPERATOR

template <typename Half>
PUNA_INLINE Pair<Half> operator-(const Pair<Half>& a) {
  return {-a.low, -a.high};
}

template <typename T, typename Half>
PUNA_INLINE void fill(T x, Pair<Half>& v) {
  fill(x, v.low);
  fill(x, v.high);
}
template <typename T, typename Half>
PUNA_INLINE void load(const T* p, Pair<Half>& v) {
  load(p, v.low);
  load(p + Pair<Half>::kHalf, v.high);
}
template <typename T, typename Half>
PUNA_INLINE void store(T* p, const Pair<Half>& v) {
  store(p, v.low);
  store(p + Pair<Half>::kHalf, v.high);
}
template <typename Half>
PUNA_INLINE void load_f16(const uint16_t* p, Pair<Half>& v) {
  load_f16(p, v.low);
  load_f16(p + Pair<Half>::kHalf, v.high);
}
template <typename Half>
PUNA_INLINE void store_f16(uint16_t* p, const Pair<Half>& v) {
  store_f16(p, v.low);
  store_f16(p + Pair<Half>::kHalf, v.high);
}
template <typename Half>
PUNA_INLINE void load_bf16(const uint16_t* p, Pair<Half>& v) {
  load_bf16(p, v.low);
  load_bf16(p + Pair<Half>::kHalf, v.high);
}
template <typename Half>
PUNA_INLINE void load_u8(const uint8_t* p, Pair<Half>& v) {
  load_u8(p, v.low);
  load_u8(p + Pair<Half>::kHalf, v.high);
}
template <typename Half>
PUNA_INLINE void load_s8(const int8_t* p, Pair<Half>& v) {
  load_s8(p, v.low);
  load_s8(p + Pair<Half>::kHalf, v.high);
}
template <typename T, typename Half>
PUNA_INLINE void store_bytes(T* p, const Pair<Half>& v) {
  store_bytes(p, v.low);
  store_bytes(p + Pair<Half>::kHalf, v.high);
}
template <typename Half>
PUNA_INLINE void store_u16(uint16_t* p, const Pair<Half>& v) {
  store_u16(p, v.low);
  store_u16(p + Pair<Half>::kHalf, v.high);
}

template <typename Half>
PUNA_INLINE Pair<Half> fma(const Pair<Half>& a, const Pair<Half>& b, const Pair<Half>& c) {
  return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)};
}
template <typename Half>
PUNA_INLINE Pair<Half> max(const Pair<Half>& a, const Pair<Half>& b) {
  return {max(a.low, b.low), max(a.high, b.high)};
}
template <typename Half>
PUNA_INLINE Pair<Half> min(const Pair<Half>& a, const Pair<Half>& b) {
  return {min(a.low, b.low), min(a.high, b.high)};
}
template <typename Mask, typename Half>
PUNA_INLINE Pair<Half> select(const Pair<Mask>& mask, const Pair<Half>& a, const Pair<Half>& b) {
  return {select(mask.low, a.low, b.low), select(mask.high, a.high, b.high)};
}
template <typename Half>
PUNA_INLINE auto to_float(const Pair<Half>& v) {
  return Pair<decltype(to_float(v.low))>{to_float(v.low), to_float(v.high)};
}
template <typename Half>
PUNA_INLINE auto to_int(const Pair<Half>& v) {
  return Pair<decltype(to_int(v.low))>{to_int(v.low), to_int(v.high)};
}
template <typename Half>
PUNA_INLINE auto reduce_add(const Pair<Half>& v) {
  return reduce_add(v.low + v.high);
}
template <typename Half>
PUNA_INLINE auto reduce_max(const Pair<Half>& v) {
  return reduce_max(max(v.low, v.high));
}
template <typename Half>
PUNA_INLINE Pair<Half> sum_lanes(const Pair<Half>* v) {
  constexpr int kHalf = Pair<Half>::kHalf;
  Half sums[2 * kHalf];
  PUNA_UNROLL(16)
  for (int i = 0; i < 2 * kHalf; ++i) sums[i] = v[i].low + v[i].high;
  return {sum_lanes(sums), sum_lanes(sums + kHalf)};
}
template <int kDistance, typename Half>
PUNA_INLINE Pair<Half> exchange(const Pair<Half>& v) {
  return {exchange<kDistance>(v.low), exchange<kDistance>(v.high)};
}

template <typename Half>
struct Halves {
  Half low[4], high[4];
};
template <typename Half>
PUNA_INLINE Halves<Half> halves(const Pair<Half> (&v)[4]) {
  return {{v[0].low, v[1].low, v[2].low, v[3].low}, {v[0].high, v[1].high, v[2].high, v[3].high}};
}
template <typename Acc, typename U>
PUNA_INLINE Pair<Acc> dot4_u8s8(const Pair<Acc>& acc, const Pair<U>& u, const Pair<Acc>& s) {
  return {dot4_u8s8(acc.low, u.low, s.low), dot4_u8s8(acc.high, u.high, s.high)};
}
template <int kMax, typename Acc, typename U>
PUNA_INLINE Pair<Acc> dot16_u8s8(const Pair<Acc>& acc, const Pair<U> (&u)[4], const Pair<Acc> (&s)[4]) {
  const Halves<U> us = halves(u);
  const Halves<Acc> ss = halves(s);
  return {dot16_u8s8<kMax>(acc.low, us.low, ss.low), dot16_u8s8<kMax>(acc.high, us.high, ss.high)};
}

template <typename Half>
PUNA_INLINE auto f16_to_float(const Pair<Half>& v) {
  return Pair<decltype(f16_to_float(v.low))>{f16_to_float(v.low), f16_to_float(v.high)};
}
template <typename Half>
PUNA_INLINE Pair<Half> lookup16(const uint8_t table[16], const Pair<Half>& v) {
  return {lookup16(table, v.low), lookup16(table, v.high)};
}
template <typename Half>
PUNA_INLINE void load_u32_rows(const uint8_t* p, int64_t stride, Pair<Half>& v) {
  load_u32_rows(p, stride, v.low);
  load_u32_rows(p + Pair<Half>::kHalf * stride, stride, v.high);
}
template <typename Half>
PUNA_INLINE void load_u16_rows(const uint8_t* p, int64_t stride, Pair<Half>& v) {
  load_u16_rows(p, stride, v.low);
  load_u16_rows(p + Pair<Half>::kHalf * stride, stride, v.high);
}
template <typename Half>
PUNA_INLINE void load_f16_rows(const uint8_t* p, int64_t stride, Pair<Half>& v) {
  load_f16_rows(p, stride, v.low);
  load_f16_rows(p + Pair<Half>::kHalf * stride, stride, v.high);
}
template <typename Ahead, typename Half>
PUNA_INLINE void load_rows4(const uint8_t* p, int64_t stride, Ahead ahead, Pair<Half> columns[4]) {
  Halves<Half> words;
  load_rows4(p, stride, ahead, words.low);
  load_rows4(p + Pair<Half>::kHalf * stride, stride, ahead + 16 * Pair<Half>::kHalf, words.high);
  PUNA_UNROLL(4)
  for (int j = 0; j < 4; ++j) columns[j] = {words.low[j], words.high[j]};
}

}  // namespace puna::PUNA_ISA
