// Reads what stands for one character in a regular expression.
#pragma once

#include <string_view>

#include "words/character_set.h"

namespace puna {

class ClassParser {
 public:
  explicit ClassParser(std::string_view expression) : rest_(expression) {}

  bool done() const { return rest_.empty(); }
  bool take(std::string_view text);  // whether it was next
  bool next_is(char c) const { return rest_.starts_with(c); }
  void expect(char c);
  uint32_t number(int base);
  CodeRanges one_character();  // a literal, an escape or a class

  [[noreturn]] void fail(const char* what) const;

 private:
  CodeRanges klass();  // behind its bracket
  CodeRanges operand();
  CodeRanges escape();
  char32_t literal();

  std::string_view rest_;
};

}  // namespace puna
