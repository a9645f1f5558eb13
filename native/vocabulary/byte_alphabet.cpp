#include "vocabulary/byte_alphabet.h"

#include <charconv>

namespace puna {
namespace {

constexpr uint32_t kFirstSubstitute = 0x100;  // of the bytes that are not printable, in their order

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x200> bytes;  // by code point; -1: of none

  Alphabet() {
    bytes.fill(-1);
    uint32_t substitute = kFirstSubstitute;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code = is_printable(byte) ? byte : substitute++;
      bytes[code] = static_cast<int>(byte);
      if (code >= 0x80) characters[byte] += static_cast<char>(0xc0 | code >> 6);
      characters[byte] += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3f));
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() { return alphabet().characters; }

void append_decoded(std::string_view text, std::string& bytes) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    uint32_t code = lead;
    size_t length = 1;
    if (lead >= 0xc2 && lead < 0xc8 && i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80) {
      code = (lead & 0x1fu) << 6 | (text[i + 1] & 0x3f);
      length = 2;
    }
    const int byte = lead < 0x80 || length == 2 ? alphabet().bytes[code] : -1;
    if (byte >= 0)
      bytes += static_cast<char>(byte);
    else
      bytes.append(text.substr(i, length));
    i += length - 1;
  }
}

int byte_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = -1;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  return error == std::errc() && end == text.data() + 5 && text[3] != '-' ? value : -1;
}

}  // namespace puna
