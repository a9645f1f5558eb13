// Weights as the matrix unit reads them: 16 rows by 32 columns are a tile of 16 pairs of columns by 16 rows.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace puna {

inline constexpr int64_t kTile = 16;      // rows of a tile, and columns of floats
inline constexpr int64_t kTileCols = 32;  // columns of bfloat16
inline constexpr int64_t kTileBytes = 1024;

constexpr int64_t steps_of(int64_t cols) { return (cols + kTileCols - 1) / kTileCols; }

// 16 rows of a weight. Behind the last row come any numbers.
class TileRows {
 public:
  // ahead: where as many bytes are fetched from memory meanwhile; nullptr: nowhere.
  TileRows(const Weight& weight, int64_t row, const uint8_t* ahead);

  // 32 columns: one tile of Q8_0, of floats two, upper parts and what they lack. out: aligned to 64 bytes.
  void unpack(int64_t step, uint8_t* out);

 private:
  TensorType type_;
  int64_t cols_;
  const uint8_t* ahead_;
  int64_t ahead_bytes_;  // in a step
  const uint8_t* rows_[kTile];
  alignas(64) int32_t offsets_[kTile];  // behind the first row
};

}  // namespace puna
