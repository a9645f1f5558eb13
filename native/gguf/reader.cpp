#include "gguf/reader.h"

#include <algorithm>

#include "base/error.h"

namespace puna {
namespace {

constexpr uint64_t kBufferBytes = 64 << 10;

size_t smallest_size(ValueType type) {
  if (type == ValueType::kString) return sizeof(uint64_t);
  if (type == ValueType::kArray) return sizeof(uint32_t) + sizeof(uint64_t);
  return fixed_size(type);
}

// Length of the UTF-8 sequence at the start of `text`, 0 if there is none (overlong forms and surrogates
// included).
size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  const uint8_t lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return length;
}

}  // namespace

size_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

const char* type_name(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
      return "uint8";
    case ValueType::kInt8:
      return "int8";
    case ValueType::kUint16:
      return "uint16";
    case ValueType::kInt16:
      return "int16";
    case ValueType::kUint32:
      return "uint32";
    case ValueType::kInt32:
      return "int32";
    case ValueType::kFloat32:
      return "float32";
    case ValueType::kBool:
      return "bool";
    case ValueType::kString:
      return "string";
    case ValueType::kArray:
      return "array";
    case ValueType::kUint64:
      return "uint64";
    case ValueType::kInt64:
      return "int64";
    case ValueType::kFloat64:
      return "float64";
  }
  return "";
}

void Reader::copy(std::span<uint8_t> out) {
  while (!out.empty()) {
    if (offset_ < buffer_begin_ || offset_ >= buffer_begin_ + buffer_.size()) {
      buffer_.resize(static_cast<size_t>(std::min(kBufferBytes, remaining())));
      buffer_begin_ = UINT64_MAX;  // until it has been read
      file_->read(offset_, buffer_);
      buffer_begin_ = offset_;
    }
    const auto begin = static_cast<size_t>(offset_ - buffer_begin_);
    const size_t count = std::min(out.size(), buffer_.size() - begin);
    std::memcpy(out.data(), buffer_.data() + begin, count);
    offset_ += count;
    out = out.subspan(count);
  }
}

bool Reader::boolean() {
  const uint8_t value = number<uint8_t>("a bool");
  if (value > 1) fail("a bool is " + std::to_string(value) + ", neither 0 nor 1");
  return value == 1;
}

ValueType Reader::value_type() {
  const uint32_t value = number<uint32_t>("a value type");
  if (value > static_cast<uint32_t>(ValueType::kFloat64)) fail("unknown value type " + std::to_string(value));
  return static_cast<ValueType>(value);
}

ArrayHeader Reader::array_header() {
  const ValueType type = value_type();
  const uint64_t count = number<uint64_t>("an array's length");
  require(count, smallest_size(type), "an array");
  const uint64_t most = type == ValueType::kString ? kMaxArrayStrings : kMaxArrayItems;
  if (count > most)
    fail("an array of " + std::to_string(count) + " items, more than " + std::to_string(most));
  return {type, count};
}

uint64_t Reader::string_length(const char* what, uint64_t max_bytes) {
  const auto length = number<uint64_t>(what);
  require(length, 1, what);
  if (length > max_bytes)
    fail(std::string(what) + " of " + std::to_string(length) + " bytes, more than " +
         std::to_string(max_bytes));
  return length;
}

std::string Reader::string(const char* what, uint64_t max_bytes) {
  std::string text;
  append_string(text, what, max_bytes);
  return text;
}

void Reader::append_string(std::string& text, const char* what, uint64_t max_bytes) {
  const size_t begin = text.size();
  text.resize(begin + static_cast<size_t>(string_length(what, max_bytes)));
  copy(std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()).subspan(begin));
}

std::string Reader::name(uint64_t max_bytes) {
  std::string text = string("its name", max_bytes);
  if (!is_utf8(text)) fail("its name " + quoted(text) + " is not UTF-8");
  return text;
}

ArrayHeader Reader::skip(ValueType type) {
  if (type == ValueType::kString) {
    skip(string_length("a string", kMaxStringBytes), 1, "a string");
  } else if (type == ValueType::kBool) {
    boolean();
  } else if (type != ValueType::kArray) {
    skip(1, fixed_size(type), "a number");
  } else {
    uint64_t num_nested = 0;
    return skip_array(1, num_nested);
  }
  return {};
}

ArrayHeader Reader::skip_array(int depth, uint64_t& num_nested) {
  if (depth > kMaxArrayDepth) fail("arrays nested more than " + std::to_string(kMaxArrayDepth) + " deep");
  const uint64_t begin = offset_;
  const ArrayHeader array = array_header();
  if (array.type == ValueType::kArray || depth > 1) num_nested += array.count;
  if (num_nested > kMaxNestedItems)
    fail("arrays in an array hold more than " + std::to_string(kMaxNestedItems) + " items");
  const size_t size = array.type == ValueType::kBool ? 0 : fixed_size(array.type);
  if (size != 0) {
    skip(array.count, size, "an array");
  } else {
    for (uint64_t i = 0; i < array.count; ++i) {
      if (array.type == ValueType::kArray) {
        skip_array(depth + 1, num_nested);
      } else {
        skip(array.type);
      }
    }
  }
  if (offset_ - begin > kMaxArrayBytes)
    fail("an array of " + std::to_string(offset_ - begin) + " bytes, more than " +
         std::to_string(kMaxArrayBytes));
  return array;
}

void Reader::fail(const std::string& problem) const {
  throw Error(where_ + ": " + problem + " (at byte " + std::to_string(offset_) + ")");
}

void Reader::fail_short(uint64_t count, size_t size, const char* what) const {
  const std::string bytes = std::to_string(size == 1 ? count : size) + " bytes";
  const std::string extent = size == 1 || count == 1 ? bytes : std::to_string(count) + " items of " + bytes;
  fail(std::string(what) + " of " + extent + " does not fit into the " + std::to_string(remaining()) +
       " bytes left of the file");
}

std::string quoted(std::string_view text) {
  constexpr size_t kShown = 100;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<uint8_t>(c);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kShown ? "...'" : "'");
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace puna
