#include "tokenizer/word_piece.h"

#include <algorithm>

#include "base/utf8.h"
#include "normalization/letters.h"
#include "words/character_set.h"

namespace puna {
namespace {

constexpr std::string_view kWordBegin = "▁";

// Ranges of ideographs, each a word of its own. That of extension E begins where BERT's own tokenizers have
// it, not where it should.
CodeRanges ideographs() {
  return {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
          {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
}

// What characters are to BERT.
struct Characters {
  CharacterSet spaces{property_ranges('s')};
  CharacterSet dropped{joined(property_ranges('C'), {{0, 0}, {0xfffd, 0xfffd}})};
  CharacterSet accents{property_ranges('M')};
  CharacterSet alone{
      joined(joined(property_ranges('P'), common(property_ranges('S'), {{0, 0x7e}})), ideographs())};
};

const Characters& characters() {
  static const Characters instance;
  return instance;
}

}  // namespace

WordPiece::WordPiece(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), powers_(vocabulary.hash().powers(vocabulary.longest())) {}

void WordPiece::encode(std::string_view text, std::vector<int32_t>& tokens) {
  const Characters& known = characters();
  const bool lower = vocabulary_.has(kLowercase), plain = vocabulary_.has(kStripAccents);
  word_ = kWordBegin;
  for (size_t at = 0; at < text.size();) {
    auto [code, length] = decode_utf8(text, at);
    at += length;
    if (plain) code = base_character(code);
    if (known.spaces.contains(code)) {
      end_word(tokens);
      continue;
    }
    if (known.dropped.contains(code) || (plain && known.accents.contains(code))) continue;
    const bool alone = known.alone.contains(code);
    if (alone) end_word(tokens);
    append_utf8(lower ? lowercase(code) : code, word_);
    if (alone) end_word(tokens);
  }
  end_word(tokens);
}

void WordPiece::end_word(std::vector<int32_t>& tokens) {
  if (word_.size() == kWordBegin.size()) return;
  const size_t num_before = tokens.size();
  if (!append_tokens(tokens)) {
    tokens.resize(num_before);
    if (const int32_t unknown = vocabulary_.conventions().unknown; unknown >= 0) tokens.push_back(unknown);
  }
  word_ = kWordBegin;
}

// Whether tokens make up the word.
bool WordPiece::append_tokens(std::vector<int32_t>& tokens) {
  const std::string_view word = word_;
  const KeyedHash& hash = vocabulary_.hash();
  hashes_.assign(1, 0);
  for (size_t at = 0; at < word.size(); ++at) hashes_.push_back(hash.extend(hashes_[at], word.substr(at, 1)));
  for (size_t begin = 0; begin < word.size();) {
    size_t length = vocabulary_.reach(word.substr(begin));
    int32_t token = -1;
    for (; length > 0; --length) {
      const size_t end = begin + length;
      if (end < word.size() && is_continuation(word[end])) continue;
      token = vocabulary_.find(word.substr(begin, length),
                               hash.part(hashes_[begin], hashes_[end], powers_[length]));
      if (token >= 0) break;
    }
    if (token < 0) return false;
    tokens.push_back(token);
    begin += length;
  }
  return true;
}

}  // namespace puna
