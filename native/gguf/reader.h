// Bounds-checked reading of GGUF's primitives through a small buffer, so that neither a file's size nor its
// being cut short meanwhile can hurt. Nothing of a file is believed: every length and count is compared with
// what is left, and with what is sensible, before it is used.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gguf/limits.h"
#include "gguf/regular_file.h"

namespace puna {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies, as little endian");

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
  ValueType type = {};
  uint64_t count = 0;
};

class Reader {
 public:
  // Reads [offset, end) of the file, which must outlive it. where: what is being read, for error texts.
  Reader(const RegularFile& file, uint64_t offset, uint64_t end, std::string where)
      : file_(&file), offset_(offset), end_(end), where_(std::move(where)) {}

  void enter(std::string where) { where_ = std::move(where); }
  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return end_ - offset_; }

  template <typename T>
  T number(const char* what) {
    static_assert(std::is_arithmetic_v<T>);
    require(1, sizeof(T), what);
    T value;
    copy({reinterpret_cast<uint8_t*>(&value), sizeof(T)});
    return value;
  }

  // `out.size()` numbers.
  template <typename T>
  void numbers(std::span<T> out, const char* what) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    require(out.size(), sizeof(T), what);
    copy({reinterpret_cast<uint8_t*>(out.data()), out.size_bytes()});
  }

  bool boolean();              // a byte that is 0 or 1
  ValueType value_type();      // one of the enum's
  ArrayHeader array_header();  // count fits into what is left of the file
  std::string string(const char* what, uint64_t max_bytes = kMaxStringBytes);
  void append_string(std::string& text, const char* what, uint64_t max_bytes = kMaxStringBytes);
  std::string name(uint64_t max_bytes);  // UTF-8: that of a metadata key or of a tensor

  // Moves over `count` items of `size` bytes.
  void skip(uint64_t count, size_t size, const char* what) {
    require(count, size, what);
    offset_ += count * size;
  }
  // Moves over a whole value, checking all of it. Returns an array's header.
  ArrayHeader skip(ValueType type);

  // Throws Error "<where>: <problem> (at byte N)".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void require(uint64_t count, size_t size, const char* what) const {
    if (count > remaining() / size) fail_short(count, size, what);
  }
  [[noreturn]] void fail_short(uint64_t count, size_t size, const char* what) const;
  uint64_t string_length(const char* what, uint64_t max_bytes);
  ArrayHeader skip_array(int depth, uint64_t& num_nested);
  // The next bytes, which are there.
  void copy(std::span<uint8_t> out);

  const RegularFile* file_;
  uint64_t offset_;
  uint64_t end_;
  std::string where_;
  std::vector<uint8_t> buffer_;  // what the file has from buffer_begin_ on
  uint64_t buffer_begin_ = 0;
};

// Bytes of a value of fixed size; 0 for strings and arrays.
size_t fixed_size(ValueType type);

// "uint32", as the specification calls it.
const char* type_name(ValueType type);

// For error texts: printable ASCII in quotes, other bytes escaped, long text cut.
std::string quoted(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace puna
