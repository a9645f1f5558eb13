#include "words/class_parser.h"

#include <cctype>
#include <charconv>
#include <string>

#include "base/error.h"
#include "base/utf8.h"

namespace puna {

bool ClassParser::take(std::string_view text) {
  if (!rest_.starts_with(text)) return false;
  rest_.remove_prefix(text.size());
  return true;
}

void ClassParser::expect(char c) {
  if (!take({&c, 1})) fail("something is missing");
}

uint32_t ClassParser::number(int base) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
  if (error != std::errc()) fail("a number is missing");
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return value;
}

void ClassParser::fail(const char* what) const {
  throw Error(std::string("pattern: ") + what + " at '" + std::string(rest_) + "'");
}

CodeRanges ClassParser::one_character() {
  if (take("[")) return klass();
  if (rest_.starts_with('\\')) return escape();
  const char32_t code = literal();
  return {{code, code}};
}

CodeRanges ClassParser::klass() {
  const bool invert = take("^");
  CodeRanges all, operand_ranges;
  bool has_operands = false;
  while (!take("]")) {
    if (rest_.empty()) fail("a class has no end");
    if (take("&&")) {
      all = has_operands ? common(all, operand_ranges) : operand_ranges;
      has_operands = true;
      operand_ranges.clear();
    } else {
      operand_ranges = joined(std::move(operand_ranges), operand());
    }
  }
  if (has_operands) operand_ranges = common(all, operand_ranges);
  return invert ? inverted(operand_ranges) : operand_ranges;
}

// Of a class: one character or what stands for one, or a range.
CodeRanges ClassParser::operand() {
  CodeRanges first = one_character();
  if (!is_single(first) || !rest_.starts_with('-') || rest_.starts_with("-]")) return first;
  take("-");
  const CodeRanges last = one_character();
  if (!is_single(last) || last[0].first < first[0].first) fail("a range makes no sense");
  return {{first[0].first, last[0].first}};
}

CodeRanges ClassParser::escape() {
  take("\\");
  if (take("s")) return property_ranges('s');
  if (take("S")) return inverted(property_ranges('s'));
  if (take("p{")) {
    if (rest_.empty()) fail("a property is missing");
    const char property = rest_.front();
    rest_.remove_prefix(1);
    expect('}');
    return property_ranges(property);
  }
  char32_t code;
  if (take("x{")) {
    code = number(16);
    expect('}');
  } else if (take("n")) {
    code = '\n';
  } else if (take("r")) {
    code = '\r';
  } else if (take("t")) {
    code = '\t';
  } else {
    if (!rest_.empty() && std::isalnum(static_cast<unsigned char>(rest_.front())))
      fail("an escape is not known");
    code = literal();
  }
  return {{code, code}};
}

char32_t ClassParser::literal() {
  if (rest_.empty()) fail("a character is missing");
  const DecodedCharacter next = decode_utf8(rest_, 0);
  rest_.remove_prefix(next.length);
  return next.code;
}

}  // namespace puna
