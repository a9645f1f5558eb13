// Drafts from the sequences' own text, for a whole step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speculation/draft_plan.h"
#include "speculation/ngram_drafter.h"

namespace puna {

// A sequence that decodes. limit: drafts of it, at most. least_chance: of its first draft; otherwise there is
// a better source than its text.
struct TextDraft {
  NgramDrafter* drafter;
  std::span<const int32_t> tokens;
  size_t limit;
  double least_chance;
};

// Takes in each sequence's new tokens; then the drafts of each that the next step should verify.
std::vector<std::vector<int32_t>> draft_from_text(std::span<const TextDraft> sequences, StepSize step,
                                                  const StepCosts& costs);

}  // namespace puna
