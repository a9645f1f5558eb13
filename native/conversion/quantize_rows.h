// Weights of one type to another, by all threads of a pool. What comes out depends on the weights alone: a
// block is made of its own values, whoever makes it.
#pragma once

#include <cstdint>
#include <span>

#include "executor/threads/thread_pool.h"
#include "kernels/kernels.h"
#include "quants/types.h"

namespace puna {

struct RowsToQuantize {
  TensorType source;  // F32, F16 or BF16
  std::span<const uint8_t> data;
  int64_t cols;
  TensorType type;
};

// The bytes that the rows will have. Error if they are no whole rows of that source, if there is no quantizer
// of the type, or if its blocks do not fill the rows.
size_t quantized_bytes(const RowsToQuantize& rows);

// out: of quantized_bytes(rows).
void quantize_rows(ThreadPool& pool, const Kernels& kernels, const RowsToQuantize& rows, uint8_t* out);

// Into a file from `offset` on: each thread writes what it has made, while the others go on. Memory: a
// megabyte or two per thread. std::system_error if they cannot be written; Error if a weight is infinite or
// not a number, and the type has scales, which would lose the rest of its block too.
void write_quantized_rows(ThreadPool& pool, const Kernels& kernels, const RowsToQuantize& rows,
                          int descriptor, int64_t offset);

}  // namespace puna
