#include "tokenizer/character_pairs.h"

#include "base/utf8.h"
#include "normalization/letters.h"
#include "tokenizer/cut_at_spaces.h"
#include "words/character_set.h"

namespace puna {
namespace {

bool is_white_space(char32_t code) {
  static const CharacterSet spaces(property_ranges('s'));
  return spaces.contains(code);
}

}  // namespace

void CharacterPairs::encode(std::string_view text, std::vector<int32_t>& tokens) {
  write(text);
  const std::string_view all = written_;
  uint32_t begin = 0;
  for (const uint32_t end : words_.ends(all)) {
    encode_word(all.substr(begin, end - begin), tokens);
    begin = end;
  }
}

void CharacterPairs::write(std::string_view text) {
  written_.clear();
  const bool signs = vocabulary_.has(kWriteSpaces), lower = vocabulary_.has(kLowercase);
  for (size_t at = 0; at < text.size();) {
    const auto [code, length] = decode_utf8(text, at);
    if (signs && code == ' ')
      written_ += kSpaceSign;
    else
      append_utf8(lower ? lowercase(code) : code, written_);
    at += length;
  }
}

void CharacterPairs::encode_word(std::string_view word, std::vector<int32_t>& tokens) {
  const bool newlines = word.find_first_not_of('\n') == std::string_view::npos;
  if (const int32_t token = newlines && vocabulary_.has(kWholeNewlines) ? vocabulary_.find(word) : -1;
      token >= 0) {
    tokens.push_back(token);
    return;
  }
  if (vocabulary_.has(kDropSpaces) && is_white_space(decode_utf8(word, 0).code)) return;
  if (!vocabulary_.has(kBeginWithSpace) || newlines) {
    cut_at_spaces(vocabulary_, word, [&](std::string_view part) { pairs_.encode(part, tokens); });
    return;
  }
  begun_ = word.starts_with(kSpaceSign) ? "" : kSpaceSign;
  begun_ += word;
  for (std::string_view rest = begun_; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(kSpaceSign, kSpaceSign.size()));
    pairs_.encode(part, tokens);
    rest.remove_prefix(part.size());
  }
}

}  // namespace puna
