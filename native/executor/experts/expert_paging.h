// For models that are larger than memory: their experts' pages come from the file when they are chosen, and
// the system takes back those of experts that are not, since the file has them.
//
// A page that is missing stops a thread until the disk has it, and brings megabytes of neighbours, which are
// experts that nobody chose. So as soon as some pages were missing in a step, the chosen experts are read as
// a whole before they are computed, and no neighbours.
#pragma once

#include <cstdint>

#include "executor/program/program.h"

namespace puna {

struct ExpertStep;

// Whether a model's experts are read ahead. It costs system calls, which is nothing beside reading, but much
// beside finding everything in memory.
class ExpertPaging {
 public:
  bool is_on() const { return steps_left_ > 0; }
  void begin_step();
  void end_step(const Plan& plan);

 private:
  void advise(const Plan& plan, bool is_random) const;

  int64_t faults_ = 0;      // of the process, at the beginning of the step
  int64_t steps_left_ = 0;  // with nothing missing, until it is off
};

// The experts of a step that come first, as many as are read at a time; then, with each that is computed, one
// more. Nothing where experts are not read ahead.
void read_first_experts_ahead(const ExpertStep& experts);
void read_experts_ahead(const ExpertStep& experts, int64_t computed);

}  // namespace puna
