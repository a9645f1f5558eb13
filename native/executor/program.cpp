#include "executor/program.h"

#include <atomic>
#include <limits>
#include <new>

#include "base/error.h"
#include "executor/barrier.h"
#include "executor/step.h"

namespace puna {
namespace {

// How much of each stage the threads have taken; apart in memory, since all threads write to the current one.
struct alignas(64) Counter {
  std::atomic<int64_t> claimed{0};
};

std::vector<KvSlot> find_kv_slots(const Batch& batch) {
  std::vector<KvSlot> slots(batch.tokens.size());
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    for (int32_t t = batch.sequence_starts[s]; t < batch.sequence_starts[s + 1]; ++t) {
      const int32_t position = batch.positions[t];
      const int64_t block = batch.block_table(s)[position / kBlockTokens];
      slots[t] = {batch.arena + block * batch.block_bytes, position % kBlockTokens};
    }
  }
  return slots;
}

void run_stages(const Step& step, std::vector<Counter>& counters, Barrier& barrier, int thread) noexcept {
  for (size_t i = 0; i < step.plan.stages.size(); ++i) {
    const Stage& stage = step.plan.stages[i];
    if (const auto* tokens = std::get_if<TokenStage>(&stage)) {
      run_stage(step, *tokens, thread);
    } else if (const auto* linear = std::get_if<LinearStage>(&stage)) {
      run_stage(step, *linear, counters[i].claimed);
    } else {
      run_stage(step, std::get<AttentionStage>(stage), counters[i].claimed);
    }
    barrier.wait();
  }
}

}  // namespace

Program::Program(Plan plan) : plan_(std::move(plan)) {}

int64_t Program::buffer_bytes() {
  const std::lock_guard<std::mutex> lock(one_run_);
  return token_memory_.size + output_memory_.size;
}

void Program::reserve(Memory& memory, int64_t row_bytes, int64_t rows) {
  constexpr std::align_val_t kAlignment{64};
  if (row_bytes == 0 || rows <= memory.size / row_bytes) return;
  if (rows > std::numeric_limits<int64_t>::max() / row_bytes) throw Error("the step has too many tokens");
  const int64_t size = row_bytes * rows;
  memory = {};  // first, so that old and new need not both fit
  try {
    memory.bytes = {static_cast<uint8_t*>(::operator new(static_cast<size_t>(size), kAlignment)),
                    [](uint8_t* p) { ::operator delete(p, kAlignment); }};
  } catch (const std::bad_alloc&) {
    throw Error("no memory for the " + std::to_string(size) + " bytes of activations of the step");
  }
  memory.size = size;
}

Output Program::run(ThreadPool& pool, const Batch& batch) {
  check_batch(batch, plan_.vocab_size, plan_.block_bytes);
  const std::lock_guard<std::mutex> lock(one_run_);
  reserve(token_memory_, plan_.token_row_bytes, static_cast<int64_t>(batch.tokens.size()));
  reserve(output_memory_, plan_.output_row_bytes, static_cast<int64_t>(batch.rows.size()));
  const Step step{
      .plan = plan_,
      .batch = batch,
      .num_threads = pool.num_threads(),
      .token_memory = token_memory_.bytes.get(),
      .output_memory = output_memory_.bytes.get(),
      .kv_slots = plan_.layers.empty() ? std::vector<KvSlot>{} : find_kv_slots(batch),
  };
  std::vector<Counter> counters(plan_.stages.size());
  Barrier barrier(step.num_threads);
  pool.run([&](int thread) { run_stages(step, counters, barrier, thread); });
  const int64_t rows = step.num_rows(Domain::kRows);
  const int64_t width = plan_.buffers[static_cast<size_t>(plan_.result)].width;
  return {std::shared_ptr<float[]>(output_memory_.bytes, step.floats(plan_.result, 0)), rows, width};
}

}  // namespace puna
