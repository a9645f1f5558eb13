#include <algorithm>
#include <cmath>

#include "executor/attention/encoder_tasks.h"
#include "executor/step.h"
#include "kernels/attention/encoder_tiles.h"

namespace puna {
namespace {

int64_t bias_floats(int64_t num_tokens) { return 2 * padded_tokens(num_tokens); }

// What scores gain by distance, of a head; the result points at distance 0.
const float* bias_of(const EncoderAttentionStage& stage, int64_t head, int64_t num_tokens, float* scratch) {
  if (stage.by_distance == nullptr && stage.slopes == nullptr) return nullptr;
  float* zero = scratch + padded_tokens(num_tokens);
  const int64_t first = 1 - num_tokens, end = padded_tokens(num_tokens);
  if (stage.slopes != nullptr) {
    for (int64_t d = first; d < end; ++d) zero[d] = -stage.slopes[head] * static_cast<float>(std::abs(d));
    return zero;
  }
  const float* near = stage.by_distance + head * (2 * kMostDistance + 1) + kMostDistance;
  for (int64_t d = first; d < end; ++d) zero[d] = near[std::clamp(d, -kMostDistance, kMostDistance)];
  return zero;
}

// Texts one after the other, and of each the runs of queries of one head after the other.
class Tasks {
 public:
  Tasks(const Batch& batch, int64_t num_heads) : batch_(batch), num_heads_(num_heads) {}

  // Goes on to the text of a task, which none behind it was asked for before; false: there is no such task.
  bool find(int64_t task) {
    while (task >= end_) {
      if (++sequence_ >= batch_.num_sequences()) return false;
      first_ = end_;
      end_ += num_heads_ * runs();
    }
    return true;
  }
  int64_t start() const { return batch_.sequence_starts[static_cast<size_t>(sequence_)]; }
  int64_t length() const { return batch_.sequence_starts[static_cast<size_t>(sequence_) + 1] - start(); }
  int64_t head(int64_t task) const { return (task - first_) / runs(); }
  int64_t query(int64_t task) const { return (task - first_) % runs() * kEncoderTaskQueries; }

 private:
  int64_t runs() const { return (length() + kEncoderTaskQueries - 1) / kEncoderTaskQueries; }

  const Batch& batch_;
  const int64_t num_heads_;
  int64_t sequence_ = -1, first_ = 0, end_ = 0;
};

}  // namespace

int64_t encoder_scratch(const Plan& plan, int64_t num_tokens) {
  int64_t most = 0;
  for (const Stage& stage : plan.stages)
    if (const auto* attention = std::get_if<EncoderAttentionStage>(&stage))
      most =
          std::max(most, bias_floats(num_tokens) + encoder_scratch_floats(num_tokens, attention->head_dim));
  return most;
}

void run_stage(const Step& step, const EncoderAttentionStage& stage, std::atomic<int64_t>& claimed) noexcept {
  Tasks tasks(step.batch, stage.num_heads);
  for (int64_t task; tasks.find(task = claimed.fetch_add(1, std::memory_order_relaxed));) {
    const int64_t start = tasks.start(), length = tasks.length(), head = tasks.head(task);
    const int64_t query = tasks.query(task), of_head = head * stage.head_dim;
    const int64_t of_kv_head = head / (stage.num_heads / stage.num_kv_heads) * stage.head_dim;
    step.plan.kernels->encoder_attention({
        .q = step.floats(stage.q, start) + of_head,
        .k = step.floats(stage.k, start) + of_kv_head,
        .v = step.floats(stage.v, start) + of_kv_head,
        .out = step.floats(stage.out, start) + of_head,
        .q_stride = int64_t{stage.num_heads} * stage.head_dim,
        .kv_stride = int64_t{stage.num_kv_heads} * stage.head_dim,
        .num_tokens = length,
        .head_dim = stage.head_dim,
        .query_begin = query,
        .query_end = std::min(query + kEncoderTaskQueries, length),
        .scale = stage.scale,
        .window = stage.window,
        .bias = bias_of(stage, head, length, step.encoder_scratch),
        .scratch = step.encoder_scratch + bias_floats(length),
    });
    step.activity.finish_task(step.thread);
    if (step.must_leave()) return;
  }
}

}  // namespace puna
