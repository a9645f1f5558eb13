// Text to tokens: special tokens first, then words, then merges.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "vocabulary/vocabulary.h"
#include "words/word_cutter.h"

namespace puna {

// text: valid UTF-8. parse_special: whether control tokens are found in it. words: how byte-pair vocabularies
// cut text; null for others. Neither BOS nor EOS is added. is_within: it is part of a longer text, so that
// SentencePiece puts no space in front of anything.
std::vector<int32_t> encode(const Vocabulary& vocabulary, const WordCutter* words, std::string_view text,
                            bool parse_special, bool is_within);

}  // namespace puna
