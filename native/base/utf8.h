// Steps through text that is known to be valid UTF-8, and writes some.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace puna {

struct DecodedCharacter {
  char32_t code;
  uint32_t length;  // bytes
};

inline bool is_continuation(char byte) { return (byte & 0xc0) == 0x80; }

// The character that begins at `position`.
inline DecodedCharacter decode_utf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[position + i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

// Appends a character.
inline void append_utf8(char32_t code, std::string& text) {
  const auto put = [&](char32_t bits) { text += static_cast<char>(bits); };
  const auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    tail(6);
  } else {
    put(0xf0 | code >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
}

}  // namespace puna
