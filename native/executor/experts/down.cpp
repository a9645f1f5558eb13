// The products with `down`, and their sums. A thread takes some columns of the output for all visits of the
// step, so that what its rows of `down` give is summed up while it is in cache.
#include <algorithm>
#include <array>

#include "executor/experts/expert_step.h"
#include "executor/experts/routing.h"

namespace puna {

const float* ExpertStep::sum_weights(int64_t row) const {
  static constexpr auto kOnes = [] {
    std::array<float, kMaxExperts> ones{};
    ones.fill(1.0f);
    return ones;
  }();
  return layer.weighs_input ? kOnes.data() : weights(row);
}

int64_t down_rows(int64_t num_visits) {
  constexpr int64_t kCachedFloats = int64_t{1} << 17, kMostUnits = 4;
  return std::clamp(kCachedFloats / (num_visits * kUnitRows), int64_t{1}, kMostUnits) * kUnitRows;
}

void ExpertStep::run_down(WorkShares& shares, const uint8_t* next) const {
  const std::span<const ExpertRun> all = runs();
  const int64_t count = num_units(layer.width()), largest = down_rows(num_visits()) / kUnitRows;
  const int64_t share_end = WorkShares::begin(step.thread + 1, count, step.num_threads);
  float* const results = step.expert_results;
  for (Range taken; !(taken = shares.take(step.thread, count, largest)).empty();) {
    const int64_t row = taken.begin * kUnitRows, end = std::min(taken.end * kUnitRows, layer.width());
    for (const ExpertRun& run : all) {
      const Weight weight = layer.down.rows_of(run.expert, row, end - row);
      const uint8_t* after = next;
      if (&run != &all.back())
        after = layer.down.rows_of((&run)[1].expert, row, 1).data;
      else if (taken.end < share_end)
        after = layer.down.rows_of(all.front().expert, end, 1).data;
      kernels().linear({
          .weight = &weight,
          .x = hidden(run.begin),
          .x_stride = layer.hidden_bytes,
          .x_rows = nullptr,
          .num_tokens = run.num_visits(),
          .row_begin = 0,
          .row_end = end - row,
          .out = results + run.begin * (end - row),
          .out_stride = end - row,
          .bias = layer.down.bias_of(run.expert, row),
          .residual = nullptr,
          .next = after,
      });
    }
    for (int64_t t = 0; t < num_rows; ++t)
      kernels().weighted_sum(results, end - row, visit_of_choice(t), sum_weights(t), layer.num_used,
                             end - row, step.floats(layer.out, t) + row);
    step.activity.finish_task(step.thread);
  }
}

}  // namespace puna
