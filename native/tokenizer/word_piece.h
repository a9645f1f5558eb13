// WordPiece as llama.cpp does it for BERT: text is cut into words and normalized, and each word into the
// longest tokens from its beginning on; a word that tokens cannot make up is unknown as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/vocabulary.h"

namespace puna {

class WordPiece {
 public:
  explicit WordPiece(const Vocabulary& vocabulary);

  // Appends the tokens of text without special tokens.
  void encode(std::string_view text, std::vector<int32_t>& tokens);

 private:
  void end_word(std::vector<int32_t>& tokens);
  bool append_tokens(std::vector<int32_t>& tokens);

  const Vocabulary& vocabulary_;
  const std::vector<uint64_t> powers_;
  std::string word_;              // what there is of the word at hand, behind the sign that it begins with
  std::vector<uint64_t> hashes_;  // of the word up to each byte
};

}  // namespace puna
