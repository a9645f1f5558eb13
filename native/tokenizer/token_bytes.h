// Which bytes of text a token stands for.
#pragma once

#include <string>

#include "vocabulary/vocabulary.h"

namespace puna {

// Replaces `bytes`. Padding and undefined tokens stand for nothing.
void token_bytes(const Vocabulary& vocabulary, size_t token, std::string& bytes);

}  // namespace puna
