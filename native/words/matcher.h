// Runs one pattern over one text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "words/pattern.h"

namespace puna {

class Matcher {
 public:
  explicit Matcher(const Pattern& pattern) : pattern_(pattern), failed_(pattern.steps.size()) {}

  // Appends where each match ends, and what lies between matches. offset: is added.
  void cut(std::string_view text, uint32_t offset, std::vector<uint32_t>& ends);

 private:
  // The way on from a kRepeat failed wherever it ended from `begin` to `end`: no need to try again from a
  // character between them, whatever led there. Without this, runs would take quadratic time.
  struct Range {
    uint32_t begin = 0, end = 0;
  };
  // What to try if the way on fails: for a kFork its other target, for a kRepeat one character fewer, as
  // long as that is not before `least`.
  struct Choice {
    uint32_t step;
    uint32_t position, least = 0;
    Range whole = {};  // of a kRepeat, all that it could take
  };

  std::optional<uint32_t> match(uint32_t position);
  bool repeat(uint32_t step, uint32_t& position);
  bool go_back(uint32_t& step, uint32_t& position);

  const Pattern& pattern_;
  std::string_view text_;
  std::vector<Choice> choices_;
  std::vector<Range> failed_;  // of each step
};

}  // namespace puna
