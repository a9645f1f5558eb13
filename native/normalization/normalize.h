// Text as a unigram model was trained on it.
#pragma once

#include <string>
#include <string_view>

#include "vocabulary/vocabulary.h"

namespace puna {

// Appends it, with spaces as U+2581. with_prefix: as if a space were in front of it. Where user-defined
// tokens may begin, the map of characters does not apply: llama.cpp spares the longest beginning of one.
void normalize(const Vocabulary& vocabulary, std::string_view text, bool with_prefix,
               std::string& normalized);

}  // namespace puna
