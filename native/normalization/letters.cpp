#include "normalization/letters.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

namespace puna {
namespace {

struct CaseRun {
  char32_t first, last;
  uint32_t step;
  int32_t offset;
};

struct BaseRun {
  char32_t first, last, base;
};

#include "normalization/unicode_maps.inl"

// The run that the character is in; null: none.
template <typename Run>
const Run* find_run(std::span<const Run> runs, char32_t character) {
  const auto behind = std::upper_bound(runs.begin(), runs.end(), character,
                                       [](char32_t c, const Run& run) { return c < run.first; });
  if (behind == runs.begin()) return nullptr;
  const Run& run = *std::prev(behind);
  return character <= run.last ? &run : nullptr;
}

}  // namespace

char32_t lowercase(char32_t character) {
  const CaseRun* run = find_run<CaseRun>(kCaseRuns, character);
  if (run == nullptr || (character - run->first) % run->step != 0) return character;
  return static_cast<char32_t>(static_cast<int32_t>(character) + run->offset);
}

char32_t base_character(char32_t character) {
  const BaseRun* run = find_run<BaseRun>(kBaseRuns, character);
  return run == nullptr ? character : run->base;
}

}  // namespace puna
