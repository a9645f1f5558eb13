// How many drafted tokens a step should verify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scheduling/step_costs.h"

namespace puna {

// Of several sequences, one after the other: entry i of a sequence is the probability that its first i + 1
// drafts are all right.
struct Chances {
  std::vector<double> values;
  std::vector<size_t> starts = {0};  // sequence s owns [starts[s], starts[s + 1])

  size_t num_sequences() const { return starts.size() - 1; }
  std::span<const double> of(size_t sequence) const {
    return std::span(values).subspan(starts[sequence], starts[sequence + 1] - starts[sequence]);
  }
};

// num_tokens: without drafts; num_decodes: those of them that are sequences' latest tokens.
struct StepSize {
  int64_t num_tokens;
  int64_t num_decodes;
};

// How many drafts of each sequence the next step should verify. round_s: what drafting itself takes, for one
// token more of all sequences.
//
// The drafts chosen have the largest product of all decoding sequences' rates (tokens per second): what one
// sequence gains, in percent, must be more than what the longer step costs all of them together. The time for
// the tokens of prompts in the step counts as given.
std::vector<size_t> plan_drafts(const Chances& chances, StepSize step, const StepCosts& costs,
                                double round_s = 0);

}  // namespace puna
