// Patterns that cut text into words: a regular expression, compiled to steps for a matcher that backtracks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "words/character_set.h"

namespace puna {

struct PatternStep {
  enum class Kind : uint8_t {
    kLiteral,    // the next character is `code`
    kCharacter,  // the next character is in `set`
    kRepeat,     // `least` to `most` characters in `set`, as many as the rest of the pattern allows
    kFork,       // goes on at the next step; if that fails, at `target`
    kJump,       // goes on at `target`
    kNotAhead,   // the next character, if there is one, is not in `set`
    kEnd,        // the text ends here
    kMatch,
  };

  Kind kind;
  char32_t code = 0;
  uint32_t set = 0;
  uint32_t least = 0, most = 0;
  uint32_t target = 0;
};

constexpr uint32_t kUnlimited = UINT32_MAX;

struct Pattern {
  std::vector<PatternStep> steps;
  std::vector<CharacterSet> sets;
  CharacterSet first;  // characters that a match can begin with
};

// Of regular expressions: literals, classes with ranges, nesting and &&, \p{..} of one letter, \s, \S, \r,
// \n,
// \t, \x{..}, groups, (?:..), |, the greedy quantifiers, a negative look at one character of a class, and $
// for the end of the text. Error: anything else.
Pattern compile_pattern(std::string_view expression);

}  // namespace puna
