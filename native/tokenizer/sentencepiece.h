// SentencePiece's BPE: the neighbours whose union scores best merge first, among equals the leftmost.
// Characters that are no token become bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/vocabulary.h"

namespace puna {

class SentencePiece {
 public:
  explicit SentencePiece(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), powers_(vocabulary.hash().powers(kMaxTokenBytes)) {}

  // Appends the tokens of text without special tokens. with_prefix: as if a space were in front of it.
  void encode(std::string_view text, bool with_prefix, std::vector<int32_t>& tokens);

 private:
  // A symbol is named by its first character.
  struct Symbol {
    uint32_t begin;   // byte of the word
    uint32_t behind;  // the symbol behind this one; 0: this has become part of the one before
    uint32_t before;  // kNone: none
    uint64_t hash;    // of the word up to here
  };
  struct Candidate {
    float score;
    uint32_t left, right, end;  // symbols; end: the one behind them

    bool operator<(const Candidate& other) const {  // merges later
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  void encode_word(std::string_view word, std::vector<int32_t>& tokens);
  int32_t token(std::string_view word, uint32_t symbol, uint32_t end) const;
  bool offer(std::string_view word, uint32_t left, uint32_t right);
  void merge(std::string_view word, const Candidate& best);

  const Vocabulary& vocabulary_;
  const std::vector<uint64_t> powers_;
  std::string written_;  // the text with spaces as the vocabulary writes them
  // Of the word at hand; behind the last symbol one for the end.
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace puna
