#include "words/word_cutter.h"

#include "base/utf8.h"
#include "words/character_set.h"
#include "words/matcher.h"

namespace puna {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Appends where a run of digits is cut, and then goes on behind it.
void cut_digits(uint32_t begin, uint32_t end, uint32_t word, std::vector<uint32_t>& ends) {
  for (uint32_t at = begin + (end - begin) % 3; at < end; at += 3)
    if (at > word) ends.push_back(at);
}

std::vector<uint32_t> with_digits_in_threes(std::string_view text, const std::vector<uint32_t>& words) {
  std::vector<uint32_t> ends;
  uint32_t word = 0;
  for (const uint32_t end : words) {
    for (uint32_t at = word; at < end;) {
      uint32_t run = at;
      while (run < end && is_digit(text[run])) ++run;
      cut_digits(at, run, word, ends);
      at = run + 1;
    }
    ends.push_back(end);
    word = end;
  }
  return ends;
}

std::vector<uint32_t> cut_numbers(std::string_view text) {
  static const CharacterSet numbers(property_ranges('N'));
  std::vector<uint32_t> ends;
  for (size_t at = 0; at < text.size();) {
    size_t count = 0, end = at;
    for (DecodedCharacter next; end < text.size(); end += next.length, ++count)
      if (next = decode_utf8(text, end); !numbers.contains(next.code)) break;
    for (; count > 0; --count) {
      at += decode_utf8(text, at).length;
      if ((count - 1) % 3 == 0) ends.push_back(static_cast<uint32_t>(at));
    }
    if (at < text.size()) at += decode_utf8(text, at).length;
  }
  if (ends.empty() || ends.back() < text.size()) ends.push_back(static_cast<uint32_t>(text.size()));
  return ends;
}

}  // namespace

WordCutter::WordCutter(const std::vector<std::string_view>& patterns, bool digits_in_threes,
                       bool numbers_in_threes)
    : digits_in_threes_(digits_in_threes), numbers_in_threes_(numbers_in_threes) {
  for (const std::string_view pattern : patterns) patterns_.push_back(compile_pattern(pattern));
}

std::vector<uint32_t> WordCutter::ends(std::string_view text) const {
  std::vector<uint32_t> words =
      numbers_in_threes_ ? cut_numbers(text) : std::vector{static_cast<uint32_t>(text.size())};
  for (const Pattern& pattern : patterns_) {
    Matcher matcher(pattern);
    std::vector<uint32_t> pieces;
    uint32_t begin = 0;
    for (const uint32_t end : words) {
      matcher.cut(text.substr(begin, end - begin), begin, pieces);
      begin = end;
    }
    words = std::move(pieces);
  }
  return digits_in_threes_ ? with_digits_in_threes(text, words) : words;
}

}  // namespace puna
