#include "text/token_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace puna {
namespace {

constexpr std::string_view kMagic = "PUNATOK1";
constexpr size_t kHeaderBytes = 16;
constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();

uint32_t read_u32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void append_u32(std::string& blob, uint32_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  blob.append(bytes, sizeof bytes);
}

std::shared_ptr<const uint8_t> copy_of(std::string_view blob) {
  std::shared_ptr<uint8_t[]> copy(new uint8_t[blob.size() + 1]);
  std::memcpy(copy.get(), blob.data(), blob.size());
  return {copy, copy.get()};
}

Error system_error(const char* what) { return Error(std::string(what) + ": " + std::strerror(errno)); }

}  // namespace

TokenTable::TokenTable(std::string_view blob) : TokenTable(copy_of(blob), blob.size()) {}

TokenTable::TokenTable(std::shared_ptr<const uint8_t> data, size_t size) : data_(std::move(data)) {
  const uint8_t* begin = data_.get();
  if (size < kHeaderBytes || std::memcmp(begin, kMagic.data(), kMagic.size()) != 0)
    throw Error("not a token table");
  const uint64_t num_tokens = read_u32(begin + 8), num_bytes = read_u32(begin + 12);
  if (size != kHeaderBytes + num_tokens * 5 + num_bytes)
    throw Error("a token table of " + std::to_string(num_tokens) + " tokens and " +
                std::to_string(num_bytes) + " bytes of text has " + std::to_string(size) + " bytes");
  num_tokens_ = static_cast<int64_t>(num_tokens);
  ends_ = begin + kHeaderBytes;
  hidden_ = ends_ + num_tokens * 4;
  text_ = reinterpret_cast<const char*>(hidden_ + num_tokens);
  uint32_t before = 0;
  for (int64_t token = 0; token < num_tokens_; ++token) {
    if (end(token) < before || end(token) > num_bytes)
      throw Error("token table: the bytes of token " + std::to_string(token) + " are out of range");
    before = end(token);
  }
}

TokenTable TokenTable::from_descriptor(int fd) {
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) throw Error("the token table is no sealed memory file");
  struct stat status;
  if (fstat(fd, &status) != 0) throw system_error("cannot examine the token table");
  const auto size = static_cast<size_t>(status.st_size);
  if (size < kHeaderBytes) throw Error("not a token table");
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) throw system_error("cannot map the token table");
  const auto unmap = [size](const uint8_t* p) { munmap(const_cast<uint8_t*>(p), size); };
  return TokenTable(std::shared_ptr<const uint8_t>(static_cast<const uint8_t*>(data), unmap), size);
}

std::string TokenTable::build(std::span<const std::string_view> pieces, std::string_view hidden) {
  if (hidden.size() != pieces.size())
    throw Error(std::to_string(pieces.size()) + " tokens, but " + std::to_string(hidden.size()) +
                " flags that say which are hidden");
  uint64_t num_bytes = 0;
  for (const std::string_view piece : pieces) num_bytes += piece.size();
  if (num_bytes > kMost || pieces.size() > kMost) throw Error("the vocabulary is too large");
  std::string blob(kMagic);
  blob.reserve(kHeaderBytes + pieces.size() * 5 + num_bytes);
  append_u32(blob, static_cast<uint32_t>(pieces.size()));
  append_u32(blob, static_cast<uint32_t>(num_bytes));
  uint64_t end = 0;
  for (const std::string_view piece : pieces) append_u32(blob, static_cast<uint32_t>(end += piece.size()));
  blob += hidden;
  for (const std::string_view piece : pieces) blob += piece;
  return blob;
}

uint32_t TokenTable::end(int64_t token) const { return token < 0 ? 0 : read_u32(ends_ + token * 4); }

std::string_view TokenTable::bytes(int64_t token) const {
  if (!has(token)) return {};
  return {text_ + end(token - 1), end(token) - end(token - 1)};
}

std::string_view TokenTable::visible_bytes(int64_t token) const {
  return has(token) && hidden_[token] == 0 ? bytes(token) : std::string_view();
}

}  // namespace puna
