// Which bytes each token of a vocabulary stands for, and which tokens are not shown: all that turning tokens
// into text needs of a vocabulary, flat, so that one process can write it and others map it.
//
// Little-endian:
//   8 bytes   "PUNATOK1"
//   u32       num_tokens
//   u32       num_bytes
//   u32[num_tokens]  where each token's bytes end; they begin where those before it end
//   u8[num_tokens]   1: a control token, which is not shown
//   u8[num_bytes]    the bytes of all tokens
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace puna {

class TokenTable {
 public:
  // A copy of the blob. Throws Error if it is not what the format says.
  explicit TokenTable(std::string_view blob);
  // Maps a memory file that is sealed against writing and shrinking, or else what was checked might change.
  // The descriptor stays the caller's.
  static TokenTable from_descriptor(int fd);

  // hidden: one byte per token. Throws Error if there are too many tokens or bytes.
  static std::string build(std::span<const std::string_view> pieces, std::string_view hidden);

  int64_t size() const { return num_tokens_; }
  // Also of those that are not shown; a token beyond the table has none.
  std::string_view bytes(int64_t token) const;
  std::string_view visible_bytes(int64_t token) const;

 private:
  TokenTable(std::shared_ptr<const uint8_t> data, size_t size);

  bool has(int64_t token) const { return token >= 0 && token < num_tokens_; }
  uint32_t end(int64_t token) const;

  std::shared_ptr<const uint8_t> data_;
  int64_t num_tokens_ = 0;
  const uint8_t* ends_ = nullptr;
  const uint8_t* hidden_ = nullptr;
  const char* text_ = nullptr;
};

}  // namespace puna
