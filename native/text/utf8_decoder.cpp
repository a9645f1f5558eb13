#include "text/utf8_decoder.h"

namespace puna {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

// A character's first byte. Some leave only a part of the range to the second one: no overlong forms, no
// surrogates, nothing beyond U+10FFFF.
void Utf8Decoder::begin(uint8_t byte, std::string& text) {
  if (byte < 0x80) {
    text.push_back(static_cast<char>(byte));
  } else if (byte < 0xC2 || byte > 0xF4) {
    text += kReplacement;
  } else {
    num_missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    lowest_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    highest_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    held_[0] = static_cast<char>(byte);
    num_held_ = 1;
  }
}

void Utf8Decoder::decode(std::string_view bytes, std::string& text) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (num_missing_ > 0 && !continues(byte)) {
      text += kReplacement;
      num_missing_ = num_held_ = 0;
    }
    if (num_missing_ == 0) {
      begin(byte, text);
      continue;
    }
    held_[num_held_++] = c;
    lowest_ = 0x80, highest_ = 0xBF;
    if (--num_missing_ > 0) continue;
    text.append(held_.data(), num_held_);
    num_held_ = 0;
  }
}

}  // namespace puna
