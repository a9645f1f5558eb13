// Peak throughput of the machine, measured now: other processes lower both figures.
#pragma once

#include <cstdint>

#include "executor/threads/thread_pool.h"
#include "kernels/kernels.h"

namespace puna {

// Operations per second of byte dot products (a multiplication and an addition count as two), all threads of
// the pool together, with operands in registers. Takes about `seconds`.
double measure_dot_peak(ThreadPool& pool, const Kernels& kernels, double seconds);

// Bytes per second at which all threads together read num_bytes of memory, each its own part. Best pass of
// those that fit in `seconds`, at least one. Throws Error if there is no memory.
double measure_read_bandwidth(ThreadPool& pool, const Kernels& kernels, int64_t num_bytes, double seconds);

}  // namespace puna
