// The rows of a step that have adapters, and what is computed beside the model's matrices for them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "executor/adapters/adapter.h"
#include "executor/program/program.h"

namespace puna {

// Those of one adapter.
struct AdaptedRows {
  const Adapter* adapter;
  std::array<std::vector<int32_t>, kNumDomains> rows;  // of each domain
};

// Adapter by adapter; none if no sequence has one.
std::vector<AdaptedRows> adapted_rows(const Batch& batch);

// What a linear stage needs memory for: the segments' sums of A x, and for each thread scale * A x.
struct AdapterFloats {
  int64_t sums, low;
};
// At most.
AdapterFloats most_adapter_floats(const Plan& plan, std::span<const AdaptedRows> adapted);

// Has this thread know scale * A x of the stage, behind its AdapterStage.
void begin_adapters(const Step& step, const LinearStage& stage);
// Adds B (scale * A x) to rows [row_begin, row_end) of what the stage's part gives.
void add_adapters(const Step& step, const LinearStage& stage, const LinearPart& part, int64_t row_begin,
                  int64_t row_end);
// Has the processor fetch what that will read.
void fetch_adapters(const Step& step, const LinearStage& stage, const LinearPart& part, int64_t row_begin,
                    int64_t row_end);

// Adds to the token's embedding what its adapter says.
void add_to_embedding(const Step& step, int64_t token, int site, float* out);

}  // namespace puna
