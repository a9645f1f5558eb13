#include "words/character_set.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "base/error.h"

namespace puna {
namespace {

#include "words/unicode_ranges.inl"

constexpr char32_t kLastCode = 0x10ffff;

CodeRanges copied(std::span<const CodeRange> ranges) { return {ranges.begin(), ranges.end()}; }

}  // namespace

CodeRanges joined(CodeRanges a, const CodeRanges& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const CodeRange& x, const CodeRange& y) { return x.first < y.first; });
  CodeRanges result;
  for (const CodeRange& range : a) {
    if (!result.empty() && range.first <= result.back().last + 1)
      result.back().last = std::max(result.back().last, range.last);
    else
      result.push_back(range);
  }
  return result;
}

CodeRanges inverted(const CodeRanges& ranges) {
  CodeRanges result;
  char32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) result.push_back({next, kLastCode});
  return result;
}

CodeRanges common(const CodeRanges& a, const CodeRanges& b) {
  return inverted(joined(inverted(a), inverted(b)));
}

CodeRanges property_ranges(char property) {
  switch (property) {
    case 'L':
      return copied(kLetters);
    case 'N':
      return copied(kNumbers);
    case 'P':
      return copied(kPunctuation);
    case 'S':
      return copied(kSymbols);
    case 'M':
      return copied(kMarks);
    case 'C':
      return copied(kControls);
    case 's':
      return copied(kSpaces);
    default:
      throw Error(std::string("no property of characters is called ") + property);
  }
}

CharacterSet::CharacterSet(const CodeRanges& ranges) {
  constexpr Block kNone = {}, kAll = {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};
  blocks_ = {kNone, kAll};
  std::map<Block, uint16_t> known = {{kNone, 0}, {kAll, 1}};
  auto range = ranges.begin();
  for (char32_t begin = 0; begin <= kLastCode; begin += kBlockSize) {
    const char32_t last = begin + kBlockSize - 1;
    while (range != ranges.end() && range->last < begin) ++range;
    uint16_t& index = index_[begin / kBlockSize];
    if (range == ranges.end() || range->first > last) {
      index = 0;
    } else if (range->first <= begin && range->last >= last) {
      index = 1;
    } else {
      Block block = kNone;
      for (auto part = range; part != ranges.end() && part->first <= last; ++part)
        for (char32_t code = std::max(begin, part->first); code <= std::min(last, part->last); ++code)
          block[code % kBlockSize / 64] |= uint64_t{1} << (code % 64);
      const auto [entry, is_new] = known.try_emplace(block, static_cast<uint16_t>(blocks_.size()));
      if (is_new) blocks_.push_back(block);
      index = entry->second;
    }
  }
}

}  // namespace puna
