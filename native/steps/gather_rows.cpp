#include "steps/gather_rows.h"

#include <algorithm>
#include <numeric>

namespace puna {
namespace {

void append(std::vector<int32_t>& to, std::span<const int32_t> from) {
  to.insert(to.end(), from.begin(), from.end());
}

void append_range(std::vector<int32_t>& to, int32_t first, size_t count) {
  to.resize(to.size() + count);
  std::iota(to.end() - static_cast<int64_t>(count), to.end(), first);
}

}  // namespace

StepRows gather_rows(std::span<const StepPart> parts) {
  StepRows step;
  const bool has_drafts =
      std::ranges::any_of(parts, [](const StepPart& part) { return !part.drafts.empty(); });
  step.sequence_starts.push_back(0);
  if (has_drafts) step.draft_starts.push_back(0);
  for (const StepPart& part : parts) {
    append(step.tokens, part.tokens);
    append(step.tokens, part.drafts);
    append_range(step.positions, part.position, part.tokens.size() + part.drafts.size());
    const auto end = static_cast<int32_t>(step.tokens.size());
    step.sequence_starts.push_back(end);
    if (!part.completes) continue;
    const size_t num_rows = 1 + part.drafts.size();
    append_range(step.rows, end - static_cast<int32_t>(num_rows), num_rows);
    if (!has_drafts) continue;
    append(step.drafts, part.drafts);
    step.draft_starts.push_back(static_cast<int32_t>(step.drafts.size()));
  }
  return step;
}

}  // namespace puna
