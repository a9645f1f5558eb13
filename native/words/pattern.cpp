#include "words/pattern.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gguf/reader.h"
#include "words/class_parser.h"

namespace puna {
namespace {

using Kind = PatternStep::Kind;
using Steps = std::vector<PatternStep>;

struct Count {
  uint32_t least, most;
};

class Compiler {
 public:
  explicit Compiler(std::string_view expression) : parser_(expression) {}

  Pattern compile() {
    Steps steps = alternatives();
    if (!parser_.done()) parser_.fail("a group ends that has not begun");
    steps.push_back({.kind = Kind::kMatch});
    CharacterSet first(first_characters(steps));
    return {std::move(steps), std::move(sets_), std::move(first)};
  }

 private:
  // Targets count from the first of the steps that are returned; `append` moves them.
  Steps alternatives() {
    Steps first = sequence();
    if (!parser_.take("|")) return first;
    const Steps second = alternatives();
    Steps both = {{.kind = Kind::kFork, .target = static_cast<uint32_t>(first.size() + 2)}};
    append(both, first);
    both.push_back({.kind = Kind::kJump, .target = static_cast<uint32_t>(both.size() + 1 + second.size())});
    append(both, second);
    return both;
  }

  Steps sequence() {
    Steps all;
    while (!parser_.done() && !parser_.next_is('|') && !parser_.next_is(')')) append(all, item());
    return all;
  }

  Steps item() {
    if (parser_.take("(?!")) {
      const uint32_t set = add_set(parser_.one_character());
      parser_.expect(')');
      return {{.kind = Kind::kNotAhead, .set = set}};
    }
    if (parser_.take("$")) return {{.kind = Kind::kEnd}};
    if (parser_.take("(")) {
      parser_.take("?:");
      const Steps group = alternatives();
      parser_.expect(')');
      return repeated(group, count());
    }
    for (const char repeat : {'*', '+', '?', '{'})
      if (parser_.next_is(repeat)) parser_.fail("there is nothing to repeat");
    const CodeRanges ranges = parser_.one_character();
    const auto [least, most] = count();
    const bool once = least == 1 && most == 1;
    if (once && is_single(ranges)) return {{.kind = Kind::kLiteral, .code = ranges[0].first}};
    const uint32_t set = add_set(ranges);
    if (once) return {{.kind = Kind::kCharacter, .set = set}};
    return {{.kind = Kind::kRepeat, .set = set, .least = least, .most = most}};
  }

  Count count() {
    if (parser_.take("*")) return {0, kUnlimited};
    if (parser_.take("+")) return {1, kUnlimited};
    if (parser_.take("?")) return {0, 1};
    if (!parser_.take("{")) return {1, 1};
    const uint32_t least = parser_.number(10);
    const uint32_t most = parser_.take(",") ? parser_.number(10) : least;
    parser_.expect('}');
    if (most < least || most > 1024) parser_.fail("a count makes no sense");
    return {least, most};
  }

  static Steps repeated(const Steps& group, Count count) {
    Steps all;
    for (uint32_t i = 0; i < count.least; ++i) append(all, group);
    const auto size = static_cast<uint32_t>(group.size());
    if (count.most == kUnlimited) {
      const auto begin = static_cast<uint32_t>(all.size());
      all.push_back({.kind = Kind::kFork, .target = begin + size + 2});
      append(all, group);
      all.push_back({.kind = Kind::kJump, .target = begin});
      return all;
    }
    const uint32_t end = static_cast<uint32_t>(all.size()) + (count.most - count.least) * (size + 1);
    for (uint32_t i = count.least; i < count.most; ++i) {
      all.push_back({.kind = Kind::kFork, .target = end});
      append(all, group);
    }
    return all;
  }

  static void append(Steps& steps, const Steps& more) {
    const auto offset = static_cast<uint32_t>(steps.size());
    for (PatternStep step : more) {
      step.target += offset;
      steps.push_back(step);
    }
  }

  uint32_t add_set(const CodeRanges& ranges) {
    const auto known = std::find(ranges_.begin(), ranges_.end(), ranges);
    if (known != ranges_.end()) return static_cast<uint32_t>(known - ranges_.begin());
    sets_.emplace_back(ranges);
    ranges_.push_back(ranges);
    return static_cast<uint32_t>(sets_.size() - 1);
  }

  CodeRanges first_characters(const Steps& steps) const {
    CodeRanges first;
    std::vector<uint32_t> open = {0};
    std::vector<bool> seen(steps.size());
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      const PatternStep& step = steps[at];
      if (step.kind == Kind::kCharacter || step.kind == Kind::kRepeat)
        first = joined(first, ranges_[step.set]);
      if (step.kind == Kind::kLiteral) first = joined(first, {{step.code, step.code}});
      if (step.kind == Kind::kFork || step.kind == Kind::kJump) open.push_back(step.target);
      const bool goes_on = step.kind == Kind::kFork || step.kind == Kind::kNotAhead ||
                           step.kind == Kind::kEnd || (step.kind == Kind::kRepeat && step.least == 0);
      if (goes_on) open.push_back(at + 1);
    }
    return first;
  }

  ClassParser parser_;
  std::vector<CharacterSet> sets_;
  std::vector<CodeRanges> ranges_;
};

}  // namespace

Pattern compile_pattern(std::string_view expression) {
  if (!is_utf8(expression)) throw Error("pattern: is no UTF-8");
  return Compiler(expression).compile();
}

}  // namespace puna
