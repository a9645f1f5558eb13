// From a reply's tokens to its text, token by token: what comes out, and where it ends, does not depend on
// how many tokens a step brings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/string_matcher.h"
#include "text/token_table.h"
#include "text/utf8_decoder.h"

namespace puna {

// The part of a reply that a step adds.
struct TextPiece {
  std::string text;             // complete characters that cannot be part of a stop string any more
  std::vector<int32_t> tokens;  // whose text begins in `text`
  size_t num_taken = 0;         // of the tokens that were given: up to the one that ends the reply
  bool ends = false;            // at a stop string, or because it only repeats itself
};

class TextStream {
 public:
  // table: null: tokens have no text, and come out as they come. Error for strings that are too long.
  // stop_tokens: end the reply before them; whoever adds tokens looks for them. shown_tokens: control tokens
  // that have text all the same.
  TextStream(std::shared_ptr<const TokenTable> table, std::vector<std::string> stop_strings,
             std::vector<int64_t> stop_tokens, std::vector<int64_t> shown_tokens = {});

  // is_last: nothing comes after these tokens. Then what was held back comes out, and an incomplete character
  // is dropped. Nothing may be added behind the end.
  TextPiece add(std::span<const int32_t> tokens, bool is_last);

  bool is_stop_token(int32_t token) const {
    return std::ranges::find(stop_tokens_, token) != stop_tokens_.end();
  }
  // The one that ended the reply; empty: none did.
  const std::string& stop_string() const { return stop_string_; }

 private:
  struct HeldToken {
    int32_t token;
    uint64_t start;  // of its text, in bytes of the reply
  };

  std::string_view text_of(int32_t token) const;
  bool take(int32_t token);
  bool find_stop();
  bool repeats(std::string_view bytes);
  void release(size_t num_bytes, TextPiece& piece);
  void release_tokens(size_t count, TextPiece& piece);

  std::shared_ptr<const TokenTable> table_;
  std::vector<int64_t> stop_tokens_;
  std::vector<int64_t> shown_tokens_;
  std::optional<StringMatcher> stops_;
  StringMatcher::State stop_state_ = 0;
  Utf8Decoder decoder_;
  std::string text_;         // what has not come out yet
  size_t num_searched_ = 0;  // bytes of it that were looked at for stop strings
  uint64_t num_released_ = 0;
  std::vector<HeldToken> tokens_;
  std::string stop_string_;     // that was found
  std::string_view last_word_;  // in the table
  int num_repeats_ = 0;
};

}  // namespace puna
