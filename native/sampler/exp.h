// e^x in plain float32 operations: unlike the C library's, it is the same on every machine, so a seed gives
// the same tokens everywhere.
#pragma once

#include <cstdint>

namespace puna {

typedef float Floats __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));

// For x <= 0: relative error below 2e-7, and e^-87 for all that is below: nothing beside the 1 of the
// largest. 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes).
inline Floats exp_nonpositive(Floats x) {
  const Floats lowest = Floats{} - 87.0f;
  const Floats bounded = x > lowest ? x : lowest;
  const Floats shifted = bounded * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Floats n = shifted - 12582912.0f;
  const Floats r = bounded - n * 0.693359375f - n * -2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // The integer stands in the low bits of `shifted`; up by 23 it is an exponent.
  const Words power = ((Words)shifted << 23) + (127u << 23);
  return x > lowest ? p * (Floats)power : Floats{};
}

inline float exp_nonpositive(float x) { return exp_nonpositive(Floats{} + x)[0]; }

}  // namespace puna
