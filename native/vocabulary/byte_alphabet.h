// GPT-2's printable alphabet: every byte has a character, so that any bytes can be written as text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace puna {

// The characters' UTF-8, by byte.
const std::array<std::string, 256>& byte_alphabet();

// Appends what `text` stands for; what is no character of the alphabet stands for itself.
void append_decoded(std::string_view text, std::string& bytes);

// Of a byte token's text, "<0x0A>"; -1: it is none.
int byte_value(std::string_view text);

}  // namespace puna
