#include "executor/experts/expert_paging.h"

#include <sys/resource.h>

#include <algorithm>
#include <variant>

#include "executor/experts/expert_step.h"

namespace puna {
namespace {

// Pages that had to be read from a disk since the process began.
int64_t major_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_majflt;
}

size_t matrix_bytes(const ExpertWeights& part) {
  return part.stack.first.row_bytes * static_cast<size_t>(part.rows());
}

// How many experts are read before they are computed: as much as a disk can read at a time.
int64_t num_ahead(const ExpertLayer& layer) {
  constexpr size_t kAheadBytes = size_t{1} << 26;
  const size_t bytes = matrix_bytes(layer.gate) + matrix_bytes(layer.up) + matrix_bytes(layer.down);
  return std::max(static_cast<int64_t>(kAheadBytes / bytes), int64_t{1});
}

void read_expert(const ExpertStep& experts, int64_t index) {
  const std::span<const ExpertRun> runs = experts.runs();
  if (index >= static_cast<int64_t>(runs.size())) return;
  const int32_t expert = runs[static_cast<size_t>(index)].expert;
  for (const ExpertWeights* part : {&experts.layer.gate, &experts.layer.up, &experts.layer.down})
    read_ahead(part->stack.at(expert).data, matrix_bytes(*part));
}

}  // namespace

void ExpertPaging::begin_step() { faults_ = major_faults(); }

void ExpertPaging::end_step(const Plan& plan) {
  constexpr int64_t kSteps = 64;
  constexpr int64_t kManyFaults = 8;  // fewer may be anybody's
  const bool was_on = is_on();
  const bool lacks_pages = major_faults() - faults_ >= kManyFaults;
  steps_left_ = lacks_pages ? kSteps : std::max(steps_left_ - 1, int64_t{0});
  if (is_on() != was_on) advise(plan, is_on());
}

void ExpertPaging::advise(const Plan& plan, bool is_random) const {
  for (const Stage& stage : plan.stages) {
    const auto* experts = std::get_if<ExpertStage>(&stage);
    if (experts == nullptr) continue;
    for (const ExpertWeights* part : {&experts->layer->gate, &experts->layer->up, &experts->layer->down})
      for (int64_t i = 0; i < part->stack.count; ++i)
        expect_random_reads(part->stack.at(i).data, matrix_bytes(*part), is_random);
  }
}

void read_first_experts_ahead(const ExpertStep& experts) {
  if (!experts.step.reads_experts_ahead) return;
  for (int64_t i = 0; i < num_ahead(experts.layer); ++i) read_expert(experts, i);
}

void read_experts_ahead(const ExpertStep& experts, int64_t computed) {
  if (experts.step.reads_experts_ahead) read_expert(experts, computed + num_ahead(experts.layer));
}

}  // namespace puna
