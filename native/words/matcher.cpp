#include "words/matcher.h"

#include <algorithm>

#include "base/utf8.h"

namespace puna {

using Kind = PatternStep::Kind;

void Matcher::cut(std::string_view text, uint32_t offset, std::vector<uint32_t>& ends) {
  text_ = text;
  std::fill(failed_.begin(), failed_.end(), Range{});
  const auto size = static_cast<uint32_t>(text.size());
  uint32_t last = 0;
  for (uint32_t position = 0; position < size;) {
    const DecodedCharacter next = decode_utf8(text, position);
    const std::optional<uint32_t> end = pattern_.first.contains(next.code) ? match(position) : std::nullopt;
    if (!end || *end == position) {
      position += next.length;
      continue;
    }
    if (position > last) ends.push_back(offset + position);
    ends.push_back(offset + *end);
    last = position = *end;
  }
  if (last < size) ends.push_back(offset + size);
}

std::optional<uint32_t> Matcher::match(uint32_t position) {
  choices_.clear();
  const auto size = static_cast<uint32_t>(text_.size());
  for (uint32_t at = 0;;) {
    const PatternStep& step = pattern_.steps[at];
    bool ok = true;
    switch (step.kind) {
      case Kind::kLiteral:
      case Kind::kCharacter:
      case Kind::kNotAhead: {
        const DecodedCharacter next = position < size ? decode_utf8(text_, position) : DecodedCharacter{0, 0};
        const bool found =
            next.length > 0 && (step.kind == Kind::kLiteral ? next.code == step.code
                                                            : pattern_.sets[step.set].contains(next.code));
        ok = found != (step.kind == Kind::kNotAhead);
        if (step.kind != Kind::kNotAhead) position += next.length;
        break;
      }
      case Kind::kRepeat:
        ok = repeat(at, position);
        break;
      case Kind::kFork:
        choices_.push_back({at, position});
        break;
      case Kind::kJump:
        at = step.target;
        continue;
      case Kind::kEnd:
        ok = position == size;
        break;
      case Kind::kMatch:
        return position;
    }
    if (ok)
      ++at;
    else if (!go_back(at, position))
      return std::nullopt;
  }
}

bool Matcher::repeat(uint32_t at, uint32_t& position) {
  const PatternStep& step = pattern_.steps[at];
  const bool unlimited = step.most == kUnlimited;
  if (unlimited && position >= failed_[at].begin && position < failed_[at].end) return false;
  const CharacterSet& set = pattern_.sets[step.set];
  const uint32_t begin = position;
  uint32_t least = begin, count = 0;
  while (count < step.most && position < text_.size()) {
    const DecodedCharacter next = decode_utf8(text_, position);
    if (!set.contains(next.code)) break;
    position += next.length;
    if (++count == step.least) least = position;
  }
  if (count < step.least) return false;
  if (position > least) choices_.push_back({at, position, least, {begin, position}});
  return true;
}

bool Matcher::go_back(uint32_t& at, uint32_t& position) {
  while (!choices_.empty()) {
    Choice& choice = choices_.back();
    const PatternStep& step = pattern_.steps[choice.step];
    if (step.kind == Kind::kFork) {
      at = step.target;
      position = choice.position;
      choices_.pop_back();
      return true;
    }
    if (choice.position > choice.least) {
      --choice.position;
      while (is_continuation(text_[choice.position])) --choice.position;
      at = choice.step + 1;
      position = choice.position;
      return true;
    }
    if (step.most == kUnlimited) failed_[choice.step] = choice.whole;
    choices_.pop_back();
  }
  return false;
}

}  // namespace puna
