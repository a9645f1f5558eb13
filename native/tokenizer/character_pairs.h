// Byte-pair encoding of vocabularies that are written in characters, as Gemma 4's: words as such models cut
// them, then merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_pairs.h"
#include "vocabulary/vocabulary.h"
#include "words/word_cutter.h"

namespace puna {

class CharacterPairs {
 public:
  CharacterPairs(const Vocabulary& vocabulary, const WordCutter& words)
      : vocabulary_(vocabulary), words_(words), pairs_(vocabulary) {}

  // Appends the tokens of text without special tokens.
  void encode(std::string_view text, std::vector<int32_t>& tokens);

 private:
  void write(std::string_view text);
  void encode_word(std::string_view word, std::vector<int32_t>& tokens);

  const Vocabulary& vocabulary_;
  const WordCutter& words_;
  BytePairs pairs_;
  std::string written_;  // the text as the vocabulary writes it
  std::string begun_;    // a word with a space in front of it
};

}  // namespace puna
