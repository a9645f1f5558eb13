// A model's vocabulary as llguidance wants it: a tree of all tokens, and one for each slice of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammars/llguidance.h"
#include "vocabulary/vocabulary.h"
#include "words/word_cutter.h"

namespace puna {

// Immutable, for any thread.
class GrammarTokenizer {
 public:
  // Takes a second or two for 262,000 tokens. slices: regular expressions; tokens that match one are allowed
  // or not as a whole. Error for a vocabulary in which no reply can end.
  GrammarTokenizer(std::shared_ptr<const Llguidance> library, std::shared_ptr<const Vocabulary> vocabulary,
                   std::shared_ptr<const WordCutter> words, const std::vector<std::string>& slices);

  const Llguidance& library() const { return *library_; }
  const LlgTokenizer* get() const { return tokenizer_.get(); }
  int64_t num_tokens() const { return static_cast<int64_t>(vocabulary_->size()); }

  // Tokens that stand for exactly this text, where the vocabulary has such: some write a space where the text
  // has U+2581. text: valid UTF-8, which stands within other text.
  std::vector<int32_t> encode(std::string_view text) const;

 private:
  void note_single_bytes();
  bool stand_for(const std::vector<int32_t>& tokens, std::string_view text) const;

  std::shared_ptr<const Llguidance> library_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const WordCutter> words_;
  std::array<int32_t, 256> single_bytes_{};  // the token that is this byte; -1: none
  std::unique_ptr<LlgTokenizer, void (*)(LlgTokenizer*)> tokenizer_;
};

}  // namespace puna
