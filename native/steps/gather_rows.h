// From what each sequence computes in a step to the step's flat arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace puna {

// The next tokens of a sequence, and drafts behind them.
struct StepPart {
  std::span<const int32_t> tokens;
  int32_t position;  // of the first
  bool completes;    // nothing of the sequence is pending behind these tokens: the next one is drawn
  std::span<const int32_t> drafts;
};

// As Batch in puna/backends/base.py.
struct StepRows {
  std::vector<int32_t> tokens, positions, sequence_starts, rows;
  std::vector<int32_t> drafts, draft_starts;  // empty if there are no drafts
};

StepRows gather_rows(std::span<const StepPart> parts);

}  // namespace puna
