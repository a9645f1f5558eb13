// Sets of characters, as patterns write them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace puna {

struct CodeRange {
  char32_t first, last;

  bool operator==(const CodeRange&) const = default;
};

// Ascending, and none touches the next.
using CodeRanges = std::vector<CodeRange>;

inline bool is_single(const CodeRanges& ranges) {
  return ranges.size() == 1 && ranges[0].first == ranges[0].last;
}

CodeRanges joined(CodeRanges a, const CodeRanges& b);
CodeRanges inverted(const CodeRanges& ranges);
CodeRanges common(const CodeRanges& a, const CodeRanges& b);

// property: L, N, P, S, M or C (of assigned characters), a general category of Unicode; s: white space. Error
// if it is none of them.
CodeRanges property_ranges(char property);

// Says in constant time whether a character is in a set.
class CharacterSet {
 public:
  explicit CharacterSet(const CodeRanges& ranges);

  bool contains(char32_t code) const {
    const Block& block = blocks_[index_[code / kBlockSize]];
    return block[code % kBlockSize / 64] >> (code % 64) & 1;
  }

 private:
  static constexpr size_t kBlockSize = 256;
  using Block = std::array<uint64_t, kBlockSize / 64>;

  std::array<uint16_t, 0x110000 / kBlockSize> index_;
  std::vector<Block> blocks_;  // all different
};

}  // namespace puna
