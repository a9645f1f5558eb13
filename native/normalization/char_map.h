// SentencePiece's precompiled map from sequences of characters to what they are replaced by: a double array,
// compressed by XOR (Kanda 2018), and texts, each with a NUL behind it. Both are a stranger's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace puna {

class CharMap {
 public:
  struct Found {
    std::string_view replacement;
    size_t length;  // bytes of the text that are replaced; 0: none
  };

  static constexpr size_t kMaxKeyBytes = 64;  // a few characters that decompose
  static constexpr size_t kMaxReplacementBytes = 256;

  CharMap() = default;
  // Error unless replacements are UTF-8, no longer than the limit, and each has its NUL.
  CharMap(std::span<const uint32_t> nodes, std::string_view replacements);

  bool empty() const { return nodes_.empty(); }
  // The longest sequence that the text begins with. Ways that lead out of the array end there.
  Found find(std::string_view text) const;

 private:
  std::span<const uint32_t> nodes_;
  std::string_view replacements_;
};

}  // namespace puna
