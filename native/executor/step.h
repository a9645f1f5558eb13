// One step under way: what the threads of the pool share while they run a plan's stages.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "executor/program.h"

namespace puna {

// Where a token's keys and values go.
struct KvSlot {
  uint8_t* block;
  int slot;
};

struct Step {
  const Plan& plan;
  const Batch& batch;
  int num_threads;
  uint8_t* token_memory;
  uint8_t* output_memory;
  std::vector<KvSlot> kv_slots;  // [T]; empty without attention

  int64_t num_rows(Domain domain) const {
    return static_cast<int64_t>(domain == Domain::kTokens ? batch.tokens.size() : batch.rows.size());
  }
  uint8_t* bytes(int buffer, int64_t row) const {
    const Buffer& b = plan.buffers[static_cast<size_t>(buffer)];
    uint8_t* memory = *b.domain == Domain::kTokens ? token_memory : output_memory;
    return memory + b.offset * num_rows(*b.domain) + b.row_bytes * row;
  }
  float* floats(int buffer, int64_t row) const { return reinterpret_cast<float*>(bytes(buffer, row)); }
};

// One thread's share of a stage. Nothing in here throws: the others would wait for ever. `claimed` counts the
// work items that threads took, from 0, for stages that are shared out as they go.
void run_stage(const Step& step, const TokenStage& stage, int thread) noexcept;
void run_stage(const Step& step, const LinearStage& stage, std::atomic<int64_t>& claimed) noexcept;
void run_stage(const Step& step, const AttentionStage& stage, std::atomic<int64_t>& claimed) noexcept;

}  // namespace puna
