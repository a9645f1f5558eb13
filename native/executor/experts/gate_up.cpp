// Gate, up and the activation between them, a few rows at a time: what a visit gives leaves as `down` reads
// it, and is never in memory otherwise.
#include <algorithm>

#include "executor/experts/expert_paging.h"
#include "executor/experts/expert_step.h"

namespace puna {
namespace {

constexpr int64_t kMaxVisits = 256;  // of a pass: what they give stays in the second-level cache

using Results = float[kMaxVisits][kUnitRows];

// Some rows of gate and up of one expert, for all of its visits.
struct Unit {
  const ExpertStep& experts;
  ExpertRun run;
  int64_t row, num_rows;

  void multiply(const ExpertWeights& part, int x, int64_t first, int64_t visits, const uint8_t* next,
                Results& out) const {
    const Weight weight = part.rows_of(run.expert, row, num_rows);
    experts.kernels().linear({
        .weight = &weight,
        .x = experts.step.bytes(x, 0),
        .x_stride = experts.step.plan.buffers[static_cast<size_t>(x)].row_bytes,
        .x_rows = experts.row_of_visit() + first,
        .num_tokens = visits,
        .row_begin = 0,
        .row_end = num_rows,
        .out = out[0],
        .out_stride = kUnitRows,
        .bias = part.bias_of(run.expert, row),
        .residual = nullptr,
        .next = next,
    });
  }

  // Into columns [row, row + num_rows) of what is hidden.
  void activate(float* gate, float* up, int64_t visit) const {
    const ExpertLayer& layer = experts.layer;
    const Kernels& kernels = experts.kernels();
    if (layer.weighs_input) {
      const float weight = experts.weight_of_visit(visit);
      for (float* results : {gate, up}) kernels.scale(results, weight, num_rows, results);
    }
    uint8_t* hidden = experts.hidden(visit);
    const bool is_quantized = needs_quantized_input(layer.down.stack.first.type);
    float* out = is_quantized ? gate : reinterpret_cast<float*>(hidden) + row;
    if (layer.is_gated)
      kernels.glu(layer.gating, gate, up, num_rows, out);
    else
      kernels.activate(layer.gating.activation, gate, num_rows, out);
    if (is_quantized) kernels.quantize_row(gate, num_rows, hidden + kernels.quantized_row_bytes(row));
  }

  // next: the weights that are read afterwards.
  void compute(int64_t num_visits, const uint8_t* next) const {
    const ExpertLayer& layer = experts.layer;
    alignas(64) Results gate, up;
    for (int64_t done = 0; done < num_visits; done += kMaxVisits) {
      const int64_t first = run.begin + done, visits = std::min(num_visits - done, kMaxVisits);
      const uint8_t* behind = layer.is_gated ? layer.up.rows_of(run.expert, row, 1).data : next;
      multiply(layer.gate, layer.gate_x, first, visits, behind, gate);
      if (layer.is_gated) multiply(layer.up, layer.up_x, first, visits, next, up);
      for (int64_t i = 0; i < visits; ++i) activate(gate[i], up[i], first + i);
    }
  }
};

}  // namespace

float ExpertStep::weight_of_visit(int64_t visit) const {
  const int64_t row = row_of_visit()[visit];
  const int32_t* visits = visit_of_choice(row);
  return weights(row)[std::find(visits, visits + layer.num_used, visit) - visits];
}

// Units go expert by expert: the activations of one's visits stay in the cache.
void ExpertStep::run_gate_up(WorkShares& shares) const {
  constexpr int64_t kTakenBytes = int64_t{1} << 17;  // long runs, as in linear stages
  const std::span<const ExpertRun> all = runs();
  const int64_t units = num_units(layer.num_hidden()), count = static_cast<int64_t>(all.size()) * units;
  const auto unit_bytes = 2 * kUnitRows * static_cast<int64_t>(layer.gate.stack.first.row_bytes);
  const int64_t largest = std::max(kTakenBytes / unit_bytes, int64_t{1});
  const int64_t share_end = WorkShares::begin(step.thread + 1, count, step.num_threads);
  const uint8_t* down =
      layer.down.stack.at(all.front().expert)
          .row(WorkShares::begin(step.thread, num_units(layer.width()), step.num_threads) * kUnitRows);
  for (Range taken; !(taken = shares.take(step.thread, count, largest)).empty();) {
    for (int64_t unit = taken.begin; unit < taken.end; ++unit) {
      const ExpertRun& run = all[static_cast<size_t>(unit / units)];
      const int64_t row = unit % units * kUnitRows, after = unit + 1;
      if (row == 0) read_experts_ahead(*this, unit / units);
      const uint8_t* next = down;
      if (after < share_end)
        next =
            layer.gate.rows_of(all[static_cast<size_t>(after / units)].expert, after % units * kUnitRows, 1)
                .data;
      Unit{*this, run, row, std::min(kUnitRows, layer.num_hidden() - row)}.compute(run.num_visits(), next);
    }
    step.activity.finish_task(step.thread);
  }
}

}  // namespace puna
