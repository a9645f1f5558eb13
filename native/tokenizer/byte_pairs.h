// Byte-pair encoding of words: bytes become tokens, and neighbours merge, the earliest merge of the list
// first, among equals the leftmost.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/keyed_hash.h"

namespace puna {

// Which token has a text.
class TokenIndex {
 public:
  // texts: in the order of ids, all different; must outlive the index.
  explicit TokenIndex(const std::vector<std::string_view>& texts);

  int32_t find(std::string_view text) const;  // -1: none

 private:
  size_t slot(std::string_view text) const;  // that of the text, or the free one where it would be

  KeyedHash hash_;
  const std::vector<std::string_view>& texts_;
  std::vector<int32_t> slots_;  // -1: free
};

// What two neighbours become.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;  // -1: they do not merge
    int32_t token = -1;
  };

  explicit MergeTable(size_t num_merges);

  void add(int32_t left, int32_t right, Merge merge);  // does nothing if they merge already
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Entry {
    uint64_t pair = 0;
    Merge merge;
  };
  size_t slot(uint64_t pair) const;

  KeyedHash hash_;
  std::vector<Entry> entries_;
};

class BytePairs {
 public:
  // Texts, separated by NUL. tokens: the vocabulary in the order of ids, all different. merges: "left right",
  // by rank. alphabet: the 256 texts that stand for bytes. whole_words: a word that is a token is that token,
  // whatever the merges would make of it. Throws Error for a merge that needs what is no token.
  BytePairs(std::string tokens, const std::string& merges, const std::string& alphabet, bool whole_words);
  BytePairs(const BytePairs&) = delete;
  BytePairs& operator=(const BytePairs&) = delete;

  // Appends the tokens of a word; bytes without a token only keep their neighbours apart.
  void encode(std::string_view word, std::vector<int32_t>& tokens) const;

 private:
  struct Symbol {
    int32_t token;
    int32_t before, behind;  // neighbours; -1: none
  };
  struct Candidate {
    MergeTable::Merge merge;
    int32_t position, left, right;
  };

  void read_merges(const std::vector<std::string_view>& merges);
  int32_t whole_word(std::string_view word) const;
  void offer(const std::vector<Symbol>& symbols, int32_t position, std::vector<Candidate>& heap) const;

  const std::string text_;
  const std::vector<std::string_view> texts_;
  const TokenIndex index_;
  MergeTable merges_;
  std::array<std::string, 256> alphabet_;
  std::array<int32_t, 256> byte_tokens_;
  const bool whole_words_;
};

}  // namespace puna
