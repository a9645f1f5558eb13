#include "tokenizer/token_bytes.h"

#include <algorithm>

#include "vocabulary/byte_alphabet.h"

namespace puna {
namespace {

constexpr std::string_view kSpace = "▁";

void append_spaced(std::string_view text, std::string& bytes) {
  for (size_t space; (space = text.find(kSpace)) != std::string_view::npos;
       text.remove_prefix(space + kSpace.size()))
    bytes.append(text.substr(0, space)) += ' ';
  bytes.append(text);
}

}  // namespace

void token_bytes(const Vocabulary& vocabulary, size_t token, std::string& bytes) {
  bytes.clear();
  const std::string_view text = vocabulary.text(token);
  switch (vocabulary.kind(token)) {
    case TokenKind::kNormal:
      if (vocabulary.algorithm() == Algorithm::kBytePairs)
        append_decoded(text, bytes);
      else
        append_spaced(text, bytes);
      break;
    case TokenKind::kByte:
      bytes = static_cast<char>(std::max(0, byte_value(text)));
      break;
    case TokenKind::kUnused:
    case TokenKind::kUndefined:
      break;
    case TokenKind::kUnknown:
    case TokenKind::kControl:
    case TokenKind::kUserDefined:
      bytes = text;
      break;
  }
}

}  // namespace puna
