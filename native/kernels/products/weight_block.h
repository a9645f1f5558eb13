// 32 columns of a tile of 16 weight rows, unpacked to what the multiplication reads: lane r is row r.
// Every format is u * scale plus a correction, u being unsigned bytes:
#pragma once

#include "simd/columns.h"

namespace puna::PUNA_ISA {

enum class Correction {
  kZeroPoint,  // w = scale * (u - zero), zero being the same power of two everywhere
  kMin,        // w = scale * u - a
  kHalfMins,   // w = scale * u - (a for the first 16 columns, b for the others)
  kSubScales,  // w = scale * (a or b) * (u - zero), a and b being integers (but for NVFP4) for the columns'
               // halves
};

struct WeightBlock {
  u32x16 q[8];  // q[g] lane r: columns 4g..4g+3 of row r, one byte each
  f32x16 scale;
  f32x16 a;
  f32x16 b;
};

// Reads 16 rows in their file format, and fetches as many bytes of what follows unless that is done elsewhere
// (Ahead): rows lie too far apart for the hardware to see that a tile, and then the next one, is contiguous
// memory.
template <typename Ahead>
struct TileReader {
  const uint8_t* p;
  int64_t stride;  // bytes between rows
  Ahead ahead;

  inline __attribute__((always_inline)) void words4(int64_t offset, u32x16 words[4]) {
    load_columns4(p + offset, stride, ahead, words);
    ahead = ahead + 16 * kLanes;
  }
  inline __attribute__((always_inline)) void words8(int64_t offset, u32x16 words[8]) {
    load_columns8(p + offset, stride, ahead, words);
    ahead = ahead + 32 * kLanes;
  }
  inline __attribute__((always_inline)) u32x16 u32(int64_t offset) {
    p = ahead.fetch(0, p);
    ahead = ahead + 4 * kLanes;
    return load_u32_column(p + offset, stride);
  }
  inline __attribute__((always_inline)) u32x16 u16(int64_t offset) {
    p = ahead.fetch(0, p);
    ahead = ahead + 2 * kLanes;
    return load_u16_column(p + offset, stride);
  }
  inline __attribute__((always_inline)) f32x16 f16(int64_t offset) {
    p = ahead.fetch(0, p);
    ahead = ahead + 2 * kLanes;
    return load_f16_column(p + offset, stride);
  }
};

}  // namespace puna::PUNA_ISA
