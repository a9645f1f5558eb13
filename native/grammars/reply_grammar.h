// What a grammar allows next, in each of the replies that are held to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "grammars/grammar_error.h"
#include "grammars/grammar_tokenizer.h"
#include "sampler/token_mask.h"

namespace puna {

using MatcherHandle = std::unique_ptr<LlgMatcher, void (*)(LlgMatcher*)>;

// Immutable, for any number of replies and any thread.
class CompiledGrammar {
 public:
  // text: in llguidance's dialect of Lark, or its list of grammars. GrammarError.
  CompiledGrammar(std::shared_ptr<const GrammarTokenizer> tokenizer, const std::string& text,
                  const LlgParserLimits& limits);

  const GrammarTokenizer& tokenizer() const { return *tokenizer_; }
  // At the beginning of a reply, with an automaton of its own.
  MatcherHandle new_matcher() const;

 private:
  std::shared_ptr<const GrammarTokenizer> tokenizer_;
  MatcherHandle matcher_;
};

// Where one reply stands in its grammar. For one thread at a time.
class ReplyGrammar {
 public:
  // It may take so many seconds of processor time in all, and more for each of its tokens.
  ReplyGrammar(std::shared_ptr<const CompiledGrammar> compiled, double reply_s, double token_s);

  // The reply goes on with these, which its masks allowed. GrammarError.
  void accept(std::span<const int32_t> tokens);
  // The next tokens, as far as there is no choice; a token may be left out.
  std::vector<int32_t> forced();
  // How many of the drafts, from the first on, the grammar may allow; never fewer than the masks do.
  size_t num_admitted(std::span<const int32_t> drafts);
  // For the next token, and for the one behind each draft; used again in the next step. Whatever goes wrong
  // is told by the masks, and ends this reply alone. Behind a draft that is not allowed there is nothing to
  // be known, which is no fault of the reply.
  std::span<const std::shared_ptr<TokenMask>> masks(std::span<const int32_t> drafts);

 private:
  const Llguidance& library() const { return compiled_->tokenizer().library(); }
  size_t fill_all(std::span<const int32_t> drafts);
  bool fill(TokenMask& mask);
  bool take(int32_t draft);
  void take_back(size_t num_tokens);
  std::string error() const;

  std::shared_ptr<const CompiledGrammar> compiled_;
  MatcherHandle matcher_;
  std::vector<uint32_t> tokens_;  // that it has accepted
  std::vector<std::shared_ptr<TokenMask>> masks_;
  double reply_s_, token_s_, spent_s_ = 0;
};

}  // namespace puna
