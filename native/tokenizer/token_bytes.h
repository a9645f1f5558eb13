// Which bytes of text tokens stand for.
#pragma once

#include <string>

#include "vocabulary/vocabulary.h"

namespace puna {

// Appends them. Padding and undefined tokens stand for nothing.
void append_token_bytes(const Vocabulary& vocabulary, size_t token, std::string& bytes);

// Of all tokens, in the form of text/token_table.h; control and unknown tokens are not shown.
std::string make_token_table(const Vocabulary& vocabulary);

}  // namespace puna
