// Bytes to UTF-8 as they come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace puna {

// Holds an incomplete character back. What is no UTF-8 becomes U+FFFD, one for each longest beginning of a
// character (the practice of Unicode and of Python's "replace").
class Utf8Decoder {
 public:
  // Appends what is certain now.
  void decode(std::string_view bytes, std::string& text);

 private:
  bool continues(uint8_t byte) const { return byte >= lowest_ && byte <= highest_; }
  void begin(uint8_t byte, std::string& text);

  std::array<char, 4> held_ = {};
  size_t num_held_ = 0;
  size_t num_missing_ = 0;                  // bytes until the character is complete
  uint8_t lowest_ = 0x80, highest_ = 0xBF;  // what the next of them may be
};

}  // namespace puna
