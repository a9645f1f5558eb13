// One step under way, as one of its threads sees it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "executor/adapters/adapted_rows.h"
#include "executor/program/program.h"
#include "executor/recurrence.h"
#include "executor/step_control.h"
#include "executor/threads/thread_activity.h"
#include "executor/threads/work_shares.h"

namespace puna {

struct Step {
  const Plan& plan;
  const Batch& batch;
  int thread, num_threads;
  std::array<uint8_t*, kNumDomains> memory;
  uint8_t* replicas;                 // this thread's own row of each domain
  std::span<const KvSlot> kv_slots;  // [groups][T]
  std::span<const std::vector<QueryRun>, kNumQueryRuns> query_runs;
  std::span<const SequenceState> states;  // of sequences with tokens, if the model has recurrent layers
  uint8_t* kept_inputs;                   // of drafts
  std::span<const AdaptedRows> adapted;
  float* adapter_sums;  // A x of a linear stage, by segments of columns
  float* adapter_low;   // this thread's own: scale * A x
  // For contexts that several threads share: sums over their segments, and how many pieces of a tile are
  // done.
  float* attention_partials;
  std::atomic<int32_t>* attention_arrivals;
  float* encoder_scratch;  // this thread's own
  uint8_t* tile_scratch;   // this thread's own
  float* expert_results;   // this thread's own
  bool reads_experts_ahead;
  ThreadActivity& activity;    // told of each task, in stages whose shares take long
  const StepControl* control;  // null: nobody stops or suspends the step
  std::atomic<bool>& has_rest;

  // For stages that take long: nothing more of it need be computed.
  bool is_stopped() const { return control != nullptr && control->is_stopped(); }
  // For those of an encoder that go on with work that nobody took: nothing more of it is to be computed now.
  // Asked behind each piece of work, so that a step that is always due gets on.
  bool must_leave() const {
    if (is_stopped()) return true;
    if (!plan.is_encoder || control == nullptr || !control->is_due()) return false;
    has_rest.store(true, std::memory_order_relaxed);
    return true;
  }

  int64_t num_rows(Domain domain) const { return puna::num_rows(batch, domain); }
  uint8_t* bytes(int buffer, int64_t row) const {
    const Buffer& b = plan.buffers[static_cast<size_t>(buffer)];
    const auto domain = static_cast<size_t>(*b.domain);
    const int64_t rows = num_rows(*b.domain);
    if (!b.replicated || rows != 1) return memory[domain] + b.offset * rows + b.row_bytes * row;
    const auto others = plan.row_bytes.begin();
    return std::accumulate(others, others + static_cast<int64_t>(domain), replicas) + b.offset;
  }
  const KvSlot& kv_slot(const KvLayer& layer, int64_t token) const {
    return kv_slots[static_cast<size_t>(layer.group) * batch.tokens.size() + static_cast<size_t>(token)];
  }
  float* floats(int buffer, int64_t row) const { return reinterpret_cast<float*>(bytes(buffer, row)); }
};

// The part of one row that one thread does: pieces [begin, end) of the stage's `pieces`.
struct RowRun {
  const Step& step;
  const Kernels& kernels;
  int64_t row, begin, end, pieces;

  float* at(int buffer) const { return step.floats(buffer, row); }
  // The first of this run's items, and how many they are, of `total` in the row.
  int64_t first(int64_t total) const { return total / pieces * begin; }
  int64_t count(int64_t total) const { return total / pieces * (end - begin); }
};

// Whether every thread runs all of the stage for itself: then no thread waits for another behind it.
inline bool is_replicated(const Step& step, const TokenStage& stage) {
  return stage.replicated && step.num_rows(stage.domain) <= 1;
}

// One thread's share of a stage. Nothing in here throws: the others would wait for ever. `claimed` counts the
// work items that threads took, from 0, for stages that are shared out as they go.
void run_stage(const Step& step, const TokenStage& stage) noexcept;
void run_stage(const Step& step, const LinearStage& stage, WorkShares& shares) noexcept;
void run_stage(const Step& step, const AdapterStage& stage, WorkShares& shares) noexcept;
void run_stage(const Step& step, const AttentionStage& stage, std::atomic<int64_t>& claimed) noexcept;
void run_stage(const Step& step, const EncoderAttentionStage& stage, std::atomic<int64_t>& claimed) noexcept;
void run_stage(const Step& step, const ExpertStage& stage, WorkShares& shares) noexcept;
void run_stage(const Step& step, const RecurrenceStage& stage, WorkShares& shares) noexcept;

// What this thread reads first of the linear stage with that index; nullptr if there is no such stage.
const uint8_t* first_weights(const Step& step, size_t linear_stage);

}  // namespace puna
