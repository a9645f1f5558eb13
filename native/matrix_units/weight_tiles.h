// Weights as the matrix unit reads them: 16 rows by 32 columns are a tile of 16 pairs of columns by 16 rows.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace puna {

inline constexpr int64_t kTile = 16;      // rows of a tile, and columns of floats
inline constexpr int64_t kTileCols = 32;  // columns of bfloat16
inline constexpr int64_t kTileBytes = 1024;

constexpr int64_t steps_of(int64_t cols) { return (cols + kTileCols - 1) / kTileCols; }

// Rows [row, row + 16): [steps][parts] tiles. Behind the last row come any numbers. out: aligned to 64 bytes.
void unpack_rows(const Weight& weight, int64_t row, int parts, uint8_t* out);

}  // namespace puna
