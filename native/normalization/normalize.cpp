#include "normalization/normalize.h"

#include <algorithm>

#include "base/utf8.h"

namespace puna {
namespace {

constexpr std::string_view kSpaceSign = "▁";

// Bytes, whole characters, with which the text and some user-defined token begin.
size_t spared(const Vocabulary& vocabulary, std::string_view text) {
  auto left = vocabulary.user_defined().begin(), right = vocabulary.user_defined().end();
  size_t length = 0;
  for (; length < text.size(); ++length) {
    const auto byte_of = [&](int32_t token) {
      const std::string_view other = vocabulary.text(static_cast<size_t>(token));
      return length < other.size() ? static_cast<uint8_t>(other[length]) : -1;
    };
    const int wanted = static_cast<uint8_t>(text[length]);
    left =
        std::lower_bound(left, right, wanted, [&](int32_t token, int byte) { return byte_of(token) < byte; });
    right =
        std::upper_bound(left, right, wanted, [&](int byte, int32_t token) { return byte < byte_of(token); });
    if (left == right) break;
  }
  while (length > 0 && length < text.size() && is_continuation(text[length])) --length;
  return length;
}

}  // namespace

void normalize(const Vocabulary& vocabulary, std::string_view text, bool with_prefix,
               std::string& normalized) {
  const bool merges_spaces = vocabulary.has(kMergeSpaces);
  bool is_prefixed = !with_prefix, in_word = false;
  const auto append = [&](std::string_view part) {
    for (const char c : part) {
      if (c == ' ') {
        in_word = false;
        if (!merges_spaces) normalized += kSpaceSign;
        continue;
      }
      if (!in_word && (!is_prefixed || merges_spaces)) {
        normalized += kSpaceSign;
        is_prefixed = true;
      }
      in_word = true;
      normalized += c;
    }
  };
  const CharMap& map = vocabulary.char_map();
  if (map.empty()) return append(text);
  while (!text.empty()) {
    size_t length = spared(vocabulary, text);
    std::string_view part = text.substr(0, length);
    if (length == 0) {
      const CharMap::Found found = map.find(text);
      length = found.length > 0 ? found.length : decode_utf8(text, 0).length;
      part = found.length > 0 ? found.replacement : text.substr(0, length);
    }
    append(part);
    text.remove_prefix(length);
  }
}

}  // namespace puna
