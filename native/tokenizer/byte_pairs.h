// Byte-pair encoding of words: bytes, or characters, become tokens, and neighbours merge, the earliest merge
// of the list first, among equals the leftmost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/vocabulary.h"

namespace puna {

class BytePairs {
 public:
  explicit BytePairs(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // Appends the tokens of a word; bytes without a token only keep their neighbours apart. Of characters
  // without a token the bytes become tokens.
  void encode(std::string_view word, std::vector<int32_t>& tokens);

 private:
  struct Symbol {
    int32_t token;
    int32_t before, behind;  // neighbours; -1: none
  };
  struct Candidate {
    Vocabulary::Merge merge;
    int32_t position, left, right;

    bool operator<(const Candidate& other) const {  // merges later
      return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : position > other.position;
    }
  };

  void begin(std::string_view word);
  void append(std::string_view word, std::vector<int32_t>& tokens) const;
  int32_t whole_word(std::string_view word);
  bool offer(int32_t position);
  void merge(const Candidate& best);

  const Vocabulary& vocabulary_;
  // Of the word at hand.
  std::vector<Symbol> symbols_;  // each where it begins
  std::vector<Candidate> heap_;
  std::string written_;
};

}  // namespace puna
