// Reads a vocabulary in the form of format.h, in place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "normalization/char_map.h"
#include "vocabulary/format.h"
#include "vocabulary/keyed_hash.h"

namespace puna {

class Vocabulary {
 public:
  struct Merge {
    int32_t rank = -1;  // -1: they do not merge
    int32_t token = -1;
  };

  // Error unless every offset and every id in it can be followed; the bytes must outlive this, and stay.
  explicit Vocabulary(std::span<const uint8_t> bytes);

  size_t size() const { return traits_.size(); }
  Algorithm algorithm() const { return header_.algorithm; }
  const Conventions& conventions() const { return header_.conventions; }
  bool has(Convention flag) const { return header_.conventions.has(flag); }
  std::string_view word_pattern() const { return word_pattern_; }

  std::string_view text(size_t token) const {  // as the file has it, valid UTF-8 or not
    const size_t begin = token == 0 ? 0 : ends_[token - 1];
    return texts_.substr(begin, ends_[token] - begin);
  }
  std::span<const uint8_t> traits() const { return traits_; }
  // Unigram and WordPiece: bytes of a token that is sought in text, of any or of those that the text begins
  // with, or more.
  size_t longest() const { return longest_; }
  size_t reach(std::string_view text) const {
    return text.size() < kReachBytes ? text.size()
                                     : std::min<size_t>(text.size(), reaches_[reach_place(text)]);
  }
  TokenKind kind(size_t token) const { return static_cast<TokenKind>(traits_[token] & kKindMask); }

  int32_t find(std::string_view text) const {  // -1: none
    return text.size() > kMaxTokenBytes ? -1 : find(text, hash_(text));
  }
  int32_t find(std::string_view text, uint64_t hash) const;
  const KeyedHash& hash() const { return hash_; }
  int32_t byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  Merge find_merge(int32_t left, int32_t right) const;
  float score(int32_t token) const { return scores_[static_cast<size_t>(token)]; }
  bool is_sought(int32_t token) const { return std::isfinite(score(token)); }
  float unknown_score() const { return header_.unknown_score; }
  const CharMap& char_map() const { return char_map_; }
  std::span<const int32_t> user_defined() const { return user_defined_; }  // by their text
  bool joins_space(char32_t character) const;  // some token has a space behind this character

  // Those that are found in any text, or also those that are found only if asked for.
  std::span<const FinderNode> finder(bool all) const { return all ? all_found_ : always_found_; }

 private:
  template <typename T>
  std::span<const T> section(SectionId id, size_t count) const;
  template <typename T>
  std::span<const T> section(SectionId id) const;
  void check_tokens() const;
  void check_tables() const;

  std::span<const uint8_t> bytes_;
  Header header_;
  KeyedHash hash_;
  size_t longest_ = 0;
  std::span<const uint32_t> ends_;
  std::string_view texts_;
  std::span<const uint8_t> traits_;
  std::span<const TextSlot> index_;
  std::span<const int32_t> byte_tokens_;
  std::span<const MergeSlot> merges_;
  std::span<const float> scores_;
  std::span<const uint32_t> before_space_;
  std::span<const FinderNode> always_found_, all_found_;
  std::string_view word_pattern_;
  std::span<const int32_t> user_defined_;
  CharMap char_map_;
  std::span<const uint16_t> reaches_;
};

}  // namespace puna
