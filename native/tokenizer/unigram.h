// SentencePiece's unigram model: of all ways to cut a text into tokens, that whose scores have the largest
// sum. Characters that are no token become the unknown token, several in a row one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/vocabulary.h"

namespace puna {

class Unigram {
 public:
  explicit Unigram(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), powers_(vocabulary.hash().powers(vocabulary.longest())) {}

  // Appends the tokens of text without special tokens. with_prefix: as if a space were in front of it.
  void encode(std::string_view text, bool with_prefix, std::vector<int32_t>& tokens);

 private:
  // The best way to a place in the word at hand.
  struct Way {
    uint32_t place;  // byte of the word
    uint32_t from;   // the way before its last token
    double score;    // of all tokens, from the beginning of the text
    int32_t token;
    uint64_t hash;  // of the word up to here
  };

  void encode_word(std::string_view word, std::vector<int32_t>& tokens);
  void begin_ways(std::string_view word);
  void go_on(std::string_view word, uint32_t from);
  void append(std::vector<int32_t>& tokens);

  const Vocabulary& vocabulary_;
  const std::vector<uint64_t> powers_;
  std::string normalized_;
  std::vector<Way> ways_;  // to each character of the word, and to its end
  std::vector<int32_t> backwards_;
  // Of the text up to the word at hand.
  double score_ = 0;
  bool is_unknown_ = false;
};

}  // namespace puna
