// Bounds-checked reading of GGUF's primitives. Nothing of a file is believed: every length and count is
// compared with what is left before it is used.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace puna {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, as little endian");

// The numbers of the gguf_metadata_value_type enum of the GGUF specification.
enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct ArrayHeader {
  ValueType type;
  uint64_t count;
};

class Reader {
 public:
  // bytes: the rest of the file from `offset` on. where: what is being read, for error texts.
  Reader(std::span<const uint8_t> bytes, size_t offset, std::string where)
      : bytes_(bytes), offset_(offset), where_(std::move(where)) {}

  void enter(std::string where) { where_ = std::move(where); }
  const std::string& where() const { return where_; }
  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size(); }
  const uint8_t* position() const { return bytes_.data(); }

  template <typename T>
  T number(const char* what) {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, take(1, sizeof(T), what), sizeof(T));
    return value;
  }

  // `count` items of `size` bytes.
  const uint8_t* take(uint64_t count, size_t size, const char* what) {
    if (count > remaining() / size) fail_short(count, size, what);
    const uint8_t* data = bytes_.data();
    bytes_ = bytes_.subspan(count * size);
    offset_ += count * size;
    return data;
  }

  std::string_view string(const char* what) {
    const uint64_t length = number<uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, 1, what)), length};
  }

  bool boolean();                            // a byte that is 0 or 1
  ValueType value_type();                    // one of the enum's
  ArrayHeader array_header();                // count fits into what is left of the file
  void skip(ValueType type, int depth = 0);  // a whole value, checking all of it; depth: arrays around it

  // Throws Error "<where>: <problem> (at byte N)".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  [[noreturn]] void fail_short(uint64_t count, size_t size, const char* what) const;

  std::span<const uint8_t> bytes_;
  size_t offset_;
  std::string where_;
};

// Bytes of a value of fixed size; 0 for strings and arrays.
size_t fixed_size(ValueType type);

// For error texts: printable ASCII in quotes, other bytes escaped, long text cut.
std::string quoted(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace puna
