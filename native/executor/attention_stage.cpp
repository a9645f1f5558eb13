// Attention, shared out over sequences, KV heads and tiles of query tokens.
#include <algorithm>

#include "executor/step.h"

namespace puna {
namespace {

// Finds the task of a growing index.
class Tasks {
 public:
  Tasks(const Step& step, const AttentionStage& stage)
      : step_(step), stage_(stage), tile_(std::max(1, kMaxAttentionRows / (stage.num_heads / stage.num_kv_heads))) {}

  bool find(int64_t index) {
    while (sequence_ < step_.batch.num_sequences() && index >= first_ + in_sequence()) {
      first_ += in_sequence();
      ++sequence_;
    }
    index_ = index - first_;
    return sequence_ < step_.batch.num_sequences();
  }

  void run() const {
    const Batch& batch = step_.batch;
    const int64_t start = batch.sequence_starts[static_cast<size_t>(sequence_)];
    const int64_t tile = index_ % tiles();
    const KvLayer& layer = step_.plan.layers[static_cast<size_t>(stage_.layer)];
    step_.plan.kernels->attention({
        .q = step_.floats(stage_.q, start),
        .out = step_.floats(stage_.out, start),
        .stride = int64_t{stage_.num_heads} * stage_.head_dim,
        .num_heads = stage_.num_heads,
        .num_kv_heads = stage_.num_kv_heads,
        .head_dim = stage_.head_dim,
        .kv_head = static_cast<int>(index_ / tiles()),
        .token_begin = tile * tile_,
        .token_end = std::min((tile + 1) * tile_, length()),
        .first_position = batch.positions[static_cast<size_t>(start)],
        .block_table = batch.block_table(sequence_),
        .arena = batch.arena,
        .block_bytes = batch.block_bytes,
        .kv_type = step_.plan.kv_type,
        .layout = &layer.layout,
        .k_offset = layer.k_offset,
        .v_offset = layer.v_offset,
        .scale = stage_.scale,
        .softcap = stage_.softcap,
        .window = stage_.window,
    });
  }

 private:
  int64_t length() const {
    const auto s = static_cast<size_t>(sequence_);
    return step_.batch.sequence_starts[s + 1] - step_.batch.sequence_starts[s];
  }
  int64_t tiles() const { return (length() + tile_ - 1) / tile_; }
  int64_t in_sequence() const { return tiles() * stage_.num_kv_heads; }

  const Step& step_;
  const AttentionStage& stage_;
  const int tile_;  // query tokens of a task
  int64_t sequence_ = 0;
  int64_t first_ = 0;  // index of the sequence's first task
  int64_t index_ = 0;  // of the task within the sequence: tile by tile, one KV head after the other
};

}  // namespace

void run_stage(const Step& step, const AttentionStage& stage, std::atomic<int64_t>& claimed) noexcept {
  Tasks tasks(step, stage);
  while (tasks.find(claimed.fetch_add(1, std::memory_order_relaxed))) tasks.run();
}

}  // namespace puna
