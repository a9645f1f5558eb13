// A layer's experts in a step: who visits whom, and the phases of the work.
#pragma once

#include <cstdint>
#include <span>

#include "executor/experts/expert_layer.h"
#include "executor/row_units.h"
#include "executor/step.h"

namespace puna {

// The visits [begin, begin of the next run) are those of one expert. Behind the last run there is one that
// says where it ends.
struct ExpertRun {
  int32_t expert, begin;

  int64_t num_visits() const { return this[1].begin - begin; }
};

struct ExpertStep {
  const Step& step;
  const ExpertLayer& layer;
  int64_t num_rows;

  const Kernels& kernels() const { return *step.plan.kernels; }
  int32_t* experts(int64_t row) const { return ints(layer.choices, row); }
  const float* weights(int64_t row) const {
    return reinterpret_cast<const float*>(experts(row) + layer.num_used);
  }
  float weight_of_visit(int64_t visit) const;
  // What the sum over a token's experts weighs them by.
  const float* sum_weights(int64_t row) const;
  int32_t* row_of_visit() const { return ints(layer.row_of_visit, 0); }
  int32_t* visit_of_choice(int64_t row) const { return ints(layer.visit_of_choice, row); }
  uint8_t* hidden(int64_t visit) const { return step.bytes(layer.hidden, 0) + visit * layer.hidden_bytes; }

  int64_t num_visits() const { return num_rows * layer.num_used; }
  // How many runs there are is kept before the first.
  ExpertRun* run_list() const { return reinterpret_cast<ExpertRun*>(step.bytes(layer.runs, 0)); }
  std::span<const ExpertRun> runs() const {
    return {run_list() + 1, static_cast<size_t>(run_list()->expert)};
  }

  // The phases, each with a barrier behind it; the first is one thread's.
  void order_visits() const;
  void run_gate_up(WorkShares& shares) const;
  void run_down(WorkShares& shares, const uint8_t* next) const;  // next: the weights that are read afterwards

 private:
  int32_t* ints(int buffer, int64_t row) const { return reinterpret_cast<int32_t*>(step.bytes(buffer, row)); }
};

// Rows of `down` that a thread takes at once: with few visits several units, so that memory is read in order;
// with many as few as keep their results, floats for each visit and row, in the second-level cache.
int64_t down_rows(int64_t num_visits);

}  // namespace puna
