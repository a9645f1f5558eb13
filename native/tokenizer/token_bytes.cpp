#include "tokenizer/token_bytes.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "text/token_table.h"
#include "tokenizer/cut_at_spaces.h"
#include "vocabulary/byte_alphabet.h"

namespace puna {
namespace {

void append_spaced(std::string_view text, std::string& bytes) {
  for (size_t space; (space = text.find(kSpaceSign)) != std::string_view::npos;
       text.remove_prefix(space + kSpaceSign.size()))
    bytes.append(text.substr(0, space)) += ' ';
  bytes.append(text);
}

}  // namespace

void append_token_bytes(const Vocabulary& vocabulary, size_t token, std::string& bytes) {
  const std::string_view text = vocabulary.text(token);
  switch (vocabulary.kind(token)) {
    case TokenKind::kNormal:
      if (vocabulary.algorithm() == Algorithm::kBytePairs)
        append_decoded(text, bytes);
      else
        append_spaced(text, bytes);
      break;
    case TokenKind::kByte:
      bytes += static_cast<char>(std::max(0, byte_value(text)));
      break;
    case TokenKind::kUnused:
    case TokenKind::kUndefined:
      break;
    case TokenKind::kUnknown:
    case TokenKind::kControl:
    case TokenKind::kUserDefined:
      bytes.append(text);
      break;
  }
}

std::string make_token_table(const Vocabulary& vocabulary) {
  std::string bytes, hidden;
  std::vector<size_t> ends;
  for (size_t token = 0; token < vocabulary.size(); ++token) {
    append_token_bytes(vocabulary, token, bytes);
    ends.push_back(bytes.size());
    const TokenKind kind = vocabulary.kind(token);
    hidden += kind == TokenKind::kControl || kind == TokenKind::kUnknown ? '\1' : '\0';
  }
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  for (const size_t end : ends) {
    pieces.push_back(std::string_view(bytes).substr(begin, end - begin));
    begin = end;
  }
  return TokenTable::build(pieces, hidden);
}

}  // namespace puna
