// Matrix products on a processor's matrix unit (AMX), for encoders: whole texts are enough tokens to feed it.
//
// It multiplies pairs of bfloat16 and adds up floats. A float is the sum of two bfloat16, its upper part and
// what that lacks, to 16 bits. Weights of 16 bits and more and their activations are taken as such sums, of
// whose products all but the smallest are added: what is lost is a 2^-16th. Weights that were rounded to
// fewer bits, and their activations, are taken as their upper parts.
//
// What a token's row is does not depend on other rows.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace puna {

inline constexpr int64_t kTileScratchBytes = int64_t{1} << 20;

struct TileKernels {
  // Bytes of a row of x as linear() reads it. num_parts: 1, or 2 where what the upper part lacks is there,
  // too.
  int64_t (*row_bytes)(int64_t cols, int num_parts);
  void (*split_row)(const float* x, int64_t cols, int num_parts, void* out);
  // As Kernels::linear. scratch: kTileScratchBytes, aligned to 64 bytes.
  void (*linear)(const LinearArgs& args, uint8_t* scratch);
};

// nullptr: this machine has no such unit, or does not let this process use it. The first call asks the
// system, which a cage does not allow.
const TileKernels* tile_kernels();

// Of the rows of x for weights of that type; 0: linear() does not know the type, or rows are too long for it.
int tile_parts(TensorType type, int64_t cols);

}  // namespace puna
