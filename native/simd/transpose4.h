// Transposition for registers of 4 lanes, in shuffles that every processor has.
#pragma once

#include "simd/part.h"

namespace puna::PUNA_ISA {

template <typename Ahead>
PUNA_INLINE void load_rows4(const uint8_t* p, int64_t stride, Ahead ahead, U32Part columns[4]) {
  p = ahead.fetch(0, p);
  const U32Part row0 = load_scalar<U32Part>(p), row1 = load_scalar<U32Part>(p + stride);
  const U32Part row2 = load_scalar<U32Part>(p + 2 * stride), row3 = load_scalar<U32Part>(p + 3 * stride);
  const I32Part low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, last = {2, 3, 6, 7};
  const U32Part low01 = __builtin_shuffle(row0, row1, low), high01 = __builtin_shuffle(row0, row1, high);
  const U32Part low23 = __builtin_shuffle(row2, row3, low), high23 = __builtin_shuffle(row2, row3, high);
  columns[0] = __builtin_shuffle(low01, low23, first);
  columns[1] = __builtin_shuffle(low01, low23, last);
  columns[2] = __builtin_shuffle(high01, high23, first);
  columns[3] = __builtin_shuffle(high01, high23, last);
}

}  // namespace puna::PUNA_ISA
