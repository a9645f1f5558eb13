// The thin SIMD layer: 16 lanes of 32 bits, on every instruction set. The compiler maps the vector types to
// whatever registers there are; only what it cannot express (dot products of bytes, half floats, permutes)
// is written per instruction set, here and nowhere else. Included only by native/kernels/*.cpp, which are
// compiled once per instruction set with PUNA_ISA naming the namespace.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(PUNA_AVX512)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of gcc 12's own headers (gcc bug 105593)
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace puna::PUNA_ISA {

inline constexpr int kLanes = 16;

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));

#define PUNA_INLINE static inline __attribute__((always_inline))

// Before loops whose vectors should stay in registers. Where vectors are larger than registers there is
// nothing to gain, and compilers take minutes for the unrolled loops.
#define PUNA_PRAGMA(text) _Pragma(#text)
#if defined(PUNA_AVX512)
#define PUNA_UNROLL(n) PUNA_PRAGMA(GCC unroll n)
#else
#define PUNA_UNROLL(n) PUNA_PRAGMA(GCC unroll 1)
#endif

PUNA_INLINE f32x16 load(const float* p) {
  f32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PUNA_INLINE i32x16 load(const int32_t* p) {
  i32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// The first n <= 16 values, zeros behind them: for what a length leaves over.
#if defined(PUNA_AVX512)
PUNA_INLINE f32x16 load_partial(const float* p, int64_t n) {
  return (f32x16)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
PUNA_INLINE void store_partial(float* p, f32x16 v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
#else
PUNA_INLINE f32x16 load_partial(const float* p, int64_t n) {
  if (n == kLanes) return load(p);
  f32x16 v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];  // memcpy of an unknown length is far slower
  return v;
}
PUNA_INLINE void store_partial(float* p, f32x16 v, int64_t n) {
  if (n == kLanes) return (void)std::memcpy(p, &v, sizeof v);
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
#endif
PUNA_INLINE void store(float* p, f32x16 v) { std::memcpy(p, &v, sizeof v); }
PUNA_INLINE void store(int32_t* p, i32x16 v) { std::memcpy(p, &v, sizeof v); }

#if defined(PUNA_AVX512)
PUNA_INLINE f32x16 splat(float x) { return f32x16{} + x; }
PUNA_INLINE i32x16 splat(int32_t x) { return i32x16{} + x; }
#else
// In quarters: compilers write wider vectors to memory lane by lane, which stalls reading them back.
template <typename Vector, typename T>
PUNA_INLINE Vector splat_quarters(T x) {
  typedef T Quarter __attribute__((vector_size(16)));
  const Quarter quarters[4] = {{x, x, x, x}, {x, x, x, x}, {x, x, x, x}, {x, x, x, x}};
  Vector v;
  std::memcpy(&v, quarters, sizeof v);
  return v;
}
PUNA_INLINE f32x16 splat(float x) { return splat_quarters<f32x16>(x); }
PUNA_INLINE i32x16 splat(int32_t x) { return splat_quarters<i32x16>(x); }
#endif

PUNA_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
#if defined(PUNA_AVX512)
  return (f32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  return a * b + c;  // rounds twice: results differ between instruction sets, never within one
#endif
}
// b if they are equal or one of them is NaN. Compilers do not make one instruction of the comparison.
#if defined(PUNA_AVX512)
PUNA_INLINE f32x16 max(f32x16 a, f32x16 b) { return (f32x16)_mm512_max_ps((__m512)a, (__m512)b); }
PUNA_INLINE f32x16 min(f32x16 a, f32x16 b) { return (f32x16)_mm512_min_ps((__m512)a, (__m512)b); }
#else
PUNA_INLINE f32x16 max(f32x16 a, f32x16 b) { return a > b ? a : b; }
PUNA_INLINE f32x16 min(f32x16 a, f32x16 b) { return a < b ? a : b; }
#endif
PUNA_INLINE f32x16 to_float(i32x16 v) { return __builtin_convertvector(v, f32x16); }

// Horizontal sums and maxima in one fixed tree order, so that they are the same wherever they are used.
PUNA_INLINE float reduce_add(f32x16 v) {
  float x[16];
  store(x, v);
  for (int width = 8; width >= 1; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}
PUNA_INLINE float reduce_max(f32x16 v) {
  v = max(v, __builtin_shuffle(v, i32x16{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7}));
  v = max(v, __builtin_shuffle(v, i32x16{4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11}));
  v = max(v, __builtin_shuffle(v, i32x16{2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13}));
  v = max(v, __builtin_shuffle(v, i32x16{1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14}));
  return v[0];
}

// 16 bytes, each as an integer.
#if defined(PUNA_AVX512)
PUNA_INLINE i32x16 load_u8(const uint8_t* p) {
  return (i32x16)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
PUNA_INLINE i32x16 load_s8(const int8_t* p) {
  return (i32x16)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
template <typename Bytes>
PUNA_INLINE i32x16 load_bytes(const void* p) {
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(bytes, i32x16);
}
PUNA_INLINE i32x16 load_u8(const uint8_t* p) {
  typedef uint8_t u8x16 __attribute__((vector_size(16)));
  return load_bytes<u8x16>(p);
}
PUNA_INLINE i32x16 load_s8(const int8_t* p) {
  typedef int8_t s8x16 __attribute__((vector_size(16)));
  return load_bytes<s8x16>(p);
}
#endif

// Half floats (IEEE binary16), 16 at a time.
#if defined(PUNA_AVX512)
PUNA_INLINE f32x16 load_f16(const uint16_t* p) {
  return (f32x16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
PUNA_INLINE void store_f16(uint16_t* p, f32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
PUNA_INLINE float half_to_float(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
  // Multiplying by 2^112 moves the exponent bias from 15 to 127 and makes subnormals normal.
  float magnitude;
  std::memcpy(&magnitude, &rest, 4);
  magnitude *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &magnitude, 4);
  if ((h & 0x7c00u) == 0x7c00u) bits = 0x7f800000u | ((uint32_t)(h & 0x3ffu) << 13);
  bits |= sign;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
PUNA_INLINE uint16_t float_to_half(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {                                    // subnormal half: let the adder round
    float m;
    std::memcpy(&m, &magnitude, 4);
    m += 0.5f;
    uint32_t r;
    std::memcpy(&r, &m, 4);
    return (uint16_t)(sign | (r - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}
PUNA_INLINE f32x16 load_f16(const uint16_t* p) {  // half_to_float of all lanes
  typedef uint16_t u16x16 __attribute__((vector_size(32)));
  u16x16 halves;
  std::memcpy(&halves, p, sizeof halves);
  const u32x16 h = __builtin_convertvector(halves, u32x16);
  const u32x16 rest = (h & 0x7fffu) << 13;
  const u32x16 finite = (u32x16)((f32x16)rest * 0x1p112f);
  const u32x16 bits = rest >= 0x0f800000u ? rest | 0x7f800000u : finite;
  return (f32x16)(bits | (h & 0x8000u) << 16);
}
PUNA_INLINE void store_f16(uint16_t* p, f32x16 v) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(v[i]);
}
#endif

// acc[lane] += sum of 4 products of the lane's unsigned bytes of u and signed bytes of s; exact in int32.
PUNA_INLINE i32x16 dot4_u8s8(i32x16 acc, i32x16 u, i32x16 s) {
#if defined(PUNA_AVX512)
  return (i32x16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)u, (__m512i)s);
#else
  // Products of bytes fit 16 bits: 255 * -128 is above -2^15.
  typedef int16_t i16x32 __attribute__((vector_size(64)));
  const i16x32 even = (i16x32)(u & 0x00ff00ff) * ((i16x32)s << 8 >> 8);
  const i16x32 odd = (i16x32)((u >> 8) & 0x00ff00ff) * ((i16x32)s >> 8);
  acc += ((i32x16)even >> 16) + ((i32x16)odd >> 16);
  return acc + ((i32x16)even << 16 >> 16) + ((i32x16)odd << 16 >> 16);
#endif
}

// e^x, relative error below 2e-7: 2^n times a degree-6 polynomial on [-ln2/2, ln2/2] (Cephes expf).
// Below -87 the result is 0, which is what a masked score needs.
PUNA_INLINE f32x16 exp(f32x16 x) {
  const f32x16 clamped = min(max(x, splat(-87.33654f)), splat(88.02f));
  const f32x16 shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const f32x16 n = fma(clamped, splat(1.44269504088896341f), shifter) - shifter;
  f32x16 r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  f32x16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  const i32x16 exponent = (__builtin_convertvector(n, i32x16) + 127) << 23;
  const f32x16 y = p * (f32x16)exponent;
  return x < splat(-87.33654f) ? f32x16{} : y;
}

// 2^x for x <= 0, relative error below 3e-7, exactly 1 for 0 and 0 below -126.5: 2^n times a minimax
// polynomial of degree 5 on [-1/2, 1/2].
PUNA_INLINE f32x16 exp2(f32x16 x) {
  const f32x16 clamped = max(x, splat(-127.0f));
  // Rounds to an integer and adds the bias of the exponent: n + 127 is in the low bits.
  const f32x16 shifter = splat(12582912.0f + 127.0f);
  const f32x16 shifted = clamped + shifter;
  const f32x16 r = clamped - (shifted - shifter);
  f32x16 p = splat(1.3264726390e-3f);
  p = fma(p, r, splat(9.6715126972e-3f));
  p = fma(p, r, splat(5.5507337459e-2f));
  p = fma(p, r, splat(2.4022242084e-1f));
  p = fma(p, r, splat(6.9314697760e-1f));
  p = fma(p, r, splat(1.0f));
  return p * (f32x16)((i32x16)shifted << 23);
}

// Absolute value below 0.625: a polynomial, since 1 - 2 / (e^2x + 1) cancels there (Cephes tanhf).
PUNA_INLINE f32x16 tanh(f32x16 x) {
  const f32x16 magnitude = max(x, -x);
  const f32x16 far = 1.0f - 2.0f / (exp(magnitude * 2.0f) + 1.0f);
  const f32x16 z = x * x;
  f32x16 p = splat(-5.70498872745e-3f);
  p = fma(p, z, splat(2.06390887954e-2f));
  p = fma(p, z, splat(-5.37397155531e-2f));
  p = fma(p, z, splat(1.33314422036e-1f));
  p = fma(p, z, splat(-3.33332819422e-1f));
  const f32x16 near = fma(p * z, x, x);
  return magnitude < splat(0.625f) ? near : (x < f32x16{} ? -far : far);
}

}  // namespace puna::PUNA_ISA
