#include "speculation/text_drafts.h"

namespace puna {

std::vector<std::vector<int32_t>> draft_from_text(std::span<const TextDraft> sequences, StepSize step,
                                                  const StepCosts& costs) {
  Chances chances;
  for (const TextDraft& sequence : sequences) {
    sequence.drafter->update(sequence.tokens);
    const size_t start = chances.values.size();
    chances.values.resize(start + sequence.limit);
    const std::span<double> own = std::span(chances.values).subspan(start);
    size_t count = sequence.drafter->chances(own);
    if (count > 0 && own[0] < sequence.least_chance) count = 0;
    chances.values.resize(start + count);
    chances.starts.push_back(start + count);
  }
  std::vector<std::vector<int32_t>> drafts(sequences.size());
  if (chances.values.empty()) return drafts;
  const std::vector<size_t> counts = plan_drafts(chances, step, costs);
  for (size_t i = 0; i < sequences.size(); ++i)
    if (counts[i] > 0) drafts[i] = sequences[i].drafter->propose(sequences[i].tokens, counts[i]);
  return drafts;
}

}  // namespace puna
