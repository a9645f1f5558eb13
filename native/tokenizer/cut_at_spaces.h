// Words that are tokenized alone, of text in which spaces are written as U+2581.
#pragma once

#include <string_view>

#include "base/utf8.h"
#include "vocabulary/vocabulary.h"

namespace puna {

constexpr std::string_view kSpaceSign = "▁";

// Cuts in front of a space where no token could ever reach across.
template <typename Use>
void cut_at_spaces(const Vocabulary& vocabulary, std::string_view text, Use use) {
  size_t word = 0;
  for (size_t at = text.find(kSpaceSign, 1); at != std::string_view::npos;
       at = text.find(kSpaceSign, at + kSpaceSign.size())) {
    size_t before = at - 1;
    while (is_continuation(text[before])) --before;
    if (vocabulary.joins_space(decode_utf8(text, before).code) ||
        text.substr(before, at - before) == kSpaceSign)
      continue;
    use(text.substr(word, at - word));
    word = at;
  }
  use(text.substr(word));
}

}  // namespace puna
