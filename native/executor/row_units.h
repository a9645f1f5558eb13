// A matrix product is shared out over units of the weight's rows: linear kernels take two tiles at a time.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace puna {

inline constexpr int64_t kUnitRows = 2 * kRowTile;

constexpr int64_t num_units(int64_t rows) { return (rows + kUnitRows - 1) / kUnitRows; }

}  // namespace puna
