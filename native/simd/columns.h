// Columns of 16 weight rows: lane r of a vector holds bytes of row r. Loading transposes, so that everything
// behind it is plain arithmetic on whole vectors, whatever the format of the weights.
#pragma once

#include "simd/simd.h"

namespace puna::PUNA_ISA {

// A 32 or 16 bit integer of each of 16 rows that lie `stride` bytes apart.
PUNA_INLINE u32x16 load_u32_column(const uint8_t* p, int64_t stride) {
  u32x16 v;
  load_u32_rows(p, stride, v);
  return v;
}
PUNA_INLINE u32x16 load_u16_column(const uint8_t* p, int64_t stride) {
  u32x16 v;
  load_u16_rows(p, stride, v);
  return v;
}
PUNA_INLINE f32x16 load_f16_column(const uint8_t* p, int64_t stride) {
  f32x16 v;
  load_f16_rows(p, stride, v);
  return v;
}

// columns[j] = 32-bit word j of the 16, or 32, bytes that each of 16 rows has at p. Ahead: FetchAhead, of as
// many bytes, or FetchNothing.
template <typename Ahead>
PUNA_INLINE void load_columns4(const uint8_t* p, int64_t stride, Ahead ahead, u32x16 columns[4]) {
  load_rows4(p, stride, ahead, columns);
}
template <typename Ahead>
PUNA_INLINE void load_columns8(const uint8_t* p, int64_t stride, Ahead ahead, u32x16 columns[8]) {
#if defined(PUNA_AVX512)
  load_rows8(p, stride, ahead, columns);
#else
  PUNA_UNROLL(16)
  for (int r = 0; r < kLanes; ++r) Ahead::fetch_again(p + r * stride);
  load_rows4(p, stride, ahead, columns);
  load_rows4(p + 16, stride, ahead + 256, columns + 4);
#endif
}

// Also per register, in the headers of the instruction sets:
//   f16_to_float(v)       the half float in the low 16 bits of each lane
//   lookup16(table, v)    every byte of v, 0..15, replaced by that entry of a table of 16 bytes

}  // namespace puna::PUNA_ISA
