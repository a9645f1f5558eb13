// Cuts text into words by patterns, in linear time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "words/pattern.h"

namespace puna {

class WordCutter {
 public:
  // Each pattern cuts what the patterns before it left: its matches are words, and so is what lies between
  // them. digits_in_threes: after that, runs of ASCII digits, in threes counted from their end.
  // numbers_in_threes: before that, runs of any digits, but what is before a run stays with its first ones.
  WordCutter(const std::vector<std::string_view>& patterns, bool digits_in_threes, bool numbers_in_threes);

  // Where each word of the text ends, which must be valid UTF-8.
  std::vector<uint32_t> ends(std::string_view text) const;

 private:
  std::vector<Pattern> patterns_;
  bool digits_in_threes_, numbers_in_threes_;
};

}  // namespace puna
